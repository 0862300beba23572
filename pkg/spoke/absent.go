package spoke

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rulefleet/rulefleet/pkg/live"
)

// Absent reports whether an error is an API server's statement that an object does not exist. Any other 404 may come
// from a proxy, or from a server that does not know the resource.
func Absent(err error, resource, name string) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsNotFound(err) {
		return false
	}
	s := status.Status()
	_, unexpected := live.Unexpected(s)
	return !unexpected && s.Details != nil && s.Details.Kind == resource && s.Details.Name == name
}

// Genuine returns an error of a read of an object, so that it is a 404 only if the API server says that the object does
// not exist.
func Genuine(err error, resource, name string) error {
	if !apierrors.IsNotFound(err) || Absent(err, resource, name) {
		return err
	}
	return fmt.Errorf("%w: %v", errNotKubernetes, err) //nolint:errorlint // it must not be a 404 any more
}

// catalog reads a path of the API server's discovery. For a resource that it does not serve, an API server answers 404 in
// plain text, as proxies do. Only its discovery tells the two apart.
type catalog func(ctx context.Context, path string) ([]byte, error)

// confirm returns an error of a read of a resource, so that it is a 404 only if the discovery lacks the resource.
func (c catalog) confirm(ctx context.Context, resource string, err error) error {
	if !apierrors.IsNotFound(err) {
		return err
	}
	lacks, unread := c.lacks(ctx, resource)
	switch {
	case unread != nil && ctx.Err() != nil:
		return unread
	case unread != nil:
		return fmt.Errorf("%w: the server answers 404 for %s, and the list of its API resources (discovery) can't be read: %v", errNotKubernetes, resource, unread) //nolint:errorlint // it may be a 404
	case !lacks:
		return fmt.Errorf("%w: the server answers 404 for %s, which is in the list of its API resources (discovery)", errNotKubernetes, resource)
	}
	return err
}

// lacks reports whether the discovery lacks a resource of prometheus-operator.
func (c catalog) lacks(ctx context.Context, resource string) (bool, error) {
	version := monitoringv1.SchemeGroupVersion
	var resources struct {
		Kind         string `json:"kind"`
		GroupVersion string `json:"groupVersion"`
		Resources    []struct {
			Name string `json:"name"`
		} `json:"resources"`
	}
	switch err := c.read(ctx, "/apis/"+version.String(), &resources); {
	case err == nil && resources.Kind == "APIResourceList" && resources.GroupVersion == version.String():
		for _, r := range resources.Resources {
			if r.Name == resource {
				return false, nil
			}
		}
		return true, nil
	case err == nil:
		return false, errNotKubernetes
	case !apierrors.IsNotFound(err):
		return false, err
	}
	return c.lacksVersion(ctx, version)
}

// lacksVersion reports whether the discovery lacks a version of an API.
func (c catalog) lacksVersion(ctx context.Context, version schema.GroupVersion) (bool, error) {
	var groups struct {
		Kind   string `json:"kind"`
		Groups []struct {
			Versions []struct {
				GroupVersion string `json:"groupVersion"`
			} `json:"versions"`
		} `json:"groups"`
	}
	if err := c.read(ctx, "/apis", &groups); err != nil {
		return false, err
	}
	// Every cluster has groups. An empty list is that of another server.
	if groups.Kind != "APIGroupList" || len(groups.Groups) == 0 {
		return false, errNotKubernetes
	}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			if v.GroupVersion == version.String() {
				return false, nil
			}
		}
	}
	return true, nil
}

func (c catalog) read(ctx context.Context, path string, into any) error {
	body, err := c(ctx, path)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("reading %s: %w", path, errNotKubernetes)
	}
	return nil
}

// catalog returns the discovery of the spoke.
func (c *connection) catalog() catalog {
	return func(ctx context.Context, path string) ([]byte, error) {
		ctx, cancel := c.patient(ctx)
		defer cancel()
		return bodyOf(ctx, c.probes.Get().AbsPath(path))
	}
}

// confirm is catalog.confirm. It asks the discovery once until the resource is served.
func (s *session) confirm(ctx context.Context, resource string, err error) error {
	if !apierrors.IsNotFound(err) {
		if err == nil {
			delete(s.unserved, resource)
		}
		return err
	}
	if s.unserved[resource] {
		return err
	}
	if err = s.catalog.confirm(ctx, resource, err); apierrors.IsNotFound(err) {
		if s.unserved == nil {
			s.unserved = map[string]bool{}
		}
		s.unserved[resource] = true
	}
	return err
}
