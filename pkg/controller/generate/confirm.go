package generate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// confirmed returns those of a Deployment's doomed AlertRules that are to go, and when to
// look again, or 0. What the spoke's cache says of the Deployment and of its namespace is not
// enough: the cache can be old, and a list can be answered with 200 and be empty, by a proxy
// that lies or a server that was restored empty. So the spoke is asked for both, once for all of
// the AlertRules, and in the same breath which cluster answers: another one has other
// Deployments, or none.
func (r *Reconciler) confirmed(ctx context.Context, s *spoke.Spoke, key types.NamespacedName, w *rule.Workload, rules []doomed) ([]doomed, time.Duration, error) {
	if w != nil {
		inSpoke := func(d doomed) bool { return d.ground != nil }
		if !slices.ContainsFunc(rules, inSpoke) {
			return rules, 0, nil
		}
	}
	if len(rules) == 0 {
		return nil, 0, nil
	}
	reader := s.Live.Reading()
	out, err := r.confirm(ctx, reader, key, w, rules)
	if err == nil && len(out) > 0 {
		bounded, cancel := s.Patient(ctx)
		defer cancel()
		err = s.Identity.Confirm(bounded)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("confirming that AlertRules of Deployment %s of spoke %s are to be deleted: %w", key, s.Name, err)
	}
	if len(out) == len(rules) {
		return out, 0, nil
	}
	return out, reader.Again(r.Intervals), nil
}

// confirm decides about doomed AlertRules by a Deployment and its namespace as a reader has them.
// Where it does not exist here or there alone, what it decides stays.
func (r *Reconciler) confirm(ctx context.Context, reader *live.Reading, key types.NamespacedName, w *rule.Workload, rules []doomed) ([]doomed, error) {
	now, err := present(ctx, reader, key)
	if err != nil {
		return nil, err
	}
	if w == nil && now == nil {
		return rules, nil
	}
	var out []doomed
	for _, d := range rules {
		switch {
		case w == nil:
		case d.ground == nil:
			out = append(out, d)
		case now != nil:
			now.Cluster = d.ground.cluster
			again, stays, err := r.judge(ctx, *d.ground, *now, d.rule)
			if err != nil {
				return nil, err
			}
			if !stays {
				out = append(out, again)
			}
		}
	}
	return out, nil
}

// present reads a Deployment and its namespace past the cache. It returns nil where the
// Deployment is gone, by the API server's own word.
func present(ctx context.Context, reader *live.Reading, key types.NamespacedName) (*rule.Workload, error) {
	d, ns := spoke.DeploymentMetadata(), spoke.NamespaceMetadata()
	switch err := reader.Get(ctx, key, d); {
	case err == nil && !d.DeletionTimestamp.IsZero(), absent(err, "deployments", key.Name):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the Deployment: %w", err)
	}
	if err := reader.Get(ctx, client.ObjectKey{Name: key.Namespace}, ns); err != nil {
		return nil, fmt.Errorf("reading namespace %s: %w", key.Namespace, err)
	}
	return workload(d, ns), nil
}

// absent tells whether an error is an API server's own word that an object does not exist.
// Any other 404 may be that of a proxy, or of a server that does not know the resource.
func absent(err error, resource, name string) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsNotFound(err) {
		return false
	}
	d := status.Status().Details
	return d != nil && d.Kind == resource && d.Name == name &&
		!slices.ContainsFunc(d.Causes, func(c metav1.StatusCause) bool { return c.Type == metav1.CauseTypeUnexpectedServerResponse })
}
