package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
)

// Values of a Notification's status.
const (
	Firing   = "firing"
	Resolved = "resolved"
)

// Notification is one alert of which Alertmanager has notified the receiver.
type Notification struct {
	// Status is Firing or Resolved.
	Status      string            `json:"status"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	EndsAt      time.Time         `json:"endsAt"`
}

// Has reports whether the notification has this status and all of the labels.
func (n Notification) Has(status string, labels map[string]string) bool {
	for name, value := range labels {
		if n.Labels[name] != value {
			return false
		}
	}
	return n.Status == status
}

// Alertmanager is an Alertmanager process with a receiver of its notifications. Several pipelines may share
// it.
type Alertmanager struct {
	dir       string
	temporary bool
	address   string
	port      int
	program   *program
	receiver  *http.Server

	mu       sync.Mutex
	received []Notification
}

// alertmanagerConfig sends a notification for each alert separately, and soon.
const alertmanagerConfig = `route:
  receiver: test
  group_by: ['...']
  group_wait: 1s
  group_interval: 1s
  repeat_interval: 1h
receivers:
  - name: test
    webhook_configs:
      - url: http://%s/
        send_resolved: true
`

// StartAlertmanager runs an Alertmanager in a folder; "" means a temporary one.
func StartAlertmanager(ctx context.Context, dir string) (*Alertmanager, error) {
	path, err := binary("pipeline", "alertmanager")
	if err != nil {
		return nil, err
	}
	a := &Alertmanager{}
	if a.dir, a.temporary, err = folder(dir); err != nil {
		return nil, err
	}
	if err := a.start(ctx, path); err != nil {
		return nil, errors.Join(err, a.Stop())
	}
	return a, nil
}

func (a *Alertmanager) start(ctx context.Context, path string) error {
	hook, err := a.receive()
	if err != nil {
		return err
	}
	config := filepath.Join(a.dir, "alertmanager.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, alertmanagerConfig, hook), privateFile); err != nil {
		return fmt.Errorf("writing Alertmanager's configuration: %w", err)
	}
	if a.port, err = controlplane.TakePort(loopback); err != nil {
		return err
	}
	a.address = net.JoinHostPort(loopback, strconv.Itoa(a.port))
	a.program = &program{
		name: "alertmanager", path: path, logPath: filepath.Join(a.dir, "alertmanager.log"), readyURL: a.URL() + "/-/ready",
		args: []string{
			"--config.file=" + config, "--storage.path=" + filepath.Join(a.dir, "alertmanager"),
			"--web.listen-address=" + a.address,
			"--cluster.listen-address=", // it has no peers
		},
	}
	return a.program.start(ctx)
}

// receive serves the receiver, and returns its address.
func (a *Alertmanager) receive() (string, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return "", fmt.Errorf("listening for notifications: %w", err)
	}
	a.receiver = &http.Server{Handler: a, ReadHeaderTimeout: askTimeout}
	go func() { _ = a.receiver.Serve(l) }() // ends when it is closed
	return l.Addr().String(), nil
}

// ServeHTTP receives a notification as Alertmanager's webhook.
func (a *Alertmanager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var message struct {
		Alerts []Notification `json:"alerts"`
	}
	if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.received = append(a.received, message.Alerts...)
}

// URL returns Alertmanager's address.
func (a *Alertmanager) URL() string { return "http://" + a.address }

// Received returns all notifications, oldest first. An alert appears again when its state has changed.
func (a *Alertmanager) Received() []Notification {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.received)
}

// Await waits for a notification with this status and these labels, and returns the first. Earlier
// notifications count.
func (a *Alertmanager) Await(ctx context.Context, status string, labels map[string]string) (Notification, error) {
	var found Notification
	err := await(ctx, func(context.Context) error {
		all := a.Received()
		i := slices.IndexFunc(all, func(n Notification) bool { return n.Has(status, labels) })
		if i < 0 {
			return fmt.Errorf("none of the %d notifications is it: %+v", len(all), all)
		}
		found = all[i]
		return nil
	})
	if err != nil {
		return found, fmt.Errorf("waiting until an alert with %v is %s: %w", labels, status, err)
	}
	return found, nil
}

// Stop ends Alertmanager and its receiver.
func (a *Alertmanager) Stop() error {
	var errs []error
	if a.program != nil {
		errs = append(errs, a.program.kill())
	}
	if a.receiver != nil {
		errs = append(errs, a.receiver.Close())
	}
	if a.port != 0 {
		controlplane.ReleasePort(a.port)
	}
	if a.temporary {
		errs = append(errs, os.RemoveAll(a.dir))
	}
	return errors.Join(errs...)
}

// Dump writes the end of Alertmanager's log and its notifications, for a test that has failed.
func (a *Alertmanager) Dump(w io.Writer) {
	if a.program != nil {
		dump(w, a.program.name, a.program.logPath)
	}
	for _, n := range a.Received() {
		_, _ = fmt.Fprintf(w, "notified: %+v\n", n)
	}
}

func dump(w io.Writer, name, path string) {
	_, _ = fmt.Fprintf(w, "---- end of the log of %s\n%s", name, controlplane.Tail(path, tailLines))
}
