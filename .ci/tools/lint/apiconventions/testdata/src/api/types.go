package api

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Name is bounded here, for every field of this type.
// +kubebuilder:validation:MaxLength=63
type Name string

// Free is bounded nowhere.
type Free string

// Good has nothing to report.
//
// +kubebuilder:validation:XValidation:rule="has(self.name)",message="give a name"
type Good struct {
	Inline `json:",inline"`

	// name is bounded by its type.
	// +required
	Name Name `json:"name,omitempty"`

	// text is bounded by its own marker.
	// +optional
	// +kubebuilder:validation:MaxLength=10
	Text string `json:"text,omitempty"`

	// count may be zero.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Count *int32 `json:"count,omitempty"`

	// names are bounded in number and each by its type.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	Names []Name `json:"names,omitempty"`

	// texts are bounded in number and each by a marker.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:MaxLength=10
	Texts []string `json:"texts,omitempty"`

	// labels are bounded in number and each by its type.
	// +optional
	// +kubebuilder:validation:MaxProperties=3
	Labels map[string]Name `json:"labels,omitempty"`

	// conditions are merged by type.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// nested is left out when it is zero.
	// +optional
	Nested Inline `json:"nested,omitzero"`

	hidden bool
}

// Inline is part of Good.
type Inline struct{}

// GoodList is as every list is.
type GoodList struct {
	Items []Good `json:"items"`
}

// Mute is a type whose rule says nothing.
//
// +kubebuilder:validation:XValidation:rule="false"
type Mute struct{} // want `CEL rule without a message`

// Bad has one mistake per field.
type Bad struct {
	Untagged Name // want `has no json tag`

	// snake is not in camelCase.
	// +required
	Snake Name `json:"sn_ake"` // want `is not in camelCase` `does not start with the json name`

	// Undocumented has another name.
	// +required
	Undocumented Name `json:"undocumented"` // want `does not start with the json name "undocumented"`

	// both is optional and required.
	// +optional
	// +required
	Both Name `json:"both,omitempty"` // want `exactly one of`

	// neither is neither.
	Neither Name `json:"neither,omitempty"` // want `exactly one of`

	// spelling has the other one.
	// +required
	// +kubebuilder:validation:Required
	Spelling Name `json:"spelling"` // want `in this spelling`

	// null is nullable.
	// +required
	// +nullable
	Null Name `json:"null"` // want `is nullable`

	// defaulted is required nevertheless.
	// +required
	// +default="a"
	Defaulted Name `json:"defaulted"` // want `is required and has a default`

	// kept stays when it is empty.
	// +optional
	Kept Name `json:"kept"` // want `needs omitempty`

	// object stays when it is zero.
	// +optional
	Object Inline `json:"object,omitempty"` // want `needs omitzero`

	// unbounded has no limit.
	// +required
	Unbounded string `json:"unbounded"` // want `has no upper bound: add .*MaxLength`

	// low has no limit.
	// +required
	Low int32 `json:"low"` // want `has no lower bound`

	// short is too short.
	// +required
	// +kubebuilder:validation:Minimum=0
	Short int16 `json:"short"` // want `is a int16: use int32 or int64`

	// ratio is a float.
	// +required
	Ratio float64 `json:"ratio"` // want `is a float`

	// flag is a bool.
	// +optional
	Flag *bool `json:"flag,omitempty"` // want `is a bool`

	// wait is a duration.
	// +required
	Wait time.Duration `json:"wait"` // want `is a time.Duration`

	// pause is a duration.
	// +required
	Pause metav1.Duration `json:"pause"` // want `is a .*Duration: use metav1.Time, or a string`

	// at is a time.
	// +required
	At time.Time `json:"at"` // want `is a time.Time: use metav1.Time`

	// long is a list without an end.
	// +required
	// +listType=set
	Long []Name `json:"long"` // want `add .*MaxItems`

	// untyped is a list that can't be merged.
	// +required
	// +kubebuilder:validation:MaxItems=3
	Untyped []Name `json:"untyped"` // want `has no \+listType`

	// keyless is a map without a key.
	// +required
	// +listType=map
	// +kubebuilder:validation:MaxItems=3
	Keyless []Good `json:"keyless"` // want `has no \+listMapKey`

	// structs is a set of structs.
	// +required
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	Structs []Good `json:"structs"` // want `set of structs`

	// conditions can't be written by two.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	Conditions []metav1.Condition `json:"conditions"` // want `holds conditions`

	// free has items without a limit.
	// +required
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	Free []Free `json:"free"` // want `its items have no upper bound`

	// wide is a map without an end.
	// +required
	Wide map[string]Name `json:"wide"` // want `add .*MaxProperties`

	// deep is a map of structs.
	// +required
	Deep map[string]Good `json:"deep"` // want `use a list of named things`

	// values has values without a limit.
	// +required
	// +kubebuilder:validation:MaxProperties=3
	Values map[string]string `json:"values"` // want `its additionalProperties have no upper bound`

	// ruled has a rule that says nothing.
	// +required
	// +kubebuilder:validation:XValidation:rule="false"
	Ruled Name `json:"ruled"` // want `CEL rule without a message`
}
