package simulated

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ruleKind and ruleVersion are those of a PrometheusRule.
const (
	ruleKind    = "PrometheusRule"
	ruleVersion = "monitoring.coreos.com/v1"
)

// deploymentFields are the fields of a Deployment's spec in managedFields.
const deploymentFields = `{"f:progressDeadlineSeconds":{},"f:replicas":{},"f:revisionHistoryLimit":{},"f:selector":{},` +
	`"f:strategy":{"f:rollingUpdate":{".":{},"f:maxSurge":{},"f:maxUnavailable":{}},"f:type":{}},` +
	`"f:template":{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":` +
	`{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},` +
	`"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}}`

// typeOf returns the type of an object in a form.
func typeOf(of resource, form int) metav1.TypeMeta {
	if form == whole && of == prometheusRules {
		return metav1.TypeMeta{APIVersion: ruleVersion, Kind: ruleKind}
	}
	return metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
}

// encode returns an object in a form.
func (o *object) encode(of resource, form int) []byte {
	if form == whole {
		return o.json
	}
	return encoded(o.partial(of))
}

// partial returns the metadata of an object.
func (o *object) partial(of resource) metav1.PartialObjectMetadata {
	m := metav1.PartialObjectMetadata{}
	if of == prometheusRules {
		if err := json.Unmarshal(o.json, &m); err != nil {
			panic(fmt.Sprintf("a PrometheusRule that was encoded here can't be decoded: %v", err))
		}
		m.TypeMeta = typeOf(of, partial)
		return m
	}
	m.TypeMeta = typeOf(of, partial)
	m.Namespace, m.Name, m.UID, m.ResourceVersion = o.namespace, o.name, types.UID(o.uid), strconv.FormatInt(o.version, 10)
	m.CreationTimestamp, m.Annotations = metav1.NewTime(o.created), o.annotations
	version := "v1"
	m.Labels = map[string]string{"kubernetes.io/metadata.name": o.name}
	if of == deployments {
		version, m.Generation = "apps/v1", o.generation
		m.Labels = map[string]string{"app": o.name}
	}
	fields := map[string]any{"f:metadata": metadataFields(m.Labels, m.Annotations)}
	if of == deployments {
		fields["f:spec"] = json.RawMessage(deploymentFields)
	}
	m.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: o.by, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: version,
		Time: new(metav1.NewTime(o.written)), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(strings.TrimSpace(string(encoded(fields)))),
	}}
	return m
}

// at returns an object at a later version.
func (o *object) at(version int64) *object {
	next := *o
	next.version = version
	if o.json == nil {
		return &next
	}
	content := contentOf(o.json)
	metadata := maps.Clone(content["metadata"].(map[string]any)) //nolint:forcetypeassert // it was encoded here
	metadata["resourceVersion"] = strconv.FormatInt(version, 10)
	content["metadata"] = metadata
	next.json = bytes.TrimSpace(encoded(content))
	return &next
}

// contentOf decodes an object. It returns nil for anything else.
func contentOf(data []byte) map[string]any {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var out map[string]any
	if d.Decode(&out) != nil {
		return nil
	}
	return out
}

// encoded returns a value as JSON, as an API server does.
func encoded(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("an answer can't be encoded: %v", err))
	}
	return append(data, '\n')
}

// metadataFields returns the fields of labels and annotations in managedFields.
func metadataFields(labels, annotations map[string]string) map[string]any {
	out := map[string]any{}
	for name, of := range map[string]map[string]string{"f:labels": labels, "f:annotations": annotations} {
		if len(of) == 0 {
			continue
		}
		fields := map[string]any{".": map[string]any{}}
		for key := range of {
			fields["f:"+key] = map[string]any{}
		}
		out[name] = fields
	}
	return out
}
