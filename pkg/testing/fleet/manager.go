package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
)

// ManagerOptions describe how to run the manager.
type ManagerOptions struct {
	// Path is the program; "" is bin/rulefleet-manager.
	Path string
	// Kubeconfig is the manager's kubeconfig for the hub; nil means direct access as HubUser.
	Kubeconfig []byte
	// HubID is the id of the hub; "" lets the manager generate one.
	HubID string
	// Webhook is the loopback address of the admission webhook, for example from FreeAddress; "" disables it.
	// InstallWebhook makes the hub call it.
	Webhook string
	// LeaderElect enables leader election. Without it, the manager works at once, even after another one was
	// killed.
	LeaderElect bool
	// Pod is the UID of the pod that it claims to run in; "" for none.
	Pod string
	// Args are further flags.
	Args []string
	// Env are further environment variables, as NAME=value.
	Env []string
	// Dir is the existing folder for its kubeconfig and its log.
	Dir string
}

// Manager is a manager that runs as a process.
type Manager struct {
	// LogPath is the file with what it printed.
	LogPath string
	// MetricsURL is its metrics endpoint.
	MetricsURL string
	// ReadyURL is its readiness endpoint.
	ReadyURL string

	process *controlplane.Process
}

// StartManager runs the manager and waits until it is healthy.
func (f *Fleet) StartManager(ctx context.Context, o ManagerOptions) (*Manager, error) {
	if o.Path == "" {
		o.Path = filepath.Join(f.root, "bin", "rulefleet-manager")
	}
	if o.Kubeconfig == nil {
		kubeconfig, err := f.HubKubeconfig(ctx)
		if err != nil {
			return nil, fmt.Errorf("creating a kubeconfig for the manager: %w", err)
		}
		o.Kubeconfig = kubeconfig
	}
	path := filepath.Join(o.Dir, "manager.kubeconfig")
	if err := os.WriteFile(path, o.Kubeconfig, 0o600); err != nil {
		return nil, fmt.Errorf("writing the manager's kubeconfig: %w", err)
	}
	metrics, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	health, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	m := &Manager{LogPath: filepath.Join(o.Dir, "manager.log"), MetricsURL: "http://" + metrics + "/metrics", ReadyURL: "http://" + health + "/readyz"}
	flags, err := webhookFlags(o.Webhook)
	if err != nil {
		return nil, err
	}
	args := append([]string{
		"--kubeconfig=" + path, "--namespace=" + Namespace, "--generated-namespace=" + GeneratedNamespace,
		"--allow-kubeconfig=loopback", // the spokes are on this machine
		fmt.Sprintf("--leader-elect=%t", o.LeaderElect),
		"--hub-id=" + o.HubID, "--metrics-bind-address=" + metrics, "--health-probe-bind-address=" + health,
	}, append(flags, o.Args...)...)
	if f.opts.Intervals != 0 {
		args = append(args, fmt.Sprintf("--interval-scale=%v", f.opts.Intervals))
	}
	// The process outlives ctx, which bounds only the start.
	m.process, err = controlplane.StartProcess(context.WithoutCancel(ctx), controlplane.ProcessOptions{
		Name: "manager", Path: o.Path, Args: args, LogPath: m.LogPath, Usage: &f.Usage,
		Env: append([]string{"GORACE=halt_on_error=1 atexit_sleep_ms=50", "POD_UID=" + o.Pod}, o.Env...),
	})
	if err != nil {
		return nil, fmt.Errorf("starting the manager ('make build' makes it): %w", err)
	}
	f.mu.Lock()
	f.managers = append(f.managers, m)
	f.mu.Unlock()
	if err := m.waitHealthy(ctx, "http://"+health+"/healthz"); err != nil {
		return nil, errors.Join(err, m.process.Kill())
	}
	return m, nil
}

func (m *Manager) waitHealthy(ctx context.Context, url string) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 90*time.Second, true, func(ctx context.Context) (bool, error) {
		if m.Ended() {
			return false, fmt.Errorf("it ended: %w\n%s", m.process.ExitErr(), tail(m.LogPath))
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return false, fmt.Errorf("asking %s: %w", url, err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, nil //nolint:nilerr // it does not listen yet
		}
		return resp.StatusCode == http.StatusOK, resp.Body.Close()
	})
	if err != nil {
		return fmt.Errorf("waiting for the manager: %w", err)
	}
	return nil
}

// Pid is the id of its process.
func (m *Manager) Pid() int { return m.process.Pid() }

// Kill ends the manager by SIGKILL.
func (m *Manager) Kill() error { return m.process.Kill() }

// gracePeriod is the terminationGracePeriodSeconds of the chart.
const gracePeriod = 30 * time.Second

// Stop ends the manager as Kubernetes does: by SIGTERM, with a grace period. If the manager does not end in time, Stop
// returns an error that contains its goroutines.
func (m *Manager) Stop() error {
	before := len(m.Log())
	hangs := time.AfterFunc(gracePeriod, func() { _ = m.process.Signal(syscall.SIGQUIT) }) // Go writes all goroutines
	err := m.process.Stop(gracePeriod + 5*time.Second)
	if hangs.Stop() {
		return err //nolint:wrapcheck // it names the process
	}
	return errors.Join(fmt.Errorf("the manager did not end within %v:\n%s", gracePeriod, m.Log()[before:]), err)
}

// Pause freezes the manager, as on a machine that is out of memory or is migrated.
func (m *Manager) Pause() error { return m.process.Pause() }

// Resume resumes the manager.
func (m *Manager) Resume() error { return m.process.Resume() }

// Ended reports whether the manager has ended.
func (m *Manager) Ended() bool { return !m.process.Running() }

// Done is closed when the manager has ended.
func (m *Manager) Done() <-chan struct{} { return m.process.Done() }

// ExitErr returns how the manager ended.
func (m *Manager) ExitErr() error { return m.process.ExitErr() }

// Log returns what the manager printed.
func (m *Manager) Log() string {
	data, err := os.ReadFile(m.LogPath)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// FreeAddress returns a loopback address that nobody listens on. Its port is reserved as by TakePort, and no
// outgoing connection gets it.
func FreeAddress() (string, error) {
	const host = "127.0.0.1"
	port, err := controlplane.TakePort(host)
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

// tail returns the last lines of a file.
func tail(path string) []byte {
	const limit = 8 << 10
	data, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	if len(data) > limit {
		data = data[len(data)-limit:]
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			data = data[i+1:]
		}
	}
	return data
}
