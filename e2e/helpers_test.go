package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// patience is how long a test waits for an expected event. It is not scaled like the intervals of a manager,
// because leases, timeouts and backoffs are not, and the machine may be busy: whole fleets start beside the test.
// A wait that takes longer than it should is logged.
const patience = time.Minute

// eventually retries check until it succeeds.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	within(t, patience, what, check)
}

func within(t *testing.T, limit time.Duration, what string, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	last := errors.New("never checked")
	for began := time.Now(); ; {
		// The error of an attempt that the deadline interrupted is ignored.
		if err := check(ctx); err == nil {
			if took := time.Since(began); took > quickly(patience) {
				t.Logf("%s: after %v", what, took.Round(time.Second))
			}
			return
		} else if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %v: %v", what, limit, last)
		case <-time.After(pollDelay(time.Since(began))):
		}
	}
}

// pollDelay is the time between two checks. It grows with the time waited, because every check is a load on
// the API servers.
func pollDelay(waited time.Duration) time.Duration {
	return min(max(waited/5, 20*time.Millisecond), 250*time.Millisecond)
}

// throughout repeats check for a while, which must always succeed. It is for events that must not happen.
func throughout(t *testing.T, span time.Duration, what string, check func(ctx context.Context) error) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, span, true, func(ctx context.Context) (bool, error) {
		if err := check(ctx); err != nil && ctx.Err() == nil {
			return false, err
		}
		return false, nil
	})
	if !wait.Interrupted(err) {
		t.Fatalf("%s: %v", what, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// testLabel marks the namespaces of tests.
const testLabel = "rulefleet-e2e"

// namespace makes a namespace of that name in the clusters.
func namespace(t *testing.T, name string, members ...*fleet.Member) {
	t.Helper()
	for _, m := range members {
		must(t, m.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{testLabel: ""}}}))
	}
}

// deployment returns a Deployment as a user would write it.
func deployment(namespace, name string) *appsv1.Deployment {
	replicas := int32(1)
	if *provider == providerKind {
		replicas = 0 // no test needs its pods
	}
	app := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: app},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "nginx"}}},
			},
		},
	}
}

// alertRule returns an AlertRule of the operator's own namespace.
func alertRule(name, ruleNamespace string, placement v1alpha1.ClusterSelection) *v1alpha1.AlertRule {
	return &v1alpha1.AlertRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: name},
		Spec: v1alpha1.AlertRuleSpec{
			AlertSpec:     v1alpha1.AlertSpec{Alert: "TestAlert", Expr: "up == 0", For: "5m", Severity: "warning"},
			Placement:     placement,
			RuleNamespace: v1alpha1.NamespaceName(ruleNamespace),
		},
	}
}

func onEvery() v1alpha1.ClusterSelection {
	return v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{}}
}

func onNamed(names ...v1alpha1.ClusterName) v1alpha1.ClusterSelection {
	return v1alpha1.ClusterSelection{Names: names}
}

func onLabeled(key, value string) v1alpha1.ClusterSelection {
	return v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}}
}

// registration is a spoke's Secret with only its name.
func registration(spoke string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: spoke}}
}

// membership is a SpokeCluster with only its name.
func membership(spoke string) *v1alpha1.SpokeCluster {
	return &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: spoke}}
}

// generated returns the AlertRules on the hub that were generated for a Deployment.
func generated(ctx context.Context, f *fleet.Fleet, spoke, namespace, name string) ([]v1alpha1.AlertRule, error) {
	var list v1alpha1.AlertRuleList
	if err := f.Hub.Client.List(ctx, &list, client.InNamespace(fleet.GeneratedNamespace)); err != nil {
		return nil, fmt.Errorf("listing AlertRules: %w", err)
	}
	var out []v1alpha1.AlertRule
	for i := range list.Items {
		if w := list.Items[i].Spec.WorkloadRef; w != nil && string(w.Cluster) == spoke && string(w.Namespace) == namespace && w.Name == name {
			out = append(out, list.Items[i])
		}
	}
	return out, nil
}

// pushed returns the PrometheusRules in a spoke that belong to an AlertRule.
func pushed(ctx context.Context, m *fleet.Member, key client.ObjectKey) ([]monitoringv1.PrometheusRule, error) {
	var list monitoringv1.PrometheusRuleList
	if err := m.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing PrometheusRules: %w", err)
	}
	var out []monitoringv1.PrometheusRule
	for i := range list.Items {
		if list.Items[i].Annotations[v1alpha1.AlertRuleAnnotation] == key.String() {
			out = append(out, list.Items[i])
		}
	}
	return out, nil
}

// expectPushed waits until exactly n PrometheusRules of an AlertRule are in a spoke, and returns the first.
func expectPushed(t *testing.T, m *fleet.Member, key client.ObjectKey, n int) *monitoringv1.PrometheusRule {
	t.Helper()
	var found []monitoringv1.PrometheusRule
	eventually(t, fmt.Sprintf("%d PrometheusRules of %s in %s", n, key, m.Name()), func(ctx context.Context) (err error) {
		if found, err = pushed(ctx, m, key); err == nil && len(found) != n {
			err = fmt.Errorf("there are %d", len(found))
		}
		return err
	})
	if n == 0 {
		return nil
	}
	return &found[0]
}

// expectGenerated waits until exactly n AlertRules of a Deployment are on the hub, and returns the first.
func expectGenerated(t *testing.T, f *fleet.Fleet, spoke, namespace, name string, n int) *v1alpha1.AlertRule {
	t.Helper()
	var found []v1alpha1.AlertRule
	eventually(t, fmt.Sprintf("%d AlertRules of Deployment %s/%s of %s", n, namespace, name, spoke), func(ctx context.Context) (err error) {
		if found, err = generated(ctx, f, spoke, namespace, name); err == nil && len(found) != n {
			err = fmt.Errorf("there are %d", len(found))
		}
		return err
	})
	if n == 0 {
		return nil
	}
	return &found[0]
}

// expectReady waits until an AlertRule's condition Ready has this status and reason for its present
// generation.
func expectReady(t *testing.T, f *fleet.Fleet, key client.ObjectKey, status metav1.ConditionStatus, reason string) *v1alpha1.AlertRule {
	t.Helper()
	ar := &v1alpha1.AlertRule{}
	eventually(t, fmt.Sprintf("AlertRule %s: Ready=%s, reason %s", key, status, reason), func(ctx context.Context) error {
		if err := f.Hub.Client.Get(ctx, key, ar); err != nil {
			return err
		}
		c := meta.FindStatusCondition(ar.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Status != status || c.Reason != reason || ar.Status.ObservedGeneration != ar.Generation {
			return fmt.Errorf("the status is %+v", ar.Status)
		}
		return nil
	})
	return ar
}

// row returns the row of a spoke in an AlertRule's status, or nil.
func row(ar *v1alpha1.AlertRule, spoke string) *v1alpha1.ClusterStatus {
	for i := range ar.Status.Clusters {
		if string(ar.Status.Clusters[i].Name) == spoke {
			return &ar.Status.Clusters[i]
		}
	}
	return nil
}

// expectRow waits until the row of a spoke in an AlertRule's status has this phase and reason for the present
// generation.
func expectRow(t *testing.T, f *fleet.Fleet, key client.ObjectKey, spoke string, phase v1alpha1.Phase, reason string) *v1alpha1.AlertRule {
	t.Helper()
	ar := &v1alpha1.AlertRule{}
	eventually(t, fmt.Sprintf("AlertRule %s is %s in %s, reason %q", key, phase, spoke, reason), func(ctx context.Context) error {
		if err := read(ctx, f.Hub, key, ar); err != nil {
			return err
		}
		r := row(ar, spoke)
		current := r != nil && ar.Status.ObservedGeneration == ar.Generation &&
			(r.ObservedGeneration == ar.Generation || r.ObservedGeneration == 0) // 0 is a row about a spoke that was not reached
		if !current || r.Phase != phase || r.Reason != reason {
			return fmt.Errorf("the status is %+v", ar.Status)
		}
		return nil
	})
	return ar
}

// expectCondition waits until an object on the hub has a condition for its present generation.
func expectCondition(t *testing.T, f *fleet.Fleet, o client.Object, kind string, status metav1.ConditionStatus, reason string) *metav1.Condition {
	t.Helper()
	var c *metav1.Condition
	eventually(t, fmt.Sprintf("%T %s: %s=%s, reason %s", o, o.GetName(), kind, status, reason), func(ctx context.Context) error {
		if err := read(ctx, f.Hub, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		var all []metav1.Condition
		switch o := o.(type) {
		case *v1alpha1.AlertRule:
			all = o.Status.Conditions
		case *v1alpha1.AlertRuleTemplate:
			all = o.Status.Conditions
		case *v1alpha1.SpokeCluster:
			all = o.Status.Conditions
		}
		if c = meta.FindStatusCondition(all, kind); c == nil || c.Status != status || c.Reason != reason || c.ObservedGeneration != o.GetGeneration() {
			return fmt.Errorf("the conditions are %+v", all)
		}
		return nil
	})
	return c
}

// read is Get into an empty object, because decoding keeps entries of maps.
func read(ctx context.Context, m *fleet.Member, key client.ObjectKey, o client.Object) error {
	reflect.ValueOf(o).Elem().SetZero()
	if err := m.Client.Get(ctx, key, o); err != nil {
		o.SetNamespace(key.Namespace)
		o.SetName(key.Name)
		return fmt.Errorf("reading %T %s: %w", o, key, err)
	}
	return nil
}

// expectRule waits until a spoke has exactly one PrometheusRule of an AlertRule that check accepts, and
// returns it.
func expectRule(t *testing.T, m *fleet.Member, key client.ObjectKey, what string, check func(r *monitoringv1.Rule) bool) *monitoringv1.PrometheusRule {
	t.Helper()
	var found []monitoringv1.PrometheusRule
	eventually(t, fmt.Sprintf("the rule of %s in %s: %s", key, m.Name(), what), func(ctx context.Context) (err error) {
		if found, err = pushed(ctx, m, key); err != nil {
			return err
		}
		if len(found) != 1 || !check(&found[0].Spec.Groups[0].Rules[0]) {
			return fmt.Errorf("there are %d: %+v", len(found), found)
		}
		return nil
	})
	return &found[0]
}

// nonePushed returns an error if a spoke has a PrometheusRule of an AlertRule.
func nonePushed(ctx context.Context, m *fleet.Member, key client.ObjectKey) error {
	found, err := pushed(ctx, m, key)
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("%s has %+v", m.Name(), found)
	}
	return err
}

// untouched returns an error if an object in a cluster was changed.
func untouched(ctx context.Context, m *fleet.Member, o client.Object) error {
	now := o.DeepCopyObject().(client.Object)
	if err := m.Client.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
		return err
	}
	if now.GetUID() != o.GetUID() || now.GetResourceVersion() != o.GetResourceVersion() {
		return fmt.Errorf("%T %s in %s was written: %+v", o, o.GetName(), m.Name(), now)
	}
	return nil
}

// onProcesses skips a test that stops API servers, reads their audit logs, starts its own spokes or reads the
// manager's metrics, unless the clusters and the manager are processes.
func onProcesses(t *testing.T) {
	t.Helper()
	if *provider != providerProcesses {
		t.Skip("needs the clusters and the manager as processes")
	}
}

// longTests are the names of the tests that called long.
var longTests sync.Map

// long skips a test in short mode. Call it before the test starts a manager.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("make test-all runs it")
	}
	longTests.Store(t.Name(), true)
}

// managerFor returns the manager's program for a test: with the race detector, which doubles its CPU time, unless only
// 'make test-all' runs the test.
func managerFor(t *testing.T) string {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/") // only whole tests call long
	if _, is := longTests.Load(name); is {
		return plainManager
	}
	return raceManager
}

// atOnce runs the rows of a table as subtests at the same time.
func atOnce[R any](t *testing.T, rows map[string]R, run func(t *testing.T, name string, row R)) {
	t.Helper()
	var all sync.WaitGroup
	for name, row := range rows {
		all.Go(func() {
			t.Run(name, func(t *testing.T) { run(t, name, row) })
		})
	}
	all.Wait()
}

// start starts a fleet for one test.
func start(t *testing.T, o fleet.Options) *fleet.Fleet {
	t.Helper()
	onProcesses(t)
	o.Intervals = cmp.Or(o.Intervals, quick)
	f, err := fleet.Start(t.Context(), o)
	must(t, err)
	t.Cleanup(func() {
		must(t, f.Stop())
		t.Logf("%v", &f.Usage)
	})
	return f
}

// startManager starts a manager of a fleet, and checks that it ends without a data race.
func startManager(t *testing.T, f *fleet.Fleet, dir string) *fleet.Manager {
	t.Helper()
	return startManagerWith(t, f, fleet.ManagerOptions{Dir: dir})
}

// startManagerWith is startManager with options.
func startManagerWith(t *testing.T, f *fleet.Fleet, o fleet.ManagerOptions) *fleet.Manager {
	t.Helper()
	o.Path = managerFor(t)
	m, err := f.StartManager(t.Context(), o)
	must(t, err)
	t.Cleanup(func() {
		must(t, m.Kill())
		checkLog(t, m)
	})
	return m
}

// checkLog fails the test if a manager that has ended had a data race, and shows the log of a test that failed.
func checkLog(t *testing.T, m *fleet.Manager) {
	t.Helper()
	log := m.Log()
	if strings.Contains(log, "DATA RACE") {
		t.Error("the manager has a data race")
	}
	if t.Failed() {
		t.Logf("the manager's log:\n%s", log)
	}
}

// update changes an object, and retries on conflicts.
func update[T client.Object](t *testing.T, m *fleet.Member, o T, change func(T)) {
	t.Helper()
	eventually(t, fmt.Sprintf("changing %T %s", o, o.GetName()), func(ctx context.Context) error {
		if err := read(ctx, m, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		change(o)
		return m.Client.Update(ctx, o)
	})
}

// remove deletes an object, if it still exists, at the end of a test.
func remove(t *testing.T, m *fleet.Member, o client.Object) {
	t.Helper()
	t.Cleanup(func() {
		if err := m.Client.Delete(context.WithoutCancel(t.Context()), o); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("deleting %T %s: %v", o, o.GetName(), err)
		}
	})
}

// create creates an object, and deletes it at the end of the test.
func create(t *testing.T, m *fleet.Member, o client.Object) client.ObjectKey {
	t.Helper()
	must(t, m.Client.Create(t.Context(), o))
	remove(t, m, o)
	return client.ObjectKeyFromObject(o)
}

// createMany creates n objects in a cluster, some of them at once, and leaves them there.
func createMany(t *testing.T, m *fleet.Member, n, atOnce int, object func(i int) client.Object) {
	t.Helper()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(atOnce)
	for i := range n {
		g.Go(func() error { return m.Client.Create(ctx, object(i)) })
	}
	must(t, g.Wait())
}

// unique derives a name from the test's name.
func unique(t *testing.T) string {
	t.Helper()
	name := strings.ToLower(strings.TrimPrefix(strings.ReplaceAll(t.Name(), "/", "-"), "Test"))
	return strings.Trim(name[:min(len(name), 50)], "-")
}

// deleteKind deletes a CustomResourceDefinition with all objects of its kind, and waits until it is gone.
func deleteKind(t *testing.T, m *fleet.Member, name string) {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	must(t, m.Client.Delete(t.Context(), crd))
	eventually(t, name+" is gone", func(ctx context.Context) error {
		err := read(ctx, m, client.ObjectKeyFromObject(crd), crd)
		if err == nil {
			return errors.New("it is there")
		}
		return client.IgnoreNotFound(err)
	})
}
