package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// oneSpoke is a hub with a manager and rules, and one spoke whose requests are counted.
type oneSpoke struct {
	*fleet.Fleet
	spoke   *fleet.Member
	manager *fleet.Manager
	// good is a kubeconfig that works.
	good []byte
	// rules are placed on the spoke by its name.
	rules []client.ObjectKey
}

// TestSpokes tests good and bad registrations of a spoke.
func TestSpokes(t *testing.T) {
	long(t)
	parallel(t)
	s := &oneSpoke{Fleet: start(t, fleet.Options{Spokes: []string{"late"}, Audit: true})}
	s.spoke = s.Spoke("late")
	namespace(t, "shop", s.spoke)
	s.manager = startManager(t, s.Fleet, t.TempDir())
	var err error
	s.good, err = s.spoke.UserKubeconfig(fleet.SpokeUser)
	must(t, err)
	for i := range 30 {
		s.rules = append(s.rules, create(t, s.Hub, alertRule(fmt.Sprintf("rule-%d", i), "shop", onNamed("late"))))
	}
	t.Run("RegisteredLate", s.registeredLate)
	t.Run("Deregistered", s.deregistered)
	t.Run("KubeconfigReplaced", s.kubeconfigReplaced)
	t.Run("WithoutCRD", s.withoutCRD)
}

// register puts a kubeconfig into the spoke's Secret.
func (s *oneSpoke) register(t *testing.T, kubeconfig []byte) {
	t.Helper()
	if err := s.RegisterKubeconfig(t.Context(), s.spoke.Name(), kubeconfig, nil); !apierrors.IsAlreadyExists(err) {
		must(t, err)
		return
	}
	update(t, s.Hub, registration(s.spoke.Name()), func(secret *corev1.Secret) {
		secret.Labels = map[string]string{v1alpha1.RegistrationLabel: "true"}
		secret.Data = map[string][]byte{v1alpha1.KubeconfigKey: kubeconfig}
	})
}

// expect waits until the SpokeCluster's condition Connected has these values.
func (s *oneSpoke) expect(t *testing.T, status metav1.ConditionStatus, reason, words string) {
	t.Helper()
	eventually(t, fmt.Sprintf("Connected=%s, reason %s, %q", status, reason, words), func(ctx context.Context) error {
		sc := membership(s.spoke.Name())
		if err := read(ctx, s.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
			return err
		}
		c := meta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionConnected)
		if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, words) {
			return fmt.Errorf("the conditions are %+v", sc.Status.Conditions)
		}
		return nil
	})
}

// reconnect makes the spoke be served again, and waits until all its rules were handled.
func (s *oneSpoke) reconnect(t *testing.T, do func()) {
	t.Helper()
	const looked = `controller_runtime_reconcile_total{controller="distribute",result="success"}`
	before, err := metric(t.Context(), s.manager, looked)
	must(t, err)
	do()
	s.expect(t, metav1.ConditionTrue, v1alpha1.ReasonConnected, "")
	eventually(t, "all rules are looked at", func(ctx context.Context) error {
		return metricAtLeast(ctx, s.manager, looked, before+float64(len(s.rules)))
	})
}

// registeredLate registers the spoke when its rules already exist, first with kubeconfigs that are refused.
func (s *oneSpoke) registeredLate(t *testing.T) {
	name := s.spoke.Name()
	expectReady(t, s.Fleet, s.rules[0], metav1.ConditionFalse, v1alpha1.ReasonNotRegistered)
	expectRow(t, s.Fleet, s.rules[0], name, v1alpha1.PhasePending, v1alpha1.ReasonNotRegistered)

	for field, kubeconfig := range badKubeconfigs(t, s.good) {
		s.register(t, kubeconfig)
		s.expect(t, metav1.ConditionFalse, v1alpha1.ReasonInvalidKubeconfig, field)
	}
	expectCondition(t, s.Fleet, membership(name), v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInvalidKubeconfig)
	expectRow(t, s.Fleet, s.rules[0], name, v1alpha1.PhasePending, v1alpha1.ReasonInvalidKubeconfig)
	must(t, wrote(s.spoke))

	s.register(t, s.good)
	s.expect(t, metav1.ConditionTrue, v1alpha1.ReasonConnected, "")
	expectCondition(t, s.Fleet, membership(name), v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	for _, key := range s.rules {
		expectPushed(t, s.spoke, key, 1)
		expectReady(t, s.Fleet, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	}
	must(t, wrote(s.spoke, slices.Repeat([]string{"create"}, len(s.rules))...))
}

// deregistered removes the registration in each possible way. Nothing is removed from the spoke, and nothing
// unnecessary is written when it is back.
func (s *oneSpoke) deregistered(t *testing.T) {
	s.reconnect(t, func() { s.register(t, append([]byte("# again\n"), s.good...)) })
	secret := registration(s.spoke.Name())
	for _, c := range []struct {
		name string
		do   func()
	}{
		{"Secret", func() { must(t, s.Hub.Client.Delete(t.Context(), registration(s.spoke.Name()))) }},
		{"label", func() {
			update(t, s.Hub, secret, func(secret *corev1.Secret) { delete(secret.Labels, v1alpha1.RegistrationLabel) })
		}},
		{"label's value", func() {
			update(t, s.Hub, secret, func(secret *corev1.Secret) { secret.Labels[v1alpha1.RegistrationLabel] = "no" })
		}},
		{"key", func() {
			update(t, s.Hub, secret, func(secret *corev1.Secret) { secret.Data = map[string][]byte{"other": s.good} })
		}},
	} {
		t.Log(c.name)
		must(t, s.spoke.Audit().Reset())
		must(t, s.Hub.Audit().Reset())
		c.do()
		s.expect(t, metav1.ConditionFalse, v1alpha1.ReasonKubeconfigMissing, s.spoke.Name())
		// A rule that is deleted meanwhile waits for the spoke too.
		last := s.rules[len(s.rules)-1]
		s.rules = s.rules[:len(s.rules)-1]
		must(t, s.Hub.Client.Delete(t.Context(), &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: last.Namespace, Name: last.Name}}))
		expectPushed(t, s.spoke, last, 1)
		for _, key := range s.rules {
			expectPushed(t, s.spoke, key, 1)
		}
		s.reconnect(t, func() { s.register(t, s.good) })
		expectPushed(t, s.spoke, last, 0)
		// The audit log shows a deletion later than a list does.
		eventually(t, "it is deleted in the spoke", func(context.Context) error { return wrote(s.spoke, "delete") })
		onHub, err := s.Hub.Audit().Events(func(e controlplane.AuditEvent) bool {
			transition := e.ObjectRef.Resource == "spokeclusters" || e.ObjectRef.Resource == "events"
			return e.IsWrite() && e.User.Username == fleet.HubUser && !transition
		})
		must(t, err)
		for _, e := range onHub {
			t.Errorf("written to the hub: %s %s", e.Verb, e.RequestURI)
		}
	}
}

// kubeconfigReplaced replaces a good kubeconfig by another, which causes no write, and by bad ones, which
// leave the connection in use.
func (s *oneSpoke) kubeconfigReplaced(t *testing.T) {
	s.reconnect(t, func() { s.register(t, append([]byte("# once more\n"), s.good...)) })
	must(t, s.spoke.Audit().Reset())
	s.reconnect(t, func() { s.register(t, append([]byte("# and again\n"), s.good...)) })
	must(t, wrote(s.spoke))
	n := 0
	for field, kubeconfig := range badKubeconfigs(t, s.good) {
		s.register(t, kubeconfig)
		s.expect(t, metav1.ConditionTrue, v1alpha1.ReasonKubeconfigNotUsed, field)
		name := fmt.Sprintf("web-%d", n)
		create(t, s.spoke, deployment("shop", name))
		ar := expectGenerated(t, s.Fleet, s.spoke.Name(), "shop", name, 1)
		expectPushed(t, s.spoke, client.ObjectKeyFromObject(ar), 1)
		n++
	}
	expectCondition(t, s.Fleet, membership(s.spoke.Name()), v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	s.register(t, s.good)
	s.expect(t, metav1.ConditionTrue, v1alpha1.ReasonConnected, "the spoke answers")
	must(t, wrote(s.spoke, slices.Repeat([]string{"create"}, n)...))
}

// badKubeconfigs returns spoiled copies of a good one, by the expected words.
func badKubeconfigs(t *testing.T, good []byte) map[string][]byte {
	t.Helper()
	out := map[string][]byte{"is not valid YAML": []byte("{{ garbage")}
	for field, spoil := range map[string]func(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo){
		"user.exec": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{Command: "/bin/true", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
		},
		"user.tokenFile": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.TokenFile = "/var/run/secrets/token" },
		"cluster.server": func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = strings.Replace(c.Server, "https://", "http://", 1)
		},
		"cluster.insecure-skip-tls-verify": func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.InsecureSkipTLSVerify, c.CertificateAuthorityData = true, nil
		},
		"cluster.proxy-url": func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.ProxyURL = "http://127.0.0.1:1" },
	} {
		cfg, err := clientcmd.Load(good)
		must(t, err)
		for _, c := range cfg.Clusters {
			for _, u := range cfg.AuthInfos {
				spoil(c, u)
			}
		}
		out[field], err = clientcmd.Write(*cfg)
		must(t, err)
	}
	return out
}

// withoutCRD registers another spoke without PrometheusRules, and installs them later.
func (s *oneSpoke) withoutCRD(t *testing.T) {
	m, err := s.StartSpoke(t.Context(), "bare")
	must(t, err)
	f := s.Fleet
	namespace(t, "shop", m)
	key := create(t, f.Hub, alertRule("bare", "shop", onNamed("bare")))
	must(t, f.Register(t.Context(), "bare", nil))

	sc := membership("bare")
	expectCondition(t, f, sc, v1alpha1.ConditionConnected, metav1.ConditionTrue, v1alpha1.ReasonConnected)
	expectCondition(t, f, sc, v1alpha1.ConditionPrometheusRuleServed, metav1.ConditionFalse, v1alpha1.ReasonCRDMissing)
	expectCondition(t, f, sc, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonCRDMissing)
	create(t, m, deployment("shop", "web"))
	keys := []client.ObjectKey{key, client.ObjectKeyFromObject(expectGenerated(t, f, "bare", "shop", "web", 1))}
	for _, key := range keys {
		expectRow(t, f, key, "bare", v1alpha1.PhasePending, v1alpha1.ReasonCRDMissing)
		expectReady(t, f, key, metav1.ConditionFalse, v1alpha1.ReasonCRDMissing)
	}
	must(t, wrote(m))

	must(t, f.InstallMonitoringCRD(t.Context(), m, "prometheusrules"))
	for _, key := range keys {
		expectPushed(t, m, key, 1)
		expectReady(t, f, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	}
	expectCondition(t, f, sc, v1alpha1.ConditionPrometheusRuleServed, metav1.ConditionTrue, v1alpha1.ReasonServed)
	expectCondition(t, f, sc, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	must(t, wrote(m, "create", "create"))

	// Rules that came late are watched like all others.
	must(t, m.Client.Delete(t.Context(), expectPushed(t, m, key, 1)))
	expectPushed(t, m, key, 1)
}

// TestColumns checks the output of kubectl get.
func TestColumns(t *testing.T) {
	parallelOnShared(t)
	a, ns := shared().Spoke(spokeA), unique(t)
	namespace(t, ns, a, shared().Hub)
	ar := alertRule("rule", "", onNamed(spokeA))
	ar.Namespace = ns
	key := create(t, shared().Hub, ar)
	expectReady(t, shared(), key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	version, err := discovery.NewDiscoveryClientForConfigOrDie(a.RESTConfig()).ServerVersion()
	must(t, err)
	for _, c := range []struct {
		args, header string
		row          []string // "*" for any value, "reason" for that of spokeA's condition Ready
	}{
		{"get ar -n " + ns, "NAME ALERT SEVERITY READY FIRING REASON AGE", []string{"rule", "TestAlert", "warning", "1/1", "AllApplied", "*"}},
		{"get spokes " + spokeA, "NAME READY REASON VERSION DEPLOYMENTS RULES AGE", []string{spokeA, "True", "reason", version.GitVersion, "*", "*", "*"}},
		{"get spoke " + spokeA, "NAME READY REASON VERSION DEPLOYMENTS RULES AGE", []string{spokeA, "True", "reason", version.GitVersion, "*", "*", "*"}},
		{"get art deployment-down", "NAME ALERT SEVERITY STATE MATCHED GENERATED ACCEPTED AGE", []string{"deployment-down", "DeploymentDown", "critical", "Enabled", "*", "*", "True", "*"}},
	} {
		t.Run(c.args, func(t *testing.T) {
			// Rules of other tests may fail there meanwhile, which changes the reason.
			eventually(t, "kubectl "+c.args+" prints what there is", func(ctx context.Context) error {
				reason, err := readyReason(ctx, shared().Hub, spokeA)
				if err != nil {
					return err
				}
				out, err := shared().Hub.Kubectl(ctx, strings.Fields(c.args)...).CombinedOutput()
				if err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				header, rest, _ := strings.Cut(string(out), "\n")
				same := slices.EqualFunc(strings.Fields(rest), c.row, func(got, want string) bool {
					return want == "*" && got != "<none>" || want == "reason" && got == reason || got == want
				})
				if strings.Join(strings.Fields(header), " ") != c.header || !same {
					return fmt.Errorf("it prints\n%s", out)
				}
				return nil
			})
		})
	}
}

// readyReason returns the reason of a spoke's condition Ready, which is True.
func readyReason(ctx context.Context, hub *fleet.Member, spoke string) (string, error) {
	sc := membership(spoke)
	if err := read(ctx, hub, client.ObjectKeyFromObject(sc), sc); err != nil {
		return "", err
	}
	c := meta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Status != metav1.ConditionTrue || (c.Reason != v1alpha1.ReasonReady && c.Reason != v1alpha1.ReasonRulesFailing) {
		return "", fmt.Errorf("the condition is %+v", c)
	}
	return c.Reason, nil
}
