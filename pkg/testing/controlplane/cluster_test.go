package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// wantVersion is what make controlplane builds.
const wantVersion = "v1.36.3"

// onCluster holds the parts of TestClusters, each of which is about one cluster
// while another runs.
type onCluster struct {
	*Cluster
	other *Cluster
}

// TestClusters runs two clusters at once, and all that is asked of one that is
// up, in an order: what disturbs a cluster comes last.
func TestClusters(t *testing.T) {
	first := start(t, Options{Name: "one", ControllerManager: true, Audit: true})
	second := start(t, Options{Name: "two", ControllerManager: true, Audit: true})
	one, two := onCluster{first, second}, onCluster{second, first}

	t.Run("each is a cluster of its own", one.distinct)
	for _, c := range []onCluster{one, two} {
		t.Run("controllers of "+c.Name(), c.controllers)
	}
	t.Run("kubectl", one.kubectl)
	t.Run("a user has only what RBAC grants", one.user)
	t.Run("the audit log counts a create once", one.auditLog)
	t.Run("data outlives a crash of the API server", one.killRestart)
	t.Run("a full etcd refuses writes", one.fillDrain)
	t.Run("a backup brings back what was", one.saveRestore)
	t.Run("a paused API server answers nothing", two.pause)
}

func (c onCluster) distinct(t *testing.T) {
	one, two := c.Cluster, c.other
	uid := func(c *Cluster) types.UID {
		namespace, err := client(t, c).CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return namespace.UID
	}
	if uid(one) == uid(two) {
		t.Errorf("both clusters have the identity %s", uid(one))
	}
	role := func(c *Cluster) types.UID {
		admin, err := client(t, c).RbacV1().ClusterRoles().Get(t.Context(), "cluster-admin", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return admin.UID
	}
	if role(one) != role(two) {
		t.Error("the clusters do not begin with the data of the seed")
	}
	// A client of one is a stranger to the other, even as an administrator.
	config := two.RESTConfig()
	config.CertData, config.KeyData = one.admin.cert, one.admin.key
	stranger, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = stranger.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsUnauthorized(err) {
		t.Errorf("a client of cluster one got %v from cluster two, want 401", err)
	}
}

func (c onCluster) controllers(t *testing.T) {
	ctx, client := t.Context(), client(t, c.Cluster)
	const namespace = "controllers"
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "web"}
	deployment, err := client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "example.com/web"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Deployment has a ReplicaSet with a Pod", testTimeout, func(ctx context.Context) error {
		sets, err := client.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(sets.Items) != 1 || !metav1.IsControlledBy(&sets.Items[0], deployment) || sets.Items[0].Status.Replicas != 1 {
			return fmt.Errorf("ReplicaSets: %v", sets.Items)
		}
		return nil
	})
	if err := client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace is gone", testTimeout, func(ctx context.Context) error {
		_, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("still there, or: %w", err)
	})
}

func (c onCluster) kubectl(t *testing.T) {
	out, err := c.Kubectl(t.Context(), "version", "--output=json").Output()
	if err != nil {
		t.Fatalf("kubectl version: %v", err)
	}
	var version struct {
		ClientVersion, ServerVersion struct{ GitVersion string }
	}
	if err := json.Unmarshal(out, &version); err != nil {
		t.Fatal(err)
	}
	if got := version.ClientVersion.GitVersion; got != wantVersion {
		t.Errorf("client version %q, want %q", got, wantVersion)
	}
	if got := version.ServerVersion.GitVersion; got != wantVersion {
		t.Errorf("server version %q, want %q", got, wantVersion)
	}
	info, err := os.Stat(c.KubeconfigPath())
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != privateFile {
		t.Errorf("the kubeconfig has mode %o, want %o", got, privateFile)
	}
}

func (c onCluster) user(t *testing.T) {
	const group = "readers"
	ctx := t.Context()
	kubeconfig, err := c.UserKubeconfig("jane", group)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	jane, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jane.AppsV1().Deployments("").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("without a role, list got %v, want 403", err)
	}
	if _, err := client(t, c.Cluster).RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: group},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a member of the group may list", testTimeout, func(ctx context.Context) error {
		_, err := jane.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
		return err
	})
	_, err = jane.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, configMap("jane"), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("with a role to read, create got %v, want 403", err)
	}
}

func (c onCluster) auditLog(t *testing.T) {
	const agent = "rulefleet-test"
	ctx := t.Context()
	config := c.RESTConfig()
	config.UserAgent = agent
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ours := func(e AuditEvent) bool { return e.UserAgent == agent && e.IsWrite() }

	if err := c.Audit().Reset(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, configMap("audited"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, "audited", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	// No polling: a line is in the log before its response ends.
	events, err := c.Audit().Events(ours)
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != 1 {
		t.Fatalf("%d writes for one create: %+v", len(events), events)
	}
	got := events[0]
	want := AuditObject{APIVersion: "v1", Resource: "configmaps", Namespace: metav1.NamespaceDefault, Name: "audited"}
	if got.Verb != "create" || got.ObjectRef != want || got.User.Username != adminUser || got.ResponseStatus.Code != 201 {
		t.Errorf("the create is logged as %+v", got)
	}
	if err := c.Audit().Reset(); err != nil {
		t.Fatal(err)
	}
	if events, err := c.Audit().Events(ours); err != nil || len(events) != 0 {
		t.Errorf("after Reset: %v, %v", events, err)
	}
}

func (c onCluster) killRestart(t *testing.T) {
	ctx, client := t.Context(), client(t, c.Cluster)
	made, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, configMap("kept"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	url := c.URL()
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, made.Name, metav1.GetOptions{}); err == nil {
		t.Error("a killed API server answered")
	}
	if err := c.Kill(); !errors.Is(err, errNotRunning) {
		t.Errorf("a second Kill got %v, want %v", err, errNotRunning)
	}
	begin := time.Now()
	if err := c.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("restarted in %s", time.Since(begin).Round(time.Millisecond))
	if got := c.URL(); got != url {
		t.Errorf("after Restart the URL is %s, want %s", got, url)
	}
	kept, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, made.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if kept.UID != made.UID {
		t.Errorf("after Restart the object is %s, want %s", kept.UID, made.UID)
	}
}

func (c onCluster) saveRestore(t *testing.T) {
	ctx, client := t.Context(), client(t, c.Cluster)
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	names := func() string {
		list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: "saved"})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, m := range list.Items {
			out = append(out, m.Name)
		}
		return strings.Join(out, " ")
	}
	add := func(name string) {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"saved": ""}}}
		if _, err := maps.Create(ctx, o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	add("a")
	if err := c.Save(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		add("b")
		if err := maps.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := names(); got != "b" {
			t.Errorf("before, there is %q", got)
		}
		if err := c.Restore(ctx); err != nil {
			t.Fatal(err)
		}
		if got := names(); got != "a" {
			t.Errorf("restored, there is %q", got)
		}
	}
}

func (c onCluster) fillDrain(t *testing.T) {
	ctx, maps := t.Context(), client(t, c.Cluster).CoreV1().ConfigMaps(metav1.NamespaceDefault)
	if _, err := maps.Create(ctx, configMap("there"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Fill(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Create(ctx, configMap("too-much"), metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "space exceeded") {
		t.Errorf("a create got %v", err)
	}
	if err := maps.Delete(ctx, "there", metav1.DeleteOptions{}); err != nil {
		t.Errorf("a delete got %v", err)
	}
	if err := c.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Create(ctx, configMap("there"), metav1.CreateOptions{}); err != nil {
		t.Errorf("drained, a create got %v", err)
	}
}

func (c onCluster) pause(t *testing.T) {
	ctx := t.Context()
	config := c.RESTConfig()
	config.Timeout = time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	get := func(ctx context.Context) error {
		_, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		return err
	}
	// Once over a connection that was there before, and once over a new one.
	eventually(t, "the API server answers before", testTimeout, get)
	for range 2 {
		if err := c.Pause(); err != nil {
			t.Fatal(err)
		}
		if err := c.Pause(); err != nil {
			t.Errorf("a second Pause: %v", err)
		}
		if err := get(ctx); !isTimeout(err) {
			t.Errorf("a paused API server: got %v, want a timeout", err)
		}
		if err := c.Resume(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the API server answers after Resume", testTimeout, get)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

func TestStopRemovesTemporaryFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	c, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	pids := c.Pids()
	if err := c.Pause(); err != nil {
		t.Error(err)
	}
	begin := time.Now()
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	// A tenth of a second is usual; what must not be waited for is the grace.
	if took := time.Since(begin); took > etcdGrace/2 {
		t.Errorf("Stop took %s", took)
	}
	for name, pid := range pids {
		if alive(pid) {
			t.Errorf("%s is alive after Stop", name)
		}
	}
	if _, err := os.Stat(c.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the temporary folder is still there: %v", err)
	}
	if err := c.Restart(t.Context()); !errors.Is(err, errStopped) {
		t.Errorf("Restart after Stop got %v, want %v", err, errStopped)
	}
	if err := c.Stop(); err != nil {
		t.Errorf("a second Stop: %v", err)
	}
}

func TestStartRefuses(t *testing.T) {
	t.Run("a folder without binaries", func(t *testing.T) {
		_, err := Start(t.Context(), Options{BinDir: t.TempDir()})
		if err == nil || !strings.Contains(err.Error(), "run make controlplane first") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a port that is in use", func(t *testing.T) {
		l, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		_, err = Start(t.Context(), Options{Dir: t.TempDir(), Port: l.Addr().(*net.TCPAddr).Port})
		if !errors.Is(err, errPortInUse) {
			t.Errorf("got %v, want %v", err, errPortInUse)
		}
	})
	t.Run("a folder that is in use", func(t *testing.T) {
		dir := t.TempDir()
		lock, err := lockFile(filepath.Join(dir, lockName))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lock.Close() }()
		if _, err := Start(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "serves another cluster") {
			t.Errorf("got %v", err)
		}
	})
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
