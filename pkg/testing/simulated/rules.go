package simulated

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// written is a PrometheusRule that a client sent.
type written struct {
	object
	// content is the whole object.
	content  map[string]any
	metadata metav1.ObjectMeta
}

// sent returns the PrometheusRule in a request, or nil if it has something that is not simulated.
func sent(r *http.Request) *written {
	if formOf(r, false) != whole || r.Header.Get("Content-Type") != jsonType || len(r.URL.Query()) > 0 {
		return nil
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return nil
	}
	out := &written{content: contentOf(data)}
	var typed struct {
		metav1.TypeMeta `json:",inline"`

		Metadata *metav1.ObjectMeta `json:"metadata"`
	}
	typed.Metadata = &out.metadata
	m := &out.metadata
	switch {
	case out.content == nil, json.Unmarshal(data, &typed) != nil, typed.Kind != ruleKind, typed.APIVersion != ruleVersion:
		return nil
	case m.Namespace != r.PathValue("namespace"), m.Name == "", m.GenerateName != "", len(m.ManagedFields)+len(m.Finalizers)+len(m.OwnerReferences) > 0:
		return nil
	}
	out.namespace, out.name = m.Namespace, m.Name
	out.by, _, _ = strings.Cut(r.UserAgent(), "/")
	return out
}

// storeLocked encodes what was sent as the next version of was, which is nil for a new object, and stores it.
func (s *Spoke) storeLocked(n *written, was *object) *object {
	o := n.object
	generation := int64(1)
	if was != nil {
		o.uid, o.created = was.uid, was.created
		before := contentOf(was.json)
		generation = generationOf(was)
		if !reflect.DeepEqual(before["spec"], n.content["spec"]) {
			generation++
		}
	}
	s.stampLocked(&o)
	metadata := map[string]any{
		"name": o.name, "namespace": o.namespace, "uid": o.uid, "generation": generation,
		"resourceVersion":   strconv.FormatInt(o.version, 10),
		"creationTimestamp": o.created.UTC().Format(time.RFC3339),
		"managedFields": []any{map[string]any{
			"manager": o.by, "operation": "Update", "apiVersion": ruleVersion, "time": o.written.UTC().Format(time.RFC3339),
			"fieldsType": "FieldsV1", "fieldsV1": fieldsOf(n),
		}},
	}
	if len(n.metadata.Labels) > 0 {
		metadata["labels"] = n.metadata.Labels
	}
	if len(n.metadata.Annotations) > 0 {
		metadata["annotations"] = n.metadata.Annotations
	}
	stored := maps.Clone(n.content)
	stored["metadata"] = metadata
	o.json = bytes.TrimSpace(encoded(stored))
	s.putLocked(prometheusRules, &o)
	return &o
}

// generationOf returns the generation of a stored PrometheusRule.
func generationOf(o *object) int64 { return o.partial(prometheusRules).Generation }

// fieldsOf returns the managedFields of what was sent. Groups are a list by name, and the rules of a group are one value.
func fieldsOf(n *written) map[string]any {
	out := map[string]any{"f:spec": specFields(n.content["spec"])}
	if metadata := metadataFields(n.metadata.Labels, n.metadata.Annotations); len(metadata) > 0 {
		out["f:metadata"] = metadata
	}
	return out
}

func specFields(v any) map[string]any {
	out := map[string]any{}
	values, ok := v.(map[string]any)
	if !ok {
		return out
	}
	out["."] = map[string]any{}
	for key, value := range values {
		groups, ok := value.([]any)
		if key != "groups" || !ok {
			out["f:"+key] = specFields(value)
			continue
		}
		fields := map[string]any{".": map[string]any{}}
		for _, group := range groups {
			g, _ := group.(map[string]any)
			id := bytes.TrimSpace(encoded(map[string]any{"name": g["name"]}))
			fields["k:"+string(id)] = specFields(g)
		}
		out["f:groups"] = fields
	}
	return out
}

// tell reports a write.
func (s *Spoke) tell(verb, namespace, name string, content map[string]any) {
	if fn := s.server.observe.Load(); fn != nil {
		(*fn)(Write{Spoke: s.name, Verb: verb, Namespace: namespace, Name: name, Object: content, At: time.Now()})
	}
}

func createRule(s *Spoke, w http.ResponseWriter, r *http.Request) bool {
	n := sent(r)
	if n == nil || n.metadata.ResourceVersion != "" || n.metadata.UID != "" {
		return false
	}
	s.mu.Lock()
	var o *object
	var refusal *metav1.Status
	switch {
	case s.getLocked(prometheusRules, n.key()) != nil:
		refusal = alreadyExists(n.name)
	case s.getLocked(namespaces, keyOf("", n.namespace)) == nil:
		refusal = notFound(namespaces, n.namespace)
	default:
		o = s.storeLocked(n, nil)
	}
	s.mu.Unlock()
	if refusal != nil {
		refuse(w, r, refusal)
		return true
	}
	s.server.creates.Add(1)
	s.tell("create", n.namespace, n.name, n.content)
	answer(w, r, http.StatusCreated, withNewline(o.json))
	return true
}

func updateRule(s *Spoke, w http.ResponseWriter, r *http.Request) bool {
	n := sent(r)
	if n == nil || n.name != r.PathValue("name") {
		return false
	}
	s.mu.Lock()
	was := s.getLocked(prometheusRules, n.key())
	if was != nil && was.by != n.by { // the managedFields would have two entries
		s.mu.Unlock()
		return false
	}
	o, refusal := was, refusedUpdate(n, was)
	changed := refusal == nil && !n.same(was)
	if changed {
		o = s.storeLocked(n, was)
	}
	s.mu.Unlock()
	if refusal != nil {
		refuse(w, r, refusal)
		return true
	}
	if changed {
		s.server.updates.Add(1)
		s.tell("update", n.namespace, n.name, n.content)
	}
	answer(w, r, http.StatusOK, withNewline(o.json))
	return true
}

// refusedUpdate returns why an update is refused, or nil.
func refusedUpdate(n *written, was *object) *metav1.Status {
	switch {
	case was == nil:
		return notFound(prometheusRules, n.name)
	case n.metadata.ResourceVersion == "":
		return unconditional(n.name)
	case n.metadata.UID != "" && string(n.metadata.UID) != was.uid:
		return otherUID(n.namespace, n.name, n.metadata.UID, types.UID(was.uid))
	case n.metadata.ResourceVersion != strconv.FormatInt(was.version, 10):
		return modified(n.name)
	}
	return nil
}

// same reports whether an update changes nothing.
func (w *written) same(was *object) bool {
	before := contentOf(was.json)
	var m metav1.PartialObjectMetadata
	_ = json.Unmarshal(was.json, &m)
	return reflect.DeepEqual(before["spec"], w.content["spec"]) && maps.Equal(m.Labels, w.metadata.Labels) && maps.Equal(m.Annotations, w.metadata.Annotations)
}

func deleteRule(s *Spoke, w http.ResponseWriter, r *http.Request) bool {
	var options struct {
		metav1.TypeMeta `json:",inline"`

		Preconditions metav1.Preconditions `json:"preconditions"`
	}
	if formOf(r, false) != whole || r.Header.Get("Content-Type") != jsonType || len(r.URL.Query()) > 0 {
		return false
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if d.Decode(&options) != nil || options.Kind != "DeleteOptions" {
		return false
	}
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	s.mu.Lock()
	o := s.getLocked(prometheusRules, keyOf(namespace, name))
	refusal := refusedDeletion(name, &options.Preconditions, o)
	if refusal == nil {
		s.removeLocked(prometheusRules, o.key())
	}
	s.mu.Unlock()
	if refusal != nil {
		refuse(w, r, refusal)
		return true
	}
	s.server.deletes.Add(1)
	s.tell("delete", namespace, name, nil)
	answer(w, r, http.StatusOK, encoded(deleted(name, types.UID(o.uid))))
	return true
}

// refusedDeletion returns why a deletion is refused, or nil.
func refusedDeletion(name string, p *metav1.Preconditions, o *object) *metav1.Status {
	switch {
	case o == nil:
		return notFound(prometheusRules, name)
	case p.UID != nil && string(*p.UID) != o.uid:
		return failed(name, "UID", string(*p.UID), o.uid, "deleted and then recreated")
	case p.ResourceVersion != nil && *p.ResourceVersion != strconv.FormatInt(o.version, 10):
		return failed(name, "ResourceVersion", *p.ResourceVersion, strconv.FormatInt(o.version, 10), "modified")
	}
	return nil
}

func withNewline(data []byte) []byte { return append(bytes.Clone(data), '\n') }
