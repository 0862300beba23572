// Package coverage decides which workloads of a spoke have an alert, and why others have none.
package coverage

import (
	"cmp"
	"slices"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// Outcome is what became of a workload that a template selects.
type Outcome byte

// The outcomes.
const (
	// Generated means that the workload has an AlertRule of the template.
	Generated Outcome = iota + 1
	// Disabled means that annotations disable the template for the workload.
	Disabled
	// Refused means that maxRules leaves no room for the AlertRule.
	Refused
	// Failed means that the AlertRule can't be made or changed.
	Failed
)

// Outcomes are the outcomes of a workload by template.
type Outcomes map[string]Outcome

// maxUncovered bounds the workloads that are listed.
const maxUncovered = 50

// Kind has the workloads of one kind in a spoke.
type Kind struct {
	Kind v1alpha1.WorkloadKind
	// Workloads are all of them. It is not used if they are not Known.
	Workloads []rule.Key
	Known     bool
	// Total is their number if they are not known.
	Total int32
}

// Input is what decides the coverage of a spoke.
type Input struct {
	Cluster rule.Cluster
	Kinds   []Kind
	// Rules are the AlertRules that name a workload of the spoke.
	Rules []v1alpha1.AlertRule
	// Trusted are the namespaces of the hub in which an AlertRule may name any workload. In another one, it covers only
	// workloads in the spoke's namespace of the same name.
	Trusted []string
	// Outcomes returns what became of a workload, or nil if it was not processed yet. Without an AlertRule, such a workload
	// counts as not covered, and is not listed: it is not known yet whether a template selects it.
	Outcomes func(rule.Key) Outcomes
}

// Result is the coverage of a spoke.
type Result struct {
	Workloads []v1alpha1.WorkloadCount
	// Uncovered are the first workloads without an alert, by namespace, kind and name.
	Uncovered []v1alpha1.UncoveredWorkload
}

// covers is how far the AlertRules of a workload are.
type covers byte

const (
	disabled covers = iota + 1
	enabled
	evaluating
)

// Of returns the coverage of a spoke.
func Of(in *Input) Result {
	rules := in.rules()
	var out Result
	for _, k := range in.Kinds {
		n := v1alpha1.WorkloadCount{Kind: k.Kind, Total: k.Total}
		if !k.Known {
			n.Covered = min(known(rules, k.Kind), k.Total)
			out.Workloads = append(out.Workloads, n)
			continue
		}
		n.Total = int32(min(len(k.Workloads), 1<<30))
		for _, w := range k.Workloads {
			if rules[w] == evaluating {
				n.Covered++
				continue
			}
			outcomes := in.Outcomes(w)
			if outcomes == nil && rules[w] == 0 {
				continue
			}
			out.Uncovered = append(out.Uncovered, v1alpha1.UncoveredWorkload{
				Kind: k.Kind, Namespace: v1alpha1.NamespaceName(w.Namespace), Name: w.Name, Reason: reason(rules[w], outcomes),
			})
		}
		out.Workloads = append(out.Workloads, n)
	}
	slices.SortFunc(out.Uncovered, func(a, b v1alpha1.UncoveredWorkload) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	out.Uncovered = slices.Clone(out.Uncovered[:min(len(out.Uncovered), maxUncovered)])
	return out
}

// rules returns how far the AlertRules are that name a workload.
func (in *Input) rules() map[rule.Key]covers {
	out := make(map[rule.Key]covers, len(in.Rules))
	for i := range in.Rules {
		ar := &in.Rules[i]
		w := ar.Spec.WorkloadRef
		if w == nil || string(w.Cluster) != in.Cluster.Name || (ar.Namespace != string(w.Namespace) && !slices.Contains(in.Trusted, ar.Namespace)) {
			continue
		}
		key := rule.WorkloadKey(w)
		out[key] = max(out[key], in.of(ar))
	}
	return out
}

// of returns how far an AlertRule is in the spoke.
func (in *Input) of(ar *v1alpha1.AlertRule) covers {
	if rule.StateIn(ar, in.Cluster) == v1alpha1.Disabled {
		return disabled
	}
	for i := range ar.Status.Clusters {
		if row := &ar.Status.Clusters[i]; string(row.Name) == in.Cluster.Name && row.Phase == v1alpha1.PhaseEvaluating {
			return evaluating
		}
	}
	return enabled
}

// known returns the number of workloads of a kind that AlertRules cover, where the workloads themselves are not known.
func known(rules map[rule.Key]covers, kind v1alpha1.WorkloadKind) (n int32) {
	for key, is := range rules {
		if is == evaluating && key.Kind == string(kind) {
			n++
		}
	}
	return n
}

// reason returns why a workload has no alert: the cause without which the least is missing for one.
func reason(rules covers, outcomes Outcomes) v1alpha1.UncoveredReason {
	if rules == enabled {
		return v1alpha1.UncoveredNotEvaluating
	}
	has := func(o Outcome) bool {
		for _, is := range outcomes {
			if is == o {
				return true
			}
		}
		return false
	}
	switch {
	case has(Refused):
		return v1alpha1.UncoveredRefused
	case has(Failed):
		return v1alpha1.UncoveredFailed
	case rules == disabled, has(Disabled):
		return v1alpha1.UncoveredDisabled
	case has(Generated): // the AlertRule was just made
		return v1alpha1.UncoveredNotEvaluating
	}
	return v1alpha1.UncoveredNoTemplate
}
