package generate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// contested is a hub where another client reverts the operator's writes of an AlertRule.
type contested struct {
	*testing.T
	*Reconciler

	clock    *testingclock.FakePassiveClock
	recorder *events.FakeRecorder
	refuse   error             // what a write is answered with
	crd      metav1.ObjectMeta // of AlertRules; without a UID, it does not exist
	applies  int
	patches  int
	deletes  int
	reads    int                 // of the CustomResourceDefinition
	old      *v1alpha1.AlertRule // what the cache shows; nil if it is up to date
	shown    []string            // spokes
	changed  []rule.Key
}

// Spoke, Spokes and ChangedSoon implement Spokes.
func (c *contested) Spoke(string) *spoke.Spoke {
	return &spoke.Spoke{Name: "spoke", Live: answering(exists), Identity: &identity{}}
}
func (c *contested) Spokes() []*spoke.Spoke  { return nil }
func (c *contested) KindsChanged()           {}
func (c *contested) ChangedSoon(name string) { c.shown = append(c.shown, name) }

// exists answers each read with an object without labels.
func exists(client.ObjectKey, client.Object) error { return nil }

func newContested(t *testing.T) *contested {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter())
	if err := hub.SetupIndexes(t.Context(), indexer{builder}, "hub", "rulefleet-generated"); err != nil {
		t.Fatal(err)
	}
	return newContestedOn(t, builder.WithReturnManagedFields().Build())
}

// newContestedOn is newContested with a hub that a client leads to.
func newContestedOn(t *testing.T, server client.WithWatch) *contested {
	t.Helper()
	c := &contested{T: t, clock: testingclock.NewFakePassiveClock(time.Unix(1e9, 0)), recorder: events.NewFakeRecorder(100)}
	c.crd.UID = "first"
	server = interceptor.NewClient(server, interceptor.Funcs{
		Get: func(ctx context.Context, cl client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if ar, ok := o.(*v1alpha1.AlertRule); ok && c.old != nil {
				c.old.DeepCopyInto(ar)
				return nil
			}
			crd, ok := o.(*metav1.PartialObjectMetadata)
			if !ok {
				return cl.Get(ctx, key, o, opts...)
			}
			c.reads++
			if c.crd.UID == "" {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "customresourcedefinitions"}, key.Name)
			}
			crd.ObjectMeta = c.crd
			return nil
		},
		Apply: func(ctx context.Context, cl client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			c.applies++
			if c.refuse != nil {
				return c.refuse
			}
			return cl.Apply(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, cl client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			c.patches++
			return cl.Patch(ctx, o, patch, opts...)
		},
		Delete: func(ctx context.Context, cl client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			c.deletes++
			if c.refuse != nil {
				return c.refuse
			}
			return cl.Delete(ctx, o, opts...)
		},
	})
	c.Reconciler = NewReconciler(Options{
		Hub: server, Guard: guarded(server), Namespace: "rulefleet-generated", Brake: brake.New(c.clock, 10*time.Minute), Spokes: c, Recorder: c.recorder,
		Contests: contest.New(c.clock, 0), Changed: func(key rule.Key) { c.changed = append(c.changed, key) },
	})
	if _, _, err := c.Guard.Kinds.Defined(t.Context(), hub.AlertRules); err != nil { // as at the start
		t.Fatal(err)
	}
	for _, o := range []client.Object{
		&v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "spoke"}},
		&v1alpha1.AlertRuleTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: "down"},
			Spec:       v1alpha1.AlertRuleTemplateSpec{AlertSpec: v1alpha1.AlertSpec{Alert: "Down", Expr: "up == 0"}},
		},
	} {
		err := c.Hub.Create(t.Context(), o)
		if client.IgnoreAlreadyExists(err) != nil { // a server that tests share
			t.Fatal(err)
		}
	}
	return c
}

// apply applies the AlertRule after the event of the last write, and checks the number of requests and when to
// retry.
func (c *contested) apply(applies int, want time.Duration) {
	c.Helper()
	c.seen()
	c.applies = 0
	c.Guard.Live = guarded(c.Hub).Live // which remembers nothing
	ar := made()
	creates := c.Hub.Get(c.Context(), hub.Key(ar), &v1alpha1.AlertRule{}) != nil && applies == 1
	_, again, _, err := c.Reconciler.apply(c.Context(), deploymentWeb(), map[string]*v1alpha1.AlertRule{ar.Name: ar})
	if creates && want == 0 && again > 0 && again <= 10*time.Second {
		again = 0 // it checks whether the event of the creation came
	}
	if err != nil || c.applies != applies || again != want {
		c.Fatalf("applied %d times, again after %v, %v; want %d times, %v", c.applies, again, err, applies, want)
	}
}

// seen is the event of the last write.
func (c *contested) seen() { c.writes.Seen(hub.Key(made()), "999999") }

func (c *contested) read() *v1alpha1.AlertRule {
	c.Helper()
	ar := &v1alpha1.AlertRule{}
	if err := c.Hub.Get(c.Context(), hub.Key(made()), ar); err != nil {
		c.Fatal(err)
	}
	return ar
}

func (c *contested) edit(change func(*v1alpha1.AlertRule)) {
	c.Helper()
	ar := c.read()
	change(ar)
	if err := c.Hub.Update(c.Context(), ar, client.FieldOwner("argocd-controller")); err != nil {
		c.Fatal(err)
	}
}

// vanish deletes the AlertRule, if it is there.
func (c *contested) vanish() {
	c.Helper()
	if err := client.IgnoreNotFound(c.Hub.Delete(c.Context(), made())); err != nil {
		c.Fatal(err)
	}
}

func (c *contested) pass(d time.Duration) { c.clock.SetTime(c.clock.Now().Add(d)) }

// wantShown checks what is shown of the contest.
func (c *contested) wantShown(words ...string) {
	c.Helper()
	message, _ := c.Contests.OfRule("AlertRule", rule.KeyOf(made()), "")
	spokes, _ := c.Contests.InSpoke("spoke")
	for _, s := range words {
		if !strings.Contains(message, s) || !strings.Contains(spokes, s) {
			c.Errorf("the rule shows %q, and the spoke %q; want %q", message, spokes, s)
		}
	}
	if len(words) == 0 && message+spokes != "" {
		c.Errorf("the rule shows %q, and the spoke %q", message, spokes)
	}
	if told := len(c.shown) == 1 && c.shown[0] == "spoke" && len(c.changed) == 1 && c.changed[0] == rule.KeyOf(made()); told != (len(words) > 0) {
		c.Errorf("told that %v and %v changed", c.shown, c.changed)
	}
}

func TestContest(t *testing.T) {
	conflict := apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("alertrules").GroupResource(), made().Name, errors.New("changed"))
	other := func(ar *v1alpha1.AlertRule) { ar.Labels[v1alpha1.TemplateLabel] = "other" }
	for name, fn := range map[string]func(c *contested){
		"changed back": func(c *contested) {
			c.apply(1, 0)
			c.edit(other)
			c.apply(1, 0)
			c.wantShown()
			c.edit(other)
			c.apply(0, time.Second)
			c.wantShown(`field manager "argocd-controller" changes AlertRule rulefleet-generated/down-spoke-shop-web-abc back`)
			if e := <-c.recorder.Events; !strings.HasPrefix(e, "Warning Contested field manager") {
				c.Errorf("the Event is %q", e)
			}
			c.pass(time.Second)
			c.apply(1, 0)
			c.apply(0, 0)
			c.wantShown("argocd-controller") // it may be changed again
			c.pass(30 * time.Second)
			if message, _ := c.Contests.InSpoke("spoke"); message != "" {
				c.Errorf("the spoke still shows %q", message)
			}
		},
		"lost with its kind": func(c *contested) {
			c.apply(1, 0)
			for range 2 { // while its CustomResourceDefinition is being deleted, an apply creates it
				if err := c.Hub.Delete(c.Context(), made()); err != nil {
					c.Fatal(err)
				}
				c.seen()
				ar := made()
				if _, _, _, err := c.Reconciler.apply(c.Context(), deploymentWeb(), map[string]*v1alpha1.AlertRule{ar.Name: ar}); err != nil {
					c.Fatal(err)
				}
			}
			c.refuse = apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", v1alpha1.GroupVersion.WithResource("alertrules").GroupResource(), made().Name, "404 page not found", 0, true)
			c.pass(time.Second)
			c.seen()
			ar := made()
			if _, _, _, err := c.Reconciler.apply(c.Context(), deploymentWeb(), map[string]*v1alpha1.AlertRule{ar.Name: ar}); err == nil {
				c.Error("there was no error")
			}
			c.refuse, c.shown, c.changed = nil, nil, nil
			c.wantShown()
			c.apply(1, 0)
		},
		"lost with its kind, which still takes applies": func(c *contested) {
			refused := func() {
				c.Helper()
				c.vanish()
				for range 3 {
					c.seen()
					c.applies = 0
					ar := made()
					_, again, _, err := c.Reconciler.apply(c.Context(), deploymentWeb(), map[string]*v1alpha1.AlertRule{ar.Name: ar})
					if c.applies > 0 || again > 0 || err == nil || !strings.Contains(err.Error(), "does not serve AlertRules") {
						c.Fatalf("applied %d times, again after %v, %v", c.applies, again, err)
					}
				}
			}
			c.apply(1, 0)
			c.crd.DeletionTimestamp = new(metav1.Now())
			c.vanish()
			c.apply(1, 0)
			refused()
			c.crd = metav1.ObjectMeta{}
			refused()
			c.crd.UID = "second"
			c.apply(1, 0)
			c.vanish()
			c.apply(1, 0) // one revert
			c.crd.UID = "third"
			c.vanish()
			c.apply(1, 0)
			c.wantShown()
			reads := c.reads
			c.vanish()
			c.apply(1, 0)
			c.vanish()
			c.apply(0, time.Second)
			c.wantShown("an unknown client deletes AlertRule")
			c.pass(time.Second)
			c.apply(1, 0)
			if n := c.reads - reads; n != 2 {
				c.Errorf("the CustomResourceDefinition was read %d times", n)
			}
		},
		"an edit that wins": func(c *contested) {
			c.apply(1, 0)
			for i := range 5 {
				c.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.For = v1alpha1.Duration(fmt.Sprintf("%dm", i+2)) })
				c.apply(max(1-i, 0), 0) // the first has it noted that the field is theirs
			}
			c.wantShown()
		},
		"an edit that is made and given up": func(c *contested) {
			c.apply(1, 0)
			for range 3 {
				c.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.For = "7m" })
				c.apply(1, 0) // notes that the field is theirs
				c.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.For = "" })
				c.apply(1, 0) // the template's value is back
			}
			c.wantShown()
		},
		"a reset that is asked for again and again": func(c *contested) {
			ask := func(ar *v1alpha1.AlertRule) { ar.Annotations[v1alpha1.ResetFieldsAnnotation] = "all" }
			c.apply(1, 0)
			for _, wait := range []time.Duration{0, 0, time.Second, 2 * time.Second} {
				c.edit(ask)
				if wait > 0 {
					c.apply(0, wait)
					c.pass(wait)
				}
				c.apply(0, 0) // it is a patch
				c.apply(0, 0)
				if ar := c.read(); ar.Annotations[v1alpha1.ResetFieldsAnnotation] != "" {
					c.Fatalf("it still has %v", ar.Annotations)
				}
			}
		},
		"a field, and a reset of it, again and again": func(c *contested) {
			c.apply(1, 0)
			writes := 0
			for began := c.clock.Now(); c.clock.Now().Sub(began) < time.Minute; {
				c.edit(func(ar *v1alpha1.AlertRule) {
					ar.Spec.For, ar.Annotations[v1alpha1.ResetFieldsAnnotation] = "7m", "all"
				})
				for range 2 { // the reset, and what the template says
					c.seen()
					c.applies, c.patches = 0, 0
					ar := made()
					_, again, _, err := c.Reconciler.apply(c.Context(), &templating.Workload{Kind: v1alpha1.DeploymentKind, Cluster: rule.Cluster{Name: "spoke"}}, map[string]*v1alpha1.AlertRule{ar.Name: ar})
					if err != nil {
						c.Fatal(err)
					}
					writes += c.applies + c.patches
					c.pass(max(again, 10*time.Millisecond))
				}
			}
			if writes < 6 || writes > 24 {
				c.Errorf("%d writes in a minute", writes)
			}
			if message, _ := c.Contests.InSpoke("spoke"); !strings.Contains(message, "argocd-controller") {
				c.Errorf("the spoke shows %q", message)
			}
		},
		"a cache that is behind": func(c *contested) {
			c.apply(1, 0)
			for range 3 {
				old := c.read()
				c.edit(other)
				was := c.read()
				c.apply(1, 0)
				c.old = was
				for range 3 { // until it shows the write
					c.apply(0, staleRetry)
				}
				c.old = nil
				c.apply(0, 0)
				if got := c.read(); got.Labels[v1alpha1.TemplateLabel] != old.Labels[v1alpha1.TemplateLabel] {
					c.Fatalf("the labels are %v", got.Labels)
				}
				c.pass(30 * time.Minute) // the edit counts no more
			}
			c.wantShown()
		},
		"they are faster": func(c *contested) {
			c.apply(1, 0)
			c.edit(other)
			c.apply(1, 0)
			c.edit(other)
			c.apply(0, time.Second)
			c.pass(time.Second)
			c.refuse = conflict
			c.apply(1, 2*time.Second)
			c.pass(2 * time.Second)
			c.apply(1, 4*time.Second)
		},
		"they give in": func(c *contested) {
			c.apply(1, 0)
			c.edit(other)
			c.apply(1, 0)
			c.edit(other)
			c.apply(0, time.Second)
			c.edit(func(ar *v1alpha1.AlertRule) {
				ar.Labels[v1alpha1.TemplateLabel] = made().Labels[v1alpha1.TemplateLabel]
			})
			c.apply(0, 0)
			c.pass(30 * time.Second)
			if message, _ := c.Contests.InSpoke("spoke"); message != "" {
				c.Errorf("the spoke still shows %q", message)
			}
		},
		"deleted": func(c *contested) {
			c.apply(1, 0)
			c.vanish()
			c.apply(1, 0)
			c.vanish()
			c.apply(0, time.Second)
			c.wantShown("an unknown client deletes AlertRule")
			if !c.quota.take("spoke", new(int32(1)), "shop", types.NamespacedName{Name: "another"}) {
				c.Error("what waits takes another's room")
			}
			c.quota.release("spoke", types.NamespacedName{Name: "another"})
			c.pass(time.Second)
			c.apply(1, 0)
		},
		"in its place": func(c *contested) {
			usurp := func() {
				if err := client.IgnoreNotFound(c.Hub.Delete(c.Context(), made())); err != nil {
					c.Fatal(err)
				}
				ar := made()
				ar.Spec.WorkloadRef.Name = "another"
				if err := c.Hub.Create(c.Context(), ar, client.FieldOwner("argocd-controller")); err != nil {
					c.Fatal(err)
				}
			}
			c.apply(1, 0)
			for _, wait := range []time.Duration{0, time.Second, 2 * time.Second} {
				usurp()
				if wait > 0 {
					c.apply(0, wait)
					c.pass(wait)
				}
				c.apply(0, staleRetry) // it is deleted
				c.apply(1, 0)
			}
		},
		"made again": func(c *contested) {
			req := queue.Request{Kind: string(v1alpha1.DeploymentKind), ClusterName: "spoke"}
			req.Namespace, req.Name = "shop", "web"
			uid := 0
			prune := func(deletes int, want time.Duration) {
				c.Helper()
				ar := made()
				uid++
				ar.UID = types.UID(strconv.Itoa(uid))
				err := c.Hub.Create(c.Context(), ar, client.FieldOwner("argocd-controller"))
				if client.IgnoreAlreadyExists(err) != nil { // else it was not deleted
					c.Fatal(err)
				}
				if err := c.Hub.Get(c.Context(), hub.Key(ar), ar); err != nil {
					c.Fatal(err)
				}
				c.deletes = 0
				wait, err := c.Reconciler.prune(c.Context(), req, []doomed{{rule: ar}})
				if err != nil || c.deletes != deletes || wait != want {
					c.Fatalf("deleted %d times, again after %v, %v; want %d times, %v", c.deletes, wait, err, deletes, want)
				}
			}
			prune(1, 0)
			prune(1, 0)
			prune(0, time.Second)
			c.wantShown(`field manager "argocd-controller" creates AlertRule`)
			c.pass(time.Second)
			prune(1, 0)
			prune(0, 2*time.Second)
			c.pass(2 * time.Second)
			c.refuse = conflict
			prune(1, 4*time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) { fn(newContested(t)) })
	}
}

// The event of a write is awaited only if the write changed something: otherwise there is none.
func TestWriteWithoutAChange(t *testing.T) {
	c := newContested(t)
	existing := made()
	existing.UID, existing.ResourceVersion = "uid", "7"
	for version, want := range map[string]time.Duration{"7": 0, "8": staleRetry} {
		answer := existing.DeepCopy()
		answer.ResourceVersion = version
		c.wrote(c.writeOf(existing, existing, "written with "+version), existing, answer)
		if wait := c.yield(c.writeOf(existing, existing, "another intention"), existing); wait != want {
			t.Errorf("after an answer of version %s, the next write waits %v, want %v", version, wait, want)
		}
	}
}

// An AlertRule that waits for a finalizer is not deleted again, because nobody created it again.
func TestNoContestWithFinalizers(t *testing.T) {
	c := newContested(t)
	ar := made()
	ar.Finalizers = []string{"example.com/wait"}
	if err := c.Hub.Create(t.Context(), ar); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		c.deletes = 0
		c.seen()
		existing := []v1alpha1.AlertRule{*c.read()}
		unfounded, _, err := c.unfoundedOf(t.Context(), nil, nil, nil, existing)
		if err != nil {
			t.Fatal(err)
		}
		wait, err := c.prune(t.Context(), queue.Request{Kind: string(v1alpha1.DeploymentKind), ClusterName: "spoke"}, unfounded)
		if err != nil || wait != 0 || c.deletes != max(1-i, 0) {
			t.Errorf("time %d: deleted %d times, again after %v, %v", i+1, c.deletes, wait, err)
		}
	}
	c.wantShown()
}

// TestContestOfMetadata changes only labels or only annotations, on a real API server. Those of the template
// are restored, and shown as contested. Others cause no write.
func TestContestOfMetadata(t *testing.T) {
	f, err := fleet.Start(t.Context(), fleet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Stop() })
	server, err := client.NewWithWatch(f.Hub.RESTConfig(), client.Options{Scheme: fleet.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: made().Namespace}}
	err = server.Create(t.Context(), ns)
	if client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(ar *v1alpha1.AlertRule, round string)
		ours   bool
	}{
		"a label": {func(ar *v1alpha1.AlertRule, round string) { ar.Labels[v1alpha1.TemplateLabel] = "x" + round }, true},
		"an annotation": {func(ar *v1alpha1.AlertRule, round string) {
			ar.Annotations[v1alpha1.AppliedFieldsAnnotation] = "x" + round
		}, true},
		"a foreign label":      {func(ar *v1alpha1.AlertRule, round string) { ar.Labels["team"] = "x" + round }, false},
		"a foreign annotation": {func(ar *v1alpha1.AlertRule, round string) { ar.Annotations["note"] = round }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newContestedOn(t, server)
			t.Cleanup(func() { _ = server.Delete(context.WithoutCancel(t.Context()), made()) })
			c.apply(1, 0)
			if !tc.ours {
				for _, round := range []string{"1", "2", "3", "4"} {
					c.edit(func(ar *v1alpha1.AlertRule) { tc.change(ar, round) })
					c.apply(0, 0)
				}
				c.wantShown()
				if ar := c.read(); ar.Labels["team"]+ar.Annotations["note"] == "" {
					t.Errorf("it has lost what is not ours: %v, %v", ar.Labels, ar.Annotations)
				}
				return
			}
			c.edit(func(ar *v1alpha1.AlertRule) { tc.change(ar, "1") })
			c.apply(1, 0)
			c.wantShown()
			c.edit(func(ar *v1alpha1.AlertRule) { tc.change(ar, "2") })
			c.apply(0, time.Second)
			c.wantShown(`field manager "argocd-controller" changes AlertRule rulefleet-generated/down-spoke-shop-web-abc back`)
			c.pass(time.Second)
			c.apply(1, 0)
			c.apply(0, 0)
		})
	}
}
