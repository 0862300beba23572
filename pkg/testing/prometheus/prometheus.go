// Package prometheus runs a real Prometheus on the loopback interface, for tests of queries. `make promtool`
// builds it.
package prometheus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/promtool"
)

const (
	privateFile  = 0o600
	readyTimeout = 60 * time.Second
	readyPoll    = 20 * time.Millisecond
	stopGrace    = 10 * time.Second
)

// Options describe a Prometheus.
type Options struct {
	// Dir is an empty folder for its files; it is not removed.
	Dir string

	// Rules are its rule files, by name, which can begin with a folder. Reload can use the same folders.
	Rules map[string][]byte

	// Targets are the HOST:PORT pairs that it scrapes every second, as job "test".
	Targets []string

	// Labels are added to all that it scrapes.
	Labels map[string]string

	// Args are more arguments.
	Args []string
}

// Prometheus is a Prometheus process that does not outlive this process.
type Prometheus struct {
	dir     string
	process *controlplane.Process
	address string
}

// Start starts a Prometheus on a free port, and waits until it is ready. The end of ctx kills it.
func Start(ctx context.Context, o Options) (*Prometheus, error) {
	path, err := promtool.Program("prometheus")
	if err != nil {
		return nil, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, fmt.Errorf("finding prometheus: %w", err)
	}
	p := &Prometheus{dir: o.Dir}
	if err := p.configure(o); err != nil {
		return nil, err
	}
	p.process, err = controlplane.StartProcess(ctx, controlplane.ProcessOptions{
		Name: "prometheus",
		Path: path,
		Args: append([]string{
			"--config.file=" + p.path("prometheus.yaml"),
			"--storage.tsdb.path=" + p.path("data"),
			"--web.listen-address=127.0.0.1:0", // its log shows the port
			"--web.enable-lifecycle",
		}, o.Args...),
		Dir:     p.dir,
		LogPath: p.LogPath(),
	})
	if err != nil {
		return nil, err
	}
	if err := p.awaitReady(ctx); err != nil {
		log, _ := os.ReadFile(p.LogPath())
		return nil, errors.Join(fmt.Errorf("%w; its log:\n%s", err, log), p.process.Kill())
	}
	return p, nil
}

// URL is its address.
func (p *Prometheus) URL() *url.URL { return &url.URL{Scheme: "http", Host: p.address} }

// LogPath is the file of its log.
func (p *Prometheus) LogPath() string { return p.path("prometheus.log") }

// Process is its process.
func (p *Prometheus) Process() *controlplane.Process { return p.process }

// Stop ends it.
func (p *Prometheus) Stop() error { return p.process.Stop(stopGrace) }

// Reload replaces its rule files and reloads it.
func (p *Prometheus) Reload(ctx context.Context, rules map[string][]byte) error {
	if err := p.writeRules(rules); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL().JoinPath("-/reload").String(), http.NoBody)
	if err != nil {
		return fmt.Errorf("asking for a reload: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("asking for a reload: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("it does not load the rules: %s", res.Status)
	}
	return nil
}

func (p *Prometheus) path(name string) string { return filepath.Join(p.dir, name) }

func (p *Prometheus) configure(o Options) error {
	files := []string{"rules/*.yaml"}
	for name := range o.Rules {
		if pattern := filepath.Join("rules", filepath.Dir(name), "*.yaml"); !slices.Contains(files, pattern) {
			files = append(files, pattern)
		}
	}
	config, err := yaml.Marshal(map[string]any{
		"global":     map[string]any{"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
		"rule_files": files,
		"scrape_configs": []any{map[string]any{
			"job_name": "test", "static_configs": []any{map[string]any{"targets": o.Targets, "labels": o.Labels}},
		}},
	})
	if err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	if err := os.WriteFile(p.path("prometheus.yaml"), config, privateFile); err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	return p.writeRules(o.Rules)
}

func (p *Prometheus) writeRules(rules map[string][]byte) error {
	dir := p.path("rules")
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		return fmt.Errorf("creating the folder of rules: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, rules[name], privateFile)); err != nil {
			return fmt.Errorf("writing a rule file: %w", err)
		}
	}
	return nil
}

var listening = regexp.MustCompile(`"?[Ll]istening on"?.* address=(127\.0\.0\.1:\d+)`)

// awaitReady waits until it is ready.
func (p *Prometheus) awaitReady(ctx context.Context) error {
	last := errors.New("it does not listen yet")
	err := wait.PollUntilContextTimeout(ctx, readyPoll, readyTimeout, true, func(ctx context.Context) (bool, error) {
		if !p.process.Running() {
			return false, fmt.Errorf("it has ended: %w", p.process.ExitErr())
		}
		last = p.ready(ctx)
		return last == nil, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("waiting for Prometheus: %w: last: %w", err, last)
	}
	return err
}

func (p *Prometheus) ready(ctx context.Context) error {
	if p.address == "" {
		log, err := os.ReadFile(p.LogPath())
		if err != nil {
			return err
		}
		found := listening.FindSubmatch(log)
		if found == nil {
			return errors.New("it does not listen yet")
		}
		p.address = string(found[1])
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL().JoinPath("-/ready").String(), http.NoBody)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	return nil
}
