package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/release"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/testing/helm"
)

// TestChart installs the chart on a bare hub, upgrades it, rolls it back, uninstalls it and installs it again,
// with Helm's own library. The manager runs as a process with the arguments of the Deployment, as its
// ServiceAccount.
func TestChart(t *testing.T) {
	long(t)
	parallel(t)
	f := start(t, fleet.Options{Spokes: []string{spokeA}, Bare: true, OpenAPI: true})
	c := &chartTest{Fleet: f, spoke: f.Spoke(spokeA), values: map[string]any{
		"allowKubeconfig": []any{"loopback"}, "webhook": map[string]any{"enabled": false}, "metrics": map[string]any{"secure": false},
	}}
	c.release = &helm.Release{
		Kubeconfig: f.Hub.KubeconfigPath(), Namespace: fleet.Namespace, Name: fleet.Release,
		Chart: filepath.Join("..", "charts", "rulefleet"), NoPods: true,
	}
	namespace(t, "shop", c.spoke)

	_, err := c.release.Install(t.Context(), c.values)
	must(t, err)
	m := c.run(t)
	must(t, f.Register(t.Context(), spokeA, nil))
	must(t, c.spoke.Client.Create(t.Context(), deployment("shop", "web")))
	must(t, f.Hub.Client.Create(t.Context(), alertRule("written", "shop", onEvery())))
	c.expectRules(t, 2)
	before := c.remember(t)

	// Another log level replaces the pods and does not change rules.
	c.values["log"] = map[string]any{"level": "debug"}
	upgraded, err := c.release.Upgrade(t.Context(), c.values)
	must(t, err)
	m = c.replace(t, m)
	c.expectSame(t, before)

	// A value enables a template, and the rollback disables it.
	c.values["builtInTemplates"] = map[string]any{"rollout-stuck": "Enabled"}
	_, err = c.release.Upgrade(t.Context(), c.values)
	must(t, err)
	m = c.replace(t, m)
	c.expectRules(t, 3)
	must(t, c.release.Rollback(upgraded.Version))
	m = c.replace(t, m)
	c.expectRules(t, 2)
	c.expectSame(t, before)

	rendered := c.uninstall(t, m)
	c.expectSame(t, before)
	c.letGo(t, rendered)
	c.expectSame(t, before)

	delete(c.values, "builtInTemplates")
	_, err = c.release.Install(t.Context(), c.values)
	must(t, err)
	m = c.run(t)
	c.expectEngaged(t, m)
	c.expectSame(t, before)
	must(t, m.Stop())
}

type chartTest struct {
	*fleet.Fleet
	spoke   *fleet.Member
	release *helm.Release
	values  map[string]any
}

// run starts the manager with the arguments of the Deployment on the hub.
func (c *chartTest) run(t *testing.T) *fleet.Manager {
	t.Helper()
	d := &appsv1.Deployment{}
	must(t, c.Hub.Client.Get(t.Context(), client.ObjectKey{Namespace: fleet.Namespace, Name: fleet.Release}, d))
	spec := d.Spec.Template.Spec
	if spec.ServiceAccountName != fleet.Release || len(spec.Containers) != 1 || *d.Spec.Replicas != 2 {
		t.Fatalf("the Deployment is %+v", d.Spec)
	}
	// The process has its own addresses.
	args := slices.DeleteFunc(slices.Clone(spec.Containers[0].Args), func(a string) bool { return strings.Contains(a, "-bind-address=") })
	return startManagerWith(t, c.Fleet, fleet.ManagerOptions{Dir: t.TempDir(), LeaderElect: true, Args: args})
}

// replace replaces the manager by one with the present arguments.
func (c *chartTest) replace(t *testing.T, m *fleet.Manager) *fleet.Manager {
	t.Helper()
	must(t, m.Stop())
	m = c.run(t)
	c.expectEngaged(t, m)
	return m
}

func (c *chartTest) expectEngaged(t *testing.T, m *fleet.Manager) {
	t.Helper()
	eventually(t, "the spoke is engaged", func(ctx context.Context) error { return metricIs(ctx, m, "rulefleet_engaged_spokes", 1) })
}

func (c *chartTest) rules(ctx context.Context) (map[string]string, error) {
	var list monitoringv1.PrometheusRuleList
	if err := c.spoke.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing PrometheusRules: %w", err)
	}
	out := map[string]string{}
	for i := range list.Items {
		out[list.Items[i].Name] = string(list.Items[i].UID) + " " + list.Items[i].ResourceVersion
	}
	return out, nil
}

func (c *chartTest) expectRules(t *testing.T, n int) {
	t.Helper()
	within(t, time.Minute, fmt.Sprintf("%d rules in the spoke", n), func(ctx context.Context) error {
		rules, err := c.rules(ctx)
		if err == nil && len(rules) != n {
			err = fmt.Errorf("there are %v", rules)
		}
		return err
	})
}

func (c *chartTest) remember(t *testing.T) map[string]string {
	t.Helper()
	rules, err := c.rules(t.Context())
	must(t, err)
	return rules
}

// expectSame checks for a while that the rules in the spoke do not change.
func (c *chartTest) expectSame(t *testing.T, want map[string]string) {
	t.Helper()
	throughout(t, 3*time.Second, "no rule is written", func(ctx context.Context) error {
		is, err := c.rules(ctx)
		if err == nil && !maps.Equal(is, want) {
			err = fmt.Errorf("there are %v, and were %v", is, want)
		}
		return err
	})
}

// uninstall returns what was installed. Only the CustomResourceDefinitions and their objects stay.
func (c *chartTest) uninstall(t *testing.T, m *fleet.Manager) *release.Release {
	t.Helper()
	installed, err := c.release.Status()
	must(t, err)
	must(t, c.release.Uninstall())
	must(t, m.Stop())
	ctx := t.Context()
	for _, o := range []client.Object{
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: fleet.Release}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: fleet.Release}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: fleet.Release}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: fleet.Release}},
	} {
		if err := c.Hub.Client.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) && o.GetDeletionTimestamp() == nil {
			t.Errorf("%T %s is still there: %v", o, o.GetName(), err)
		}
	}
	var crds apiextensionsv1.CustomResourceDefinitionList
	must(t, c.Hub.Client.List(ctx, &crds))
	if len(crds.Items) != 4 {
		t.Errorf("%d CustomResourceDefinitions are left, want 4", len(crds.Items))
	}
	must(t, c.Hub.Client.Get(ctx, client.ObjectKey{Namespace: fleet.Namespace, Name: "written"}, &v1alpha1.AlertRule{}))
	return installed
}

// letGo runs the hook after an uninstallation with its account, so that a SpokeCluster can be deleted without
// a manager.
func (c *chartTest) letGo(t *testing.T, installed *release.Release) {
	t.Helper()
	var args []string
	for _, hook := range installed.Hooks {
		if !slices.Contains(hook.Events, release.HookPostDelete) {
			t.Errorf("hook %s is at %v", hook.Name, hook.Events)
		}
		o := hookObject(t, hook)
		if job, ok := o.(*batchv1.Job); ok {
			args = job.Spec.Template.Spec.Containers[0].Args
			continue
		}
		create(t, c.Hub, o)
	}
	kubeconfig, err := c.Hub.ServiceAccountKubeconfig(t.Context(), client.ObjectKey{Namespace: fleet.Namespace, Name: fleet.Release + "-release"})
	must(t, err)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(file, kubeconfig, 0o600))
	out, err := exec.CommandContext(t.Context(), managerFor(t), append(args, "--kubeconfig="+file)...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"released":1`) {
		t.Fatalf("releasing the SpokeClusters: %v\n%s", err, out)
	}
	sc := membership(spokeA)
	must(t, c.Hub.Client.Delete(t.Context(), sc))
	if err := c.Hub.Client.Get(t.Context(), client.ObjectKeyFromObject(sc), sc); !apierrors.IsNotFound(err) {
		t.Errorf("the SpokeCluster is stuck: %v, %+v", err, sc.ObjectMeta)
	}
}

// hookObject returns the object of a hook.
func hookObject(t *testing.T, hook *release.Hook) client.Object {
	t.Helper()
	var o client.Object
	switch hook.Kind {
	case "ServiceAccount":
		o = &corev1.ServiceAccount{}
	case "ClusterRole":
		o = &rbacv1.ClusterRole{}
	case "ClusterRoleBinding":
		o = &rbacv1.ClusterRoleBinding{}
	case "Job":
		o = &batchv1.Job{}
	default:
		t.Fatal(errors.New("there is a hook of kind " + hook.Kind))
	}
	must(t, yaml.Unmarshal([]byte(hook.Manifest), o))
	return o
}
