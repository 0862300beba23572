package spoke

import (
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Errors of API servers.
var (
	resource        = v1alpha1.GroupVersion.WithResource("prometheusrules").GroupResource()
	errNotFound     = fmt.Errorf("listing: %w", apierrors.NewNotFound(resource, ""))
	errForbidden    = fmt.Errorf("listing: %w", apierrors.NewForbidden(resource, "", errors.New("RBAC")))
	errUnauthorized = fmt.Errorf("listing: %w", apierrors.NewUnauthorized("Unauthorized"))
)

var (
	now         = metav1.NewTime(time.Date(2026, 2, 1, 0, 1, 0, 0, time.UTC))
	unreachable = disconnected(errors.New("dial tcp: refused"))
)

// good is all that is seen of a spoke that is well.
func good() *Observation {
	return &Observation{
		Connected: Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConnected, Message: "the spoke answers"},
		Served:    served(nil), Version: "v1.36.3", Identity: "uid", Counts: Counts{Deployments: 7, Known: true}, Contact: now.Add(-time.Minute),
	}
}

func with(o *Observation, change func(*Observation)) *Observation {
	change(o)
	return o
}
