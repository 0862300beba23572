package v1alpha1

// Conditions of AlertRules, RulePacks and AlertRuleTemplates.
const (
	// ConditionAccepted is True when the spec is valid. If it is False, the message says what to change,
	// and Rulefleet does not try again until the spec changes. The exception is the reason LimitExceeded: the
	// AlertRule or RulePack is accepted when its namespace has room for it.
	ConditionAccepted = "Accepted"
	// ConditionReady is True when the rule has reached the furthest state that can be verified in every
	// spoke on which it is placed. On an AlertRuleTemplate, it has the same status as Accepted. On a
	// SpokeCluster, it is True when Rulefleet can manage the rules in the spoke.
	ConditionReady = "Ready"
	// ConditionStalled is True when the AlertRule or RulePack makes no progress until you act (kstatus: Failed), and
	// absent otherwise. With some reasons, Stalled is absent although you have to act. The reason is then on
	// Ready. On an AlertRuleTemplate, it is True when the spec is not valid.
	ConditionStalled = "Stalled"
	// ConditionMetricsPresent is False when a Prometheus of a spoke has no series for a selector of an
	// expression, so that the rule can't have a result there. Otherwise it is absent. On a SpokeCluster, it
	// is False when Prometheus has none of the metrics of kube-state-metrics that rules in the spoke need, and
	// Unknown when queries for metrics fail.
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
	// ConditionEvaluatorsFound is True when a Prometheus or ThanosRuler of the spoke is chosen to evaluate
	// the rules, and the labels that it requires of PrometheusRules can be determined. status.evaluators
	// shows what it requires.
	ConditionEvaluatorsFound = "EvaluatorsFound"
	// ConditionEvaluating is True when every chosen Prometheus and ThanosRuler answers, and False when one
	// of them does not answer. Otherwise it is Unknown: Rulefleet cannot query one of them.
	ConditionEvaluating = "Evaluating"
	// ConditionCredentialValid is True while the credential in the kubeconfig has not expired. It is False
	// when it has expired, or when the spoke rejects it, and Unknown if the credential does not say when it
	// expires. It does not affect ConditionReady. When the spoke
	// rejects the credential, ConditionConnected and ConditionReady are False as well.
	ConditionCredentialValid = "CredentialValid"
	// ConditionWorkloadsReadable is False when the account in the spoke can't read the workloads of a kind that
	// an enabled template names. It is absent otherwise. It does not affect ConditionReady: the AlertRules of
	// other kinds are generated as usual.
	ConditionWorkloadsReadable = "WorkloadsReadable"
)

// Reasons of the conditions Accepted, Ready and Stalled of an AlertRule or a RulePack.
const (
	// ReasonAccepted is Accepted=True: the spec is valid.
	ReasonAccepted = "Accepted"
	// ReasonInvalidExpr is Accepted=False: the expression is not valid PromQL.
	ReasonInvalidExpr = "InvalidExpr"
	// ReasonInvalidSpec is Accepted=False: another field is not valid.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonNamespaceNotAllowed is Accepted=False: an AlertRule or RulePack outside of Rulefleet's own
	// namespaces can only write to the namespace of the same name in the spokes.
	ReasonNamespaceNotAllowed = "NamespaceNotAllowed"
	// ReasonLimitExceeded is Accepted=False: the namespace of the AlertRule or RulePack has the maximum number
	// of rules (chart value tenants.maxRules, flag --tenant-max-rules of the manager). The AlertRule or
	// RulePack waits until other rules of the namespace are deleted. Of the objects that wait, the oldest one that
	// fits is accepted first. Those that were accepted before stay accepted. A RulePack to which rules were added is
	// only accepted if the namespace has room for them.
	ReasonLimitExceeded = "LimitExceeded"
	// ReasonAllApplied is Ready=True: the rule has reached the furthest state that can be verified in
	// every spoke.
	ReasonAllApplied = "AllApplied"
	// ReasonProgressing is Ready=False: the rule is not ready in some spokes, because its current version
	// was not written there yet, or for different reasons in different spokes.
	ReasonProgressing = "Progressing"
	// ReasonNoClusters is Ready=False: the placement matches no registered spoke, or only spokes that do not
	// take rules of this namespace (spec.tenants).
	ReasonNoClusters = "NoClusters"
	// ReasonDisabled is Ready=True: the rule is disabled, and is removed from the spokes.
	ReasonDisabled = "Disabled"
)

// Reasons of a row of status.clusters of an AlertRule or a RulePack. A reason explains why the rule has not reached the next
// phase in that spoke. If all spokes in which the rule is not ready have the same reason, condition Ready
// has it, too. Rows can also have ReasonInvalidExpr or ReasonInvalidSpec: the rule is not valid after the
// placeholders were replaced for that spoke, most likely because its SpokeCluster lacks a label that the
// rule needs.
const (
	// ReasonWaiting means that the rule has not been processed for the spoke yet.
	ReasonWaiting = "Waiting"
	// ReasonUnreachable means that the spoke is unreachable. The row keeps the last known phase. On a
	// SpokeCluster: its API server does not answer.
	ReasonUnreachable = "Unreachable"
	// ReasonNotRegistered means that the placement contains a name that no SpokeCluster has.
	ReasonNotRegistered = "NotRegistered"
	// ReasonTenantNotAllowed means that the placement names a spoke that does not take rules of this
	// namespace of the hub: spec.tenants of its SpokeCluster does not select the namespace.
	ReasonTenantNotAllowed = "TenantNotAllowed"
	// ReasonCRDMissing means that the spoke does not serve PrometheusRules.
	ReasonCRDMissing = "CRDMissing"
	// ReasonNamespaceMissing means that the spoke does not have the namespace of the rule.
	ReasonNamespaceMissing = "NamespaceMissing"
	// ReasonForbidden means that Rulefleet's account in the spoke lacks the permission that the message
	// names.
	ReasonForbidden = "Forbidden"
	// ReasonConflict means that a PrometheusRule of the same name exists that does not belong to this
	// hub. Rulefleet leaves it unchanged.
	ReasonConflict = "Conflict"
	// ReasonRejected means that the rule was rejected: by the spoke's API server, by an admission webhook
	// there, or by prometheus-operator.
	ReasonRejected = "Rejected"
	// ReasonMutated means that the spoke stored another rule than the one that was written: a mutating
	// webhook changed it, or an old CustomResourceDefinition dropped a field. Rulefleet does not write the
	// rule again until the AlertRule, the RulePack or the PrometheusRule changes.
	ReasonMutated = "Mutated"
	// ReasonContested means that another client reverts, deletes or recreates the PrometheusRule after
	// each write of Rulefleet. The message names the client if it is known. Rulefleet waits longer before
	// each write. On a generated AlertRule: another client does the same to the AlertRule on the hub. On a
	// SpokeCluster: Ready=False, and the message names one of the objects.
	ReasonContested = "Contested"
	// ReasonSuspended means that the AlertRule, the RulePack or the spoke is suspended, so that the spoke does not hold
	// the current version of the rule. On a SpokeCluster: spec.suspend is true, and nothing is written to
	// the spoke.
	ReasonSuspended = "Suspended"
	// ReasonUnsupported means that the spoke's Prometheus, with its version and features, can't parse the
	// rule. Rulefleet does not write it, because it would make the reload of all rules fail. On an AlertRule:
	// Accepted=False, and the oldest Prometheus of the fleet (chart value prometheusVersion, flag
	// --prometheus-version of the manager) can't parse the rule.
	ReasonUnsupported = "Unsupported"
	// ReasonQuotaExceeded means that a ResourceQuota in the spoke has no room for the rule.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonError is any other failure. Rulefleet tries again.
	ReasonError = "Error"

	// ReasonNoEvaluator means that the spoke has no Prometheus or ThanosRuler object. Rulefleet can't verify
	// whether the rule is evaluated. Another program, such as the VictoriaMetrics operator, can read the
	// PrometheusRule. Applied is the furthest phase that can be verified, so the rule counts as ready.
	ReasonNoEvaluator = "NoEvaluator"
	// ReasonAmbiguous means that the spoke has several Prometheus or ThanosRuler objects and none of them is
	// chosen. Name one in spec.evaluatorRefs. Until then, existing rules in the spoke keep their labels and
	// their namespace, and new rules are written without the labels that a ruleSelector may require.
	ReasonAmbiguous = "Ambiguous"
	// ReasonEvaluatorsUnknown means that the Prometheus and ThanosRuler objects of the spoke can't be read.
	// Applied is the furthest phase that can be verified, so the rule counts as ready.
	ReasonEvaluatorsUnknown = "EvaluatorsUnknown"
	// ReasonNotSelected means that no chosen Prometheus or ThanosRuler selects the rule. If
	// spec.evaluatorRefs names several, it means that at least one of them does not. The message names the
	// label or the namespace that its selector requires.
	ReasonNotSelected = "NotSelected"
	// ReasonNamespaceEnforced means that the Prometheus has an enforcedNamespaceLabel, and evaluates
	// the rule for a different namespace than the one that the rule is about.
	ReasonNamespaceEnforced = "NamespaceEnforced"
	// ReasonPredicted means that the selectors of a Prometheus select the rule. Rulefleet cannot
	// query that Prometheus, so the rule counts as ready.
	ReasonPredicted = "Predicted"
	// ReasonConfirmed means that the rule was passed to a Prometheus, as prometheus-operator reports in the
	// status of the PrometheusRule. Rulefleet cannot query that Prometheus, so the rule counts
	// as ready.
	ReasonConfirmed = "Confirmed"
	// ReasonLoading means that the Prometheus that selects the rule has not loaded its current version
	// yet. This takes a minute or two.
	ReasonLoading = "Loading"
	// ReasonNotLoaded means that the Prometheus that selects the rule has not loaded its current version
	// after five minutes.
	ReasonNotLoaded = "NotLoaded"
	// ReasonEvaluationFailed means that the evaluation of the rule ends with an error.
	ReasonEvaluationFailed = "EvaluationFailed"
	// ReasonEvaluatorUnreachable means that a Prometheus does not answer. On a SpokeCluster: the
	// message of the condition describes the failure.
	ReasonEvaluatorUnreachable = "EvaluatorUnreachable"
)

// Reasons of MetricsPresent, EvaluatorsFound and Evaluating.
const (
	// ReasonMetricsPresent is MetricsPresent=True: no metric that rules need is missing.
	ReasonMetricsPresent = "Present"
	// ReasonMetricsMissing is MetricsPresent=False: the message names the missing metrics.
	ReasonMetricsMissing = "Missing"
	// ReasonKubeStateMetricsMissing is MetricsPresent=False of a SpokeCluster: Prometheus has none of the
	// metrics of kube-state-metrics that rules in the spoke need.
	ReasonKubeStateMetricsMissing = "KubeStateMetricsMissing"
	// ReasonEvaluatorsFound is EvaluatorsFound=True: the message names the chosen objects.
	ReasonEvaluatorsFound = "Found"
	// ReasonNoSuchEvaluator is EvaluatorsFound=False: spec.evaluatorRefs names an object that the spoke
	// does not have.
	ReasonNoSuchEvaluator = "NoSuchEvaluator"
	// ReasonTooManyRules is Evaluating=True with a warning: a Prometheus has more than 1,600 rules of Rulefleet.
	// At most 2,000 are supported in one Prometheus.
	ReasonTooManyRules = "TooManyRules"
	// ReasonEvaluating is Evaluating=True: every chosen Prometheus and ThanosRuler answers.
	ReasonEvaluating = "Evaluating"
	// ReasonNotGranted is Evaluating=Unknown: Rulefleet cannot query a Prometheus. Its account in
	// the spoke lacks get on services/proxy, a proxy in front of the Prometheus denies access, there is no
	// address that Rulefleet can use, or another Prometheus has the same Service, and the chosen one has not
	// answered for 5 minutes. The message says which.
	ReasonNotGranted = "NotGranted"
)

// Reasons of the conditions of a SpokeCluster, in addition to ReasonUnreachable,
// ReasonForbidden, ReasonCRDMissing and ReasonSuspended.
const (
	// ReasonConnected is Connected=True: the spoke's API server answers.
	ReasonConnected = "Connected"
	// ReasonKubeconfigNotUsed is Connected=True with a warning: the new kubeconfig in the Secret is refused or does
	// not work, and the last good one stays in use. The message says what to correct.
	ReasonKubeconfigNotUsed = "KubeconfigNotUsed"
	// ReasonConnecting is Connected=Unknown: the spoke has not answered yet, or its objects are being
	// read. In the second case, the message says how many have been read.
	ReasonConnecting = "Connecting"
	// ReasonAuthFailed is Connected=False: the spoke does not accept the credential. CredentialValid is False, too,
	// with this reason or, if the credential has expired, with the reason Expired.
	ReasonAuthFailed = "AuthFailed"
	// ReasonCredentialValid is CredentialValid=True: the message says when the credential expires, or that
	// it does not expire.
	ReasonCredentialValid = "Valid"
	// ReasonExpiring is CredentialValid=True with a warning: less than a third of the life of the credential
	// is left, or the manager cannot renew the token. The message says how to renew it.
	ReasonExpiring = "Expiring"
	// ReasonRenewed is CredentialValid=True: the manager has renewed the token. The message says when it expires,
	// and when the manager renews it again.
	ReasonRenewed = "Renewed"
	// ReasonUnmanaged is CredentialValid=True with a warning: kubectl rulefleet join has asked the manager to
	// renew the token, but another client has written the kubeconfig since. The manager does not change it.
	ReasonUnmanaged = "Unmanaged"
	// ReasonExpired is CredentialValid=False: the credential has expired. The message says how to renew it.
	ReasonExpired = "Expired"
	// ReasonExpirationUnknown is CredentialValid=Unknown: the credential does not say when it expires. It is
	// a password, or a token that is not a JWT.
	ReasonExpirationUnknown = "ExpirationUnknown"
	// ReasonInvalidKubeconfig is Connected=False: the kubeconfig is refused. The message names the
	// field.
	ReasonInvalidKubeconfig = "InvalidKubeconfig"
	// ReasonKubeconfigMissing is Connected=False: the Secret, its registration label or its key is
	// missing. Nothing is removed from the spoke.
	ReasonKubeconfigMissing = "KubeconfigMissing"
	// ReasonDuplicateCluster is Connected=False: the spoke is the same cluster as the spoke that the
	// message names, which remains in use.
	ReasonDuplicateCluster = "DuplicateCluster"
	// ReasonServed is PrometheusRuleServed=True: PrometheusRules can be read.
	ReasonServed = "Served"
	// ReasonDeletionsHeld is Ready=False: deletions of rules wait, because they may be a mistake. Either many
	// rules are to be deleted at once, or one of these happened shortly before: you confirmed that another
	// cluster replaces the spoke (IdentityChanged), the identity of the spoke was recorded again, or the
	// manager was restarted while deletions were held. The deletions continue at the time in the message, or
	// when you set AcknowledgeDeletionsAnnotation. Deletions that may be caused by a loss of AlertRules,
	// templates or placement labels on the hub only continue with the annotation. All other work on the spoke
	// continues.
	ReasonDeletionsHeld = "DeletionsHeld"
	// ReasonIdentityChanged is Connected=False: the kubeconfig leads to a different cluster than
	// before. Nothing is written to either cluster until you confirm the new one with
	// AcceptIdentityAnnotation. If two spokes have exchanged their clusters, confirm both.
	ReasonIdentityChanged = "IdentityChanged"
	// ReasonRestored is Connected=False: the spoke's etcd was restored from a backup. Rulefleet reads all
	// watched objects of the spoke again. Connected is True as soon as that is done.
	ReasonRestored = "Restored"
	// ReasonThrottled is Connected=False: the spoke's API server answers 429 (Too Many Requests). Until the
	// time in that answer has passed, Rulefleet sends only probes (health checks).
	ReasonThrottled = "Throttled"
	// ReasonTooLarge is Connected=False: an answer of the spoke, or the number or size of its objects,
	// exceeds a limit. Or all spokes together use too much memory, and this spoke uses the most. The message
	// gives the value and the limit. The rules in the spoke stay unchanged, and Rulefleet tries again with
	// increasing delays of up to 20 seconds. On Evaluating=False, an answer of a Prometheus exceeds a limit.
	ReasonTooLarge = "TooLarge"
	// ReasonMaxRulesReached is Ready=False: the templates would generate more AlertRules for the spoke than
	// spec.maxRules allows, or more for one namespace of the spoke than the chart value
	// spokeLimits.namespaceShare allows. Existing AlertRules stay, and no more are generated.
	ReasonMaxRulesReached = "MaxRulesReached"
	// ReasonLeaving is Ready=False: the SpokeCluster is being deleted and, if its deletionPolicy is Delete,
	// the rules in the spoke, too.
	ReasonLeaving = "Leaving"
	// ReasonRulesFailing is Ready=True with a warning: the spoke is connected, but some rules are not in it,
	// are not evaluated, or could not be removed. The message counts them, gives the reasons, and names one of them.
	ReasonRulesFailing = "RulesFailing"
	// ReasonReady is Ready=True of a SpokeCluster: Rulefleet manages the rules in the spoke.
	ReasonReady = "Ready"
)
