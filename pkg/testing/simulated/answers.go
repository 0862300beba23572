package simulated

import (
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const jsonType = "application/json"

// compressedFrom is the size from which kube-apiserver compresses answers.
const compressedFrom = 128 << 10

// These answers are always the same: the version of Kubernetes, the kinds of prometheus-operator, and the permissions of
// fleet.SpokeUser.
var (
	//go:embed version.json
	versionAnswer []byte
	//go:embed discovery.json
	discoveryAnswer []byte
	//go:embed review.json
	reviewAnswer []byte
)

// fixed always gives the same answer.
func fixed(code int, body []byte) handler {
	return func(_ *Spoke, w http.ResponseWriter, r *http.Request) bool {
		if len(r.URL.Query()) > 0 {
			return false
		}
		answer(w, r, code, body)
		return true
	}
}

// review answers a SelfSubjectRulesReview about a namespace without permissions of its own.
func review(s *Spoke, w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("Content-Type") != "application/vnd.kubernetes.protobuf" || formOf(r, false) != whole {
		return false
	}
	return fixed(http.StatusCreated, reviewAnswer)(s, w, r)
}

// answer sends an answer, compressed as by kube-apiserver.
func answer(w http.ResponseWriter, r *http.Request, code int, body []byte) {
	w.Header().Set("Content-Type", jsonType)
	if r.Method != http.MethodGet || len(body) < compressedFrom || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.WriteHeader(code)
		_, _ = w.Write(body)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Set("Vary", "Accept-Encoding")
	w.WriteHeader(code)
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		panic(fmt.Sprintf("a level of gzip is wrong: %v", err))
	}
	_, _ = z.Write(body)
	_ = z.Close()
}

// refuse sends a Status.
func refuse(w http.ResponseWriter, r *http.Request, status *metav1.Status) {
	answer(w, r, int(status.Code), encoded(status))
}

// groupResource returns the name of a resource in messages.
func groupResource(of resource) schema.GroupResource {
	switch of {
	case namespaces:
		return schema.GroupResource{Resource: "namespaces"}
	case deployments:
		return schema.GroupResource{Group: "apps", Resource: "deployments"}
	}
	return schema.GroupResource{Group: "monitoring.coreos.com", Resource: "prometheusrules"}
}

func statusOf(err *apierrors.StatusError) *metav1.Status {
	out := err.ErrStatus
	out.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &out
}

func unauthorized() *metav1.Status { return statusOf(apierrors.NewUnauthorized("Unauthorized")) }

func notFound(of resource, name string) *metav1.Status {
	return statusOf(apierrors.NewNotFound(groupResource(of), name))
}

func alreadyExists(name string) *metav1.Status {
	return statusOf(apierrors.NewAlreadyExists(groupResource(prometheusRules), name))
}

// conflict returns a refusal for a reason. what is the name of the resource or of the kind.
func conflict(what, name, reason string) *metav1.Status {
	return statusOf(apierrors.NewConflict(schema.GroupResource{Group: "monitoring.coreos.com", Resource: what}, name, errors.New(reason)))
}

// modified refuses an update of an older version.
func modified(name string) *metav1.Status {
	return conflict("prometheusrules", name, "the object has been modified; please apply your changes to the latest version and try again")
}

// otherUID refuses an update of another object of the same name.
func otherUID(namespace, name string, want, is types.UID) *metav1.Status {
	return conflict("prometheusrules", name, fmt.Sprintf("StorageError: invalid object, Code: 4, Key: /registry/monitoring.coreos.com/prometheusrules/%s/%s, "+
		"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %s, UID in object meta: %s", namespace, name, want, is))
}

// failed refuses a deletion with a precondition.
func failed(name, what, want, is, happened string) *metav1.Status {
	return conflict(ruleKind, name, fmt.Sprintf("the %s in the precondition (%s) does not match the %[1]s in record (%[3]s). The object might have been %[4]s", what, want, is, happened))
}

// unconditional refuses an update without a version.
func unconditional(name string) *metav1.Status {
	kind := schema.GroupKind{Group: "monitoring.coreos.com", Kind: "prometheusrules"} // as kube-apiserver calls it
	return statusOf(apierrors.NewInvalid(kind, name, field.ErrorList{
		field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update"),
	}))
}

// deleted is the answer to a deletion.
func deleted(name string, uid types.UID) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: name, Group: "monitoring.coreos.com", Kind: "prometheusrules", UID: uid},
	}
}

// expiredList refuses the rest of a list that is no longer kept.
func expiredList() *metav1.Status {
	return statusOf(apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. You must start a new list without the continue parameter."))
}

// tooOld ends a watch whose first events are no longer kept.
func tooOld(at, dropped int64) *metav1.Status {
	return statusOf(apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", at, dropped)))
}
