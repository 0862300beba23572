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

	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// confirmRetry is when to look again at a Deployment that the spoke's cache lacks, and the spoke
// does not.
const confirmRetry = 30 * time.Second

// confirmed returns those of a Deployment's doomed AlertRules that are to go, and when to
// look again, or 0. That the spoke's cache lacks the Deployment is not enough: a list can
// be answered with 200 and be empty, by a proxy that lies or a server that was restored
// empty (DESIGN §3.2, §3.11). So the Deployment itself is asked for, and in the same
// breath which cluster answers: another one has no such Deployment either.
func (r *Reconciler) confirmed(ctx context.Context, s *spoke.Spoke, key types.NamespacedName, w *rule.Workload, rules []doomed) ([]doomed, time.Duration, error) {
	if w != nil || len(rules) == 0 {
		return rules, 0, nil
	}
	bounded, cancel := s.Patient(ctx)
	defer cancel()
	d := spoke.DeploymentMetadata()
	switch err := s.Live.Get(bounded, key, d); {
	case err == nil && d.DeletionTimestamp.IsZero():
		return nil, r.Intervals.Of(confirmRetry), nil
	case err != nil && !absent(err, "deployments", key.Name):
		return nil, 0, fmt.Errorf("confirming that Deployment %s of spoke %s is gone: %w", key, s.Name, err)
	}
	if err := s.Identity.Confirm(ctx); err != nil {
		return nil, 0, fmt.Errorf("confirming that Deployment %s of spoke %s is gone: %w", key, s.Name, err)
	}
	return rules, 0, nil
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
