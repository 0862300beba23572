package model_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// root is the repository.
const root = "../../.."

// within is the CPU time, in seconds, in which random schedules have to find a mutation.
const within = "60"

// mutations are faults in the code that the schedules of some packages have to find: old is replaced by new.
var mutations = map[string]struct {
	file, old, new string
	packages       []string // under pkg
}{
	"removals are not decided again with what the API server has": {
		"pkg/controller/distribute/confirm.go", "if !r.anyStands(plan.Delete) {", "if true {", []string{"controller/distribute"},
	},
	"it is not decided again with the template and labels that the API server has": {
		"pkg/controller/generate/unfounded.go", "if r.keeps(g.template, w, ar) {", "if false {", []string{"controller/generate"},
	},
	"Deployments are not read from the API server": {
		"pkg/controller/generate/confirm.go", "out, err := r.confirm(ctx, reader, key, w, rules)", "out, err := rules, error(nil)", []string{"controller/generate"},
	},
	"AlertRules are looked up without the kind of their workload": {
		"pkg/controller/hub/index.go", `return cluster + "/" + workload.Kind + "/"`, `return cluster + "/"`, []string{"controller/generate"},
	},
	"workloads of two kinds share the names of AlertRules": {
		"pkg/rule/name.go", "if kind != v1alpha1.DeploymentKind {\n\t\tdigested", "if false {\n\t\tdigested", []string{"controller/generate"},
	},
	"a suspended spoke is written to": {
		"pkg/controller/distribute/reconciler.go", "plan = plan.Suspend()", "plan.Delete = nil", []string{"controller/distribute"},
	},
	"annotations of others are removed": {
		"pkg/rule/delivery/plan.go", "o := existing.DeepCopy()", "o := existing.DeepCopy()\n\to.Annotations = nil", []string{"controller/distribute"},
	},
	"expectations are dropped": {
		"pkg/controller/expect/expect.go", "\tif n.until.IsZero() {\n\t\treturn patience\n\t}\n\tleft := max(n.until.Sub(w.clock.Now()), 0)", "\tleft := time.Duration(0)", []string{"controller/distribute"},
	},
	"PrometheusRules are deleted without a UID": {
		"pkg/controller/distribute/act.go", "UID: &p.UID, ", "", []string{"controller/distribute"},
	},
	"AlertRules are deleted without a UID": {
		"pkg/controller/generate/apply.go", "UID: &ar.UID, ", "", []string{"controller/generate"},
	},
	"the deletion limit is doubled": {
		"pkg/controller/brake/ledger.go", "return max(free, l.base/part)", "return 2 * max(free, l.base/part)", []string{"controller/distribute", "controller/generate"},
	},
	"suspects are released when they are asked for again": {
		"pkg/controller/brake/ledger.go", "return suspectRetry, l.admitSuspect(owner, d.Key, e)", "return suspectRetry, l.admitSuspect(owner, d.Key, e) || e != nil", []string{"controller/distribute", "controller/generate"},
	},
	"AlertRules are not replayed when a spoke is engaged": {
		"pkg/controller/distribute/setup.go", "\tr.Propagation.Forget(name)\n\tr.replay(ctx, name, q)\n", "", []string{"controller/distribute"},
	},
	"workloads are not replayed when a spoke is engaged": {
		"pkg/controller/generate/setup.go", "\t\tenqueueWorkload(q, &rules[i])\n\t}\n\tfor _, workload := range r.quota", "\t\t_ = i\n\t}\n\tfor _, workload := range r.quota", []string{"controller/generate"},
	},
	"rules are removed with a lost kind": {
		"pkg/controller/hub/guard.go", "defined, gone, err = g.Kinds.Defined(ctx, k)", "defined, _, err = g.Kinds.Defined(ctx, k)\n\tgone = true", []string{"controller/distribute", "controller/generate"},
	},
	"the loss of a kind counts as a deletion of its objects": {
		"pkg/controller/hub/kinds.go", "return !made.Before(d.created) && later(version, d.version)", "return !made.IsZero() || later(version, d.version)", []string{"controller/distribute", "controller/generate"},
	},
	"a removal because of an absence is never suspect": {
		"pkg/rule/suspect/suspect.go", "return !made.After(kindSince) && !witnessed", "return !made.After(kindSince) && !witnessed && false", []string{"controller/distribute", "controller/generate"},
	},
	"a removal because of labels is never suspect": {
		"pkg/rule/suspect/suspect.go", "return !made.After(since) && Placeable(s, c.Name) && !seen.Placed(s, c)", "return !made.After(since) && Placeable(s, c.Name) && !seen.Placed(s, c) && false", []string{"controller/distribute"},
	},
	"what a restore of the hub may have undone is not suspect": {
		"pkg/controller/hub/restored.go", "return !p.restored.IsZero() && !t.Earliest.After(p.restored) ||", "return false ||", []string{"controller/distribute"},
	},
	"suspects expire": {
		"pkg/controller/brake/ledger.go", "\t\treturn suspectRetry, l.admitSuspect(owner, d.Key, e)",
		"\t\tok = l.admitSuspect(owner, d.Key, e)\n\t\tif e = l.owners[owner][d.Key]; e.until.IsZero() {\n\t\t\te.until = now.Add(l.span)\n\t\t}\n\t\treturn suspectRetry, ok || !now.Before(e.until)",
		[]string{"controller/distribute", "controller/generate"},
	},
	"a kind's record is not read, so that a clock that was set back makes it old": {
		"pkg/controller/hub/kinds.go", "if is.anew.After(d.Since) {", "if false {", []string{"controller/distribute", "controller/generate"},
	},
	"a spoke's clock that is ahead does not matter": {
		"pkg/spoke/clock.go", "if d < leastAhead || d > mostAhead {", "if d != 0 {", []string{"controller/distribute"},
	},
	"a spoke's clock that was ahead does not matter": {
		"pkg/spoke/clock.go", "\tif d < leastAhead || d > mostAhead {\n", "\tc.ahead = 0\n\tif d < leastAhead || d > mostAhead {\n", []string{"controller/distribute"},
	},
	"the time of an outage may be in the future": {
		"pkg/rule/rollup/damp.go", "if !at.After(now) {", "if true {", []string{"controller/status"},
	},
	"what vanished with its kind counts as reverted": {
		"pkg/controller/generate/contest.go", "if !write.Gone || !r.Contests.Reverted(write) {", "if true {", []string{"controller/generate"},
	},
	"contested writes are not slowed": {
		"pkg/contest/contest.go", "wait := max(d.next-now, 0)\n\treturn Turn{Wait: wait,", "wait := 0 * d.next\n\treturn Turn{Wait: wait,", []string{"controller/distribute"},
	},
	"rows change with each outage": {
		"pkg/rule/rollup/damp.go", "const OutageDelay = 5 * time.Minute", "const OutageDelay = time.Second", []string{"controller/status"},
	},
	"rows of a former cluster are kept": {
		"pkg/controller/status/reconciler.go", "Renewed: r.lives.ChangedSince(sc.Name, count) ||", "Renewed: count < 0 ||", []string{"controller/status"},
	},
	"verdicts on a former cluster are kept": {
		"pkg/controller/status/reconciler.go", "\tr.Board.forgetSpoke(name)\n", "", []string{"controller/status"},
	},
	"the circuit never closes": {
		"pkg/spoke/tend.go", "\tif open {\n\t\tc.breaker.Close()", "\tif open && false {\n\t\tc.breaker.Close()", []string{"spoke"},
	},
	"the identity is not read before a write": {
		"pkg/spoke/gate.go", "if !writes(h.req) {\n\t\treturn\n", "if true {\n\t\treturn\n", []string{"spoke"},
	},
	"the identity is not read before the circuit closes": {
		"pkg/spoke/tend.go", "if open || c.gate.inDoubt() {", "if false {", []string{"spoke"},
	},
	"a failed probe raises no doubt": {
		"pkg/spoke/connection.go", "gate: c.gate, apart: apart,", "gate: map[bool]*gate{false: c.gate}[apart],", []string{"spoke"},
	},
	"a probe that the HTTP client repeats raises no doubt": {
		"pkg/spoke/gate.go", "(l.apart && !failed)", "l.apart", []string{"spoke"},
	},
	"one poll without a rule suffices": {
		"pkg/controller/evaluate/agree.go", "case r.misses >= needed:", "case r.misses >= 1:", []string{"controller/evaluate"},
	},
	"no number of polls without a rule suffices": {
		"pkg/controller/evaluate/agree.go", "case r.misses >= needed:", "case r.misses < needed && false:", []string{"controller/evaluate"},
	},
	"a rule that is missing after a start is not in doubt": {
		"pkg/controller/evaluate/agree.go", "\t\tr.Unsure = true\n", "", []string{"controller/evaluate"},
	},
	"the answer about a former version of a rule counts": {
		"pkg/controller/evaluate/state.go", "case known == nil || known.generation != o.Generation:", "case known == nil:", []string{"controller/evaluate"},
	},
	"one failed poll suffices": {
		"pkg/controller/evaluate/state.go", "es.failures < patience {", "es.failures < 1 {", []string{"controller/evaluate"},
	},
	"Prometheus that are not chosen any more are kept": {
		"pkg/controller/evaluate/state.go", "_ *evaluatorState) bool { return !names[name]", "_ *evaluatorState) bool { return false && !names[name]", []string{"controller/evaluate"},
	},
}

// TestMutations checks that each mutation still applies. With MUTATIONS=1, it runs random schedules on each until they
// find it.
func TestMutations(t *testing.T) {
	for name, m := range mutations {
		t.Run(name, func(t *testing.T) {
			code, err := os.ReadFile(filepath.Join(root, m.file))
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(code), m.old); n != 1 {
				t.Fatalf("%s has %d times %q", m.file, n, m.old)
			}
			if os.Getenv("MUTATIONS") == "" {
				return
			}
			for _, p := range m.packages {
				t.Run(p, func(t *testing.T) {
					found(t, m.file, strings.Replace(string(code), m.old, m.new, 1), "./pkg/"+p)
				})
			}
		})
	}
}

// found runs the random schedules of a package, in which a file has other content, until they fail.
func found(t *testing.T, file, content, pkg string) {
	t.Helper()
	dir := t.TempDir()
	path, err := filepath.Abs(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	mutated, overlay, program := filepath.Join(dir, "mutated.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "explore.test")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: mutated}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{mutated: []byte(content), overlay: replace} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", overlay, "-o", program, pkg)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := exec.CommandContext(t.Context(), "bash", "-c", "ulimit -t "+within+` && exec "$0" "$@"`,
		program, "-test.run", "^TestExplore$", "-test.timeout", "0", "-rapid.nofailfile", "-rapid.shrinktime", "1s", "-rapid.checks", "1000000")
	// With GOGC=800, the garbage collector takes little of the time.
	run.Dir, run.Env = filepath.Join(root, pkg), append(os.Environ(), "SEED=0", "GOGC=800")
	out, err := run.CombinedOutput()
	took := run.ProcessState.UserTime() + run.ProcessState.SystemTime()
	if _, text, violated := bytes.Cut(out, []byte("VIOLATION: ")); violated {
		line, _, _ := bytes.Cut(text, []byte("\n"))
		t.Logf("found after %.1f s of CPU time: %.100s", took.Seconds(), line)
		return
	}
	t.Errorf("not found within %.1f s of CPU time: %v\n%s", took.Seconds(), err, out)
}
