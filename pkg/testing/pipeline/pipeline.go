package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// The name of the Prometheus object that Start creates.
const (
	Namespace = "monitoring"
	Name      = "main"
)

// tick is the interval at which pods and configuration are checked.
const tick = 500 * time.Millisecond

// Options describe the pipeline to start.
type Options struct {
	// Dir is the work folder of this pipeline only: files, data and logs. "" means a temporary one, which Stop
	// removes.
	Dir string
	// Prometheus is the spec of the Prometheus object: its selectors, externalLabels and other fields that a
	// test needs. Start sets the scrape and notification targets. The default of scrapeInterval and
	// evaluationInterval is one second.
	Prometheus monitoringv1.PrometheusSpec
	// Ruler is a ThanosRuler. Its pods are not run; in their place, Prometheus evaluates the rules that prometheus-operator
	// passes to them, beside its own. Install the CRD before the start.
	Ruler types.NamespacedName
	// WithoutBindings makes prometheus-operator omit from a PrometheusRule's status which Prometheus has
	// selected it.
	WithoutBindings bool
	// OperatorArgs are further flags of prometheus-operator.
	OperatorArgs []string
	// Alertmanager is the Alertmanager to notify; nil starts one that Stop ends.
	Alertmanager *Alertmanager
	// Output gets a line when the pipeline is ready; it may be nil.
	Output io.Writer
}

// Pipeline produces the alerts of one control plane. Its methods are safe for concurrent use.
type Pipeline struct {
	opts      Options
	member    *fleet.Member
	dir       string
	temporary bool
	// host is the address of this machine at which Prometheus listens.
	host  string
	ports map[string]int

	alertmanager *Alertmanager
	exporter     *exporter
	kubelet      *kubelet
	reloader     *reloader
	// In the order in which they are stopped.
	prometheus, operator, kubeStateMetrics *program

	log      *os.File
	endLoops context.CancelFunc
	loops    sync.WaitGroup

	stopOnce sync.Once
	stopErr  error
}

// Start runs a pipeline in a control plane of processes with a controller manager, and returns when Prometheus
// is ready. The end of ctx aborts the start; a started pipeline runs until Stop. The objects that it creates
// stay.
func Start(ctx context.Context, member *fleet.Member, o Options) (*Pipeline, error) {
	if member.Cluster == nil || member.Pids()["kube-controller-manager"] == 0 {
		return nil, fmt.Errorf("starting a pipeline in %s: it does not run as processes, with a controller manager", member.Name())
	}
	begin := time.Now()
	p := &Pipeline{opts: o, member: member, ports: map[string]int{}, endLoops: func() {}}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the pipeline of %s: %w", member.Name(), err), p.Stop())
	}
	if o.Output != nil {
		_, _ = fmt.Fprintf(o.Output, "pipeline %s: Prometheus at %s, Alertmanager at %s after %.1fs\n",
			member.Name(), p.PrometheusURL(), p.alertmanager.URL(), time.Since(begin).Seconds())
	}
	return p, nil
}

func (p *Pipeline) start(ctx context.Context) error {
	if err := p.prepare(); err != nil {
		return err
	}
	if err := p.install(ctx); err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.kubeStateMetrics.start(gctx) })
	g.Go(func() error { return p.operator.start(gctx) })
	g.Go(func() error { return p.startAlertmanager(gctx) })
	if err := g.Wait(); err != nil {
		return err
	}
	if err := p.createPrometheus(ctx); err != nil {
		return err
	}
	if err := await(ctx, p.reloader.mount); err != nil {
		return fmt.Errorf("waiting for prometheus-operator's configuration: %w\n%s", err, controlplane.Tail(p.operator.logPath, tailLines))
	}
	if err := p.prometheus.start(ctx); err != nil {
		return err
	}
	p.startLoops(ctx)
	return await(ctx, p.isProxied)
}

// prepare finds the address and the programs.
func (p *Pipeline) prepare() error {
	var err error
	if p.dir, p.temporary, err = folder(p.opts.Dir); err != nil {
		return err
	}
	if p.log, err = os.OpenFile(p.logPath("stand-ins"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, privateFile); err != nil {
		return fmt.Errorf("opening a log: %w", err)
	}
	if p.host, err = Address(); err != nil {
		return err
	}
	for name, host := range map[string]string{
		"prometheus": p.host, "operator": loopback, "kube-state-metrics": loopback, "kube-state-metrics' own": loopback,
	} {
		if p.ports[name], err = controlplane.TakePort(host); err != nil {
			return err
		}
	}
	if p.exporter, err = startExporter(); err != nil {
		return err
	}
	p.kubelet = &kubelet{client: p.member.Client, address: p.host, broken: map[types.NamespacedName]bool{}}
	p.reloader = &reloader{client: p.member.Client, dir: filepath.Join(p.dir, "prometheus"), reloadURL: p.PrometheusURL() + "/-/reload", ruler: p.opts.Ruler}
	return p.preparePrograms()
}

// Address returns the address of this machine for Prometheus. Without one, no pipeline can be started.
func Address() (string, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("listing the addresses of this machine: %w", err)
	}
	return podAddress(addresses)
}

// podAddress returns the first address that a pod can have: the API server rejects loopback and link-local
// addresses.
func podAddress(addresses []net.Addr) (string, error) {
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return n.IP.String(), nil
		}
	}
	return "", fmt.Errorf("this machine has no address but loopback and link-local ones (%v), and the API server's proxy leads to no such", addresses)
}

func (p *Pipeline) startAlertmanager(ctx context.Context) error {
	p.alertmanager = p.opts.Alertmanager
	if p.alertmanager != nil {
		return nil
	}
	var err error
	p.alertmanager, err = StartAlertmanager(ctx, p.dir)
	return err
}

// startLoops simulates the nodes until Stop.
func (p *Pipeline) startLoops(ctx context.Context) {
	ctx, p.endLoops = context.WithCancel(context.WithoutCancel(ctx))
	for _, sync := range []func(context.Context) error{p.kubelet.sync, p.reload} {
		p.loops.Go(func() { p.repeat(ctx, sync) })
	}
}

// repeat calls a function at intervals, and logs each of its errors once.
func (p *Pipeline) repeat(ctx context.Context, sync func(context.Context) error) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	last := ""
	for {
		err := bounded(ctx, sync)
		if ctx.Err() != nil {
			return
		}
		if err != nil && err.Error() != last {
			_, _ = fmt.Fprintf(p.log, "%s %v\n", time.Now().Format(time.RFC3339), err)
		}
		last = fmt.Sprint(err)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func bounded(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return f(ctx)
}

// reload updates Prometheus' files, unless Prometheus is stopped.
func (p *Pipeline) reload(ctx context.Context) error {
	if !p.prometheus.isRunning() {
		return p.reloader.mount(ctx)
	}
	return p.reloader.sync(ctx)
}

// isProxied checks that the API server's proxy leads to Prometheus.
func (p *Pipeline) isProxied(ctx context.Context) error {
	c, err := proxyClient(p.member)
	if err != nil {
		return terminal{err}
	}
	if _, err := c.ProxyGet("http", ServiceName, PortName, "/-/ready", nil).DoRaw(ctx); err != nil {
		return fmt.Errorf("reaching Prometheus by the API server's proxy: %w", err)
	}
	return nil
}

// Stop ends everything that Start has started. Further calls do nothing.
func (p *Pipeline) Stop() error {
	p.stopOnce.Do(func() {
		if err := p.stop(); err != nil {
			p.stopErr = fmt.Errorf("stopping the pipeline of %s: %w", p.member.Name(), err)
		}
	})
	return p.stopErr
}

func (p *Pipeline) stop() error {
	p.endLoops()
	p.loops.Wait()
	var errs []error
	for _, program := range p.programs() {
		errs = append(errs, program.kill())
	}
	if p.alertmanager != nil && p.opts.Alertmanager == nil {
		errs = append(errs, p.alertmanager.Stop())
	}
	if p.exporter != nil {
		errs = append(errs, p.exporter.server.Close())
	}
	for _, port := range p.ports {
		controlplane.ReleasePort(port)
	}
	if p.log != nil {
		errs = append(errs, p.log.Close())
	}
	if p.temporary {
		errs = append(errs, os.RemoveAll(p.dir))
	}
	return errors.Join(errs...)
}

// programs returns the prepared programs.
func (p *Pipeline) programs() []*program {
	return slices.DeleteFunc([]*program{p.prometheus, p.operator, p.kubeStateMetrics}, func(p *program) bool { return p == nil })
}

// PrometheusURL returns Prometheus' address, even while it is stopped.
func (p *Pipeline) PrometheusURL() string { return "http://" + p.address("prometheus") }

// Alertmanager returns the Alertmanager that is notified.
func (p *Pipeline) Alertmanager() *Alertmanager { return p.alertmanager }

// StopPrometheus ends Prometheus: its address refuses connections. Its Service still leads there, as when a
// pod has just ended.
func (p *Pipeline) StopPrometheus() error { return p.prometheus.stop() }

// StartPrometheus starts it again, at the same address and with the same data.
func (p *Pipeline) StartPrometheus(ctx context.Context) error { return p.prometheus.start(ctx) }

// StopOperator ends prometheus-operator, so that changed rules do not reach Prometheus.
func (p *Pipeline) StopOperator() error { return p.operator.stop() }

// StartOperator starts it again.
func (p *Pipeline) StartOperator(ctx context.Context) error { return p.operator.start(ctx) }

// StopKubeStateMetrics ends kube-state-metrics, so that its metrics disappear.
func (p *Pipeline) StopKubeStateMetrics() error { return p.kubeStateMetrics.stop() }

// StartKubeStateMetrics starts it again.
func (p *Pipeline) StartKubeStateMetrics(ctx context.Context) error {
	return p.kubeStateMetrics.start(ctx)
}

// Break makes the containers of the present and future pods of a Deployment, a StatefulSet, a DaemonSet or a Job crash.
func (p *Pipeline) Break(workload types.NamespacedName) { p.kubelet.setBroken(workload, true) }

// Mend reverts Break.
func (p *Pipeline) Mend(workload types.NamespacedName) { p.kubelet.setBroken(workload, false) }

// SetMetric makes Prometheus scrape a metric of the test.
func (p *Pipeline) SetMetric(name string, labels map[string]string, value float64) {
	p.exporter.set(name, labels, value)
}

// RemoveMetric reverts SetMetric.
func (p *Pipeline) RemoveMetric(name string, labels map[string]string) {
	p.exporter.remove(name, labels)
}

// Dump writes the ends of all logs, for a test that has failed.
func (p *Pipeline) Dump(w io.Writer) {
	_, _ = fmt.Fprintf(w, "==== pipeline of %s\n", p.member.Name())
	for _, program := range p.programs() {
		dump(w, program.name, program.logPath)
	}
	dump(w, "the stand-ins for nodes", p.logPath("stand-ins"))
	if p.alertmanager != nil && p.opts.Alertmanager == nil {
		p.alertmanager.Dump(w)
	}
}

func (p *Pipeline) logPath(name string) string { return filepath.Join(p.dir, name+".log") }

// address returns the address of a program.
func (p *Pipeline) address(name string) string {
	host := loopback
	if name == "prometheus" {
		host = p.host
	}
	return net.JoinHostPort(host, strconv.Itoa(p.ports[name]))
}
