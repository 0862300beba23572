package main

import (
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
)

func TestKubeStateMetricsSelector(t *testing.T) {
	for _, good := range []string{"", `job="kube-state-metrics"`, `job=~"ksm-.*",namespace="monitoring"`} {
		t.Run(good, func(t *testing.T) {
			o, err := parse([]string{"--kube-state-metrics-selector=" + good}, io.Discard)
			if err != nil || o.kubeStateMetrics != good {
				t.Errorf("%s: %v, %v", good, o, err)
			}
		})
	}
	const bad = `{job="kube-state-metrics"}`
	if _, err := parse([]string{"--kube-state-metrics-selector=" + bad}, io.Discard); err == nil || !strings.Contains(err.Error(), "--kube-state-metrics-selector") {
		t.Errorf("%s: %v", bad, err)
	}
}

func TestPrometheusFlags(t *testing.T) {
	o, err := parse([]string{"--prometheus-version=v2.53.1", "--prometheus-features=a, b"}, io.Discard)
	if err != nil || o.evaluator == nil || o.evaluator.Version != "v2.53.1" || !slices.Equal(o.evaluator.Features, []string{"a", "b"}) {
		t.Errorf("got %+v, %v", o, err)
	}
	if o, err := parse(nil, io.Discard); err != nil || o.evaluator != nil {
		t.Errorf("with no flags: %+v, %v", o, err)
	}
	if _, err := parse([]string{"--prometheus-version=latest"}, io.Discard); err == nil || !strings.Contains(err.Error(), "--prometheus-version") {
		t.Errorf("latest: %v", err)
	}
}

func TestNamespacesOfSpokes(t *testing.T) {
	for args, want := range map[string][]string{
		"":                         nil,
		"--evaluator-namespaces=*": nil,
		"--evaluator-namespaces=monitoring,thanos": {"monitoring", "thanos"},
	} {
		t.Run(args, func(t *testing.T) {
			o, err := parse(strings.Fields(args), io.Discard)
			if err != nil || !slices.Equal(o.evaluatorNamespaces(), want) {
				t.Errorf("got %+v, %v", o, err)
			}
		})
	}
	for _, bad := range []string{"--evaluator-namespaces=", "--evaluator-namespaces=*,a", "--evaluator-namespaces=A", "--prometheus-operator-namespaces=*"} {
		t.Run(bad, func(t *testing.T) {
			flagName, _, _ := strings.Cut(bad, "=")
			if _, err := parse([]string{bad}, io.Discard); err == nil || !strings.Contains(err.Error(), flagName) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestProfilesAreServedOnLoopbackOnly(t *testing.T) {
	for _, good := range []string{"0", "127.0.0.1:6060", "127.8.8.8:0", "[::1]:6060"} {
		t.Run(good, func(t *testing.T) {
			if o, err := parse([]string{"--pprof-bind-address=" + good}, io.Discard); err != nil || o.profileAddress != good {
				t.Errorf("got %+v, %v", o, err)
			}
		})
	}
	for _, bad := range []string{"", ":6060", "0.0.0.0:6060", "[::]:6060", "10.0.0.1:6060", "localhost:6060", "127.0.0.1"} {
		t.Run("not "+bad, func(t *testing.T) {
			if _, err := parse([]string{"--pprof-bind-address=" + bad}, io.Discard); err == nil || !strings.Contains(err.Error(), "--pprof-bind-address") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestIntervalScale(t *testing.T) {
	if o, err := parse([]string{"--interval-scale=0.2"}, io.Discard); err != nil || o.intervals != 0.2 {
		t.Errorf("got %+v, %v", o, err)
	}
	if o, err := parse(nil, io.Discard); err != nil || o.intervals != 1 {
		t.Errorf("with no flag: %+v, %v", o, err)
	}
	for _, bad := range []string{"0", "-1", "NaN", "Inf", "11"} {
		t.Run(bad, func(t *testing.T) {
			if _, err := parse([]string{"--interval-scale=" + bad}, io.Discard); err == nil || !strings.Contains(err.Error(), "--interval-scale") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestSpokeLimits(t *testing.T) {
	o, err := parse([]string{"--spoke-max-objects=7", "--spoke-max-memory=1Gi", "--spoke-max-writes=3", "--spoke-namespace-share=100"}, io.Discard)
	if want := (spoke.Limits{Objects: 7, Memory: 1 << 30}); err != nil || o.limits != want || o.spokeMaxWrites != 3 || o.spokeNamespaceShare != 100 {
		t.Errorf("got %+v, %v", o, err)
	}
	if o, err := parse(nil, io.Discard); err != nil || o.limits != (spoke.Limits{Objects: spoke.DefaultMaxObjects, Memory: spoke.DefaultMaxMemory}) || o.spokeNamespaceShare != 75 {
		t.Errorf("with no flag: %+v, %v", o, err)
	}
	if _, err := parse([]string{"--spoke-max-memory=36Mi"}, io.Discard); err != nil {
		t.Errorf("the least memory: %v", err)
	}
	for _, bad := range []string{"--spoke-max-objects=0", "--spoke-max-memory=lots", "--spoke-max-memory=35Mi", "--spoke-max-writes=0", "--spoke-namespace-share=0", "--spoke-namespace-share=101"} {
		t.Run(bad, func(t *testing.T) {
			name, _, _ := strings.Cut(bad, "=")
			if _, err := parse([]string{bad}, io.Discard); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestTenancyFlags(t *testing.T) {
	o, err := parse([]string{"--protected-labels=team,tier", "--tenant-min-interval=0", "--enforce-namespace", "--tenant-max-rules=7"}, io.Discard)
	if want := (rule.Tenancy{ProtectedLabels: []string{"team", "tier"}, EnforceNamespace: true}); err != nil || !reflect.DeepEqual(o.validateOptions().Tenancy, want) || o.tenantMaxRules != 7 {
		t.Errorf("got %+v, %v", o, err)
	}
	if o, err := parse(nil, io.Discard); err != nil || o.tenancy.MinInterval != rule.DefaultMinInterval || o.tenancy.EnforceNamespace || len(o.tenancy.ProtectedLabels) > 0 || o.tenantMaxRules != 1000 {
		t.Errorf("with no flag: %+v, %v", o, err)
	}
	for _, bad := range []string{"--protected-labels=a-b", "--protected-labels=cluster", "--tenant-min-interval=-1s", "--tenant-min-interval=1us", "--tenant-max-rules=-1"} {
		t.Run(bad, func(t *testing.T) {
			name, _, _ := strings.Cut(bad, "=")
			if _, err := parse([]string{bad}, io.Discard); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%v", err)
			}
		})
	}
}

// Go's limit is a tenth below the container's, and there is none where there was none.
func TestHeadroom(t *testing.T) {
	was := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(was)
	for name, tc := range map[string]struct {
		env         string
		limit, want int64
	}{
		"a container's": {"1073741824", 1 << 30, 1<<30 - 1<<30/10},
		"none":          {"", 1 << 30, 1 << 30},
		"off":           {"off", math.MaxInt64, math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOMEMLIMIT", tc.env)
			debug.SetMemoryLimit(tc.limit) // as the runtime does
			leaveHeadroom()
			if got := debug.SetMemoryLimit(-1); got != tc.want {
				t.Errorf("the limit is %d", got)
			}
		})
	}
}

// GOGC takes precedence.
func TestCollectOften(t *testing.T) {
	was := debug.SetGCPercent(100)
	defer debug.SetGCPercent(was)
	for env, want := range map[string]int{"": gcPercent, "80": 80, "off": -1} {
		t.Setenv("GOGC", env)
		debug.SetGCPercent(map[string]int{"": 100, "80": 80, "off": -1}[env]) // as the runtime does
		collectOften()
		if got := debug.SetGCPercent(100); got != want {
			t.Errorf("with GOGC=%q, it is %d", env, got)
		}
	}
}

func TestReleases(t *testing.T) {
	const mib = 1 << 20
	r := releases{}
	for i, look := range []struct {
		what                  string
		allocatedMiB, liveMiB uint64
		due                   bool
	}{
		{"the first list", 300, 100, false},
		{"it goes on", 400, 100, false},
		{"it is quiet", 401, 100, true},
		{"nothing is new", 402, 100, false},
		{"a little garbage", 410, 100, false},
		{"more of it", 418, 100, false},
		{"enough", 426, 100, true},
		{"a burst", 600, 100, false},
		{"it is quiet again", 601, 100, true},
		{"a small heap", 603, 1, false},
		{"4 MiB since the last time", 605, 1, true},
	} {
		if due := r.due(look.allocatedMiB*mib, look.liveMiB*mib); due != look.due {
			t.Errorf("look %d, %s: due is %t", i, look.what, due)
		}
	}
}

func TestAllowKubeconfig(t *testing.T) {
	o, err := parse([]string{"--allow-kubeconfig=loopback, proxy-url"}, io.Discard)
	if want := (kubeconfig.Allowance{Loopback: true, ProxyURL: true}); err != nil || o.allow.Of("s") != want {
		t.Errorf("got %+v, %v", o, err)
	}
	if o, err := parse(nil, io.Discard); err != nil || o.allow.Of("s") != (kubeconfig.Allowance{}) {
		t.Errorf("with no flag: %+v, %v", o, err)
	}
	if _, err := parse([]string{"--allow-kubeconfig=exec"}, io.Discard); err == nil || !strings.Contains(err.Error(), `--allow-kubeconfig: "exec" is not a feature that can be allowed; use one of http, insecure-tls`) {
		t.Errorf("exec: %v", err)
	}
}

// Two replicas must not both work because of a flag that nobody gave.
func TestLeaderElectionIsOn(t *testing.T) {
	if o, err := parse(nil, io.Discard); err != nil || !o.leaderElect {
		t.Errorf("got %+v, %v", o, err)
	}
	if o, err := parse([]string{"--leader-elect=false"}, io.Discard); err != nil || o.leaderElect {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestClusterLabel(t *testing.T) {
	for _, bad := range []string{"severity", "alertname", "__name__", "a-b"} {
		t.Run(bad, func(t *testing.T) {
			if _, err := parse([]string{"--cluster-label=" + bad}, io.Discard); err == nil || !strings.Contains(err.Error(), "--cluster-label") {
				t.Errorf("%s: %v", bad, err)
			}
		})
	}
	for _, good := range []string{"", "cluster", "k8s_cluster"} {
		t.Run(good, func(t *testing.T) {
			if _, err := parse([]string{"--cluster-label=" + good}, io.Discard); err != nil {
				t.Errorf("%s: %v", good, err)
			}
		})
	}
}

// docs/reference/flags.md shows what --help prints.
func TestReferenceShowsTheFlags(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/flags.md")
	if err != nil {
		t.Fatal(err)
	}
	var help strings.Builder
	if _, err := parse([]string{"--help"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	want := "$ bin/rulefleet-manager --help\n" + strings.ReplaceAll(help.String(), "    \t", "        ") + "```"
	if !strings.Contains(string(page), want) {
		t.Errorf("docs/reference/flags.md does not show\n%s", want)
	}
}
