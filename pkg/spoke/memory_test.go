package spoke

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// If the spokes keep too much together, the session of the one that keeps the most ends, and no other.
func TestFleetMemory(t *testing.T) {
	const unit = 1 << 20
	f, told := newFleetMemory(100*unit), []string(nil)
	open := func(name string) *account {
		return f.account(func(e *TooLargeError) {
			told = append(told, name)
			if e.Bound != f.most || e.Value <= f.most || e.Flag != fleetFlag {
				t.Errorf("%s is told %+v", name, e)
			}
		})
	}
	expect := func(what string, total int64, names ...string) {
		t.Helper()
		if !slices.Equal(told, names) || f.total != total*unit {
			t.Errorf("%s: %v were told, and %d MiB count; want %v and %d", what, told, f.total/unit, names, total)
		}
		told = nil
	}
	a, b, c := open("a"), open("b"), open("c")
	caches, answer := a.charge(), a.charge()
	caches.Set(30 * unit)
	answer.Set(10 * unit)
	of := b.charge()
	of.Set(39 * unit)
	expect("within the bound", 79)
	of.Set(39*unit + chargeStep - 1)
	expect("a small change", 79)
	other := c.charge()
	other.Set(25 * unit)
	expect("too much", 64, "a")
	caches.Set(35 * unit)
	expect("the session ends", 64)
	a.begin()
	expect("it begins again, with what is still kept", 64, "a")
	caches.Close()
	caches.Set(30 * unit) // of an informer that has not stopped yet
	a.begin()
	expect("it begins again", 74)
	answer.Close()
	answer.Close()
	expect("an answer was read", 64)
	b.close()
	of.Set(20 * unit)
	expect("a connection was closed", 25)
	other.Set(101 * unit)
	expect("one alone is too large", 0, "c")

	unbounded := newFleetMemory(0).account(func(e *TooLargeError) { t.Errorf("without a bound: %v", e) })
	unbounded.charge().Set(1 << 50)
	var none *account
	none.begin()
	none.charge().Set(1 << 50)
	none.charge().Close()
	none.close()
}

// Large answers of all spokes are decoded in turn, and usual ones beside them. None waits forever for one that was forgotten.
func TestDecodingTakesTurns(t *testing.T) {
	for name, tc := range map[string]struct{ most, other int64 }{"usual": {largeCost, 10 * largeDecoding}, "large": {10 * largeDecoding, largeCost}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleetMemory(0)
				a := f.account(nil)
				decode := func(ctx context.Context, cost int64) <-chan func() {
					out := make(chan func(), 1)
					go func() {
						done, err := a.decode(ctx, cost)
						if err != nil && ctx.Err() == nil {
							t.Error(err)
						}
						out <- done
					}()
					synctest.Wait()
					return out
				}
				var first []<-chan func()
				for range max(1, smallDecoding/tc.most) {
					first = append(first, decode(t.Context(), tc.most))
				}
				ctx, cancel := context.WithCancel(t.Context())
				gone, second, third := decode(ctx, tc.most), decode(t.Context(), tc.most), decode(t.Context(), tc.most)
				if len(gone)+len(second)+len(third) > 0 {
					t.Error("another one does not wait")
				}
				(<-decode(t.Context(), tc.other))() // does not wait
				cancel()
				if done := <-gone; done != nil {
					t.Error("it has memory without a reader")
				}
				done := <-first[0]
				done()
				done()
				began := time.Now()
				(<-second)()
				if time.Since(began) != 0 {
					t.Error("the second waited for longer")
				}
				for _, forgotten := range first[1:] {
					<-forgotten
				}
				forgotten := <-third
				(<-decode(t.Context(), tc.most))()
				if took := time.Since(began); tc.most > largeCost && took != decodingTime {
					t.Errorf("the last waited for %v", took)
				}
				forgotten()
			})
		})
	}
}

// Answers and events are charged to their spoke while they are kept, and decoded in turn with those of other spokes: also
// events that are dense, but not long.
func TestAnswersAreCharged(t *testing.T) {
	text := `{"a":"` + strings.Repeat("x", largeEvent) + `"}`
	dense := `{"a":[` + strings.Repeat("0,", largeEventValues) + `0]}`
	for name, tc := range map[string]struct {
		path, body string
		kept       int64 // while it is read
		waits      bool
	}{
		"a small answer": {path: "/api/v1/namespaces/a", body: `{}`},
		"a large answer": {path: "/api/v1/namespaces/a", body: text, kept: int64(len(text)), waits: true},
		"a small event":  {path: "/api/v1/namespaces?watch=true", body: `{}`},
		"a large event":  {path: "/api/v1/namespaces?watch=true", body: text, kept: eventBuffers * int64(len(text)), waits: true},
		"a dense event":  {path: "/api/v1/namespaces?watch=true", body: dense, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleetMemory(1 << 30)
				a := f.account(nil)
				caller, used := context.WithCancel(t.Context())
				defer used()
				next := metered{account: a, paces: &paces{}, caller: caller, next: roundTrip(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(tc.body))}, nil
				})}
				var others []func()
				for range smallDecoding / largeCost {
					done, err := a.decode(t.Context(), largeCost)
					if err != nil {
						t.Fatal(err)
					}
					others = append(others, done)
				}
				resp, err := next.RoundTrip(get(t.Context(), t, "https://spoke"+tc.path))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = resp.Body.Close() }()
				read := make(chan error, 1)
				go func() {
					_, err := io.Copy(io.Discard, resp.Body)
					read <- err
				}()
				synctest.Wait()
				if waits := len(read) == 0; waits != tc.waits {
					t.Errorf("it waits: %v", waits)
				}
				if f.total > tc.kept || tc.kept-f.total > eventBuffers*chargeStep {
					t.Errorf("%d bytes are charged, want %d", f.total, tc.kept)
				}
				for _, done := range others {
					done()
				}
				if err := <-read; err != nil {
					t.Error(err)
				}
				if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
					t.Errorf("client-go, which reads it to its end again, gets %d bytes, %v", n, err)
				}
				cost := (&meter{decoded: int64(len(tc.body)), values: int64(strings.Count(tc.body, ",") + 2)}).cost()
				if !f.small.TryAcquire(smallDecoding - cost) {
					t.Errorf("more than %d bytes are taken for decoding", cost)
				} else {
					f.small.Release(smallDecoding - cost)
				}
				_ = resp.Body.Close()
				if f.total != 0 {
					t.Errorf("%d bytes stay charged", f.total)
				}
				used()
				synctest.Wait()
				if !f.small.TryAcquire(smallDecoding) || !f.large.TryAcquire(largeDecoding) {
					t.Error("memory for decoding is lost")
				}
			})
		})
	}
}

// Events that wait for the end of a list are charged.
func TestWaitingEventsAreCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, inner := newFleetMemory(0), watch.NewFake()
		b := newBacklog("5", inner, func(watch.Event, amount) bool { return true }, f.account(nil).charge())
		large := func(name string) runtime.Object {
			o := WorkloadMetadata(v1alpha1.DeploymentKind)
			o.Name, o.UID, o.Labels = name, types.UID(name), map[string]string{"a": strings.Repeat("x", 2*chargeStep)}
			return o
		}
		counts := func(what string, n int64) {
			t.Helper()
			synctest.Wait()
			if f.total/(2*chargeStep) != n {
				t.Errorf("%s: %d bytes are charged", what, f.total)
			}
		}
		inner.Add(large("a"))
		inner.Add(large("b"))
		counts("two wait", 2)
		<-b.ResultChan()
		counts("one was read", 1)
		b.Stop()
		counts("it has ended", 0)
	})
}

// What a session caches is charged until the session ends.
func TestSessionsAreCharged(t *testing.T) {
	t.Parallel()
	_, c, _ := connectTo(t)
	s, err := c.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kept, memory := c.reads.bounds.charge, c.p.memory
	kept.Set(1 << 20)
	counts := func(n int64) {
		t.Helper()
		memory.mu.Lock() // watches that end are counted too
		defer memory.mu.Unlock()
		if memory.total != n {
			t.Errorf("%d bytes are charged, want %d", memory.total, n)
		}
	}
	counts(1 << 20)
	s.stop()
	counts(0)
}

// A page for which there is no memory in time is requested with fewer objects.
func TestPagesWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, budget := newFleetMemory(0).account(nil), &pageBudget{most: 1 << 20}
		arrived := func() error {
			page := budget.join()
			defer page.end()
			page.turn = &together{}
			return page.arrived(t.Context(), a, largeDecoding)
		}
		for range 2 {
			if err := arrived(); err != nil {
				t.Errorf("there is memory: %v", err)
			}
		}
		another, err := a.decode(t.Context(), largeDecoding)
		if err != nil {
			t.Fatal(err)
		}
		if err := arrived(); !errors.Is(err, errBusy) {
			t.Errorf("the error is %v", err)
		}
		another()
	})
}
