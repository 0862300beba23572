package v1alpha1

// The methods of AlertRules and RulePacks by which the manager treats them alike, as sources of rules.

// The kinds of sources.
const (
	AlertRuleKind = "AlertRule"
	RulePackKind  = "RulePack"
)

// SourceKind returns the kind of the source.
func (r *AlertRule) SourceKind() string { return AlertRuleKind }

// GetPlacement returns spec.placement.
func (r *AlertRule) GetPlacement() ClusterSelection { return r.Spec.Placement }

// GetState returns spec.state.
func (r *AlertRule) GetState() State { return r.Spec.State }

// GetOverrides returns spec.overrides, which can set another state in some of the spokes.
func (r *AlertRule) GetOverrides() []Override { return r.Spec.Overrides }

// GetRuleNamespace returns spec.ruleNamespace.
func (r *AlertRule) GetRuleNamespace() NamespaceName { return r.Spec.RuleNamespace }

// InOperatorNamespace reports whether spec.ruleNamespaceFrom is Operator.
func (r *AlertRule) InOperatorNamespace() bool {
	return r.Spec.RuleNamespaceFrom == InOperatorNamespace
}

// GetWorkloadRef returns spec.workloadRef.
func (r *AlertRule) GetWorkloadRef() *WorkloadReference { return r.Spec.WorkloadRef }

// Suspended reports whether spec.suspend is true.
func (r *AlertRule) Suspended() bool { return r.Spec.Suspend != nil && *r.Spec.Suspend }

// GetStatus returns a pointer to the status.
func (r *AlertRule) GetStatus() *RuleStatus { return &r.Status }

// SourceKind returns the kind of the source.
func (p *RulePack) SourceKind() string { return RulePackKind }

// GetPlacement returns spec.placement.
func (p *RulePack) GetPlacement() ClusterSelection { return p.Spec.Placement }

// GetState returns spec.state.
func (p *RulePack) GetState() State { return p.Spec.State }

// GetOverrides returns nil: patches cannot change the state of the RulePack.
func (p *RulePack) GetOverrides() []Override { return nil }

// GetRuleNamespace returns spec.ruleNamespace.
func (p *RulePack) GetRuleNamespace() NamespaceName { return p.Spec.RuleNamespace }

// InOperatorNamespace returns false: RulePacks have no workload with another namespace.
func (p *RulePack) InOperatorNamespace() bool { return false }

// GetWorkloadRef returns nil: the rules are not about one workload.
func (p *RulePack) GetWorkloadRef() *WorkloadReference { return nil }

// Suspended reports whether spec.suspend is true.
func (p *RulePack) Suspended() bool { return p.Spec.Suspend != nil && *p.Spec.Suspend }

// GetStatus returns a pointer to the status.
func (p *RulePack) GetStatus() *RuleStatus { return &p.Status }
