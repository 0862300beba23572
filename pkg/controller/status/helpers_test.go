package status

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

const namespace = "default"

// The logs of controller-runtime and client-go are discarded.
func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// startHub starts a hub with a real API server.
func startHub(t *testing.T) *fleet.Member {
	t.Helper()
	f, err := fleet.Start(t.Context(), fleet.Options{Audit: true})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			must(t, f.Hub.Dump(t.Output()))
		}
		must(t, f.Stop())
	})
	return f.Hub
}

// newReconciler returns a Reconciler without a cache: one call of Reconcile sees all earlier writes. By its clock, which
// is ahead, no rule is new.
func newReconciler(c client.Client) *Reconciler {
	r := &Reconciler{Client: c, Board: newBoard(), Recorder: events.NewFakeRecorder(100), Validator: validation.New(validate)}
	r.damper.clock = ahead{clock.RealClock{}}
	return r
}

// ahead is a clock that is a minute ahead.
type ahead struct{ clock.PassiveClock }

func (a ahead) Now() time.Time { return a.PassiveClock.Now().Add(time.Minute) }

// newBoard returns a Board whose messages about failures nobody reads.
func newBoard() *Board { return NewBoard(0, 10, func(string) {}) }

// kept returns the spokes in which the Board has something of a rule.
func (b *Board) kept(key rule.Key) []string {
	var out []string
	for name, s := range b.spokes {
		if s.verdicts[key] != nil {
			out = append(out, name)
		}
	}
	return out
}

var validate = validation.Options{AdminNamespace: namespace, GeneratedNamespace: "generated"}

// alertRule returns a rule that is placed on spokes by name, or everywhere.
func alertRule(name string, spokes ...v1alpha1.ClusterName) *v1alpha1.AlertRule {
	ar := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	ar.Spec.Alert, ar.Spec.Expr = "Down", "up == 0"
	if ar.Spec.Placement.Names = spokes; len(spokes) == 0 {
		ar.Spec.Placement.Selector = &metav1.LabelSelector{}
	}
	return ar
}

// connect creates a SpokeCluster and its conditions, as the registrar does.
func connect(t *testing.T, c client.Client, name string, connected metav1.Condition) {
	t.Helper()
	sc := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	must(t, c.Create(t.Context(), sc))
	setConnected(t, c, sc, connected)
}

func setConnected(t *testing.T, c client.Client, sc *v1alpha1.SpokeCluster, connected metav1.Condition) {
	t.Helper()
	base := sc.DeepCopy()
	sc.Status.ObservedGeneration = sc.Generation
	for _, kind := range []string{v1alpha1.ConditionConnected, v1alpha1.ConditionReady} {
		connected.Type, connected.ObservedGeneration = kind, sc.Generation
		apimeta.SetStatusCondition(&sc.Status.Conditions, connected)
	}
	must(t, c.Status().Patch(t.Context(), sc, client.MergeFrom(base)))
}

func up(since metav1.Time) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConnected, Message: "the spoke answers", LastTransitionTime: since}
}

func down(since metav1.Time) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonUnreachable, Message: fmt.Sprintf("no answer at %d", since.Unix()), LastTransitionTime: since}
}

// reconcileRule calls Reconcile, which has to succeed, and returns the rule.
func reconcileRule(t *testing.T, r *Reconciler, ar *v1alpha1.AlertRule) *v1alpha1.AlertRule {
	t.Helper()
	result, err := r.Reconcile(t.Context(), rule.KeyOf(ar))
	if err != nil || result != (reconcile.Result{}) {
		t.Fatalf("Reconcile returned %v, %v", result, err)
	}
	got := &v1alpha1.AlertRule{}
	must(t, r.Client.Get(t.Context(), hub.Key(ar), got))
	return got
}

func applied(spoke v1alpha1.ClusterName) v1alpha1.ClusterStatus {
	return v1alpha1.ClusterStatus{Name: spoke, Phase: v1alpha1.PhaseApplied, Rule: "shop/web-down", ObservedGeneration: 1}
}

func failed(spoke v1alpha1.ClusterName, reason, message string) v1alpha1.ClusterStatus {
	return v1alpha1.ClusterStatus{Name: spoke, Phase: v1alpha1.PhasePending, Reason: reason, Message: message, Rule: "shop/web-down", ObservedGeneration: 1}
}

// shortly returns the rule's conditions in short, as in True/Accepted.
func shortly(ar *v1alpha1.AlertRule) string {
	var out []string
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionReady, v1alpha1.ConditionStalled} {
		c := apimeta.FindStatusCondition(ar.Status.Conditions, kind)
		if c == nil && kind == v1alpha1.ConditionStalled {
			continue
		}
		if c == nil || c.ObservedGeneration != ar.Status.ObservedGeneration {
			return fmt.Sprintf("%s is %+v", kind, c)
		}
		out = append(out, fmt.Sprintf("%s/%s", c.Status, c.Reason))
	}
	return strings.Join(out, " ")
}
