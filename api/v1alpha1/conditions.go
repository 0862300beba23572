package v1alpha1

// Conditions of an AlertRule and an AlertRuleTemplate.
const (
	// ConditionAccepted is True when the spec is valid. False is a person's mistake:
	// the message says what to change, and nothing is tried again until it is.
	ConditionAccepted = "Accepted"
	// ConditionReady is True when the AlertRule is in every spoke that it is placed
	// on; on a SpokeCluster, when the spoke can be served.
	ConditionReady = "Ready"
	// ConditionStalled is True when a person has to act before the AlertRule can
	// get further (kstatus: Failed).
	ConditionStalled = "Stalled"
	// ConditionMetricsPresent is False when a Prometheus of a spoke has no series for a
	// selector of the AlertRule's expression: the alert can't fire there. It is absent where
	// no Prometheus can be asked. On a SpokeCluster, it is False when Prometheus has none of
	// the metrics of kube-state-metrics that rules there need.
	ConditionMetricsPresent = "MetricsPresent"
)

// Conditions of a SpokeCluster, beside ConditionReady.
const (
	// ConditionConnected is True when the spoke's API server answers, and what has
	// to be read there can be.
	ConditionConnected = "Connected"
	// ConditionPrometheusRuleServed is True when the spoke serves PrometheusRules
	// and they can be read. It is Unknown, by the reason of Connected, while the spoke is
	// not connected.
	ConditionPrometheusRuleServed = "PrometheusRuleServed"
	// ConditionEvaluatorsFound is True when a Prometheus or ThanosRuler of the spoke is chosen
	// to evaluate the rules. What it needs is in status.evaluators.
	ConditionEvaluatorsFound = "EvaluatorsFound"
	// ConditionEvaluating is True when every Prometheus or ThanosRuler that is to evaluate
	// the rules answers, and False when one does not. It is Unknown where none may be asked.
	ConditionEvaluating = "Evaluating"
)

// Reasons of the conditions Accepted, Ready and Stalled of an AlertRule.
const (
	// ReasonAccepted is Accepted=True.
	ReasonAccepted = "Accepted"
	// ReasonInvalidExpr is Accepted=False: the expression is no PromQL.
	ReasonInvalidExpr = "InvalidExpr"
	// ReasonInvalidSpec is Accepted=False: another field is wrong.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonNamespaceNotAllowed is Accepted=False: an AlertRule outside of the
	// operator's namespace may write to the namespace of the same name alone.
	ReasonNamespaceNotAllowed = "NamespaceNotAllowed"
	// ReasonAllApplied is Ready=True: every spoke has the rule, and it is as far there as can
	// be proven.
	ReasonAllApplied = "AllApplied"
	// ReasonProgressing is Ready=False: some spokes do not have the rule yet.
	ReasonProgressing = "Progressing"
	// ReasonNoClusters is Ready=False: the placement picks no registered spoke.
	ReasonNoClusters = "NoClusters"
	// ReasonDisabled is Ready=True: the rule is disabled, and in no spoke.
	ReasonDisabled = "Disabled"
	// ReasonNotStalled is Stalled=False.
	ReasonNotStalled = "NotStalled"
)

// Reasons of a row of AlertRule.status.clusters: why a rule is not further in that
// spoke. They stand in Ready too, when every spoke that lags has the same. Beside
// these, ReasonInvalidExpr and ReasonInvalidSpec say that the rule does not fit that
// one spoke: its SpokeCluster lacks a label that the rule needs, most likely.
const (
	// ReasonWaiting is a spoke that the rule was not tried on yet.
	ReasonWaiting = "Waiting"
	// ReasonUnreachable is a spoke that can't be reached; the row keeps what was
	// last seen. On a SpokeCluster: its API server does not answer.
	ReasonUnreachable = "Unreachable"
	// ReasonNotRegistered is a name in the placement that no SpokeCluster has.
	ReasonNotRegistered = "NotRegistered"
	// ReasonCRDMissing is a spoke that does not serve PrometheusRules.
	ReasonCRDMissing = "CRDMissing"
	// ReasonNamespaceMissing is a spoke without the rule's namespace.
	ReasonNamespaceMissing = "NamespaceMissing"
	// ReasonForbidden is a spoke that refuses the operator's account the verb that
	// the message names.
	ReasonForbidden = "Forbidden"
	// ReasonConflict is a PrometheusRule of the same name that is not this hub's.
	// It is left as it is.
	ReasonConflict = "Conflict"
	// ReasonRejected is a rule that the spoke's API server refused, by validation or
	// by an admission webhook.
	ReasonRejected = "Rejected"
	// ReasonMutated is a rule that the spoke changed on the way in (a mutating
	// webhook). It is not sent again until either side changes.
	ReasonMutated = "Mutated"
	// ReasonContested is a rule whose PrometheusRule another client changes back, deletes or
	// makes again after each write of the operator's; the message names the client, where it
	// is known. The operator waits longer before each write. On an AlertRule that a template
	// makes: the same of the AlertRule on the hub. On a SpokeCluster: Ready=False, and the
	// message names one of the objects.
	ReasonContested = "Contested"
	// ReasonSuspended is a spoke that holds something else than the AlertRule says, and
	// is left so because the AlertRule or the spoke is suspended. On a SpokeCluster:
	// nothing is written to the spoke, because its spec.suspend says so.
	ReasonSuspended = "Suspended"
	// ReasonUnsupported is a rule that the spoke's Prometheus, at its version and with
	// its features, can't parse: one such rule would fail the reload of all of them.
	ReasonUnsupported = "Unsupported"
	// ReasonQuotaExceeded is a spoke whose ResourceQuota has no room for the rule.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonError is any other failure; it is tried again.
	ReasonError = "Error"

	// ReasonNoEvaluator is a spoke without any Prometheus or ThanosRuler object: what
	// becomes of the PrometheusRule there can't be known (VictoriaMetrics' converter may
	// read it, say). Applied is as far as the rule can be proven to be.
	ReasonNoEvaluator = "NoEvaluator"
	// ReasonAmbiguous is a spoke with several Prometheus or ThanosRuler objects, none of which is
	// chosen: a person has to name one in spec.evaluatorRefs. Until then, what is in the spoke
	// stays as it is, and new rules get no labels for a ruleSelector.
	ReasonAmbiguous = "Ambiguous"
	// ReasonEvaluatorsUnknown is a spoke whose Prometheus and ThanosRuler objects can't be
	// read. Applied is as far as the rule can be proven to be.
	ReasonEvaluatorsUnknown = "EvaluatorsUnknown"
	// ReasonNotSelected is a rule that no chosen Prometheus or ThanosRuler selects: the
	// message names the label or the namespace that its selector wants.
	ReasonNotSelected = "NotSelected"
	// ReasonNamespaceEnforced is a rule that is evaluated for another namespace than it is
	// about, because the Prometheus has an enforcedNamespaceLabel.
	ReasonNamespaceEnforced = "NamespaceEnforced"
	// ReasonPredicted is a rule that the selectors of a Prometheus pick. It may not be asked
	// whether it has it.
	ReasonPredicted = "Predicted"
	// ReasonConfirmed is a rule that prometheus-operator says it has handed to a Prometheus
	// that may not be asked.
	ReasonConfirmed = "Confirmed"
	// ReasonLoading is a rule that the Prometheus which selects it does not have yet, or not
	// as it is now: it takes a minute or two.
	ReasonLoading = "Loading"
	// ReasonNotLoaded is a rule that it still does not have after five minutes.
	ReasonNotLoaded = "NotLoaded"
	// ReasonEvaluationFailed is a rule whose evaluation ends with an error.
	ReasonEvaluationFailed = "EvaluationFailed"
	// ReasonEvaluatorUnreachable is a Prometheus that does not answer. On a SpokeCluster:
	// the condition's message says how it fails.
	ReasonEvaluatorUnreachable = "EvaluatorUnreachable"
)

// Reasons of MetricsPresent, EvaluatorsFound and Evaluating.
const (
	// ReasonMetricsPresent is MetricsPresent=True.
	ReasonMetricsPresent = "Present"
	// ReasonMetricsMissing is MetricsPresent=False: the message names them.
	ReasonMetricsMissing = "Missing"
	// ReasonKubeStateMetricsMissing is MetricsPresent=False of a SpokeCluster.
	ReasonKubeStateMetricsMissing = "KubeStateMetricsMissing"
	// ReasonEvaluatorsFound is EvaluatorsFound=True.
	ReasonEvaluatorsFound = "Found"
	// ReasonNoSuchEvaluator is EvaluatorsFound=False: spec.evaluatorRefs names what the
	// spoke does not have.
	ReasonNoSuchEvaluator = "NoSuchEvaluator"
	// ReasonTooManyRules is Evaluating=True with a warning: a Prometheus has more than 80 %
	// of the 2,000 rules that are supported for each.
	ReasonTooManyRules = "TooManyRules"
	// ReasonEvaluating is Evaluating=True.
	ReasonEvaluating = "Evaluating"
	// ReasonNotGranted is Evaluating=Unknown: the operator's account in the spoke may not
	// ask its Prometheus (get services/proxy).
	ReasonNotGranted = "NotGranted"
)

// Reasons of the conditions of a SpokeCluster, beside ReasonUnreachable,
// ReasonForbidden, ReasonCRDMissing and ReasonSuspended.
const (
	// ReasonConnected is Connected=True.
	ReasonConnected = "Connected"
	// ReasonConnecting is Connected=Unknown: no answer of the spoke is in yet, or what it
	// holds is being read, and the message says how much was read so far.
	ReasonConnecting = "Connecting"
	// ReasonAuthFailed is Connected=False: the spoke does not accept the credential.
	ReasonAuthFailed = "AuthFailed"
	// ReasonInvalidKubeconfig is Connected=False: the kubeconfig is refused; the
	// message names the field.
	ReasonInvalidKubeconfig = "InvalidKubeconfig"
	// ReasonKubeconfigMissing is Connected=False: the Secret, its registration label
	// or its key is gone. Nothing is removed from the spoke.
	ReasonKubeconfigMissing = "KubeconfigMissing"
	// ReasonDuplicateCluster is Connected=False: the spoke is the same cluster as the
	// one that the message names, which stays in charge.
	ReasonDuplicateCluster = "DuplicateCluster"
	// ReasonServed is PrometheusRuleServed=True.
	ReasonServed = "Served"
	// ReasonDeletionsHeld is Ready=False: so many rules are to be deleted at once that
	// it may be a mistake, or the spoke was confirmed to be another cluster not long ago. They
	// wait for a while, or for AcknowledgeDeletionsAnnotation; the message says until when.
	// Rules whose AlertRules, templates or placement labels may have been lost wait for the
	// annotation alone. All else in the spoke goes on.
	ReasonDeletionsHeld = "DeletionsHeld"
	// ReasonIdentityChanged is Connected=False: the kubeconfig leads to another cluster
	// than before. Nothing is written to either until a person confirms the new one by
	// AcceptIdentityAnnotation. Where another spoke was that cluster, and is another one now,
	// both have to be confirmed.
	ReasonIdentityChanged = "IdentityChanged"
	// ReasonRestored is Connected=False: the spoke's etcd was restored from a backup. All that
	// is watched in the spoke is read again, and it is Connected as soon as that is done.
	ReasonRestored = "Restored"
	// ReasonThrottled is Connected=False: the spoke's API server answers 429 (Too Many
	// Requests). Nothing is sent until the time that it gave has passed.
	ReasonThrottled = "Throttled"
	// ReasonTooLarge is Connected=False: an answer of the spoke, or what it holds, is larger than
	// a bound, which the message names with the value. The rules in the spoke stay as they are,
	// and it is tried again with increasing delays of up to 20 seconds.
	ReasonTooLarge = "TooLarge"
	// ReasonMaxRulesReached is Ready=False: the templates want more AlertRules for the
	// spoke's Deployments than spec.maxRules allows. Those that exist stay.
	ReasonMaxRulesReached = "MaxRulesReached"
	// ReasonLeaving is Ready=False: the SpokeCluster is being deleted, and the spoke's rules
	// with it, by its deletionPolicy.
	ReasonLeaving = "Leaving"
	// ReasonRulesFailing is Ready=True: the spoke can be served, and some rules are not in
	// it all the same. The message says how many, why, and names one.
	ReasonRulesFailing = "RulesFailing"
	// ReasonReady is a SpokeCluster's Ready=True.
	ReasonReady = "Ready"
)
