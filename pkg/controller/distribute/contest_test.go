package distribute

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

const (
	contested = "Pending/Contested"
	them      = "argocd-controller"
)

// spoil is another client's change of the rule's PrometheusRule.
func spoil(o *monitoringv1.PrometheusRule) {
	o.Spec.Groups[0].Rules[0].Expr = intstr.FromString("vector(0)")
}

func (w *world) spoil() {
	w.Helper()
	w.touch(spoil)
	w.sync()
}

// vanish deletes the rule's PrometheusRule as another client.
func (w *world) vanish() {
	w.Helper()
	if err := w.server.Delete(w.Context(), w.object()); err != nil {
		w.Fatal(err)
	}
	w.sync()
}

// again returns a function that creates an object again.
func (w *world) again(o *monitoringv1.PrometheusRule) func() {
	return func() {
		w.Helper()
		o = o.DeepCopy()
		o.ResourceVersion, o.UID = "", o.UID+"x"
		w.put(w.server, o)
		w.sync()
	}
}

func (w *world) pass(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

// wantWait checks when the rule is reconciled again.
func (w *world) wantWait(result reconcile.Result, want time.Duration) {
	w.Helper()
	if result.RequeueAfter != want {
		w.Fatalf("it is looked at again after %v, want %v", result.RequeueAfter, want)
	}
}

// wantWords checks the row's message.
func (w *world) wantWords(row *v1alpha1.ClusterStatus, words ...string) {
	w.Helper()
	for _, s := range words {
		if !strings.Contains(row.Message, s) {
			w.Errorf("the message does not say %q: %s", s, row.Message)
		}
	}
}

func TestContest(t *testing.T) {
	for name, fn := range map[string]func(w *world){
		"written back": func(w *world) {
			w.spoil()
			w.wantWait(w.want("update shop"), 0)
			w.wantRow("Applied")
			w.sync()
			w.spoil()
			w.wantWait(w.want("get shop"), time.Second) // who it was
			w.wantWords(w.wantRow(contested), `field manager "argocd-controller" changes PrometheusRule shop/`+w.objectName(), "(2 times)")
			if len(w.changed) == 0 {
				w.Error("the SpokeCluster does not show it")
			}
			w.pass(time.Second / 2)
			w.wantWait(w.want(), time.Second/2)
			w.wantWords(w.wantRow(contested), them)
			w.pass(time.Second / 2)
			w.wantWait(w.want("update shop"), 30*time.Second)
			w.wantRow(contested) // it may be undone again
			w.sync()
			w.pass(30 * time.Second)
			w.wantWait(w.want(), 0)
			w.wantRow("Applied")
		},
		"again and again": func(w *world) {
			writes := 0
			for began := w.clock.Now(); w.clock.Now().Sub(began) <= time.Minute && writes < 20; writes++ {
				w.spoil()
				w.rules.ClearActions()
				for {
					result, err := w.Reconcile(w.Context(), hub.Request("s", w.key("down")))
					if err != nil {
						w.Fatal(err)
					}
					if w.rules.Actions()[len(w.rules.Actions())-1].GetVerb() == "update" {
						break
					}
					w.pass(result.RequeueAfter)
				}
				w.sync()
			}
			if writes > 7 {
				w.Errorf("%d writes in a minute", writes)
			}
		},
		"they are always faster": func(w *world) {
			for range 4 {
				w.spoil()
				w.touch(func(o *monitoringv1.PrometheusRule) { o.Annotations["again"] += "x" })
				w.wantWait(w.want("update shop"), staleRetry)
				w.wantRow("")
				w.sync()
			}
			w.touch(func(o *monitoringv1.PrometheusRule) { o.Annotations["again"] += "x" })
			w.wantWait(w.want("update shop", "get shop"), time.Second)
			w.wantWords(w.wantRow(contested), `field manager "argocd-controller" changes PrometheusRule shop/`+w.objectName()+" so often that no write succeeds")
			w.sync()
			w.pass(time.Second / 2)
			w.wantWait(w.want(), time.Second/2)
			w.pass(time.Second / 2)
			w.want("update shop")
			w.wantRow(contested)
		},
		"the rule is edited": func(w *world) {
			w.spoil()
			w.want("update shop")
			w.sync()
			w.spoil()
			w.want("get shop")
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up < 1" })
			w.want("update shop")
			w.sync()
			w.spoil()
			w.wantWait(w.want("get shop"), 2*time.Second) // the edit does not begin a new contest
			w.wantRow(contested)
		},
		"they give in": func(w *world) {
			ours := w.object()
			w.spoil()
			w.want("update shop")
			w.sync()
			w.spoil()
			w.want("get shop")
			w.touch(func(o *monitoringv1.PrometheusRule) { o.Spec = ours.Spec })
			w.sync()
			w.wantWait(w.want(), 30*time.Second)
			w.wantRow(contested)
			w.pass(30 * time.Second)
			w.wantWait(w.want(), 0)
			w.wantRow("Applied")
		},
		"deleted": func(w *world) {
			w.vanish()
			w.want("create shop")
			w.sync()
			w.vanish()
			w.wantWait(w.want(), time.Second) // nothing is left that says who it was
			w.wantWords(w.wantRow(contested), "an unknown client deletes")
			w.pass(time.Second)
			w.want("create shop")
			w.wantRow(contested)
		},
		"made again": func(w *world) {
			again := w.again(w.object())
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled })
			w.want("delete shop")
			w.sync()
			again()
			w.want("delete shop")
			w.sync()
			again()
			w.wantWait(w.want("get shop"), time.Second)
			w.wantRow("forgotten") // it is not meant to be there
			if message, _ := w.Contests.InSpoke("s"); !strings.Contains(message, `field manager "argocd-controller" creates PrometheusRule shop/`+w.objectName()+" again") {
				w.Errorf("the spoke shows %q", message)
			}
			w.pass(time.Second)
			w.want("delete shop")
			w.sync()
			again()
			w.wantWait(w.want("get shop"), 2*time.Second)
			w.pass(2 * time.Second)
			if err := w.server.Delete(w.Context(), w.object()); err != nil { // they delete it
				w.Fatal(err)
			}
			w.want("delete shop")
			w.pass(30 * time.Second)
			if message, _ := w.Contests.InSpoke("s"); message != "" {
				w.Errorf("the spoke still shows %q", message)
			}
		},
		"made again elsewhere": func(w *world) {
			o := w.object()
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Namespace, ar.Spec.RuleNamespace = "shop", "shop" })
			for range 2 {
				stray := o.DeepCopy()
				stray.Namespace, stray.ResourceVersion, stray.UID = "monitoring", "", stray.UID+"x"
				w.put(w.server, stray)
				w.sync()
				w.want("delete monitoring")
				w.wantRow("Applied")
				w.sync()
			}
			o.Namespace, o.ResourceVersion, o.UID = "monitoring", "", o.UID+"y"
			w.put(w.server, o)
			w.sync()
			w.wantWait(w.want("get monitoring"), time.Second)
			w.wantWords(w.wantRow(contested), "PrometheusRule monitoring/")
			w.pass(time.Second)
			w.wantWait(w.want("delete monitoring"), 30*time.Second)
			w.wantRow(contested)
			w.sync()
			w.pass(30 * time.Second)
			w.wantWait(w.want(), 0)
			w.wantRow("Applied")
		},
		"nobody can be named": func(w *world) {
			w.spoil()
			w.want("update shop")
			w.sync()
			w.spoil()
			w.refuse["get"] = errors.New("no answer")
			w.wantWait(w.want("get shop"), time.Second)
			w.wantWords(w.wantRow(contested), "an unknown client changes")
		},
		"they are faster": func(w *world) {
			w.spoil()
			w.want("update shop")
			w.sync()
			w.spoil()
			w.want("get shop")
			w.pass(time.Second)
			w.refuse["update"] = apierrors.NewConflict(resource, w.objectName(), errors.New("changed"))
			w.wantWait(w.want("update shop"), 2*time.Second)
			w.pass(2 * time.Second)
			w.wantWait(w.want("update shop"), 4*time.Second)
		},
		"they are faster than a deletion": func(w *world) {
			again := w.again(w.object())
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled })
			for range 2 {
				w.want("delete shop")
				w.sync()
				again()
			}
			w.want("get shop")
			w.pass(time.Second)
			w.refuse["delete"] = apierrors.NewConflict(resource, w.objectName(), errors.New("changed"))
			w.wantWait(w.want("delete shop"), 2*time.Second)
			w.pass(2 * time.Second)
			w.wantWait(w.want("delete shop"), 4*time.Second)
		},
		"suspended meanwhile": func(w *world) {
			w.spoil()
			w.want("update shop")
			w.sync()
			w.spoil()
			w.want("get shop")
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Suspend = new(true) })
			w.want()
			w.wantRow("Applied/Suspended")
		},
		"mutated is no contest": func(w *world) {
			w.mutate = relabel
			for range 3 {
				w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Expr += " or up" })
				w.want("update shop")
				w.wantRow("Pending/Mutated")
				w.sync()
				w.wantWait(w.want(), 0)
				w.wantRow("Pending/Mutated")
			}
		},
		"a restart": func(w *world) {
			for range 3 {
				w.spoil()
				w.want("update shop")
				w.sync()
				w.restart()
			}
		},
	} {
		forKinds(t, name, func(w *world) {
			w.apply()
			at := metav1.Unix(1e9, 0)
			w.fields = []metav1.ManagedFieldsEntry{{Manager: contest.Manager, Time: &at}, {Manager: them, Time: &at}}
			fn(w)
		})
	}
}

// TestContestOfMetadata changes only labels or only annotations, on a real API server. The rule's own are
// restored, and shown as contested. Others cause no write.
func TestContestOfMetadata(t *testing.T) {
	f, err := fleet.Start(t.Context(), fleet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Stop() })
	if err := f.InstallMonitoringCRD(t.Context(), f.Hub, "prometheusrules"); err != nil {
		t.Fatal(err)
	}
	server, err := client.NewWithWatch(f.Hub.RESTConfig(), client.Options{Scheme: spoke.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	type metadata = func(o *monitoringv1.PrometheusRule, round string)
	for name, tc := range map[string]struct {
		change metadata
		ours   bool
	}{
		"a label": {func(o *monitoringv1.PrometheusRule, round string) {
			o.Labels[v1alpha1.AlertRuleHashLabel] = "x" + round
		}, true},
		"a label is removed": {func(o *monitoringv1.PrometheusRule, _ string) { delete(o.Labels, v1alpha1.AlertRuleHashLabel) }, true},
		"an annotation": {func(o *monitoringv1.PrometheusRule, round string) {
			o.Annotations[v1alpha1.AlertRuleAnnotation] = "shop/x" + round
		}, true},
		"all annotations go": {func(o *monitoringv1.PrometheusRule, _ string) { o.Annotations = nil }, true},
		"a foreign label":    {func(o *monitoringv1.PrometheusRule, round string) { o.Labels["team"] = "x" + round }, false},
		"a foreign annotation": {func(o *monitoringv1.PrometheusRule, round string) {
			o.Annotations = map[string]string{v1alpha1.AlertRuleAnnotation: "shop/down", "note": round}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldOn(t, server).apply()
			o := w.object()
			t.Cleanup(func() { _ = server.Delete(context.WithoutCancel(t.Context()), o) })
			undo := func(round string) {
				w.touch(func(o *monitoringv1.PrometheusRule) { tc.change(o, round) })
				w.sync()
			}
			if !tc.ours {
				for _, round := range []string{"1", "2", "3", "4"} {
					undo(round)
					w.wantWait(w.want(), 0)
					w.wantRow("Applied")
				}
				if o := w.object(); o.Labels["team"]+o.Annotations["note"] == "" {
					t.Errorf("it has lost what is not ours: %v, %v", o.Labels, o.Annotations)
				}
				return
			}
			undo("1")
			w.wantWait(w.want("update shop"), 0)
			w.wantRow("Applied")
			w.sync()
			undo("2")
			w.wantWait(w.want("get shop"), time.Second)
			who := `field manager "argocd-controller"`
			if _, left := w.object().Labels[v1alpha1.AlertRuleHashLabel]; !left || w.object().Annotations == nil {
				who = "an unknown client" // that only removes fields
			}
			w.wantWords(w.wantRow(contested), who+" changes PrometheusRule shop/"+objectName, "(2 times)")
			w.pass(time.Second)
			w.want("update shop")
			w.sync()
			w.want()
			w.wantRow(contested)
			w.pass(30 * time.Second)
			w.want()
			w.wantRow("Applied")
		})
	}
}
