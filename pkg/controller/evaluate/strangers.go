package evaluate

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/rulefleet/rulefleet/pkg/evaluator"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
)

// strangersFor is how long only others may answer at the Service of an evaluator until that is shown. Anyone who can
// create a Prometheus in its namespace can have it answer there, and each request leads to one of them by chance. By
// then the evaluator was polled about 50 times.
const strangersFor = 5 * time.Minute

// ofPod matches the file of a PrometheusRule in a pod of prometheus-operator: the kind and the name of the owner, and
// the UID of the PrometheusRule.
var ofPod = regexp.MustCompile(`/(prometheus|thanos-ruler)-([^/]+)-rulefiles-[0-9]+/[^/]*-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.yaml$`)

// ownerKinds are the kinds of owners in the names of files.
var ownerKinds = map[string]string{"prometheus": rule.KindPrometheus, "thanos-ruler": rule.KindThanosRuler}

var errOtherAtURL = errors.New("another Prometheus or ThanosRuler answers at the address in spec.evaluatorRefs[].url of the SpokeCluster; correct the address")

// strangerError says that an answer came from another evaluator, or may have. Such an answer says nothing.
type strangerError struct {
	message string
	// outcome is that of an evaluator at whose Service only others answer.
	outcome evaluation.Outcome
}

// Error implements error.
func (e *strangerError) Error() string { return e.message }

// strangers returns the error for an answer without rules that the evaluator itself loaded. others is the number of
// rules that another evaluator loaded. It returns nil if the evaluator may have answered.
func (t *task) strangers(e *rule.Evaluator, others int) error {
	const todo = "; give each its own Service (spec.serviceName of the %[1]s), or set its address in spec.evaluatorRefs[].url of SpokeCluster %[2]s"
	other := t.sharing(e)
	switch {
	case others > 0 && hasURL(t.cluster, e):
		return errOtherAtURL
	case other != "" && (others > 0 || len(t.objects) > 0):
		return &strangerError{outcome: evaluation.NotGranted, message: fmt.Sprintf(
			"its answers can't be distinguished from those of %[1]s %[3]s/%[4]s, which has the same Service (%[5]s)"+todo, e.Kind, t.cluster.Name, e.Namespace, other, t.object(e).Service)}
	case others > 0:
		return &strangerError{outcome: evaluation.Unreachable, message: fmt.Sprintf("its Service also selects another %[1]s in the same namespace"+todo, e.Kind, t.cluster.Name)}
	}
	return nil
}

// sharing returns the name of another evaluator with the same Service, or "". The Service leads to either of them.
func (t *task) sharing(e *rule.Evaluator) string {
	object := t.object(e)
	if object == nil || object.Service == "" || hasURL(t.cluster, e) {
		return ""
	}
	for i := range t.evaluators {
		if o := &t.evaluators[i]; o.Kind == e.Kind && o.Namespace == e.Namespace && o.Name != e.Name && o.Service == object.Service {
			return o.Name
		}
	}
	return ""
}

// ownerOf returns the UID of the PrometheusRule that a rule comes from, and whether the evaluator itself loaded it.
// known is false if the file does not tell.
func ownerOf(e *rule.Evaluator, r *evaluator.Rule) (uid string, own, known bool) {
	parts := ofPod.FindStringSubmatch(r.File)
	if parts == nil {
		return "", false, false
	}
	return parts[3], ownerKinds[parts[1]] == e.Kind && parts[2] == e.Name, true
}
