package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// Fill makes etcd refuse writes that need space, as it does when its quota is used up: it raises the alarm
// NOSPACE. Reads and deletions still work.
func (c *Cluster) Fill(ctx context.Context) error { return c.alarm(ctx, "ACTIVATE") }

// Drain ends what Fill began.
func (c *Cluster) Drain(ctx context.Context) error { return c.alarm(ctx, "DEACTIVATE") }

// alarm uses the JSON gateway of etcd, which is on the same socket as gRPC.
func (c *Cluster) alarm(ctx context.Context, action string) error {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", c.path(etcdSocket))
	}}
	defer transport.CloseIdleConnections()
	body := strings.NewReader(fmt.Sprintf(`{"action":%q,"memberID":"1","alarm":"NOSPACE"}`, action))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd/v3/maintenance/alarm", body)
	if err != nil {
		return fmt.Errorf("changing the alarm of cluster %q: %w", c.Name(), err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return fmt.Errorf("changing the alarm of cluster %q: %w", c.Name(), err)
	}
	text, err := io.ReadAll(resp.Body)
	err = errors.Join(err, resp.Body.Close())
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("etcd answers %s: %s", resp.Status, text)
	}
	if err != nil {
		return fmt.Errorf("changing the alarm of cluster %q: %w", c.Name(), err)
	}
	return nil
}
