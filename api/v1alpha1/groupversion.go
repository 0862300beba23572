package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of every kind in this package.
const Group = "rulefleet.io"

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1alpha1"}

var schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

// AddToScheme registers the kinds of this package in a scheme.
var AddToScheme = schemeBuilder.AddToScheme

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&AlertRule{}, &AlertRuleList{},
		&AlertRuleTemplate{}, &AlertRuleTemplateList{},
		&RulePack{}, &RulePackList{},
		&SpokeCluster{}, &SpokeClusterList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
