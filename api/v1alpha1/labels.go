package v1alpha1

// RegistrationLabel on a Secret of the operator's namespace, with value "true",
// registers a spoke (multicluster-runtime's convention for kubeconfig Secrets).
const RegistrationLabel = "sigs.k8s.io/multicluster-runtime-kubeconfig"

// KubeconfigKey is the key of a registered Secret that holds the kubeconfig.
const KubeconfigKey = "kubeconfig"

// Labels and annotations that the operator writes. Nobody else should.
const (
	// ManagedByLabel, with value ManagedByValue, is on everything that the operator makes.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// ManagedByValue is the value of ManagedByLabel.
	ManagedByValue = "rulefleet"

	// HubLabel on a PrometheusRule is the id of the hub that pushed it. Only objects
	// with its own id are changed or removed by a hub.
	HubLabel = Group + "/hub"
	// AlertRuleHashLabel on a PrometheusRule is a digest of its AlertRule's
	// namespace and name, for selecting on.
	AlertRuleHashLabel = Group + "/alertrule-hash"
	// AlertRuleAnnotation on a PrometheusRule is its AlertRule's namespace/name.
	AlertRuleAnnotation = Group + "/alertrule"

	// RuleLabelsAnnotation on a PrometheusRule lists, between commas, the labels that it has
	// by SpokeCluster.spec.ruleLabels, so that one that is taken out there goes.
	RuleLabelsAnnotation = Group + "/rule-labels"
	// AdoptedFromAnnotation on a PrometheusRule is the id of the former hub that made it,
	// and that gave it its name.
	AdoptedFromAnnotation = Group + "/adopted-from"

	// ClusterLabel on an AlertRule that a template made is the spoke's name, for
	// selecting on. Names of more than 63 characters are no label values: they are
	// left out.
	ClusterLabel = Group + "/cluster"
	// TemplateLabel on an AlertRule is the name of the template that made it.
	TemplateLabel = Group + "/template"

	// AppliedFieldsAnnotation on an AlertRule that a template made lists the fields of
	// the spec that the template set last, so that one that a person removed is told
	// from one that the template never set.
	AppliedFieldsAnnotation = Group + "/applied-fields"
	// IgnoredAnnotation on an AlertRule that a template made says which annotations of
	// the Deployment were ignored, and why.
	IgnoredAnnotation = Group + "/ignored-annotations"

	// BuiltInAnnotation on a built-in AlertRuleTemplate is a digest of the spec that the
	// operator gave it, without its state. While the spec is still that, the template
	// follows the operator's version and flags. Without the annotation it never does.
	BuiltInAnnotation = Group + "/built-in"
	// BuiltInStateAnnotation on a built-in AlertRuleTemplate is the state that the
	// operator's flags last said. While the template has that state, it follows the flags;
	// one that a person set stays until the flags say another than they did.
	BuiltInStateAnnotation = Group + "/built-in-state"
)

// ResetFieldsAnnotation on an AlertRule that a template made gives fields of the spec
// that people had made their own back to the template. Its value is a list as in
// status.overriddenFields, separated by commas, or * for all of them. The operator
// removes the annotation when it is done.
const ResetFieldsAnnotation = Group + "/reset-fields"

// AcknowledgeDeletionsAnnotation on a SpokeCluster, with any value but "", lets the
// deletions pass that are held for that spoke because they are many at once. Of those that
// wait for an acknowledgement (status.pendingDeletions.suspect), it lets pass those that
// status.pendingDeletions.names lists at the time, and no others. The operator removes the
// annotation, so that what is held later is held until the next one.
const AcknowledgeDeletionsAnnotation = Group + "/acknowledge-deletions"

// AcceptIdentityAnnotation on a SpokeCluster confirms that its Secret is meant to lead to
// another cluster than before. Its value is the UID of that cluster's namespace
// kube-system, which the condition's message gives; any other is ignored. The operator
// removes the annotation when the spoke is connected. From then on, every deletion there is
// held for as long as --deletion-hold says.
const AcceptIdentityAnnotation = Group + "/accept-identity"

// LeaveFinalizer keeps a SpokeCluster that is deleted until its rules were removed from the
// spoke, or that was tried for long enough.
const LeaveFinalizer = Group + "/leave"

// AdjustmentPrefix is what annotations of a Deployment begin with that adjust its
// AlertRules; an Adjustment follows.
const AdjustmentPrefix = Group + "/"

// FieldManager is the name under which the operator applies AlertRules that a
// template makes.
const FieldManager = "rulefleet"
