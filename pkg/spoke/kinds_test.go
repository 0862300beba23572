package spoke

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// Workloads are read while their kind is wanted and may be read. No other kind is listed again, and a kind that may not be
// read does not keep the spoke from being served.
func TestKinds(t *testing.T) {
	const statefulSets, cronJobs = "/apis/apps/v1/statefulsets", "/apis/batch/v1/cronjobs"
	basic := []authorizationv1.ResourceRule{
		allowed("apps", "deployments statefulsets", "get list watch"), allowed("", "namespaces", "get list watch"),
		allowed("monitoring.coreos.com", "prometheusrules", "get list watch create update delete"),
	}
	s := &standIn{uid: "uid", version: "100", refuse: map[string]int{}, grants: basic}
	var watches atomic.Int32
	counting := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == statefulSets && r.URL.Query().Get("watch") != "" {
			watches.Add(1)
			defer watches.Add(-1)
		}
		s.ServeHTTP(w, r)
	})
	var wanted atomic.Pointer[[]v1alpha1.WorkloadKind]
	wanted.Store(&[]v1alpha1.WorkloadKind{})
	e := engage(t, counting, Lifecycle{Kinds: func(string) []v1alpha1.WorkloadKind { return *wanted.Load() }})
	p := e.p
	want := func(kinds ...v1alpha1.WorkloadKind) {
		wanted.Store(&kinds)
		p.KindsChanged()
	}
	expect := func(what string, want ...v1alpha1.WorkloadKind) {
		t.Helper()
		if got := e.next(t, what).Kinds; !slices.Equal(got, want) {
			t.Fatalf("%s: it reads %v", what, got)
		}
	}
	until := func(what string, is func() bool) {
		t.Helper()
		e.until(t, what, is)
	}

	expect("without a template")
	lists := s.lists(pathDeployments)
	if n := s.lists(statefulSets) + s.lists(cronJobs); n != 0 {
		t.Errorf("kinds that no template names were read %d times", n)
	}
	want(v1alpha1.StatefulSetKind)
	expect("a template names StatefulSets", v1alpha1.StatefulSetKind)
	until("StatefulSets are watched", func() bool { return watches.Load() == 1 })

	want(v1alpha1.StatefulSetKind, v1alpha1.CronJobKind)
	until("it says that CronJobs can't be read", func() bool {
		f := p.Observation("s").Workloads
		return f.Status == metav1.ConditionFalse && f.Reason == v1alpha1.ReasonForbidden && strings.Contains(f.Message, "CronJobs") && strings.Contains(f.Message, "get/list/watch cronjobs.batch")
	})
	if seen := p.Observation("s"); seen.Connected.Status != metav1.ConditionTrue || !p.Spoke("s").Reads(v1alpha1.StatefulSetKind) || p.Spoke("s").Reads(v1alpha1.CronJobKind) {
		t.Errorf("it is not served as before: %+v", seen)
	}
	s.set(func(s *standIn) { s.grants = append(s.grants, allowed("batch", "cronjobs", "get list watch")) })
	expect("CronJobs may be read", v1alpha1.StatefulSetKind, v1alpha1.CronJobKind)
	until("nothing is missing", func() bool { return p.Observation("s").Workloads == Finding{} })

	want(v1alpha1.CronJobKind)
	expect("no template names StatefulSets any more", v1alpha1.CronJobKind)
	until("StatefulSets are not watched", func() bool { return watches.Load() == 0 })
	want(v1alpha1.StatefulSetKind, v1alpha1.CronJobKind)
	expect("a template names them again", v1alpha1.StatefulSetKind, v1alpha1.CronJobKind)
	until("StatefulSets are watched again", func() bool { return watches.Load() == 1 })
	if again := s.lists(pathDeployments); again != lists {
		t.Errorf("Deployments were listed %d times before, and %d times afterwards", lists, again)
	}
	if p.Spoke("s") == nil {
		t.Error("the session ended")
	}
}

// A kind that can't be listed does not keep the spoke from being served: from the beginning, or when a template names it
// later. It is tried again.
func TestKindUnanswered(t *testing.T) {
	const cronJobs, daemonSets = "/apis/batch/v1/cronjobs", "/apis/apps/v1/daemonsets"
	s := &standIn{uid: "uid", version: "100", refuse: map[string]int{cronJobs: 503, daemonSets: 503}, grants: []authorizationv1.ResourceRule{allowed("*", "*", "*")}}
	var wanted atomic.Pointer[[]v1alpha1.WorkloadKind]
	wanted.Store(&[]v1alpha1.WorkloadKind{v1alpha1.StatefulSetKind, v1alpha1.CronJobKind})
	e := engage(t, s, Lifecycle{Kinds: func(string) []v1alpha1.WorkloadKind { return *wanted.Load() }})
	expect := func(what string, want ...v1alpha1.WorkloadKind) {
		t.Helper()
		if got := e.next(t, what); !slices.Equal(got.Kinds, want) || !got.RulesServed {
			t.Fatalf("%s: it reads %v, and PrometheusRules: %v", what, got.Kinds, got.RulesServed)
		}
	}
	shows := func(what string, kinds ...string) {
		t.Helper()
		e.until(t, what, func() bool {
			f := e.p.Observation("s").Workloads
			return f.Status == metav1.ConditionFalse && !slices.ContainsFunc(kinds, func(kind string) bool { return !strings.Contains(f.Message, kind) })
		})
	}
	expect("at the start", v1alpha1.StatefulSetKind)
	shows("CronJobs can't be read", "CronJobs")
	wanted.Store(&[]v1alpha1.WorkloadKind{v1alpha1.StatefulSetKind, v1alpha1.DaemonSetKind, v1alpha1.CronJobKind})
	e.p.KindsChanged()
	shows("neither can DaemonSets", "CronJobs", "DaemonSets")
	if e.p.Observation("s").Connected.Status != metav1.ConditionTrue {
		t.Errorf("the spoke is not connected: %+v", e.p.Observation("s"))
	}
	lists := s.lists(pathDeployments)
	s.set(func(s *standIn) { clear(s.refuse) })
	for { // one may be tried again before the other
		if got := e.next(t, "they can be read"); len(got.Kinds) == 3 {
			break
		}
	}
	e.until(t, "nothing is missing", func() bool { return e.p.Observation("s").Workloads == Finding{} })
	if again := s.lists(pathDeployments); again != lists {
		t.Errorf("Deployments were listed %d times before, and %d times afterwards", lists, again)
	}
}

// A permission that is withdrawn while the first list of a kind begins is named, and does not keep the spoke from being served.
func TestKindRefusedInTheList(t *testing.T) {
	t.Parallel()
	const cronJobs = "/apis/batch/v1/cronjobs"
	s := &standIn{uid: "uid", version: "100", grants: []authorizationv1.ResourceRule{allowed("*", "*", "*")}}
	var refused atomic.Bool
	refused.Store(true)
	e := engage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == cronJobs && r.URL.Query().Get("limit") != "1" && refused.Load() { // what precedes the list reads one object
			refuse(w, r, http.StatusForbidden)
			return
		}
		s.ServeHTTP(w, r)
	}), Lifecycle{Kinds: func(string) []v1alpha1.WorkloadKind { return []v1alpha1.WorkloadKind{v1alpha1.CronJobKind} }})
	if got := e.next(t, "without CronJobs"); len(got.Kinds) != 0 || !got.RulesServed {
		t.Errorf("it reads %v, and PrometheusRules: %v", got.Kinds, got.RulesServed)
	}
	e.until(t, "it says that CronJobs can't be read", func() bool {
		seen := e.p.Observation("s")
		return seen.Workloads.Reason == v1alpha1.ReasonForbidden && strings.Contains(seen.Workloads.Message, "CronJobs") && seen.Connected.Status == metav1.ConditionTrue
	})
	refused.Store(false)
	if got := e.next(t, "with them"); len(got.Kinds) != 1 {
		t.Errorf("it reads %v", got.Kinds)
	}
}

// The permissions to read workloads are in the group and have the name of their kind.
func TestReads(t *testing.T) {
	want := map[v1alpha1.WorkloadKind]string{
		v1alpha1.DeploymentKind: "deployments.apps", v1alpha1.StatefulSetKind: "statefulsets.apps", v1alpha1.DaemonSetKind: "daemonsets.apps", v1alpha1.CronJobKind: "cronjobs.batch",
	}
	for _, kind := range rule.WorkloadKinds() {
		for _, n := range reads(kind) {
			if n.resource.String() != want[kind] {
				t.Errorf("for a %s it is %s", kind, n.resource)
			}
		}
	}
}
