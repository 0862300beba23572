package generate

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

func object(ar *v1alpha1.AlertRule) contest.Object {
	return contest.Object{Spoke: string(ar.Spec.WorkloadRef.Cluster), Kind: "AlertRule", NamespacedName: hub.Key(ar)}
}

// writing, removing and resetting are the writes of an AlertRule. The intention is what is
// applied of the rule. It is another one when people make a field their own, or give it up:
// that is no contest.
func writing(ar, existing *v1alpha1.AlertRule, fields map[string]any) contest.Write {
	applied := runtime.DeepCopyJSON(fields)
	unstructured.RemoveNestedField(applied, "metadata", "resourceVersion")
	data, err := json.Marshal(applied)
	if err != nil { // strings, numbers, lists and maps of them: there is nothing to fail
		panic(fmt.Sprintf("generate: digest of AlertRule %s: %v", hub.Key(ar), err))
	}
	return contest.Write{Object: object(ar), Rule: hub.Key(ar), Meant: string(data), Gone: existing == nil}
}

func removing(ar *v1alpha1.AlertRule) contest.Write {
	return contest.Write{Object: object(ar), Rule: hub.Key(ar), Meant: contest.Absent}
}

// resetting takes the request to reset fields off an AlertRule. A GitOps tool may put it back.
func resetting(ar *v1alpha1.AlertRule) contest.Write {
	write := contest.Write{Object: object(ar), Rule: hub.Key(ar), Meant: ar.Annotations[v1alpha1.ResetFieldsAnnotation]}
	write.Annotation = v1alpha1.ResetFieldsAnnotation
	return write
}

// yield returns for how long to wait with a write, because somebody undoes it, and tells of
// that. An edit by people is none of this: it wins.
func (r *Reconciler) yield(write contest.Write, existing *v1alpha1.AlertRule) time.Duration {
	return r.Contests.Yield(write, existing, func(message string) {
		if existing != nil {
			r.Recorder.Eventf(existing, nil, corev1.EventTypeWarning, v1alpha1.ReasonContested, "Generate", "%s", spoke.Clip(message, maxNote))
		}
		r.Spokes.ChangedSoon(write.Spoke)
		if r.Changed != nil {
			r.Changed(write.Rule)
		}
	}).Wait
}
