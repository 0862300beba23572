package v1alpha1

// RegistrationLabel on a Secret in the operator's namespace, with the value "true", registers a spoke.
// It is the convention of multicluster-runtime for kubeconfig Secrets.
const RegistrationLabel = "sigs.k8s.io/multicluster-runtime-kubeconfig"

// KubeconfigKey is the key that holds the kubeconfig in a registered Secret.
const KubeconfigKey = "kubeconfig"

// Labels and annotations that only the operator writes.
const (
	// ManagedByLabel, with the value ManagedByValue, is set on every object that the operator creates.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// ManagedByValue is the value of ManagedByLabel.
	ManagedByValue = "rulefleet"

	// HubLabel on a PrometheusRule is the id of the hub that wrote it. A hub only changes and removes
	// objects with its own id.
	HubLabel = Group + "/hub"
	// AlertRuleHashLabel on a PrometheusRule is a digest of the namespace and name of its AlertRule,
	// for use in label selectors.
	AlertRuleHashLabel = Group + "/alertrule-hash"
	// AlertRuleAnnotation on a PrometheusRule is the namespace/name of its AlertRule.
	AlertRuleAnnotation = Group + "/alertrule"

	// RuleLabelsAnnotation on a PrometheusRule is a comma-separated list of the labels that it has
	// because of SpokeCluster.spec.ruleLabels. A label that is no longer in that field is removed.
	RuleLabelsAnnotation = Group + "/rule-labels"
	// AdoptedFromAnnotation on a PrometheusRule is the id of the former hub that created and named it.
	AdoptedFromAnnotation = Group + "/adopted-from"

	// ClusterLabel on a generated AlertRule is the name of the spoke, for use in label selectors. It is
	// left out if the name has more than 63 characters, the maximum of a label value.
	ClusterLabel = Group + "/cluster"
	// TemplateLabel on an AlertRule is the name of the template that generated it.
	TemplateLabel = Group + "/template"

	// AppliedFieldsAnnotation on a generated AlertRule lists the fields of the spec that the template
	// last set. It distinguishes a field that was removed by an edit from a field that the template
	// never set.
	AppliedFieldsAnnotation = Group + "/applied-fields"
	// IgnoredAnnotation on a generated AlertRule lists the annotations of the Deployment that were
	// ignored, and why.
	IgnoredAnnotation = Group + "/ignored-annotations"

	// BuiltInAnnotation on a built-in AlertRuleTemplate is a digest of the spec that the operator gave
	// it, without its state. As long as the spec has this digest, the operator updates the template to
	// its own version and flags. A template without the annotation is never updated.
	BuiltInAnnotation = Group + "/built-in"
	// BuiltInStateAnnotation on a built-in AlertRuleTemplate is the state that the operator's flags
	// last defined. As long as the template has this state, it follows the flags. A state that was
	// edited stays until the flags change.
	BuiltInStateAnnotation = Group + "/built-in-state"
)

// ResetFieldsAnnotation on a generated AlertRule returns edited fields of the spec to the template.
// Its value is a comma-separated list of fields as in status.overriddenFields, or * for all of them.
// The operator removes the annotation when it is done.
const ResetFieldsAnnotation = Group + "/reset-fields"

// AcknowledgeDeletionsAnnotation on a SpokeCluster, with any value except "", releases the deletions
// that are held for that spoke because there are many at once. Of the deletions that wait for an
// acknowledgement (status.pendingDeletions.suspect), it releases only those that
// status.pendingDeletions.names lists at the time. The operator removes the annotation, so that later
// deletions are held until the next acknowledgement.
const AcknowledgeDeletionsAnnotation = Group + "/acknowledge-deletions"

// AcceptIdentityAnnotation on a SpokeCluster confirms that its Secret is meant to lead to a different
// cluster than before. Its value is the UID of the namespace kube-system of that cluster, which the
// condition's message contains. Any other value is ignored. The operator removes the annotation when
// the spoke is connected. From then on, every deletion in the spoke is held for --deletion-hold.
const AcceptIdentityAnnotation = Group + "/accept-identity"

// LeaveFinalizer keeps a deleted SpokeCluster until its rules are removed from the spoke, or until the
// time limit for that has passed.
const LeaveFinalizer = Group + "/leave"

// AdjustmentPrefix is the prefix of the annotations of a Deployment that adjust its AlertRules. An
// Adjustment follows it.
const AdjustmentPrefix = Group + "/"

// FieldManager is the field manager with which the operator applies generated AlertRules.
const FieldManager = "rulefleet"
