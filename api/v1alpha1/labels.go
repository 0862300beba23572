package v1alpha1

// Labels and annotations that you set.
const (
	// RegistrationLabel is the label that registers a spoke. Set it to "true" on a Secret with a kubeconfig
	// in Rulefleet's own namespace. The label is the convention of multicluster-runtime for such Secrets.
	RegistrationLabel = "sigs.k8s.io/multicluster-runtime-kubeconfig"

	// ResetFieldsAnnotation is the annotation that returns edited fields of a generated AlertRule to the
	// template. Set it on the AlertRule to a comma-separated list of fields, as in status.overriddenFields,
	// or to * for all of them. Rulefleet removes the annotation when it is done.
	ResetFieldsAnnotation = Group + "/reset-fields"

	// AcknowledgeDeletionsAnnotation is the annotation that releases held deletions of a spoke. Set it on
	// the SpokeCluster, to any value except "". Of the deletions that wait for an acknowledgement
	// (status.pendingDeletions.suspect), it releases only those that status.pendingDeletions.names lists at
	// that time. It releases all deletions that are held for other causes, also if they are not listed.
	// Rulefleet removes the annotation, so that later deletions are held until the next acknowledgement.
	AcknowledgeDeletionsAnnotation = Group + "/acknowledge-deletions"

	// AcceptIdentityAnnotation is the annotation that confirms that the kubeconfig of a spoke is meant to
	// lead to a different cluster than before. Set it on the SpokeCluster to the UID of the namespace
	// kube-system of that cluster, which the message of condition Connected contains. Any other value is
	// ignored. Rulefleet removes the annotation when the spoke is connected. Until the duration in the chart
	// value deletionHold (flag --deletion-hold of the manager) has passed since then, every deletion in the
	// spoke is held.
	AcceptIdentityAnnotation = Group + "/accept-identity"

	// RenewTokenAnnotation is the annotation of the Secret of a spoke whose token the manager renews. The value
	// is "true". kubectl rulefleet join sets it. The manager renews the token only as long as CredentialManager
	// is the only field manager that has written the kubeconfig.
	RenewTokenAnnotation = Group + "/renew-token"

	// AdjustmentPrefix is the prefix of the annotations with which a workload in a spoke adjusts its
	// AlertRules. It is followed by one of the values of Adjustment, as in rulefleet.io/for.
	AdjustmentPrefix = Group + "/"
)

// Labels and annotations that only Rulefleet sets.
const (
	// ManagedByLabel is the label of the PrometheusRules and AlertRules that Rulefleet creates. Its value is
	// ManagedByValue.
	ManagedByLabel = "app.kubernetes.io/managed-by"

	// HubLabel is the label of a PrometheusRule with the id of the hub that wrote it. A hub only changes
	// and removes objects with its own id, or with an id in spec.adoptHubIDs of the SpokeCluster.
	HubLabel = Group + "/hub"
	// AlertRuleHashLabel is the label of a PrometheusRule with a digest of the namespace and name of its
	// AlertRule, for use in label selectors.
	AlertRuleHashLabel = Group + "/alertrule-hash"
	// AlertRuleAnnotation is the annotation of a PrometheusRule with the namespace/name of its AlertRule.
	AlertRuleAnnotation = Group + "/alertrule"

	// RulePackHashLabel is the label of a PrometheusRule with a digest of the namespace and name of its
	// RulePack, for use in label selectors.
	RulePackHashLabel = Group + "/rulepack-hash"
	// RulePackAnnotation is the annotation of a PrometheusRule with the namespace/name of its RulePack.
	RulePackAnnotation = Group + "/rulepack"

	// RuleLabelsAnnotation is the annotation of a PrometheusRule with a comma-separated list of the labels
	// that it has for the ruleSelector of a Prometheus: those in spec.ruleLabels of the SpokeCluster, and
	// those that the selectors require. Rulefleet removes labels in this list that are no longer needed.
	RuleLabelsAnnotation = Group + "/rule-labels"
	// AdoptedFromAnnotation is the annotation of a PrometheusRule with the id of the former hub that created
	// and named it.
	AdoptedFromAnnotation = Group + "/adopted-from"

	// ClusterLabel is the label of a generated AlertRule with the name of the spoke, for use in label
	// selectors. It is left out if the name has more than 63 characters, the maximum of a label value.
	ClusterLabel = Group + "/cluster"
	// TemplateLabel is the label of a generated AlertRule with the name of its template.
	TemplateLabel = Group + "/template"

	// AppliedFieldsAnnotation is the annotation of a generated AlertRule with a list of the fields of the
	// spec that the template last set. It distinguishes a field that was removed by an edit from a field
	// that the template never set.
	AppliedFieldsAnnotation = Group + "/applied-fields"
	// IgnoredAnnotation is the annotation of a generated AlertRule with a list of the annotations of the
	// workload that were ignored, and the causes.
	IgnoredAnnotation = Group + "/ignored-annotations"

	// BuiltInAnnotation is the annotation of a built-in AlertRuleTemplate with a digest of each spec field as the
	// manager last set it, except state. A field that has this digest was not edited. The manager updates such a field
	// if a new version of the manager or a flag changes the built-in template. Edited fields stay. A template without
	// the annotation is never updated.
	BuiltInAnnotation = Group + "/built-in"
	// BuiltInStateAnnotation is the annotation of a built-in AlertRuleTemplate with the state that the
	// manager's flags last defined. As long as the template has this state, it follows the flags. A state
	// that was edited stays until the flags change.
	BuiltInStateAnnotation = Group + "/built-in-state"
)

// Other names that are neither labels nor annotations.
const (
	// KubeconfigKey is the key of a registered Secret that holds the kubeconfig.
	KubeconfigKey = "kubeconfig"
	// ManagedByValue is the value of the label ManagedByLabel.
	ManagedByValue = "rulefleet"
	// FieldManager is the name of the field manager with which Rulefleet applies generated AlertRules.
	FieldManager = "rulefleet"
	// CredentialManager is the name of the field manager with which kubectl rulefleet join and the manager apply
	// the kubeconfig in the Secret of a spoke, and nothing else.
	CredentialManager = "rulefleet-credential"
	// LeaveFinalizer is the finalizer that keeps a deleted SpokeCluster until its rules are removed from the
	// spoke, or until the time limit for that has passed.
	LeaveFinalizer = Group + "/leave"
)
