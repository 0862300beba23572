package join

import (
	"context"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
)

func reported(connected, ready metav1.Condition) *v1alpha1.SpokeCluster {
	connected.Type, ready.Type = v1alpha1.ConditionConnected, v1alpha1.ConditionReady
	return &v1alpha1.SpokeCluster{Status: v1alpha1.SpokeClusterStatus{Conditions: []metav1.Condition{connected, ready}}}
}

// TestVerdict has what join says about a spoke, when it stops waiting, and when it waits on.
func TestVerdict(t *testing.T) {
	cond := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Status: status, Reason: reason, Message: message}
	}
	answers := cond(metav1.ConditionTrue, v1alpha1.ReasonConnected, "the spoke answers")
	for _, tc := range []struct {
		name       string
		spoke      *v1alpha1.SpokeCluster
		done       bool
		err, advic string // "" means that the spoke has joined
	}{
		{"new", &v1alpha1.SpokeCluster{}, false, "the manager has not reported", "Check that the manager runs"},
		{"ready", reported(answers, cond(metav1.ConditionTrue, v1alpha1.ReasonReady, "fine")), true, "", ""},
		{"with a warning", reported(answers, cond(metav1.ConditionTrue, v1alpha1.ReasonRulesFailing, "some fail")), true, "", ""},
		{"suspended", reported(answers, cond(metav1.ConditionFalse, v1alpha1.ReasonSuspended, "suspended")), true, "", ""},
		{
			"suspended and away", reported(cond(metav1.ConditionFalse, v1alpha1.ReasonUnreachable, "no route"), cond(metav1.ConditionFalse, v1alpha1.ReasonSuspended, "suspended")),
			false, "Suspended", "",
		},
		{
			"the former kubeconfig", reported(cond(metav1.ConditionTrue, v1alpha1.ReasonKubeconfigNotUsed, "the last good kubeconfig stays in use: x509"), cond(metav1.ConditionTrue, v1alpha1.ReasonReady, "fine")),
			false, "the last good kubeconfig stays in use", "correct the Secret soon",
		},
		{
			"unreachable", reported(cond(metav1.ConditionFalse, v1alpha1.ReasonUnreachable, "no route"), cond(metav1.ConditionFalse, v1alpha1.ReasonUnreachable, "no route")),
			false, "Unreachable: no route", "check the network",
		},
		{
			"refused", reported(cond(metav1.ConditionFalse, v1alpha1.ReasonInvalidKubeconfig, "loopback"), cond(metav1.ConditionFalse, v1alpha1.ReasonInvalidKubeconfig, "loopback")),
			true, "InvalidKubeconfig: loopback", "Change that field",
		},
		{"no CRDs", reported(answers, cond(metav1.ConditionFalse, v1alpha1.ReasonCRDMissing, "no CRDs")), true, "CRDMissing: no CRDs", "Install the CustomResourceDefinitions"},
		{"rights", reported(answers, cond(metav1.ConditionFalse, v1alpha1.ReasonForbidden, "delete prometheusrules")), false, "delete prometheusrules", "Rulefleet notices it within 30 s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if done, _ := progressOf(tc.spoke, nil); done != tc.done {
				t.Errorf("done is %v", done)
			}
			err := verdict(tc.spoke)
			if tc.err == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			code, next := exit.Of(err)
			if code != exit.NotReady || !strings.Contains(err.Error(), tc.err) || !strings.Contains(next, tc.advic) {
				t.Errorf("%d %v %q", code, err, next)
			}
		})
	}
}

// TestFormerKubeconfig has a spoke whose condition may still be about the kubeconfig that the join has replaced.
func TestFormerKubeconfig(t *testing.T) {
	refused := func(reason, message string, at int64) *v1alpha1.SpokeCluster {
		c := metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: metav1.Unix(at, 0)}
		return reported(c, c)
	}
	before := refused(v1alpha1.ReasonInvalidKubeconfig, "user.exec", 1)
	for _, tc := range []struct {
		name          string
		before, after *v1alpha1.SpokeCluster
		done          bool
	}{
		{"as before", before, before.DeepCopy(), false},
		{"new", nil, before, true},
		{"another message", before, refused(v1alpha1.ReasonInvalidKubeconfig, "loopback", 1), true},
		{"another reason", before, refused(v1alpha1.ReasonIdentityChanged, "user.exec", 1), true},
		{"refused again", before, refused(v1alpha1.ReasonInvalidKubeconfig, "user.exec", 2), true},
		{"not about the kubeconfig", refused(v1alpha1.ReasonCRDMissing, "no CRDs", 1), refused(v1alpha1.ReasonCRDMissing, "no CRDs", 1), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if done, _ := progressOf(tc.after, tc.before); done != tc.done {
				t.Errorf("done is %v", done)
			}
		})
	}
}

// TestVerify has a new token that is not granted its rights yet, or never.
func TestVerify(t *testing.T) {
	rights := cluster.RightsOf([]rbacv1.PolicyRule{{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get", "list"}}})
	for _, tc := range []struct {
		name   string
		denied int // how many times "list" is denied
		want   string
	}{
		{"granted", 0, ""},
		{"granted late", 2, ""},
		{"never granted", 1 << 30, "the account in the spoke lacks permissions: list deployments.apps"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			denied := tc.denied
			funcs := interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				review := o.(*authorizationv1.SelfSubjectAccessReview)
				review.Status.Allowed = true
				if denied > 0 && review.Spec.ResourceAttributes.Verb == "list" {
					denied--
					review.Status.Allowed = false
				}
				return nil
			}}
			timeout := 10 * time.Second
			if tc.want != "" {
				timeout = time.Second / 10
			}
			err := verify(t.Context(), fake.NewClientBuilder().WithScheme(cluster.Scheme).WithInterceptorFuncs(funcs).Build(), rights, timeout)
			if (err != nil) != (tc.want != "") || err != nil && err.Error() != tc.want {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

// TestLoopbackIsWarnedOf has the addresses that the hub does not reach.
func TestLoopbackIsWarnedOf(t *testing.T) {
	for server, want := range map[string]struct{ warned, refused bool }{
		"https://eu-1.example.com:6443": {}, "https://10.0.0.1": {}, "https://[2001:db8::1]:6443": {},
		"https://127.0.0.1:6443": {warned: true}, "https://localhost:1": {warned: true}, "https://[::1]:1": {warned: true}, "https://0.0.0.0:1": {warned: true},
		"http://10.0.0.1": {refused: true}, "10.0.0.1:6443": {refused: true}, "https://user:password@10.0.0.1": {refused: true}, "": {refused: true},
	} {
		warning, err := checkServer(server)
		if (warning != "") != want.warned || (err != nil) != want.refused {
			t.Errorf("%q: %q, %v", server, warning, err)
		}
	}
}
