package v1alpha1

// Conditions of an AlertRule and an AlertRuleTemplate.
const (
	// ConditionAccepted is True when the spec is valid. If it is False, the message says what to
	// change, and the operator does not try again until the spec changes.
	ConditionAccepted = "Accepted"
	// ConditionReady is True when the rule has reached the furthest state that can be verified in every
	// spoke on which it is placed. On a SpokeCluster, it is True when the operator can serve the spoke.
	ConditionReady = "Ready"
	// ConditionStalled is True when the AlertRule makes no progress until you act (kstatus: Failed).
	ConditionStalled = "Stalled"
	// ConditionMetricsPresent is False when a Prometheus of a spoke has no series for a selector of the
	// AlertRule's expression, so that the alert can't fire there. It is absent if no Prometheus can be
	// queried. On a SpokeCluster, it is False when Prometheus has none of the metrics of
	// kube-state-metrics that rules there need.
	ConditionMetricsPresent = "MetricsPresent"
)

// Conditions of a SpokeCluster, in addition to ConditionReady.
const (
	// ConditionConnected is True when the spoke's API server answers, and all required objects can be
	// read.
	ConditionConnected = "Connected"
	// ConditionPrometheusRuleServed is True when the spoke serves PrometheusRules and they can be read.
	// While the spoke is not connected, it is Unknown, with the reason of Connected.
	ConditionPrometheusRuleServed = "PrometheusRuleServed"
	// ConditionEvaluatorsFound is True when a Prometheus or ThanosRuler of the spoke is chosen to
	// evaluate the rules. Its requirements are in status.evaluators.
	ConditionEvaluatorsFound = "EvaluatorsFound"
	// ConditionEvaluating is True when every chosen Prometheus or ThanosRuler answers, and False when
	// one of them does not. It is Unknown if the operator is not allowed to query them.
	ConditionEvaluating = "Evaluating"
)

// Reasons of the conditions Accepted, Ready and Stalled of an AlertRule.
const (
	// ReasonAccepted is Accepted=True.
	ReasonAccepted = "Accepted"
	// ReasonInvalidExpr is Accepted=False: the expression is not valid PromQL.
	ReasonInvalidExpr = "InvalidExpr"
	// ReasonInvalidSpec is Accepted=False: another field is not valid.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonNamespaceNotAllowed is Accepted=False: an AlertRule outside of the operator's namespace may
	// only write to the namespace of the same name in the spokes.
	ReasonNamespaceNotAllowed = "NamespaceNotAllowed"
	// ReasonAllApplied is Ready=True: the rule has reached the furthest state that can be verified in
	// every spoke.
	ReasonAllApplied = "AllApplied"
	// ReasonProgressing is Ready=False: some spokes do not have the rule yet.
	ReasonProgressing = "Progressing"
	// ReasonNoClusters is Ready=False: the placement matches no registered spoke.
	ReasonNoClusters = "NoClusters"
	// ReasonDisabled is Ready=True: the rule is disabled, and removed from the spokes.
	ReasonDisabled = "Disabled"
	// ReasonNotStalled is Stalled=False.
	ReasonNotStalled = "NotStalled"
)

// Reasons of a row of AlertRule.status.clusters: why the rule has not reached a further phase in
// that spoke. They are also on Ready if all spokes that lag behind have the same reason. In addition
// to these, ReasonInvalidExpr and ReasonInvalidSpec in a row mean that the rule does not fit that
// spoke, most likely because its SpokeCluster lacks a label that the rule needs.
const (
	// ReasonWaiting means that the rule has not been processed for the spoke yet.
	ReasonWaiting = "Waiting"
	// ReasonUnreachable means that the spoke is unreachable. The row keeps the last known state. On a
	// SpokeCluster: its API server does not answer.
	ReasonUnreachable = "Unreachable"
	// ReasonNotRegistered means that the placement contains a name that no SpokeCluster has.
	ReasonNotRegistered = "NotRegistered"
	// ReasonCRDMissing means that the spoke does not serve PrometheusRules.
	ReasonCRDMissing = "CRDMissing"
	// ReasonNamespaceMissing means that the spoke does not have the namespace of the rule.
	ReasonNamespaceMissing = "NamespaceMissing"
	// ReasonForbidden means that the operator's account in the spoke lacks the permission that the
	// message names.
	ReasonForbidden = "Forbidden"
	// ReasonConflict means that a PrometheusRule of the same name exists that does not belong to this
	// hub. The operator leaves it unchanged.
	ReasonConflict = "Conflict"
	// ReasonRejected means that the spoke's API server, by validation or an admission webhook, or
	// prometheus-operator rejected the rule.
	ReasonRejected = "Rejected"
	// ReasonMutated means that a mutating webhook of the spoke changed the rule. The rule is not sent
	// again until either side changes.
	ReasonMutated = "Mutated"
	// ReasonContested means that another client reverts, deletes or recreates the PrometheusRule after
	// each write of the operator. The message names the client if it is known. The operator waits
	// longer before each write. On a generated AlertRule: another client does the same to the AlertRule
	// on the hub. On a SpokeCluster: Ready=False, and the message names one of the objects.
	ReasonContested = "Contested"
	// ReasonSuspended means that the AlertRule or the spoke is suspended, and that the spoke therefore
	// does not hold the present version of the rule. On a SpokeCluster: spec.suspend is true, and
	// nothing is written to the spoke.
	ReasonSuspended = "Suspended"
	// ReasonUnsupported means that the spoke's Prometheus, with its version and features, can't parse
	// the rule. One such rule would fail the reload of all rules.
	ReasonUnsupported = "Unsupported"
	// ReasonQuotaExceeded means that a ResourceQuota in the spoke has no room for the rule.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonError is any other failure. The operator tries again.
	ReasonError = "Error"

	// ReasonNoEvaluator means that the spoke has no Prometheus or ThanosRuler object. The operator
	// can't verify what happens to the PrometheusRule, which may be read by another program such as
	// VictoriaMetrics' converter. Applied is the furthest state that can be verified.
	ReasonNoEvaluator = "NoEvaluator"
	// ReasonAmbiguous means that the spoke has several Prometheus or ThanosRuler objects and none of
	// them is chosen. Name one in spec.evaluatorRefs. Until then, existing rules in the spoke stay
	// unchanged, and new rules get no labels for a ruleSelector.
	ReasonAmbiguous = "Ambiguous"
	// ReasonEvaluatorsUnknown means that the Prometheus and ThanosRuler objects of the spoke can't be
	// read. Applied is the furthest state that can be verified.
	ReasonEvaluatorsUnknown = "EvaluatorsUnknown"
	// ReasonNotSelected means that no chosen Prometheus or ThanosRuler selects the rule. The message
	// names the label or the namespace that its selector requires.
	ReasonNotSelected = "NotSelected"
	// ReasonNamespaceEnforced means that the Prometheus has an enforcedNamespaceLabel, and evaluates
	// the rule for a different namespace than the one that the rule is about.
	ReasonNamespaceEnforced = "NamespaceEnforced"
	// ReasonPredicted means that the selectors of a Prometheus select the rule. The operator is not
	// allowed to query that Prometheus.
	ReasonPredicted = "Predicted"
	// ReasonConfirmed means that prometheus-operator reports that it passed the rule to a Prometheus.
	// The operator is not allowed to query that Prometheus.
	ReasonConfirmed = "Confirmed"
	// ReasonLoading means that the Prometheus that selects the rule has not loaded its present version
	// yet. This takes a minute or two.
	ReasonLoading = "Loading"
	// ReasonNotLoaded means that the Prometheus has not loaded the present version of the rule after
	// five minutes.
	ReasonNotLoaded = "NotLoaded"
	// ReasonEvaluationFailed means that the evaluation of the rule ends with an error.
	ReasonEvaluationFailed = "EvaluationFailed"
	// ReasonEvaluatorUnreachable means that a Prometheus does not answer. On a SpokeCluster: the
	// message of the condition describes the failure.
	ReasonEvaluatorUnreachable = "EvaluatorUnreachable"
)

// Reasons of MetricsPresent, EvaluatorsFound and Evaluating.
const (
	// ReasonMetricsPresent is MetricsPresent=True.
	ReasonMetricsPresent = "Present"
	// ReasonMetricsMissing is MetricsPresent=False: the message names the missing metrics.
	ReasonMetricsMissing = "Missing"
	// ReasonKubeStateMetricsMissing is MetricsPresent=False of a SpokeCluster.
	ReasonKubeStateMetricsMissing = "KubeStateMetricsMissing"
	// ReasonEvaluatorsFound is EvaluatorsFound=True.
	ReasonEvaluatorsFound = "Found"
	// ReasonNoSuchEvaluator is EvaluatorsFound=False: spec.evaluatorRefs names an object that the spoke
	// does not have.
	ReasonNoSuchEvaluator = "NoSuchEvaluator"
	// ReasonTooManyRules is Evaluating=True with a warning: a Prometheus has more than 80 % of the
	// 2,000 rules that are supported for each.
	ReasonTooManyRules = "TooManyRules"
	// ReasonEvaluating is Evaluating=True.
	ReasonEvaluating = "Evaluating"
	// ReasonNotGranted is Evaluating=Unknown: the operator's account in the spoke is not allowed to
	// query its Prometheus (get services/proxy).
	ReasonNotGranted = "NotGranted"
)

// Reasons of the conditions of a SpokeCluster, in addition to ReasonUnreachable,
// ReasonForbidden, ReasonCRDMissing and ReasonSuspended.
const (
	// ReasonConnected is Connected=True.
	ReasonConnected = "Connected"
	// ReasonConnecting is Connected=Unknown: the spoke has not answered yet, or its objects are being
	// read. In the second case, the message says how many have been read.
	ReasonConnecting = "Connecting"
	// ReasonAuthFailed is Connected=False: the spoke does not accept the credential.
	ReasonAuthFailed = "AuthFailed"
	// ReasonInvalidKubeconfig is Connected=False: the kubeconfig is refused. The message names the
	// field.
	ReasonInvalidKubeconfig = "InvalidKubeconfig"
	// ReasonKubeconfigMissing is Connected=False: the Secret, its registration label or its key is
	// missing. Nothing is removed from the spoke.
	ReasonKubeconfigMissing = "KubeconfigMissing"
	// ReasonDuplicateCluster is Connected=False: the spoke is the same cluster as the spoke that the
	// message names, which remains in use.
	ReasonDuplicateCluster = "DuplicateCluster"
	// ReasonServed is PrometheusRuleServed=True.
	ReasonServed = "Served"
	// ReasonDeletionsHeld is Ready=False: so many rules are to be deleted at once that it may be a
	// mistake, or the spoke was recently confirmed to be a different cluster. The deletions wait for a
	// time that the message gives, or for AcknowledgeDeletionsAnnotation. Rules whose AlertRules,
	// templates or placement labels may have been lost wait for the annotation only. All other work on
	// the spoke continues.
	ReasonDeletionsHeld = "DeletionsHeld"
	// ReasonIdentityChanged is Connected=False: the kubeconfig leads to a different cluster than
	// before. Nothing is written to either cluster until you confirm the new one with
	// AcceptIdentityAnnotation. If two spokes have exchanged their clusters, confirm both.
	ReasonIdentityChanged = "IdentityChanged"
	// ReasonRestored is Connected=False: the spoke's etcd was restored from a backup. The operator
	// reads all watched objects of the spoke again, and Connected is True as soon as that is done.
	ReasonRestored = "Restored"
	// ReasonThrottled is Connected=False: the spoke's API server answers 429 (Too Many Requests). The
	// operator sends nothing until the time in that answer has passed.
	ReasonThrottled = "Throttled"
	// ReasonTooLarge is Connected=False: an answer of the spoke, or the number or size of its objects,
	// exceeds a limit. The message gives the value and the limit. The rules in the spoke stay
	// unchanged, and the operator tries again with increasing delays of up to 20 seconds.
	ReasonTooLarge = "TooLarge"
	// ReasonMaxRulesReached is Ready=False: the templates match more Deployments of the spoke than
	// spec.maxRules allows AlertRules. Existing AlertRules stay.
	ReasonMaxRulesReached = "MaxRulesReached"
	// ReasonLeaving is Ready=False: the SpokeCluster is being deleted, and the spoke's rules with it,
	// according to its deletionPolicy.
	ReasonLeaving = "Leaving"
	// ReasonRulesFailing is Ready=True: the operator can serve the spoke, but some rules are not in it
	// or are not evaluated. The message counts them, gives the reasons, and names one of them.
	ReasonRulesFailing = "RulesFailing"
	// ReasonReady is a SpokeCluster's Ready=True.
	ReasonReady = "Ready"
)
