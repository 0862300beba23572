package spoke

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/continuity"
)

// readAt lets a session's guard know which resource version of PrometheusRules was read.
func readAt(t *testing.T, s *session, version string) {
	t.Helper()
	lw := s.guard.ListerWatcher(&toolscache.ListWatch{ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		return &monitoringv1.PrometheusRuleList{ListMeta: metav1.ListMeta{ResourceVersion: version}}, nil
	}}, &monitoringv1.PrometheusRule{})
	if _, err := lw.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A recheck detects that the spoke was restored, and the session ends at once.
func TestRecheckNoticesRestore(t *testing.T) {
	s, c, session := connectTo(t)
	readAt(t, session, "100")
	for _, version := range []string{"100", "101", ""} {
		s.set(func(s *standIn) { s.version = version })
		if better, err := c.recheck(t.Context(), session); better || err != nil || session.guard.Err() != nil {
			t.Fatalf("at version %q: %v, %v, %v", version, better, err, session.guard.Err())
		}
	}
	s.set(func(s *standIn) { s.version = "100" })
	readAt(t, session, "101")
	if _, err := c.recheck(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	told := ""
	c.p.life.Restored = append(c.p.life.Restored, func(name string) { told += name })
	begin := time.Now()
	err := c.tend(t.Context(), session)
	if !c.anew(t.Context(), err) || c.seen.Connected.Reason != v1alpha1.ReasonRestored || c.seen.Connected.Status != metav1.ConditionFalse {
		t.Errorf("the session ended with %v, and it shows %+v", err, c.seen.Connected)
	}
	if told != c.name {
		t.Errorf("told of %q", told)
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("it took %v", took)
	}
}

// Only a restore opens the next session at once.
func TestAnew(t *testing.T) {
	_, c, _ := connectTo(t)
	c.p.life.Restored = append(c.p.life.Restored, func(name string) { t.Errorf("told of %s", name) })
	for _, err := range []error{errNotKubernetes, &IdentityError{}} {
		if c.anew(t.Context(), err) || c.seen.Connected.Reason != "" {
			t.Errorf("%v: it shows %+v", err, c.seen.Connected)
		}
	}
}

// However often a spoke is restored, an old cache is not served. After several restores in a row, it is read
// again later.
func TestRestoresAreBounded(t *testing.T) {
	_, c, session := connectTo(t)
	c.restores = flowcontrol.NewFakeNeverRateLimiter()
	readAt(t, session, "100")
	session.guard.Reading(monitoringv1.PrometheusRuleKind)("99")
	if _, ok := errors.AsType[*continuity.RestoredError](c.tend(t.Context(), session)); !ok {
		t.Error("the session goes on")
	}

	synctest.Test(t, func(t *testing.T) {
		c := &connection{name: "s", p: NewProvider(Options{}), restores: newRestores()}
		begin := time.Now()
		for n := range restoresAtOnce + 3 {
			if !c.anew(t.Context(), &continuity.RestoredError{}) || c.seen.Connected.Reason != v1alpha1.ReasonRestored {
				t.Fatalf("the %d. time: %+v", n+1, c.seen.Connected)
			}
			want := time.Duration(max(0, n+1-restoresAtOnce)) * time.Minute
			if took := time.Since(begin); took < want-time.Second || took > want+time.Second {
				t.Errorf("the %d. time: after %v, and not %v", n+1, took, want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		begin = time.Now()
		c.anew(ctx, &continuity.RestoredError{})
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("a connection that ends waits for %v", took)
		}
	})
}
