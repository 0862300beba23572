package status

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// flapper counts the changes of the rows of spoke s.
type flapper struct {
	*Board

	mu      sync.Mutex
	reports int
}

func newFlapper(perSecond int) *flapper {
	f := &flapper{Board: NewBoard(0, perSecond, func(string) {})}
	f.Board.news.Listen(func(rule.Key) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.reports++
	})
	return f
}

func (f *flapper) report(name string, row v1alpha1.ClusterStatus) {
	f.Report(rule.AlertRuleKey("shop", name), "", row)
}

// message returns the message of the row.
func (f *flapper) message(key rule.Key) string { return f.rows(key, "")["s"].Message }

func flapRow(reason, message string, generation int64) v1alpha1.ClusterStatus {
	row := v1alpha1.ClusterStatus{Name: "s", Phase: v1alpha1.PhaseEvaluating, Reason: reason, Message: message, ObservedGeneration: generation}
	if reason != "" {
		row.Phase = v1alpha1.PhaseApplied
	}
	return row
}

// A spoke that changes all its rows all the time causes a limited number of writes, and the newest state is reported.
func TestFlaps(t *testing.T) {
	for name, other := range map[string]func(n int) v1alpha1.ClusterStatus{
		"two states": func(int) v1alpha1.ClusterStatus { return flapRow(v1alpha1.ReasonNotSelected, "no", 1) },
		"other words each time": func(n int) v1alpha1.ClusterStatus {
			return flapRow(v1alpha1.ReasonNotSelected, fmt.Sprintf("the label is %d", n), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFlapper(10)
				const rules, minutes = 100, 10
				for n := range minutes * 60 {
					row := flapRow("", "", 1)
					if n%2 == 1 {
						row = other(n)
					}
					for i := range rules {
						f.report(fmt.Sprintf("rule-%d", i), row)
					}
					time.Sleep(time.Second) //nolint:forbidigo // the test's own time
				}
				synctest.Wait()
				// Each rule gets its first states and free returns, then the spoke its rate.
				if most := rules*(2+freeReturns) + 10*(minutes*60+flapBurst); f.reports > most || f.reports < most/2 {
					t.Errorf("%d reports, at most %d are expected", f.reports, most)
				}
				for i := range rules {
					f.report(fmt.Sprintf("rule-%d", i), flapRow("", "", 1))
				}
				time.Sleep(rules / 10 * time.Second) //nolint:forbidigo // the test's own time
				synctest.Wait()
				for key, v := range f.spokes["s"].verdicts {
					if v.row.Reason != "" {
						t.Errorf("%s stays at %s", key, v.row.Reason)
					}
				}
				f.forgetSpoke("s")
			})
		})
	}
}

// What is new is reported at once.
func TestFlapsOfNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlapper(0)
		expect := func(what string, reports int, row v1alpha1.ClusterStatus) {
			t.Helper()
			f.reports = 0
			f.report("web", row)
			if f.reports != reports {
				t.Errorf("%s: %d reports, want %d", what, f.reports, reports)
			}
		}
		for i, reason := range []string{v1alpha1.ReasonNamespaceMissing, v1alpha1.ReasonNotSelected, v1alpha1.ReasonLoading, ""} {
			expect(fmt.Sprintf("state %d on the way", i), 1, flapRow(reason, "", 1))
		}
		expect("no change", 0, flapRow("", "", 1))
		firing := flapRow("", "", 1)
		firing.Firing = 3
		expect("a firing alert, which is limited elsewhere", 1, firing)
		expect("the first return", 1, flapRow(v1alpha1.ReasonNotSelected, "", 1))
		expect("the second", 1, flapRow("", "", 1))
		expect("the third", 0, flapRow(v1alpha1.ReasonNotSelected, "", 1))
		expect("back before it was reported", 0, flapRow("", "", 1))
		expect("the third again", 0, flapRow(v1alpha1.ReasonNotSelected, "", 1))
		expect("a change on the hub", 1, flapRow(v1alpha1.ReasonNotSelected, "", 2))
		expect("and its first return", 1, flapRow(v1alpha1.ReasonNotSelected, "other words", 2))
		expect("the second", 1, flapRow(v1alpha1.ReasonNotSelected, "", 2))
		expect("the third", 0, flapRow(v1alpha1.ReasonNotSelected, "other words", 2))
		time.Sleep(flapMemory) //nolint:forbidigo // the test's own time
		synctest.Wait()
		if got := f.message(rule.AlertRuleKey("shop", "web")); got != "other words" {
			t.Errorf("after an hour it says %q", got)
		}
		f.Forget(rule.AlertRuleKey("shop", "web"), "s")
		expect("placed again", 1, flapRow(v1alpha1.ReasonNotSelected, "other words", 2))
		expect("the first return", 1, flapRow(v1alpha1.ReasonNotSelected, "a", 2))
		expect("the second", 1, flapRow(v1alpha1.ReasonNotSelected, "b", 2))
		expect("the third", 0, flapRow(v1alpha1.ReasonNotSelected, "c", 2))
		f.renew("s")
		if got := f.message(rule.AlertRuleKey("shop", "web")); got != "c" || f.reports != 1 {
			t.Errorf("after a change of the spoke on the hub it says %q, with %d reports", got, f.reports)
		}
		f.forgetSpoke("s")
	})
}

// A namespace that changes all its rows all the time delays no row of another one, whichever namespaces their AlertRules
// have on the hub. The bound of the spoke stays.
func TestFlapsOfANamespace(t *testing.T) {
	const noisy, minutes = 1000, 5
	for name, tc := range map[string]struct {
		key  func(name string) rule.Key
		rule func(namespace, rule string) string
	}{
		"by the rule in the spoke": {
			key: func(name string) rule.Key {
				return rule.AlertRuleKey("generated", name)
			},
			rule: func(namespace, rule string) string { return namespace + "/" + rule },
		},
		"by the AlertRule": {
			key: func(name string) rule.Key {
				namespace, _, _ := strings.Cut(name, "-")
				return rule.AlertRuleKey(namespace, name)
			},
			rule: func(string, string) string { return "" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFlapper(10)
				defer f.forgetSpoke("s")
				report := func(namespace, rule string, n int) {
					row := flapRow("", "", 1)
					if n%2 == 1 {
						row = flapRow(v1alpha1.ReasonNotSelected, fmt.Sprint(n), 1)
					}
					row.Rule = tc.rule(namespace, rule)
					f.Report(tc.key(rule), "", row)
				}
				quiet, late := tc.key("quiet-0"), 0
				for n := range minutes * 60 {
					for i := range noisy {
						report("noisy", fmt.Sprintf("noisy-%d", i), n)
					}
					if n%20 == 0 {
						report("quiet", "quiet-0", n/20)
						want := fmt.Sprint(n / 20)
						if n/20%2 == 0 {
							want = ""
						}
						for f.message(quiet) != want {
							late++
							time.Sleep(100 * time.Millisecond) //nolint:forbidigo // the test's own time
							synctest.Wait()
							if late > 1000 {
								t.Fatal("it is not reported")
							}
						}
					}
					time.Sleep(time.Second) //nolint:forbidigo // the test's own time
				}
				synctest.Wait()
				if most := minutes * 60 / 20 * 11; late > most {
					t.Errorf("the other namespace waited for %d tenths of a second, at most %d are expected", late, most)
				}
				if most := (noisy+1)*(2+freeReturns) + 10*(minutes*60+late/10+flapBurst); f.reports > most {
					t.Errorf("%d reports, at most %d are expected", f.reports, most)
				}
			})
		})
	}
}

// Namespaces take turns, and of each the row that has waited the longest is first.
func TestTurnsOfNamespaces(t *testing.T) {
	began := time.Now()
	s := &reported{verdicts: map[rule.Key]*verdict{}, served: map[string]int{"a": 7, "b": 3}}
	for i, name := range []string{"a/4", "a/2", "b/3", "a/1", "c/5", "b/6"} {
		h := history{held: &v1alpha1.ClusterStatus{Rule: name}, heldFor: began.Add(time.Duration(i))}
		s.verdicts[rule.AlertRuleKey("x", name)] = &verdict{history: h}
	}
	s.verdicts[rule.AlertRuleKey("", "reported")] = &verdict{}
	var got []string
	for _, w := range s.waiting() {
		got = append(got, w.key.Name)
	}
	if want := "c/5 b/3 a/4 b/6 a/2 a/1"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// Namespaces that all change their rows all the time get equal shares.
func TestFlapsOfManyNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := map[string]int{}
		var mu sync.Mutex
		reporting := false
		f := NewBoard(0, 1, func(string) {})
		f.news.Listen(func(key rule.Key) {
			mu.Lock()
			defer mu.Unlock()
			if !reporting {
				released[key.Namespace]++
			}
		})
		report := func(is bool) {
			mu.Lock()
			defer mu.Unlock()
			reporting = is
		}
		defer f.forgetSpoke("s")
		for second := range 600 {
			report(true)
			for i := range 5 {
				for n := range 10 * (i + 1) {
					f.Report(rule.AlertRuleKey(fmt.Sprint("namespace-", i), fmt.Sprint(n)), "", flapRow(v1alpha1.ReasonNotSelected, fmt.Sprint(second), 1))
				}
			}
			report(false)
			time.Sleep(time.Second) //nolint:forbidigo // the test's own time
			synctest.Wait()
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range 5 {
			if n := released[fmt.Sprint("namespace-", i)]; n < 110 || n > 130 {
				t.Errorf("namespace %d got %d of 600: %v", i, n, released)
			}
		}
	})
}
