package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// refusesLoopback runs a manager with default flags, which refuse all addresses of this machine.
func (f *faulty) refusesLoopback(t *testing.T) {
	t.Helper()
	t.Run("loopback_without_the_flag", func(t *testing.T) {
		o := f.options
		o.Dir = t.TempDir()
		o.Args = append([]string{"--allow-kubeconfig="}, o.Args...)
		m, err := f.StartManager(t.Context(), o)
		must(t, err)
		defer func() { must(t, m.Stop()) }()
		kubeconfig, err := f.Spoke(healthyName).UserKubeconfig(fleet.SpokeUser)
		must(t, err)
		begun := time.Now()
		f.put(t, "nearby", kubeconfig)
		f.expectRefused(t, "nearby", "cluster.server", begun)
		must(t, f.Hub.Client.Delete(t.Context(), registration("nearby")))
		must(t, f.Hub.Client.Delete(t.Context(), membership("nearby")))
	})
}

// expectRefused waits until a SpokeCluster names the refused field of its kubeconfig.
func (f *faulty) expectRefused(t *testing.T, name, field string, begun time.Time) {
	t.Helper()
	within(t, max(time.Until(begun.Add(shownWithin)), 2*time.Second), name+" is refused for "+field, func(ctx context.Context) error {
		sc := membership(name)
		if err := read(ctx, f.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
			return err
		}
		c := meta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonInvalidKubeconfig || !strings.Contains(c.Message, field) {
			return fmt.Errorf("the conditions are %s", conditions(sc))
		}
		return nil
	})
}

// explainsRefusal checks what the plugin says about a rule and a spoke whose kubeconfig is refused.
func (f *faulty) explainsRefusal(t *testing.T, rule client.ObjectKey, spoke string) {
	t.Helper()
	_, broken, err := askWhy(t, f.Hub, rule, spoke)
	must(t, err)
	if broken == nil || broken.Name != "connection" || !strings.Contains(broken.Evidence, v1alpha1.ReasonInvalidKubeconfig) ||
		!strings.Contains(broken.Fix, repairs[v1alpha1.ReasonInvalidKubeconfig]) || !strings.Contains(broken.Fix, "kubectl rulefleet join "+spoke+" ") {
		t.Errorf("of spoke %s, why says %+v", spoke, broken)
	}
}

// hostile is a kubeconfig that must be refused, and the expected message.
type hostile struct {
	name, field string
	kubeconfig  []byte
}

// hostiles returns kubeconfigs that must be refused. marker is a file that a program would create, and pipe a
// named pipe that would block a reader.
func (f *faulty) hostiles(t *testing.T, good []byte, marker, pipe string) []hostile {
	t.Helper()
	const canary = "canary-hostile"
	f.canaries.add(canary)
	var out []hostile
	for _, c := range []struct {
		name, field string
		spoil       func(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo)
	}{
		{"exec", "user.exec", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{
				Command: "/bin/touch", Args: []string{marker}, Env: []clientcmdapi.ExecEnvVar{{Name: "SECRET", Value: canary}},
				APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			}
		}},
		{"auth-provider", "user.auth-provider", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc", Config: map[string]string{"refresh-token": canary}}
		}},
		{"ca-file", "cluster.certificate-authority", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthority, c.CertificateAuthorityData = pipe, nil
		}},
		{"cert-file", "user.client-certificate", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientCertificate, u.ClientCertificateData = pipe, nil
		}},
		{"key-file", "user.client-key", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ClientKey, u.ClientKeyData = pipe, nil }},
		{"token-file", "user.tokenFile", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.TokenFile, u.Token = pipe, "" }},
		{"http", "cluster.server", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "http://" + strings.TrimPrefix(c.Server, "https://")
		}},
		{"insecure", "cluster.insecure-skip-tls-verify", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.InsecureSkipTLSVerify, c.CertificateAuthorityData = true, nil
		}},
		{"link-local", "cluster.server", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = "https://169.254.169.254:443" }},
		{"proxied", "cluster.proxy-url", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.ProxyURL = (&url.URL{Scheme: "http", User: url.UserPassword("proxy", canary), Host: "127.0.0.1:1"}).String()
		}},
		{"user-in-server", "cluster.server", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = strings.Replace(c.Server, "https://", "https://admin:"+canary+"@", 1)
		}},
	} {
		out = append(out, hostile{c.name, c.field, spoiled(t, good, c.spoil)})
	}
	return append(out,
		hostile{"huge", "kubeconfig", append(bytes.Repeat([]byte("#"+canary+"\n"), (1<<20-2*len(good))/(len(canary)+2)), good...)},
		hostile{"bomb", "kubeconfig", []byte(bomb(canary))},
		hostile{"crowd", "kubeconfig", crowd(t, good)},
	)
}

// spoiled returns a kubeconfig with changes.
func spoiled(t *testing.T, good []byte, spoil func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
	t.Helper()
	cfg, err := clientcmd.Load(good)
	must(t, err)
	for _, cluster := range cfg.Clusters {
		for _, user := range cfg.AuthInfos {
			spoil(cluster, user)
		}
	}
	out, err := clientcmd.Write(*cfg)
	must(t, err)
	return out
}

// bomb returns YAML whose aliases expand to ten thousand million texts.
func bomb(text string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "a: &a [%s]\n", strings.Repeat(text+",", 9)+text)
	for c := 'b'; c <= 'j'; c++ {
		fmt.Fprintf(&b, "%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 10), ","))
	}
	return b.String()
}

// crowd is a kubeconfig with 10,000 contexts.
func crowd(t *testing.T, good []byte) []byte {
	t.Helper()
	cfg, err := clientcmd.Load(good)
	must(t, err)
	for i := range 10_000 {
		cfg.Contexts[fmt.Sprintf("context-%d", i)] = &clientcmdapi.Context{Cluster: fmt.Sprintf("cluster-%d", i), AuthInfo: "nobody"}
	}
	out, err := clientcmd.Write(*cfg)
	must(t, err)
	return out
}

// engagedWithin limits how long it takes to engage a spoke. In short mode, all fleets start at the same time, and what the
// load of the machine explains does not count.
const engagedWithin = 2 * time.Second

// refusesKubeconfigs registers all hostile kubeconfigs at once, and a good spoke afterwards.
func (f *faulty) refusesKubeconfigs(t *testing.T, good *place) {
	t.Helper()
	t.Run("kubeconfigs", func(t *testing.T) {
		dir := t.TempDir()
		marker, pipe := filepath.Join(dir, "marker"), filepath.Join(dir, "pipe")
		must(t, syscall.Mkfifo(pipe, 0o600))
		begun := time.Now()
		all := f.hostiles(t, good.kubeconfig, marker, pipe)
		for _, h := range all {
			f.put(t, h.name, h.kubeconfig)
		}
		registered := time.Now()
		good.register(t)
		within(t, patience, "a good spoke is engaged meanwhile", func(ctx context.Context) error {
			return connected(ctx, f.Fleet, good.name, metav1.ConditionTrue, v1alpha1.ReasonConnected)
		})
		took := time.Since(registered)
		limit := engagedWithin
		if testing.Short() {
			limit += explained(f.sampler.between(registered, time.Now()), 2)
		}
		if took > limit {
			t.Errorf("a good spoke was engaged after %v; the limit is %v", took, limit)
		}
		t.Logf("a good spoke was engaged after %s", seconds(took))
		for _, h := range all {
			f.expectRefused(t, h.name, h.field, begun)
			f.explainsRefusal(t, good.untouched(), h.name)
			f.note(outcome{title: "kubeconfig: " + h.name, shown: "Ready=False/InvalidKubeconfig", after: time.Since(begun), before: f.before})
		}
		if _, err := os.Stat(marker); !os.IsNotExist(err) {
			t.Errorf("a kubeconfig has run a program: %v", err)
		}
		// A process that had opened the pipe would wait for a writer, and this call would find a reader.
		if fd, err := syscall.Open(pipe, syscall.O_WRONLY|syscall.O_NONBLOCK, 0); err != syscall.ENXIO {
			t.Errorf("a kubeconfig has opened a file: %v", err)
			_ = syscall.Close(fd)
		}
		must(t, f.noCanary(t.Context()))
		must(t, slower(f.before, f.sampler.between(begun, time.Now())))
	})
}

func (f *faulty) note(o outcome) {
	table.Lock()
	defer table.Unlock()
	table.rows = append(table.rows, o)
}
