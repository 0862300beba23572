package leader

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clocktesting "k8s.io/utils/clock/testing"
)

const deadline = 10 * time.Second

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// lease is a Lease that several replicas share.
type lease struct {
	record *resourcelock.LeaderElectionRecord
	writes int
	err    error
}

// replica is a candidate for the lease.
type replica struct {
	resourcelock.Interface // what is not overridden is not used
	name                   string
	lease                  *lease
	during                 func() // while a write is on its way
}

func (r *replica) Identity() string { return r.name }

func (r *replica) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if r.lease.err != nil {
		return nil, nil, r.lease.err
	}
	record := *r.lease.record
	return &record, nil, nil
}

func (r *replica) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return r.Update(ctx, record)
}

func (r *replica) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	if r.during != nil {
		r.during()
	}
	if r.lease.err != nil {
		return r.lease.err
	}
	r.lease.record = &record
	r.lease.writes++
	return nil
}

// term is a's record in the lease.
func term(n int) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: "a", LeaderTransitions: n}
}

func setup() (*clocktesting.FakePassiveClock, *Fence, *replica, *lock) {
	c := clocktesting.NewFakePassiveClock(begin)
	f := NewFence(c, deadline)
	r := &replica{name: "a", lease: &lease{record: &resourcelock.LeaderElectionRecord{}}}
	l := f.watch(r)
	return c, f, r, l
}

func expect(t *testing.T, f *Fence, open, lost bool) {
	t.Helper()
	if err := f.check(); (err == nil) != open || (err != nil && !errors.Is(err, ErrNotLeading)) {
		t.Errorf("the fence says %v; it is to be open: %v", err, open)
	}
	select {
	case <-f.Lost():
		if !lost {
			t.Error("it is told as lost")
		}
	default:
		if lost {
			t.Error("it is not told as lost")
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFenceFollowsTheLease(t *testing.T) {
	c, f, r, l := setup()
	expect(t, f, false, false) // a standby
	if f.Expired() || NewOpenFence().Expired() {
		t.Error("a lease that was never acquired has expired")
	}
	r.lease.record = &resourcelock.LeaderElectionRecord{HolderIdentity: "b"}
	_, _, err := l.Get(t.Context())
	must(t, err)
	expect(t, f, false, false)

	must(t, l.Update(t.Context(), term(3)))
	expect(t, f, true, false)
	c.SetTime(begin.Add(deadline - 1))
	expect(t, f, true, false)
	if f.Expired() {
		t.Error("the lease has expired too early")
	}
	c.SetTime(begin.Add(deadline))
	expect(t, f, false, false) // the renewal is late
	if !f.Expired() {
		t.Error("the lease has not expired")
	}
	must(t, l.Update(t.Context(), term(3)))
	expect(t, f, true, false) // but came before another replica's

	r.lease.err = errors.New("no answer")
	c.SetTime(begin.Add(2*deadline - 1))
	if l.Update(t.Context(), term(3)) == nil {
		t.Error("the failure is lost")
	}
	expect(t, f, true, false)
	c.SetTime(begin.Add(2 * deadline))
	expect(t, f, false, false) // a failed renewal does not count
}

// The last renewal before this replica's own is the former leader's.
func TestFormer(t *testing.T) {
	c, f, r, l := setup()
	last := begin.Add(-time.Hour)
	r.lease.record = &resourcelock.LeaderElectionRecord{HolderIdentity: "b", RenewTime: metav1.NewTime(last)}
	for i := range 3 { // acquired, renewed, and read and renewed
		if _, ever := f.held(); !ever || i == 2 {
			_, _, err := l.Get(t.Context())
			must(t, err)
		}
		if i == 0 {
			if renewed, acquired := f.Former(); !renewed.IsZero() || !acquired.IsZero() {
				t.Errorf("a standby says %v, %v", renewed, acquired)
			}
		}
		must(t, l.Update(t.Context(), term(1)))
		if renewed, acquired := f.Former(); !renewed.Equal(last) || !acquired.Equal(begin) {
			t.Errorf("%d: got %v, %v", i, renewed, acquired)
		}
		c.SetTime(c.Now().Add(time.Second))
	}
	_, f, r, l = setup()
	r.lease.record = nil
	must(t, l.Create(t.Context(), term(0)))
	if renewed, acquired := f.Former(); !renewed.IsZero() || !acquired.IsZero() {
		t.Errorf("without a former leader: %v, %v", renewed, acquired)
	}
}

// The time when a renewal was sent counts, because its answer may be late.
func TestRenewalCountsFromItsSending(t *testing.T) {
	c, f, r, l := setup()
	r.during = func() { c.SetTime(begin.Add(deadline)) }
	must(t, l.Create(t.Context(), term(0)))
	expect(t, f, false, false)
}

// The monotonic clock stops while a machine sleeps, and the other one may be set back.
func TestBothClocksCount(t *testing.T) {
	for name, move := range map[string]func(c, wall *clocktesting.FakePassiveClock){
		"asleep": func(_, wall *clocktesting.FakePassiveClock) { wall.SetTime(begin.Add(deadline)) },
		"set back": func(c, wall *clocktesting.FakePassiveClock) {
			c.SetTime(begin.Add(deadline))
			wall.SetTime(begin.Add(-deadline))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, f, _, l := setup()
			wall := clocktesting.NewFakePassiveClock(begin)
			f.wall = wall
			must(t, l.Create(t.Context(), term(0)))
			expect(t, f, true, false)
			move(c, wall)
			expect(t, f, false, false)
		})
	}
}

func TestAnotherReplicaLeads(t *testing.T) {
	for name, take := range map[string]func(t *testing.T, r *replica, l *lock){
		"it is seen": func(t *testing.T, r *replica, l *lock) {
			t.Helper()
			r.lease.record = &resourcelock.LeaderElectionRecord{HolderIdentity: "b", LeaderTransitions: 1}
			_, _, err := l.Get(t.Context())
			must(t, err)
		},
		"it came and went": func(t *testing.T, r *replica, l *lock) {
			t.Helper()
			r.lease.record = &resourcelock.LeaderElectionRecord{LeaderTransitions: 1}
			_, _, err := l.Get(t.Context())
			must(t, err)
			before := r.lease.writes
			if err := l.Update(t.Context(), term(2)); !errors.Is(err, errNewTerm) || r.lease.writes != before {
				t.Errorf("the lease is got anew: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, f, r, l := setup()
			must(t, l.Create(t.Context(), term(0)))
			expect(t, f, true, false)
			take(t, r, l)
			expect(t, f, false, true)
			f.renew(f.now(), 0) // for good
			expect(t, f, false, true)
		})
	}
}

func TestRelease(t *testing.T) {
	_, f, r, l := setup()
	must(t, l.Create(t.Context(), term(0)))
	// client-go reads the lease first.
	_, _, err := l.Get(t.Context())
	must(t, err)
	r.during = func() { expect(t, f, false, false) } // nothing is written once the release is sent
	must(t, l.Update(t.Context(), resourcelock.LeaderElectionRecord{}))
	if r.lease.record.HolderIdentity != "" {
		t.Error("it is not released")
	}
	expect(t, f, false, false)
}

// client-go does not check who holds the lease that it releases.
func TestAnothersLeaseIsNotReleased(t *testing.T) {
	_, f, r, l := setup()
	must(t, l.Create(t.Context(), term(0)))
	r.lease.record = &resourcelock.LeaderElectionRecord{HolderIdentity: "b", LeaderTransitions: 1}
	_, _, err := l.Get(t.Context())
	must(t, err)
	if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{}); !errors.Is(err, errForeign) || r.lease.record.HolderIdentity != "b" {
		t.Errorf("got %v, and the holder is %q", err, r.lease.record.HolderIdentity)
	}
	expect(t, f, false, true)
}

// A replica with outdated state does not acquire the lease, but keeps one that it has.
func TestNotCurrent(t *testing.T) {
	_, f, r, l := setup()
	outdated := errors.New("of before the restore")
	l.current = func(context.Context) error { return outdated }
	for _, take := range []func(context.Context, resourcelock.LeaderElectionRecord) error{l.Create, l.Update} {
		if err := take(t.Context(), term(0)); !errors.Is(err, outdated) || r.lease.writes != 0 {
			t.Errorf("got %v, and %d writes", err, r.lease.writes)
		}
		expect(t, f, false, false)
	}
	l.current = func(context.Context) error { return nil }
	must(t, l.Update(t.Context(), term(0)))
	expect(t, f, true, false)
	l.current = func(context.Context) error { return outdated }
	must(t, l.Update(t.Context(), term(0)))
	expect(t, f, true, false)
}

// The lease of a former process of the same pod is free; any other is not.
func TestLeaseOfTheSamePod(t *testing.T) {
	const pod = "8a2f0f4c"
	for name, tc := range map[string]struct {
		pod, holder string
		free        bool
	}{
		"a former process":   {pod, "host_8a2f0f4c_1", true},
		"itself":             {pod, "host_8a2f0f4c_2", false},
		"another pod":        {pod, "host_1b6f55d0_1", false},
		"another's UID ends": {pod, "host_8a2f0f4c1b6f_1", false},
		"in no pod":          {"", "host_1", false},
	} {
		t.Run(name, func(t *testing.T) {
			_, f, r, l := setup()
			r.name, l.pod = "host_8a2f0f4c_2", tc.pod
			r.lease.record = &resourcelock.LeaderElectionRecord{HolderIdentity: tc.holder}
			record, _, err := l.Get(t.Context())
			must(t, err)
			if want := map[bool]string{true: "", false: tc.holder}[tc.free]; record.HolderIdentity != want {
				t.Errorf("the holder is %q, not %q", record.HolderIdentity, want)
			}
			if _, ever := f.held(); ever || r.lease.writes != 0 {
				t.Error("it was got by a look at it")
			}
		})
	}
	for _, pod := range []string{"", pod} {
		first, err := Identity(pod)
		must(t, err)
		second, err := Identity(pod)
		must(t, err)
		if l := (&lock{Interface: &replica{name: second}, pod: pod}); l.ended(first) != (pod != "") || l.ended(second) {
			t.Errorf("in pod %q, %q takes over from %q: %v", pod, second, first, l.ended(first))
		}
	}
}

// Requests that pass a closed fence, and those that do not.
func TestTransport(t *testing.T) {
	const api = "/apis/monitoring.coreos.com/v1/namespaces/shop/prometheusrules"
	_, f, _, l := setup()
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { got = append(got, req.Method+" "+req.URL.Path) }))
	defer server.Close()
	c := &http.Client{Transport: f.Wrap(http.DefaultTransport)}
	send := func(method, path string) error {
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader("{}"))
		must(t, err)
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	reads := []string{
		"GET " + api, "HEAD " + api, "OPTIONS " + api,
		"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
		"POST /k8s/clusters/c-1/apis/authentication.k8s.io/v1beta1/selfsubjectreviews",
		// by which a standby serves its metrics to those alone who may read them
		"POST /apis/authentication.k8s.io/v1/tokenreviews", "POST /apis/authorization.k8s.io/v1/subjectaccessreviews",
	}
	writes := []string{
		"POST " + api, "PUT " + api + "/web", "PATCH " + api + "/web", "DELETE " + api + "/web", "DELETE " + api,
		"PUT /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		"POST /api/v1/namespaces/shop/serviceaccounts/rulefleet/token", "POST " + api + "/selfsubjectreviews",
		"POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews/more",
	}
	for _, open := range []bool{false, true} {
		got = nil
		want := append([]string{}, reads...)
		if open {
			must(t, l.Create(t.Context(), term(0)))
			want = append(want, writes...)
		}
		for _, r := range append(append([]string{}, reads...), writes...) {
			method, path, _ := strings.Cut(r, " ")
			if err := send(method, path); err != nil && !errors.Is(err, ErrNotLeading) {
				t.Errorf("%s: %v", r, err)
			}
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("open: %v; the server got\n%s", open, strings.Join(got, "\n"))
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// It may take long until a request has a connection. The API server acts on the request's body.
func TestFenceClosesBeforeTheBody(t *testing.T) {
	for _, again := range []bool{false, true} {
		c, f, _, l := setup()
		must(t, l.Create(t.Context(), term(0)))
		late := f.Wrap(roundTripper(func(req *http.Request) (*http.Response, error) {
			if first, err := io.ReadAll(req.Body); err != nil || string(first) != "{}" {
				t.Errorf("while it is open: %q, %v", first, err)
			}
			c.SetTime(begin.Add(deadline))
			body := req.Body
			if again { // as on another connection, when the first was closed
				var err error
				body, err = req.GetBody()
				must(t, err)
			}
			_, err := io.ReadAll(body)
			return nil, err
		}))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://spoke/apis", bytes.NewReader([]byte("{}")))
		must(t, err)
		resp, err := late.RoundTrip(req)
		if resp != nil {
			_ = resp.Body.Close()
		}
		if !errors.Is(err, ErrNotLeading) {
			t.Errorf("once more: %v; got %v", again, err)
		}
		if _, guarded := req.Body.(*body); guarded {
			t.Error("the caller's request was changed")
		}
	}
}

// Without leader election, only Close stops writes.
func TestOpenFence(t *testing.T) {
	f := NewOpenFence()
	expect(t, f, true, false)
	if renewed, acquired := f.Former(); !renewed.IsZero() || !acquired.IsZero() {
		t.Errorf("a former leader: %v, %v", renewed, acquired)
	}
	f.Close()
	expect(t, f, false, false)
}
