package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
	"github.com/rulefleet/rulefleet/pkg/plugin/why"
	"github.com/rulefleet/rulefleet/pkg/testing/faultproxy"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// TestFaultHub breaks the hub and the manager. Another test (TestLeaderElection) checks that a former leader
// writes nothing.
func TestFaultHub(t *testing.T) {
	parallel(t)
	f := startFaulty(t, fleet.Options{Spokes: []string{"remote"}})
	front := f.frontHub(t)
	f.manage(t)
	at := f.place(t, "remote")
	behind := at.behind(t)
	at.register(t)
	at.settle(t)
	f.measure(t)
	at.row("the manager is killed between two writes", rowOptions{hubDown: true}, func(r *fault) {
		f.sampler.stop()
		r.inject(func() { r.killAtEveryPoint(front, behind) }, func() {})
		r.change()
		r.over()
		f.sampler.resume()
	})
	must(t, f.current().Stop())
	f.options.Kubeconfig = nil // past the proxy
	f.start(t)
	at.row("the hub's API server is restarted", rowOptions{hubDown: true}, func(r *fault) {
		r.inject(func() { must(r.t, f.Hub.Kill()) }, func() { _ = f.Hub.Restart(context.WithoutCancel(r.t.Context())) })
		r.changeSpoke()
		r.hold(5 * time.Second)
		r.over()
		r.change()
	})
	at.row("the kind AlertRule is deleted and restored", rowOptions{hubDown: true, exemplary: true}, kindLost)
	must(t, f.current().Stop())
	f.options.LeaderElect = true
	f.keepRunning(t)
	at.row("the hub is down for 75 s", rowOptions{hubDown: true}, func(r *fault) {
		r.inject(func() { must(r.t, f.Hub.Kill()) }, func() { _ = f.Hub.Restart(context.WithoutCancel(r.t.Context())) })
		r.changeSpoke()
		r.refused(exit.Failed, "kubectl cluster-info")
		r.hold(75 * time.Second)
		must(r.t, r.keptAsItWas())
		r.over()
		r.change()
	})
}

// frontHub puts a proxy between the manager and the hub.
func (f *faulty) frontHub(t *testing.T) *faultproxy.Proxy {
	t.Helper()
	kubeconfig, err := f.HubKubeconfig(t.Context())
	must(t, err)
	const token = "canary-proxy-hub"
	f.canaries.add(token)
	p, err := faultproxy.Start(kubeconfig, token)
	must(t, err)
	t.Cleanup(p.Close)
	f.options.Kubeconfig, err = p.Kubeconfig()
	must(t, err)
	return p
}

// killPoint is a kind of write of the manager, with a preparation and a trigger.
type killPoint struct {
	proxy            *faultproxy.Proxy
	method, resource string
	prepare          func(suffix string) (trigger func())
}

// killAtEveryPoint kills the manager before each kind of write is sent, and after it was processed without an
// answer. Each time the manager must recover.
func (r *fault) killAtEveryPoint(hub, spoke *faultproxy.Proxy) {
	r.t.Helper()
	web := func(suffix string) client.Object { return deployment(r.name, "kill-"+suffix) }
	for _, k := range []killPoint{
		{hub, http.MethodPatch, "alertrules", func(s string) func() {
			return func() { must(r.t, r.m.Client.Create(r.t.Context(), web(s))) }
		}},
		{spoke, http.MethodPost, "prometheusrules", func(s string) func() { return func() { r.rule(r.t, "kill-"+s) } }},
		{spoke, http.MethodPut, "prometheusrules", func(s string) func() {
			ar := r.rule(r.t, "kill-"+s)
			r.settle(r.t)
			return func() { update(r.t, r.Hub, ar, func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up == 7" }) }
		}},
		{spoke, http.MethodDelete, "prometheusrules", func(s string) func() {
			ar := r.rule(r.t, "kill-"+s)
			r.settle(r.t)
			return func() { must(r.t, r.Hub.Client.Delete(r.t.Context(), ar)) }
		}},
		{hub, http.MethodDelete, "alertrules", func(s string) func() {
			must(r.t, r.m.Client.Create(r.t.Context(), web(s)))
			r.settle(r.t)
			return func() { must(r.t, r.m.Client.Delete(r.t.Context(), web(s))) }
		}},
		{hub, http.MethodPatch, "alertrules/status", func(s string) func() { return func() { r.rule(r.t, "kill-"+s) } }},
		{hub, http.MethodPatch, "spokeclusters/status", func(string) func() { return func() { spoke.Set(faultproxy.Storm(5)) } }},
	} {
		for _, after := range []bool{false, true} {
			r.killAt(k, after)
			if k.resource == "alertrules/status" && !after {
				r.step(client.ObjectKey{Namespace: fleet.Namespace, Name: r.name + "-kill-" + k.suffix(after)}, "rule accepted", why.Unknown, "kubectl -n "+fleet.Namespace+" get pods")
			}
			spoke.Set(faultproxy.Pass)
			r.start(r.t)
			begun := time.Now()
			within(r.t, convergedWithin, "all is as it should be again", r.converged)
			r.t.Logf("killed %s: converged %s after it was back", k.moment(after), seconds(time.Since(begun)))
		}
	}
}

// suffix is the end of the names of objects for a point.
func (k killPoint) suffix(after bool) string {
	return fmt.Sprintf("%s-%s-%t", strings.ToLower(k.method), strings.ReplaceAll(k.resource, "/", "-"), after)
}

func (k killPoint) moment(after bool) string {
	if after {
		return "when " + k.method + " " + k.resource + " was done"
	}
	return "before " + k.method + " " + k.resource
}

// killAt kills the manager at a point that the trigger makes it reach.
func (r *fault) killAt(k killPoint, after bool) {
	r.t.Helper()
	suffix := k.suffix(after)
	m := r.current()
	trigger := k.prepare(suffix)
	done := k.proxy.At(faultproxy.Point{Method: k.method, Resource: k.resource, After: after}, func() bool {
		_ = m.Kill()
		return false
	})
	trigger()
	triggered := time.Now()
	select {
	case <-done:
		r.t.Logf("%s: %s after its cause", k.moment(after), seconds(time.Since(triggered)))
	case <-time.After(patience):
		k.proxy.Forget()
		r.t.Errorf("nothing came %s", k.moment(after))
		must(r.t, m.Kill())
	}
}

// kindLost deletes the CustomResourceDefinition of AlertRules with all objects, and restores both as from a
// backup.
func kindLost(r *fault) {
	f, ctx := r.faulty, context.WithoutCancel(r.t.Context())
	f.sampler.stop()
	defer f.sampler.resume()
	pause(r.t, 2*time.Second) // for requests under way
	var backup v1alpha1.AlertRuleList
	must(r.t, r.Hub.Client.List(ctx, &backup))
	restore := func() error {
		return r.Hub.InstallCRDs(ctx, filepath.Join("..", "charts", "rulefleet", "files", "crds"), "*_alertrules.yaml")
	}
	healthy, err := f.healthy.rules(ctx)
	must(r.t, err)
	r.inject(func() { deleteKind(r.t, r.Hub, "alertrules."+v1alpha1.Group) }, func() { _ = restore() })
	r.refused(exit.Missing, "restore-a-kind")
	stay := func(context.Context) error {
		now, err := f.healthy.rules(ctx)
		if err == nil && len(now) != len(healthy) {
			err = fmt.Errorf("of %d rules of the healthy spoke there are %d", len(healthy), len(now))
		}
		return errors.Join(err, r.keptAsItWas())
	}
	throughout(r.t, r.intervals.Of(10*time.Second), "the spokes' rules stay", stay)
	must(r.t, restore())
	r.heal = func() {}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i := range backup.Items {
		ar := &backup.Items[i]
		ar.ResourceVersion, ar.UID, ar.Status = "", "", v1alpha1.RuleStatus{}
		g.Go(func() error { return client.IgnoreAlreadyExists(r.Hub.Client.Create(gctx, ar)) })
	}
	must(r.t, g.Wait())
	r.over()
	must(r.t, stay(ctx))
	// Rules deleted now are older in the spoke than their kind on the hub, so the brake holds their deletion.
	// New rules are not affected.
	r.rule(r.t, fmt.Sprintf("new-%d", r.number))
}

// restartDelay is the time between two starts of the manager by keepRunning. A kubelet's delay grows with the
// failures.
const restartDelay = 5 * time.Second

// keepRunning restarts the manager whenever it ends, as a kubelet does, until stop is called.
func (f *faulty) keepRunning(t *testing.T) (stop func()) {
	t.Helper()
	f.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	wg.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
				return
			case <-f.current().Done():
			}
			t.Logf("%s the manager ended: %v", time.Now().Format(time.TimeOnly), f.current().ExitErr())
			f.restart(t, ctx)
		}
	})
	return stop
}

// restart tries every few seconds to start the manager until it succeeds.
func (f *faulty) restart(t *testing.T, ctx context.Context) { //nolint:revive // t comes first in tests
	t.Helper()
	tick := time.NewTicker(restartDelay)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		m, err := f.StartManager(ctx, f.nextOptions())
		if err == nil {
			f.adopt(m)
			return
		}
		t.Logf("%s it does not start: %s", time.Now().Format(time.TimeOnly), firstLine(err.Error()))
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
