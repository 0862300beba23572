package membership

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// TestLeaving checks what is shown of a spoke that leaves, and of one that has left.
func TestLeaving(t *testing.T) {
	t.Parallel()
	deadline := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tc := range map[string]struct {
		departure   spoke.Departure
		identity    string
		ready, left string
		pending     int32
		// whole means that the Event has no other text. kept means that the rules are left in the spoke, although they
		// are known.
		whole, kept bool
	}{
		"removing": {
			departure: spoke.Departure{Known: true, Left: []string{"shop/a", "shop/b"}, Removed: 1}, identity: "uid",
			ready: "removing 2 rules from the spoke until 2026-01-02T03:04:05Z at the latest", pending: 2,
			left: "Normal Left 1 PrometheusRule was removed from the spoke; none is left",
		},
		"stuck": {
			departure: spoke.Departure{Left: []string{"shop/a"}, Why: "the spoke rejects the credential (401)"}, identity: "uid",
			ready: "removing its rules from the spoke until 2026-01-02T03:04:05Z at the latest. The removal is stuck: the spoke rejects the credential (401)",
			left: "Warning LeftBehind PrometheusRules of this hub may be left in the spoke: the spoke rejects the credential (401). Rules: shop/a." +
				" To remove all PrometheusRules of this hub, run in the cluster whose namespace kube-system has UID uid: kubectl delete prometheusrules -A -l rulefleet.io/hub=",
		},
		"left, of a cluster that is not known": {
			departure: spoke.Departure{Known: true, Left: []string{"shop/a"}, Why: "EOF"},
			ready:     "removing 1 rule from the spoke", pending: 1,
			left: "Warning LeftBehind 1 PrometheusRule was left in the spoke: EOF. Rules: shop/a. To remove all PrometheusRules of this hub, run in the cluster of this spoke, not on the hub: kubectl",
			kept: true,
		},
		"orphaned": {
			departure: spoke.Departure{Known: true, Stays: true, Meant: true, Left: []string{"shop/a"}, Why: "spec.deletionPolicy of the SpokeCluster is Orphan"}, identity: "uid",
			ready: "its rules stay in the spoke: spec.deletionPolicy of the SpokeCluster is Orphan",
			left:  "Normal LeftBehind 1 PrometheusRule was left in the spoke: spec.deletionPolicy of the SpokeCluster is Orphan. Rules: shop/a",
			whole: true,
		},
		"no kubeconfig": {
			departure: spoke.Departure{Stays: true, Left: []string{"shop/a"}, Why: "the spoke has no kubeconfig"}, identity: "uid",
			ready: "its rules stay in the spoke: the spoke has no kubeconfig",
			left:  "Warning LeftBehind PrometheusRules of this hub may be left in the spoke: the spoke has no kubeconfig. Rules: shop/a. To remove",
		},
		"kept by another": {
			departure: spoke.Departure{Stays: true, Kept: true, Why: "SpokeCluster eu-2 is the same cluster and manages them"}, identity: "uid",
			ready: "its rules stay in the spoke: SpokeCluster eu-2 is the same cluster and manages them",
			left:  "Normal Left its PrometheusRules stay in the spoke: SpokeCluster eu-2 is the same cluster and manages them",
		},
		"never connected": {
			departure: spoke.Departure{Why: "no answer in time: context deadline exceeded; check that the API server runs", Left: []string{"shop/a"}},
			ready:     "The removal is stuck: no answer in time",
			left:      "Normal Left nothing was removed from the spoke, because this SpokeCluster was never connected to it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := memberOf("s", tc.identity)
			tc.departure.Deadline = deadline
			status := leavingStatus(sc, tc.departure, metav1.Now())
			if ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); ready == nil || !strings.Contains(ready.Message, tc.ready) {
				t.Errorf("Ready is %+v", ready)
			}
			if p := status.PendingDeletions; (p == nil && tc.pending > 0) || (p != nil && p.Count != tc.pending) {
				t.Errorf("pending are %+v", p)
			}
			if tc.departure.Known && !tc.departure.Stays && !tc.kept {
				tc.departure.Left = nil
			}
			r, recorder := registrar(t)
			r.farewell(sc, tc.departure)
			if got := <-recorder.Events; !strings.HasPrefix(got, tc.left) || tc.whole && got != tc.left {
				t.Errorf("the event is %q", got)
			}
		})
	}
}

// TestDeregister removes the registration label, which an admission webhook of the hub sets again in one case.
func TestDeregister(t *testing.T) {
	for name, stays := range map[string]bool{"removed": false, "set again": true} {
		t.Run(name, func(t *testing.T) {
			secret, sc := secretOf("s", nil), memberOf("s", "uid")
			r, recorder := registrar(t, secret, sc)
			r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
					if _, ok := o.(*corev1.Secret); ok && stays {
						return c.Get(ctx, client.ObjectKeyFromObject(o), o)
					}
					return c.Patch(ctx, o, patch, opts...)
				},
			})
			if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(sc), sc); err != nil {
				t.Fatal(err)
			}
			result, err := r.end(t.Context(), sc, secret, spoke.Departure{Known: true, Done: true})
			if want := map[bool]time.Duration{true: keptRetry, false: leaveRetry}[stays]; err != nil || result.RequeueAfter != want {
				t.Errorf("again after %v, %v", result.RequeueAfter, err)
			}
			if said := len(recorder.Events) > 0 && strings.Contains(<-recorder.Events, "Deregistered"); said == stays {
				t.Errorf("it says that the label was removed: %v", said)
			}
			if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(sc), sc); err != nil {
				t.Fatalf("the SpokeCluster is gone: %v", err)
			}
			ready := meta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionReady)
			if shown := ready != nil && strings.Contains(ready.Message, "Secret operator/s still has the label"); shown != stays {
				t.Errorf("Ready is %+v", ready)
			}
		})
	}
}

// TestRegisteredAgain has an admission webhook or another client set the registration label each time that it is removed.
// It is removed less and less often, and the status says so.
func TestRegisteredAgain(t *testing.T) {
	for name, atOnce := range map[string]bool{"by an admission webhook": true, "by another client": false} {
		t.Run(name, func(t *testing.T) {
			const span = time.Hour
			secret, sc := secretOf("s", nil), memberOf("s", "uid")
			secret.Labels = map[string]string{v1alpha1.RegistrationLabel: "true"}
			r, recorder := registrar(t, secret, sc)
			recorder.Events = nil
			clock := clocktesting.NewFakePassiveClock(time.Now())
			r.Contests = contest.New(clock, 0)
			removals := 0
			r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
					if _, ok := o.(*corev1.Secret); !ok {
						return c.Patch(ctx, o, patch, opts...)
					}
					removals++
					err := c.Get(ctx, client.ObjectKeyFromObject(o), o)
					if !atOnce {
						delete(o.GetLabels(), v1alpha1.RegistrationLabel)
					}
					return err
				},
			})
			for began := clock.Now(); clock.Since(began) < span; {
				if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(sc), sc); err != nil {
					t.Fatal(err)
				}
				result, err := r.end(t.Context(), sc, secret, spoke.Departure{Known: true, Done: true})
				if err != nil || result.RequeueAfter < leaveRetry {
					t.Fatalf("again after %v, %v", result.RequeueAfter, err)
				}
				clock.SetTime(clock.Now().Add(result.RequeueAfter))
			}
			if removals < 10 || removals > 40 {
				t.Errorf("the label was removed %d times", removals)
			}
			if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(sc), sc); err != nil {
				t.Fatal(err)
			}
			ready := meta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionReady)
			if ready == nil || !strings.Contains(ready.Message, "or a GitOps tool such as Argo CD or Flux") {
				t.Errorf("Ready is %+v", ready)
			}
		})
	}
}
