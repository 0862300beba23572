package membership

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// managed is an entry of managedFields, as the API server writes it for labels.
func managed(manager string, operation metav1.ManagedFieldsOperationType, labels ...string) metav1.ManagedFieldsEntry {
	fields := `"f:labels":{}`
	if len(labels) > 0 {
		entries := []string{}
		if operation == metav1.ManagedFieldsOperationUpdate {
			entries = append(entries, `".":{}`)
		}
		for _, l := range labels {
			entries = append(entries, fmt.Sprintf(`"f:%s":{}`, l))
		}
		fields = `"f:labels":{` + strings.Join(entries, ",") + `}`
	}
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: operation, APIVersion: v1alpha1.GroupVersion.String(), FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:x":{}},` + fields + `},"f:spec":{}}`),
	}
}

// applied does what the API server does with the labels that a forced apply sends:
// it sets them, drops those that were applied before and are not any more, and takes
// the ownership of a changed value from whoever had it.
func applied(sc *v1alpha1.SpokeCluster, labels map[string]string) *v1alpha1.SpokeCluster {
	out := sc.DeepCopy()
	out.ManagedFields = slices.DeleteFunc(out.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == contest.MirrorManager })
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	for key := range ownLabels(sc) {
		if _, kept := labels[key]; !kept {
			delete(out.Labels, key)
		}
	}
	maps.Copy(out.Labels, labels)
	out.ManagedFields = append(out.ManagedFields, managed(contest.MirrorManager, metav1.ManagedFieldsOperationApply, slices.Sorted(maps.Keys(labels))...))
	return out
}

func TestMirrored(t *testing.T) {
	const apply, update = metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	for name, tc := range map[string]struct {
		secret, labels map[string]string
		managed        []metav1.ManagedFieldsEntry
		want           map[string]string // what is applied
		changed        bool
		after          map[string]string // what the SpokeCluster has then
	}{
		"no labels": {want: map[string]string{}},
		"a new SpokeCluster": {
			secret:  map[string]string{"env": "prod", "example.com/tier": "1", "empty": ""},
			want:    map[string]string{"env": "prod", "example.com/tier": "1", "empty": ""},
			changed: true,
			after:   map[string]string{"env": "prod", "example.com/tier": "1", "empty": ""},
		},
		"what is not for placement": {
			secret: map[string]string{
				v1alpha1.RegistrationLabel: "true", "app.kubernetes.io/managed-by": "Helm", "kubernetes.io/x": "y", "a.b.kubernetes.io/c": "d",
				"notkubernetes.io/x": "1", "kubernetes.io": "2", "x.k8s.io/y": "3",
			},
			want:    map[string]string{"notkubernetes.io/x": "1", "kubernetes.io": "2", "x.k8s.io/y": "3"},
			changed: true,
			after:   map[string]string{"notkubernetes.io/x": "1", "kubernetes.io": "2", "x.k8s.io/y": "3"},
		},
		"nothing differs": {
			secret: map[string]string{"env": "prod"}, labels: map[string]string{"env": "prod"},
			managed: []metav1.ManagedFieldsEntry{managed(contest.MirrorManager, apply, "env")},
			want:    map[string]string{"env": "prod"}, after: map[string]string{"env": "prod"},
		},
		"another value": {
			secret: map[string]string{"env": "test"}, labels: map[string]string{"env": "prod"},
			managed: []metav1.ManagedFieldsEntry{managed(contest.MirrorManager, apply, "env")},
			want:    map[string]string{"env": "test"}, changed: true, after: map[string]string{"env": "test"},
		},
		"labels by which tools track objects": {
			secret: map[string]string{
				"app.kubernetes.io/instance": "x", "argocd.argoproj.io/instance": "x", "kustomize.toolkit.fluxcd.io/name": "x", "helm.sh/chart": "x", "kapp.k14s.io/app": "x",
				"objectset.rio.cattle.io/hash": "x", "fleet.cattle.io/bundle-id": "x", "example.com/app": "x", "example.org/app": "x", "a.example.org/app": "x",
				"app": "x", "a.app/env": "prod", "example.com/env": "prod", "argoproj.io": "x", "notexample.org/env": "prod", "management.cattle.io/env": "prod",
			},
			want:    map[string]string{"a.app/env": "prod", "example.com/env": "prod", "argoproj.io": "x", "notexample.org/env": "prod", "management.cattle.io/env": "prod"},
			changed: true, after: map[string]string{"a.app/env": "prod", "example.com/env": "prod", "argoproj.io": "x", "notexample.org/env": "prod", "management.cattle.io/env": "prod"},
		},
		"one removed from the Secret": {
			secret: map[string]string{"env": "prod"}, labels: map[string]string{"env": "prod", "team": "shop"},
			managed: []metav1.ManagedFieldsEntry{managed(contest.MirrorManager, apply, "env", "team")},
			want:    map[string]string{"env": "prod"}, changed: true, after: map[string]string{"env": "prod"},
		},
		"all removed from the Secret": {
			labels:  map[string]string{"env": "prod"},
			managed: []metav1.ManagedFieldsEntry{managed(contest.MirrorManager, apply, "env")},
			want:    map[string]string{}, changed: true, after: map[string]string{},
		},
		"one removed from the SpokeCluster": {
			secret: map[string]string{"env": "prod"}, labels: map[string]string{},
			managed: []metav1.ManagedFieldsEntry{managed(contest.MirrorManager, apply)},
			want:    map[string]string{"env": "prod"}, changed: true, after: map[string]string{"env": "prod"},
		},
		"somebody else's label": {
			secret: map[string]string{"env": "prod"}, labels: map[string]string{"env": "prod", "region": "eu"},
			managed: []metav1.ManagedFieldsEntry{managed("kubectl-label", update, "region"), managed(contest.MirrorManager, apply, "env")},
			want:    map[string]string{"env": "prod"}, after: map[string]string{"env": "prod", "region": "eu"},
		},
		"somebody else's value": {
			secret: map[string]string{"env": "prod", "team": "shop"}, labels: map[string]string{"env": "staging"},
			managed: []metav1.ManagedFieldsEntry{managed("argocd", apply, "env")},
			want:    map[string]string{"team": "shop"}, changed: true, after: map[string]string{"env": "staging", "team": "shop"},
		},
		"a value that somebody has changed since": {
			secret: map[string]string{"env": "prod"}, labels: map[string]string{"env": "staging"},
			managed: []metav1.ManagedFieldsEntry{managed("kubectl-edit", update, "env"), managed(contest.MirrorManager, apply)},
			want:    map[string]string{}, after: map[string]string{"env": "staging"},
		},
		"somebody else has the same value": {
			secret: map[string]string{"env": "prod"}, labels: map[string]string{"env": "prod"},
			managed: []metav1.ManagedFieldsEntry{managed("argocd", apply, "env")},
			want:    map[string]string{"env": "prod"}, after: map[string]string{"env": "prod"},
		},
		"managedFields that can't be read": {
			secret: map[string]string{"env": "prod"}, labels: map[string]string{"env": "staging"},
			managed: []metav1.ManagedFieldsEntry{
				{Manager: contest.MirrorManager}, {Manager: contest.MirrorManager, FieldsV1: metav1.NewFieldsV1(`[`)},
				{Manager: contest.MirrorManager, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"k:x":{},"v:env":{}}}}`)},
			},
			want: map[string]string{}, after: map[string]string{"env": "staging"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			sc := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels, ManagedFields: tc.managed}}
			before := sc.DeepCopy()
			got, changed := mirrored(tc.secret, sc, []string{"example.com/app", "example.org", "app"})
			if !maps.Equal(got, tc.want) || changed != tc.changed {
				t.Errorf("got %v, %v, want %v, %v", got, changed, tc.want, tc.changed)
			}
			if !equality.Semantic.DeepEqual(sc, before) {
				t.Error("the SpokeCluster, which is the cache's, was changed")
			}
			after := applied(sc, got)
			if !maps.Equal(after.Labels, tc.after) {
				t.Errorf("the SpokeCluster has %v, want %v", after.Labels, tc.after)
			}
			if again, changed := mirrored(tc.secret, after, []string{"example.com/app", "example.org", "app"}); changed || !maps.Equal(again, got) {
				t.Errorf("the second time: %v, %v", again, changed)
			}
		})
	}
}

// The times of a spoke's life in the tests of statusOf.
var (
	longAgo = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	contact = metav1.NewTime(time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC))
	now     = metav1.NewTime(time.Date(2026, 2, 1, 0, 1, 0, 0, time.UTC))
)

var (
	isConnected  = spoke.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConnected, Message: "the spoke answers"}
	unreachable  = spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonUnreachable, Message: "dial tcp: refused; check the API server"}
	badConfig    = spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInvalidKubeconfig, Message: "the kubeconfig is refused: user.exec: no"}
	unauthorized = spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAuthFailed, Message: "the spoke rejects the credential (401)"}
	forbidden    = spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonForbidden, Message: "the spoke's RBAC denies a request"}
	isServed     = spoke.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonServed, Message: "PrometheusRules can be read"}
	notServed    = spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonCRDMissing, Message: "the spoke does not serve PrometheusRules"}
	noSecret     = spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonKubeconfigMissing, Message: "no Secret"}
)

// good is all that is seen of a spoke that is well.
func good() *spoke.Observation {
	return &spoke.Observation{
		Connected: isConnected, Served: isServed, Version: "v1.36.3", Identity: "uid",
		Counts: spoke.Counts{Deployments: 7, Known: true}, Contact: contact.Time,
	}
}

func with(o *spoke.Observation, change func(*spoke.Observation)) *spoke.Observation {
	change(o)
	return o
}

// member returns a SpokeCluster with the status that was derived long ago from what
// was seen then, if anything was.
func member(seen *spoke.Observation) *v1alpha1.SpokeCluster {
	sc := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "s", Generation: 1}}
	if seen != nil {
		seen.Contact = longAgo.Time
		sc.Status = statusOf(sc, news{seen: seen}, longAgo)
	}
	return sc
}

// TestConnectsAgain keeps the status of a spoke that was connected before the manager started while it is connected again.
func TestConnectsAgain(t *testing.T) {
	connecting := with(good(), func(o *spoke.Observation) {
		o.Connected = spoke.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonConnecting, Message: "listing Deployments: 100 so far"}
	})
	down := with(good(), func(o *spoke.Observation) { o.Connected = unreachable })
	suspended := member(good())
	suspended.Generation++
	for name, tc := range map[string]struct {
		seen *spoke.Observation
		sc   *v1alpha1.SpokeCluster
		want bool
	}{
		"it is being listed":            {connecting, member(good()), true},
		"it does not answer":            {down, member(good()), false},
		"nothing is known":              {nil, member(good()), false},
		"it was not connected before":   {connecting, member(with(good(), func(o *spoke.Observation) { o.Connected = unreachable })), false},
		"its kubeconfig was not used":   {connecting, member(with(good(), func(o *spoke.Observation) { o.Connected = spoke.Unused("typo") })), false},
		"it is new":                     {connecting, member(nil), false},
		"a person has changed its spec": {connecting, suspended, false},
	} {
		t.Run(name, func(t *testing.T) {
			if is := connectsAgain(tc.sc, tc.seen); is != tc.want {
				t.Errorf("got %v, want %v", is, tc.want)
			}
		})
	}
}

// TestStartup keeps the status for some minutes after the start, unless the kubeconfig is wrong.
func TestStartup(t *testing.T) {
	r, _ := registrar(t)
	began := time.Now()
	r.now = func() time.Time { return began }
	if err := r.learn(t.Context()); err != nil {
		t.Fatal(err)
	}
	sc := member(good())
	connecting := with(good(), func(o *spoke.Observation) {
		o.Connected = spoke.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonConnecting, Message: "listing Deployments: 100 so far"}
	})
	observe := func(what string, finding *spoke.Finding, left time.Duration, stays bool) {
		t.Helper()
		n := news{finding: finding}
		if wait := r.observe(sc, &n, connecting); wait != left {
			t.Errorf("%s: it waits for %v, want %v", what, wait, left)
		}
		if is := equality.Semantic.DeepEqual(statusOf(sc, n, now), sc.Status); is != stays {
			t.Errorf("%s: the status stays as it was: %v, want %v", what, is, stays)
		}
	}
	observe("at the start", nil, startup, true)
	observe("with a wrong kubeconfig", &badConfig, 0, false)
	began = began.Add(startup - time.Second)
	r.now = func() time.Time { return began }
	observe("a second before the end", nil, time.Second, true)
	began = began.Add(time.Second)
	observe("after it", nil, 0, false)
}

// statusCase is a spoke's status, and what is news of it.
type statusCase struct {
	sc      *v1alpha1.SpokeCluster
	seen    *spoke.Observation
	finding *spoke.Finding
	held    *brake.Held
	doomed  []string // nil: not known
	refused int
	crowded string
	undone  string
	want    map[string]string // conditions: status/reason
	moved   []string          // those whose transition is now
	contact metav1.Time
	check   func(t *testing.T, s v1alpha1.SpokeClusterStatus)
}

func (c statusCase) news() news {
	return news{seen: c.seen, finding: c.finding, held: c.held, doomed: c.doomed, doomedKnown: c.doomed != nil, lacking: c.refused, crowded: c.crowded, contested: c.undone}
}

// spec changes the spec of a SpokeCluster, whose status is not written yet.
func spec(sc *v1alpha1.SpokeCluster, change func(*v1alpha1.SpokeClusterSpec)) *v1alpha1.SpokeCluster {
	change(&sc.Spec)
	return sc
}

func TestStatusOf(t *testing.T) {
	const (
		connected, prs, ready = v1alpha1.ConditionConnected, v1alpha1.ConditionPrometheusRuleServed, v1alpha1.ConditionReady
		unknown               = "Unknown/Connecting"
	)
	never := func() *v1alpha1.SpokeCluster { return member(nil) }
	well := func() *v1alpha1.SpokeCluster { return member(good()) }
	down := func() *v1alpha1.SpokeCluster {
		return member(with(good(), func(o *spoke.Observation) { o.Connected = unreachable }))
	}
	for name, tc := range map[string]statusCase{
		"registered, and nothing seen yet": {
			sc: never(), want: map[string]string{connected: unknown, ready: unknown}, moved: []string{connected, ready},
		},
		"never reached": {
			sc: never(), seen: &spoke.Observation{Connected: unreachable},
			want:  map[string]string{connected: "False/Unreachable", ready: "False/Unreachable"},
			moved: []string{connected, ready},
		},
		"reached, and PrometheusRules not looked at": {
			sc: never(), seen: with(good(), func(o *spoke.Observation) { o.Served = spoke.Finding{} }),
			want:  map[string]string{connected: "True/Connected", ready: unknown},
			moved: []string{connected, ready}, contact: contact,
		},
		"connected": {
			sc: never(), seen: good(),
			want:  map[string]string{connected: "True/Connected", prs: "True/Served", ready: "True/Ready"},
			moved: []string{connected, prs, ready}, contact: contact,
			check: func(t *testing.T, s v1alpha1.SpokeClusterStatus) {
				t.Helper()
				if s.KubernetesVersion != "v1.36.3" || s.Identity != "uid" || *s.Deployments != 7 || *s.Rules != 0 || s.ObservedGeneration != 1 {
					t.Errorf("got %+v", s)
				}
			},
		},
		"counts of what was there on a restart": {
			sc: well(), seen: with(good(), func(o *spoke.Observation) {
				o.Counts = spoke.Counts{Deployments: 1, Rules: 1, Known: true, First: true}
			}),
			want:    map[string]string{connected: "True/Connected", prs: "True/Served", ready: "True/Ready"},
			contact: longAgo,
			check: func(t *testing.T, s v1alpha1.SpokeClusterStatus) {
				t.Helper()
				if *s.Deployments != 7 || *s.Rules != 0 {
					t.Errorf("got %d, %d", *s.Deployments, *s.Rules)
				}
			},
		},
		"still connected": {
			sc: well(), seen: good(),
			want:    map[string]string{connected: "True/Connected", prs: "True/Served", ready: "True/Ready"},
			contact: longAgo,
		},
		"no PrometheusRules": {
			sc: well(), seen: with(good(), func(o *spoke.Observation) { o.Served = notServed }),
			want:  map[string]string{connected: "True/Connected", prs: "False/CRDMissing", ready: "False/CRDMissing"},
			moved: []string{prs, ready}, contact: longAgo,
		},
		"PrometheusRules may not be read": {
			sc: well(), seen: with(good(), func(o *spoke.Observation) { o.Served = forbidden }),
			want:  map[string]string{connected: "True/Connected", prs: "False/Forbidden", ready: "False/Forbidden"},
			moved: []string{prs, ready}, contact: longAgo,
		},
		"PrometheusRules may not be written": {
			sc: well(), seen: with(good(), func(o *spoke.Observation) { o.Writes = forbidden }),
			want:  map[string]string{connected: "True/Connected", prs: "True/Served", ready: "False/Forbidden"},
			moved: []string{ready}, contact: longAgo,
		},
		"contested": {
			sc: well(), seen: good(), undone: `field manager "argocd-controller" changes it back`, refused: 3,
			want:  map[string]string{connected: "True/Connected", prs: "True/Served", ready: "False/Contested"},
			moved: []string{ready}, contact: longAgo,
			check: func(t *testing.T, s v1alpha1.SpokeClusterStatus) {
				t.Helper()
				if c := meta.FindStatusCondition(s.Conditions, ready); !strings.Contains(c.Message, "argocd-controller") {
					t.Errorf("the message is %q", c.Message)
				}
			},
		},
		"contested, and not reached": {
			sc: well(), seen: with(good(), func(o *spoke.Observation) { o.Connected = unreachable }), undone: "x",
			want:  map[string]string{connected: "False/Unreachable", prs: "Unknown/Unreachable", ready: "False/Unreachable"},
			moved: []string{connected, prs, ready}, contact: contact,
		},
		"contested, and deletions are held": {
			sc: well(), seen: good(), undone: "x", held: &brake.Held{Message: "21 of 40"},
			want:  map[string]string{connected: "True/Connected", prs: "True/Served", ready: "False/DeletionsHeld"},
			moved: []string{ready}, contact: longAgo,
		},
		"not reached any more": {
			sc: well(), seen: with(good(), func(o *spoke.Observation) { o.Connected = unreachable }),
			want:  map[string]string{connected: "False/Unreachable", prs: "Unknown/Unreachable", ready: "False/Unreachable"},
			moved: []string{connected, prs, ready}, contact: contact,
		},
		"not reached since the restart": {
			sc: well(), seen: &spoke.Observation{Connected: unreachable},
			want:  map[string]string{connected: "False/Unreachable", prs: "Unknown/Unreachable", ready: "False/Unreachable"},
			moved: []string{connected, prs, ready}, contact: longAgo,
			check: func(t *testing.T, s v1alpha1.SpokeClusterStatus) {
				t.Helper()
				if s.KubernetesVersion != "v1.36.3" || s.Identity != "uid" || s.Deployments == nil || s.Rules == nil {
					t.Errorf("what was seen before is forgotten: %+v", s)
				}
			},
		},
		"another reason": {
			sc: down(), seen: with(good(), func(o *spoke.Observation) { o.Connected = unauthorized }),
			want:    map[string]string{connected: "False/AuthFailed", prs: "Unknown/AuthFailed", ready: "False/AuthFailed"},
			contact: longAgo,
		},
		"back again": {
			sc: down(), seen: good(),
			want:  map[string]string{connected: "True/Connected", prs: "True/Served", ready: "True/Ready"},
			moved: []string{connected, prs, ready}, contact: contact,
		},
		"the operator restarted": {
			sc: well(), seen: nil,
			want:    map[string]string{connected: "True/Connected", prs: "True/Served", ready: "True/Ready"},
			contact: longAgo,
		},
		"the operator restarted while the spoke is down": {
			sc: down(), seen: nil,
			want:    map[string]string{connected: "False/Unreachable", prs: "Unknown/Unreachable", ready: "False/Unreachable"},
			contact: longAgo,
		},
		"the Secret is gone": {
			sc: well(), finding: &noSecret,
			want:  map[string]string{connected: "False/KubeconfigMissing", prs: "Unknown/KubeconfigMissing", ready: "False/KubeconfigMissing"},
			moved: []string{connected, prs, ready}, contact: longAgo,
		},
		"there never was a Secret": {
			sc: never(), finding: &noSecret,
			want:  map[string]string{connected: "False/KubeconfigMissing", ready: "False/KubeconfigMissing"},
			moved: []string{connected, ready},
		},
		"the first kubeconfig is refused": {
			sc: never(), finding: &badConfig,
			want:  map[string]string{connected: "False/InvalidKubeconfig", ready: "False/InvalidKubeconfig"},
			moved: []string{connected, ready},
		},
		"a refused kubeconfig after a restart": {
			sc: well(), finding: &badConfig,
			want:  map[string]string{connected: "False/InvalidKubeconfig", prs: "Unknown/InvalidKubeconfig", ready: "False/InvalidKubeconfig"},
			moved: []string{connected, prs, ready}, contact: longAgo,
		},
		"a refused kubeconfig in place of one that works": {
			sc: well(), seen: good(), finding: &badConfig,
			want:    map[string]string{connected: "True/KubeconfigNotUsed", prs: "True/Served", ready: "True/Ready"},
			contact: longAgo,
			check: func(t *testing.T, s v1alpha1.SpokeClusterStatus) {
				t.Helper()
				message := meta.FindStatusCondition(s.Conditions, connected).Message
				if !strings.Contains(message, "last good") || !strings.Contains(message, "user.exec") {
					t.Errorf("the message is %q", message)
				}
			},
		},
		"a refused kubeconfig in place of one that does not work": {
			sc: down(), seen: with(good(), func(o *spoke.Observation) { o.Connected = unreachable }), finding: &badConfig,
			want:    map[string]string{connected: "False/InvalidKubeconfig", prs: "Unknown/InvalidKubeconfig", ready: "False/InvalidKubeconfig"},
			contact: longAgo,
		},
		"deletions are held": {
			sc: well(), seen: good(), held: &brake.Held{Count: 60, Suspects: 15, Names: []string{"a/b"}, Message: "60 deletions are held"},
			want:  map[string]string{connected: "True/Connected", prs: "True/Served", ready: "False/DeletionsHeld"},
			moved: []string{ready}, contact: longAgo,
			check: func(t *testing.T, s v1alpha1.SpokeClusterStatus) {
				t.Helper()
				want := &brake.Held{Count: 60, Suspects: 15, Names: []string{"a/b"}, Message: "60 deletions are held"}
				if got := heldIn(&s); !got.Equal(want) {
					t.Errorf("the status tells of %+v, want %+v", got, want)
				}
			},
		},
		"deletions were held": {
			sc: func() *v1alpha1.SpokeCluster {
				sc := member(nil)
				sc.Status = statusOf(sc, news{seen: good(), held: &brake.Held{Count: 60, Message: "60"}}, longAgo)
				return sc
			}(),
			seen:  good(),
			want:  map[string]string{connected: "True/Connected", prs: "True/Served", ready: "True/Ready"},
			moved: []string{ready}, contact: contact,
			check: func(t *testing.T, s v1alpha1.SpokeClusterStatus) {
				t.Helper()
				if heldIn(&s) != nil {
					t.Errorf("the status still has %+v", s.PendingDeletions)
				}
			},
		},
		"deletions are held in a spoke that is down": {
			sc: down(), seen: with(good(), func(o *spoke.Observation) { o.Connected = unreachable }), held: &brake.Held{Count: 60, Message: "60"},
			want:    map[string]string{connected: "False/Unreachable", prs: "Unknown/Unreachable", ready: "False/Unreachable"},
			contact: longAgo,
			check: func(t *testing.T, s v1alpha1.SpokeClusterStatus) {
				t.Helper()
				if s.PendingDeletions == nil || s.PendingDeletions.Count != 60 {
					t.Errorf("the status has %+v", s.PendingDeletions)
				}
			},
		},
		"suspended": {
			sc: spec(well(), suspend), seen: good(), doomed: []string{"a/b", "a/c"},
			want:  map[string]string{connected: "True/Connected", prs: "True/Served", ready: "False/Suspended"},
			moved: []string{ready}, contact: longAgo, check: pendingIs(2, 0, "a/b", "a/c"),
		},
		"suspended, and down": {
			sc: spec(down(), suspend), seen: with(good(), func(o *spoke.Observation) { o.Connected = unreachable }),
			want:    map[string]string{connected: "False/Unreachable", prs: "Unknown/Unreachable", ready: "False/Suspended"},
			contact: longAgo,
		},
		"rules were deleted while it is down": {
			sc: down(), seen: with(good(), func(o *spoke.Observation) { o.Connected = unreachable }), doomed: []string{"a/b"},
			want:    map[string]string{connected: "False/Unreachable", prs: "Unknown/Unreachable", ready: "False/Unreachable"},
			contact: longAgo, check: pendingIs(1, 0, "a/b"),
		},
		"rules were deleted while it is down, and more are held": {
			sc: down(), seen: with(good(), func(o *spoke.Observation) { o.Connected = unreachable }), doomed: []string{"a/b", "a/c"},
			held:    &brake.Held{Count: 60, Suspects: 15, Message: "60"},
			want:    map[string]string{connected: "False/Unreachable", prs: "Unknown/Unreachable", ready: "False/Unreachable"},
			contact: longAgo, check: func(t *testing.T, s v1alpha1.SpokeClusterStatus) {
				t.Helper()
				pendingIs(2, 60, "a/b", "a/c")(t, s)
				if got := s.PendingDeletions.Suspect; got != 15 {
					t.Errorf("%d are suspect", got)
				}
			},
		},
		"down since before a restart, with rules to be deleted": {
			sc: func() *v1alpha1.SpokeCluster {
				sc := down()
				sc.Status.PendingDeletions = pendingOf([]string{"a/b"}, 0)
				return sc
			}(),
			seen: &spoke.Observation{Connected: unreachable},
			want: map[string]string{connected: "False/Unreachable", prs: "Unknown/Unreachable", ready: "False/Unreachable"},

			contact: longAgo, check: pendingIs(1, 0, "a/b"),
		},
		"back, with rules to be deleted": {
			sc: func() *v1alpha1.SpokeCluster {
				sc := down()
				sc.Status.PendingDeletions = pendingOf([]string{"a/b"}, 0)
				return sc
			}(),
			seen:  good(),
			want:  map[string]string{connected: "True/Connected", prs: "True/Served", ready: "True/Ready"},
			moved: []string{connected, prs, ready}, contact: contact, check: pendingIs(0, 0),
		},
		"more rules are wanted than may be": {
			sc: spec(well(), func(s *v1alpha1.SpokeClusterSpec) { s.MaxRules = ptr.To[int32](5) }), seen: good(), refused: 3,
			want:  map[string]string{connected: "True/Connected", prs: "True/Served", ready: "False/MaxRulesReached"},
			moved: []string{ready}, contact: longAgo,
			check: func(t *testing.T, s v1alpha1.SpokeClusterStatus) {
				t.Helper()
				message := meta.FindStatusCondition(s.Conditions, ready).Message
				if !strings.HasPrefix(message, "3 workloads lack AlertRules: spec.maxRules (5) is reached. ") || !strings.HasSuffix(message, `{"spec":{"maxRules":11}}'`) {
					t.Errorf("the message is %q", message)
				}
			},
		},
		"a namespace wants more than its share": {
			sc: spec(well(), func(s *v1alpha1.SpokeClusterSpec) { s.MaxRules = ptr.To[int32](5) }), seen: good(), refused: 3, crowded: "shop",
			want:  map[string]string{connected: "True/Connected", prs: "True/Served", ready: "False/MaxRulesReached"},
			moved: []string{ready}, contact: longAgo,
			check: func(t *testing.T, s v1alpha1.SpokeClusterStatus) {
				t.Helper()
				message := meta.FindStatusCondition(s.Conditions, ready).Message
				if message != "3 workloads lack AlertRules: namespace shop has used up its share of spec.maxRules (5); the rest is kept for other namespaces."+
					" Existing AlertRules stay. To generate fewer, narrow the templates. To allow more for one namespace, raise the chart value spokeLimits.namespaceShare" {
					t.Errorf("the message is %q", message)
				}
			},
		},
		"more rules are wanted than one Prometheus is supported with": {
			sc: spec(well(), func(s *v1alpha1.SpokeClusterSpec) { s.MaxRules = ptr.To[int32](supportedRules) }), seen: good(), refused: 1,
			want:  map[string]string{connected: "True/Connected", prs: "True/Served", ready: "False/MaxRulesReached"},
			moved: []string{ready}, contact: longAgo,
			check: func(t *testing.T, s v1alpha1.SpokeClusterStatus) {
				t.Helper()
				if message := meta.FindStatusCondition(s.Conditions, ready).Message; strings.Contains(message, "kubectl") || !strings.HasSuffix(message, "at most 2000 rules of Rulefleet are supported in one Prometheus") {
					t.Errorf("the message is %q", message)
				}
			},
		},
		"more rules are wanted than any spoke may have": {
			sc: spec(well(), func(s *v1alpha1.SpokeClusterSpec) { s.MaxRules = ptr.To[int32](highestMaxRules) }), seen: good(), refused: 1,
			want:  map[string]string{connected: "True/Connected", prs: "True/Served", ready: "False/MaxRulesReached"},
			moved: []string{ready}, contact: longAgo,
			check: func(t *testing.T, s v1alpha1.SpokeClusterStatus) {
				t.Helper()
				const want = "1 workload lacks AlertRules: spec.maxRules (100000, the maximum) is reached. Existing AlertRules stay. To generate fewer, narrow the templates"
				if message := meta.FindStatusCondition(s.Conditions, ready).Message; message != want {
					t.Errorf("the message is %q", message)
				}
			},
		},
		"a long text of the spoke's": {
			sc: well(), seen: good(), finding: &spoke.Finding{Status: metav1.ConditionFalse, Reason: "X", Message: strings.Repeat("é", 5000)},
			want:    map[string]string{connected: "True/KubeconfigNotUsed", prs: "True/Served", ready: "True/Ready"},
			contact: longAgo,
			check: func(t *testing.T, s v1alpha1.SpokeClusterStatus) {
				t.Helper()
				if n := len(meta.FindStatusCondition(s.Conditions, connected).Message); n > spoke.MaxMessage+len("…") {
					t.Errorf("the message has %d bytes", n)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.sc.DeepCopy()
			got := statusOf(tc.sc, tc.news(), now)
			if !equality.Semantic.DeepEqual(tc.sc, before) {
				t.Error("the SpokeCluster, which is the cache's, was changed")
			}
			conditions := map[string]string{}
			for _, c := range got.Conditions {
				conditions[c.Type] = string(c.Status) + "/" + c.Reason
				if moved := c.LastTransitionTime.Equal(&now); moved != slices.Contains(tc.moved, c.Type) {
					t.Errorf("%s had its transition at %s", c.Type, c.LastTransitionTime)
				}
				if c.Message == "" || c.ObservedGeneration != 1 {
					t.Errorf("%s has message %q and generation %d", c.Type, c.Message, c.ObservedGeneration)
				}
			}
			if !maps.Equal(conditions, tc.want) {
				t.Errorf("got %v, want %v", conditions, tc.want)
			}
			if !got.LastContactTime.Equal(&tc.contact) {
				t.Errorf("the last contact is %s, want %s", got.LastContactTime, tc.contact)
			}
			if tc.check != nil {
				tc.check(t, got)
			}
			// The same input again later, while the spoke keeps answering.
			sc := tc.sc.DeepCopy()
			sc.Status = got
			if tc.seen != nil && !tc.seen.Contact.IsZero() {
				tc.seen.Contact = tc.seen.Contact.Add(time.Hour)
			}
			again := statusOf(sc, tc.news(), metav1.NewTime(now.Add(time.Hour)))
			if !equality.Semantic.DeepEqual(again, got) {
				t.Errorf("the second time it is\n%+v, and was\n%+v", again, got)
			}
		})
	}
}

func suspend(s *v1alpha1.SpokeClusterSpec) { s.Suspend = new(true) }

// pendingIs checks the pending deletions in a status.
func pendingIs(count, held int32, names ...string) func(t *testing.T, s v1alpha1.SpokeClusterStatus) {
	return func(t *testing.T, s v1alpha1.SpokeClusterStatus) {
		t.Helper()
		got := s.PendingDeletions
		if got == nil {
			got = &v1alpha1.PendingDeletions{}
		}
		if got.Count != count || got.Held != held || !slices.Equal(got.Names, names) {
			t.Errorf("the status has %+v", got)
		}
	}
}

// A restart does not change the status, not even with a changed SpokeCluster.
func TestStatusAfterRestart(t *testing.T) {
	sc := member(good())
	sc.Generation = 2
	if got := statusOf(sc, news{}, now); !equality.Semantic.DeepEqual(got, sc.Status) {
		t.Errorf("got %+v, want %+v", got, sc.Status)
	}
}
