package controlplane

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Fill makes etcd refuse writes that need space, as it does when its quota is used up: it raises the alarm
// NOSPACE. Reads and deletions still work.
func (c *Cluster) Fill(ctx context.Context) error { return c.alarm(ctx, "ACTIVATE") }

// Drain ends what Fill began.
func (c *Cluster) Drain(ctx context.Context) error { return c.alarm(ctx, "DEACTIVATE") }

func (c *Cluster) alarm(ctx context.Context, action string) error {
	if err := c.askEtcd(ctx, "maintenance/alarm", fmt.Sprintf(`{"action":%q,"memberID":"1","alarm":"NOSPACE"}`, action), nil); err != nil {
		return fmt.Errorf("changing the alarm of cluster %q: %w", c.Name(), err)
	}
	return nil
}

// Used compacts etcd, and returns how many bytes its database uses for the objects of today.
func (c *Cluster) Used(ctx context.Context) (int64, error) {
	var status struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
		InUse int64 `json:"dbSizeInUse,string"`
	}
	err := c.askEtcd(ctx, "maintenance/status", "{}", &status)
	if err == nil {
		err = c.askEtcd(ctx, "kv/compaction", fmt.Sprintf(`{"revision":%q,"physical":true}`, status.Header.Revision), nil)
	}
	if err == nil {
		err = c.askEtcd(ctx, "maintenance/status", "{}", &status)
	}
	if err != nil {
		return 0, fmt.Errorf("compacting etcd of cluster %q: %w", c.Name(), err)
	}
	return status.InUse, nil
}

// Erase removes the stored objects of a resource in a namespace, such as deployments, or alertrules of the group rulefleet.io,
// without the API server: its watches see the removals, but no finalizer, admission or audit applies. It is far faster
// than one DELETE for each object.
func (c *Cluster) Erase(ctx context.Context, resource schema.GroupResource, namespace string) error {
	// Built-in resources are stored without their group. Each prefix ends with the successor of "/".
	prefix := path.Join("/registry", resource.Group, resource.Resource, namespace)
	body := fmt.Sprintf(`{"key":%q,"range_end":%q}`, encoded(prefix+"/"), encoded(prefix+"0"))
	if err := c.askEtcd(ctx, "kv/deleterange", body, nil); err != nil {
		return fmt.Errorf("erasing %s in namespace %s of cluster %q: %w", resource, namespace, c.Name(), err)
	}
	return nil
}

func encoded(key string) string { return base64.StdEncoding.EncodeToString([]byte(key)) }

// askEtcd calls the JSON gateway of etcd, which is on the same socket as gRPC. It decodes the answer into out unless that is
// nil.
func (c *Cluster) askEtcd(ctx context.Context, method, body string, out any) error {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", c.path(etcdSocket))
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd/v3/"+method, strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("calling etcd: %w", err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return fmt.Errorf("calling etcd: %w", err)
	}
	text, err := io.ReadAll(resp.Body)
	err = errors.Join(err, resp.Body.Close())
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("etcd answers %s: %s", resp.Status, text)
	}
	if err == nil && out != nil {
		err = json.Unmarshal(text, out)
	}
	return err
}
