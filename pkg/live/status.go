package live

import (
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NotServed is the body of the answer (404) of kube-apiserver about a resource that it does not serve.
const NotServed = "404 page not found"

// KindTerminating is how kube-apiserver refuses the creation of an object (403) while the CustomResourceDefinition of its
// kind is being deleted: see forbidCreateAdmission in apiextensions-apiserver.
const KindTerminating = "create not allowed while custom resource definition is terminating"

// Terminating reports whether an object was not created because its kind is being deleted.
func Terminating(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), KindTerminating)
}

// Unexpected returns the body of an answer that is no Status of an API, and whether it is one.
func Unexpected(s metav1.Status) (body string, unexpected bool) {
	if s.Details == nil {
		return "", false
	}
	i := slices.IndexFunc(s.Details.Causes, func(c metav1.StatusCause) bool { return c.Type == metav1.CauseTypeUnexpectedServerResponse })
	if i < 0 {
		return "", false
	}
	return strings.TrimSpace(s.Details.Causes[i].Message), true
}
