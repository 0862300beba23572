package reasons

import "github.com/rulefleet/rulefleet/api/v1alpha1"

const row = "row"

// ofRules are the reasons of an AlertRule's conditions, and of the rows in its status.
var ofRules = []Reason{
	{
		Name: v1alpha1.ReasonAccepted, On: []string{accepted},
		Message: "the spec is valid",
		Meaning: "The spec is valid. The message may contain warnings.", Remedy: "Nothing. Check the warnings, if there are any.",
	},
	{
		Name: v1alpha1.ReasonAllApplied, On: []string{ready},
		Message: "ready in 3/3 spokes",
		Meaning: "The rule has reached the furthest state that can be verified in every spoke.", Remedy: nothing,
	},
	{
		Name: v1alpha1.ReasonProgressing, On: []string{ready},
		Message: "ready in 1/3 spokes; eu-1: Rejected: …; eu-2: Waiting: the rule has not been processed for this spoke yet",
		Meaning: "The rule is not ready in some spokes, because its current version was not written there yet, or for different reasons in" +
			" different spokes. The message lists the first three spokes.",
		Remedy: "Wait. If it lasts, look up the reasons in the message.",
	},
	{
		Name: v1alpha1.ReasonWaiting, On: []string{row, ready},
		Message: "the rule has not been processed for this spoke yet",
		Meaning: "The rule has not been processed for the spoke yet.", Remedy: "Wait.",
	},
	{
		Name: v1alpha1.ReasonDisabled, On: []string{ready},
		Message: "the rule is disabled and is removed from the spokes; a spoke that is unreachable or suspended, or whose deletions are held, keeps it until" +
			" that ends",
		Meaning: "`spec.state` is Disabled, or overrides disable the rule in all spokes, and it is removed from the spokes.", Remedy: nothing,
	},
	{
		Name: v1alpha1.ReasonInvalidExpr, On: []string{accepted, ready, stalled, row},
		Message: "spec.expr: 1:6: unexpected end of input",
		Meaning: "The expression is not valid PromQL. The message gives the line and the column. In a row, the expression is not valid after the" +
			" placeholders were replaced for that spoke. The spokes keep the last valid version.",
		Remedy: "Correct the expression or, for a row, the labels of the SpokeCluster.",
	},
	{
		Name: v1alpha1.ReasonInvalidSpec, On: []string{accepted, ready, stalled, row},
		Message: "spec.for: not a Prometheus duration; use a form such as 30s, 5m or 1h30m",
		Meaning: "Another field is not valid. In a row, the rule is not valid after the placeholders were replaced for that spoke, most likely" +
			" because its SpokeCluster lacks a label. The spokes keep the last valid version.",
		Remedy: "Correct the field that the message names or, for a row, the labels of the SpokeCluster.",
	},
	{
		Name: v1alpha1.ReasonNamespaceNotAllowed, On: []string{accepted, ready, stalled},
		Message: "spec.ruleNamespace: an AlertRule in namespace shop can only write to namespace shop of the spokes, not to kube-system; …",
		Meaning: "An AlertRule or a RulePack outside of Rulefleet's own namespaces can only write to the namespace of the same name in the spokes. The namespace" +
			" of generated AlertRules accepts only AlertRules for one workload, in the form in which templates generate them.",
		Remedy: "Follow the message: remove `spec.ruleNamespace`, or create the object in another namespace of the hub. Those in" +
			" Rulefleet's own namespace can write to any namespace of the spokes; only administrators should create AlertRules or RulePacks there.",
	},
	{
		Name: v1alpha1.ReasonLimitExceeded, On: []string{accepted, ready, stalled},
		Message: "metadata.namespace: namespace shop can have at most 1000 rules (chart value tenants.maxRules); this AlertRule waits until others" +
			" are deleted; the oldest one that fits is accepted first",
		Meaning: "The namespace has more rules than the chart value `tenants.maxRules` allows: each AlertRule is one, and a RulePack has" +
			" as many as there are in its groups. Objects that were accepted before stay accepted, except a RulePack to which rules were added. This AlertRule or RulePack is not written to" +
			" spokes. Spokes that have an earlier version of it keep that version.",
		Remedy: "Delete AlertRules or RulePacks of the namespace that you don't need, remove rules from a RulePack, or raise `tenants.maxRules`.",
	},
	{
		Name: v1alpha1.ReasonNoClusters, On: []string{ready},
		Message: "spec.placement matches no registered spoke; list the spokes and their labels with: kubectl get spokes --show-labels",
		Meaning: "The placement matches no registered spoke. Or it matches only spokes that do not take rules of this namespace" +
			" (`spec.tenants` of the SpokeCluster). The message then says how many.",
		Remedy: "Compare the placement with the labels of the spokes: `kubectl get spokes --show-labels`. If the spokes do not take the" +
			" rules of the namespace, ask the administrator of the hub.",
	},
	{
		Name: v1alpha1.ReasonTenantNotAllowed, On: []string{row, ready, stalled},
		Message: "SpokeCluster eu-1 does not take AlertRules of namespace shop (spec.tenants); remove eu-1 from spec.placement.names, or ask" +
			" an administrator of the hub to include namespace shop in spec.tenants",
		Meaning: "The placement names a spoke that does not take rules of this namespace of the hub. If the spoke had the rule before, it is" +
			" removed. If the placement selects such a spoke only by its labels, there is no row for it.",
		Remedy: "Change the placement, or ask the administrator of the hub to include the namespace in `spec.tenants` of the" +
			" SpokeCluster. If `spec.tenants` is absent, the spoke takes all namespaces except platform namespaces: to add a platform namespace, set" +
			" `names` together with `selector: {}`, because a list alone excludes all other namespaces, and their rules are removed from the spoke.",
	},
	{
		Name: v1alpha1.ReasonNotRegistered, On: []string{row, ready},
		Message: "no SpokeCluster has this name; register the spoke, or remove the name from spec.placement.names",
		Meaning: "The placement names a spoke that is not registered.",
		Remedy:  "Register the spoke, or remove its name from the placement. If a template generated the AlertRule for a spoke that no longer exists, delete the AlertRule; it is not created again.",
	},
	{
		Name: v1alpha1.ReasonUnreachable, On: []string{row, ready},
		Message: "the spoke can't be reached; see the condition Connected of SpokeCluster eu-1",
		Meaning: "The spoke is unreachable. The row keeps the last known phase. The row of a rule that was ready shows the outage 5 minutes" +
			" after the SpokeCluster does. If the current version of the rule has not been written yet, the row shows the outage at once. If" +
			" another reason, such as NotSelected, already prevented the rule from being ready, the row keeps that reason. If Connected of the SpokeCluster is False with" +
			" another reason, such as AuthFailed, InvalidKubeconfig or KubeconfigMissing, rows show that reason in the same way.",
		Remedy: "See the [SpokeCluster](#spokecluster).",
	},
	{
		Name: v1alpha1.ReasonCRDMissing, On: []string{row, ready},
		Meaning: "The spoke does not serve PrometheusRules.", Remedy: "See the [SpokeCluster](#spokecluster).",
	},
	{
		Name: v1alpha1.ReasonNamespaceMissing, On: []string{row, ready},
		Message: "namespace \"shop\" not found in the spoke; create it there",
		Meaning: "The spoke does not have the namespace of the rule, or the namespace is being deleted.",
		Remedy: "Create the namespace in the spoke. If it is being deleted, wait until it is gone, and then create it again. Rulefleet writes the rule as soon as the namespace exists. For an" +
			" AlertRule or a RulePack in Rulefleet's own namespace, you can set `spec.ruleNamespace` to another namespace instead." +
			" If kubectl shows that the namespace exists, look for a proxy or a cache in front of the spoke's API server that gives incomplete answers.",
	},
	{
		Name: v1alpha1.ReasonForbidden, On: []string{row, ready, stalled},
		Meaning: "Rulefleet's account in the spoke is not allowed to write the rule.",
		Remedy: "Run `kubectl rulefleet join {spoke} --spoke-context CONTEXT` again with the same options," +
			" or grant the permission that the message names.",
	},
	{
		Name: v1alpha1.ReasonQuotaExceeded, On: []string{row, ready, stalled},
		Message: "a ResourceQuota in the namespace has no room for the rule; raise its count/prometheusrules.monitoring.coreos.com: …",
		Meaning: "A ResourceQuota has no room for the rule.",
		Remedy:  "Raise `count/prometheusrules.monitoring.coreos.com` in that namespace. Rulefleet tries again every 30 s.",
	},
	{
		Name: v1alpha1.ReasonConflict, On: []string{row, ready, stalled},
		Message: "PrometheusRule shop/web in the spoke has the name of this rule, but not the labels app.kubernetes.io/managed-by=rulefleet" +
			" and rulefleet.io/hub=…, so Rulefleet does not change it. …",
		Meaning: "A PrometheusRule has the name of this rule, but not the labels of this hub. The name contains a digest of the hub's id, so" +
			" most likely the object is the rule itself, and somebody removed or changed its labels. Rulefleet leaves it unchanged, and Prometheus still evaluates it.",
		Remedy: "Put the labels back, or delete the PrometheusRule in the spoke: Rulefleet then writes it again. Do not keep a copy of it, because" +
			" its alerts would fire twice.",
	},
	{
		Name: v1alpha1.ReasonRejected, On: []string{row, ready, stalled},
		Meaning: "The spoke's API server or an admission webhook rejected the rule (phase Pending), or prometheus-operator does not pass it to" +
			" Prometheus (phase Applied).",
		Remedy: "Follow the message. If an admission webhook or policy of the spoke rejected the rule, change the rule so that it is allowed, or" +
			" change the webhook or policy in the spoke. If prometheus-operator does not pass the rule, correct the expression: most likely, it uses a function that is" +
			" experimental or newer than that prometheus-operator. Its log in the spoke has the details. Rulefleet tries again.",
	},
	{
		Name: v1alpha1.ReasonMutated, On: []string{row, ready},
		Message: "the spoke changed PrometheusRule shop/web when it was written: most likely, a mutating webhook did so, or" +
			" its CustomResourceDefinition is old and lacks a field. …",
		Meaning: "The PrometheusRule that the spoke stored is not the one that was written. Either a mutating webhook changed it, or the spoke has" +
			" an old CustomResourceDefinition, which drops fields that it does not know. Rulefleet does not write it again until the AlertRule, the RulePack or the" +
			" PrometheusRule changes.",
		Remedy: "Exclude PrometheusRules (no other kinds) with the label `app.kubernetes.io/managed-by: rulefleet` from the webhook. If the webhook" +
			" enforces security, exclude the user `system:serviceaccount:rulefleet-system:rulefleet-spoke` instead, because anyone can set the label. Or update the" +
			" CustomResourceDefinitions of prometheus-operator in the spoke. Then delete the PrometheusRule, so that Rulefleet writes it again.",
	},
	{
		Name: v1alpha1.ReasonContested, On: []string{row, ready},
		Meaning: "Another client reverts or deletes the PrometheusRule after each write, or recreates it after each deletion. If the" +
			" condition Ready of a generated AlertRule has this reason and no row has it, another client changes the AlertRule on the hub. The message names the client if it is known.",
		Remedy: "See [Contested objects](../how-to/contested-objects.md).",
	},
	{
		Name: v1alpha1.ReasonSuspended, On: []string{row, ready},
		Meaning: "The AlertRule, the RulePack or the spoke is suspended, and the spoke does not hold the current version of the rule.",
		Remedy:  "If this is intended, do nothing. To resume, set `spec.suspend` of the object that the message names to false. Before you resume a spoke, check the deletions in its `status.pendingDeletions`.",
	},
	{
		Name: v1alpha1.ReasonUnsupported, On: []string{accepted, row, ready, stalled},
		Message: "spec.expr: 1:1: Prometheus 2.30 of the spoke does not support function \"acos\"; 2.31 or later is required",
		Meaning: "The Prometheus of the spoke, or the oldest one of the fleet (chart value `prometheusVersion`), can't parse the rule.",
		Remedy:  "Use functions that it supports, or update Prometheus.",
	},
	{
		Name: v1alpha1.ReasonError, On: []string{row, ready},
		Meaning: "Any other failure. Rulefleet tries again after at most 30 s.",
		Remedy: "Follow the message. If an admission webhook of the spoke can't be called, repair it, or exclude the user `system:serviceaccount:rulefleet-system:rulefleet-spoke` from it. If the" +
			" message says that a webhook hangs, the webhook takes longer than the 15 seconds for which Rulefleet waits. Repair it. If you do not know which" +
			" one it is, set `timeoutSeconds` to 10 in webhooks that match PrometheusRules and have 15 or more: the next error of the API server then names the webhook. Meanwhile, other rules in the same namespace wait," +
			" with a message that begins with `waiting`. Rules in other namespaces are not delayed. If the spoke reports that a rule exists but" +
			" does not list it, look for a proxy or a cache in front of its API server.",
	},
	{
		Name: v1alpha1.ReasonNoEvaluator, On: []string{row},
		Message: "the spoke has no Prometheus or ThanosRuler object; Rulefleet can't verify whether anything evaluates the rule",
		Meaning: "The rule is in the spoke, but Rulefleet can't verify whether it is evaluated. It counts as ready.",
		Remedy:  "See the [SpokeCluster](#spokecluster).",
	},
	{
		Name: v1alpha1.ReasonEvaluatorsUnknown, On: []string{row},
		Meaning: "The rule is in the spoke, but Rulefleet can't read the Prometheus and ThanosRuler objects there. It counts as ready.",
		Remedy:  "See the [SpokeCluster](#spokecluster).",
	},
	{
		Name: v1alpha1.ReasonAmbiguous, On: []string{row, ready, stalled},
		Message: "the spoke has several Prometheus or ThanosRuler objects, and none is chosen; see the condition EvaluatorsFound of" +
			" SpokeCluster eu-1",
		Meaning: "The rule is in the spoke, which has several Prometheus objects, and none of them is chosen.",
		Remedy:  "Name the one that evaluates the rules: [choose the Prometheus](../how-to/choose-prometheus.md). Condition EvaluatorsFound of the SpokeCluster has a command for one of them, as an example.",
	},
	{
		Name: v1alpha1.ReasonNotSelected, On: []string{row, ready, stalled},
		Message: "Prometheus monitoring/k8s has a ruleSelector that requires release=monitoring; …",
		Meaning: "No chosen Prometheus of the spoke selects the rule or, if `spec.evaluatorRefs` names several, one of them does not. The message" +
			" names each Prometheus that does not select the rule, and the label or the namespace that its selector requires.",
		Remedy: "Follow the message. If that does not help, see [My alert does not fire](../how-to/troubleshoot.md#my-alert-does-not-fire).",
	},
	{
		Name: v1alpha1.ReasonNamespaceEnforced, On: []string{row, ready, stalled},
		Message: "Prometheus monitoring/k8s has an enforcedNamespaceLabel, which restricts the rule to namespace=\"monitoring\", but the rule is" +
			" about \"shop\", so the rule does not see the series that it is about. …",
		Meaning: "A Prometheus restricts the rule to the namespace of its PrometheusRule (`enforcedNamespaceLabel`), and the rule is about" +
			" another namespace, or about none in particular. The rule would not see the series that it is about.",
		Remedy: "For an AlertRule or a RulePack in Rulefleet's own namespace, set `spec.ruleNamespace` to the namespace that the rule is about. Otherwise, list the" +
			" PrometheusRule in `spec.excludedFromEnforcement` of the Prometheus. It can then read the metrics of all namespaces, so do this only if" +
			" no tenant can write PrometheusRules in that namespace.",
	},
	{
		Name: v1alpha1.ReasonPredicted, On: []string{row},
		Message: "Prometheus monitoring/k8s selects the rule, as computed from its selectors;" +
			" see the condition Evaluating of the SpokeCluster for why Rulefleet can't query it",
		Meaning: "Rulefleet computed from the selectors that the Prometheus selects the rule. It can't query the Prometheus: the condition" +
			" `Evaluating` of the SpokeCluster says why. The rule counts as ready.",
		Remedy: "Nothing. To verify more, grant [the permission to query Prometheus](../how-to/register.md#the-permission-to-query-prometheus).",
	},
	{
		Name: v1alpha1.ReasonConfirmed, On: []string{row},
		Message: "prometheus-operator passes the rule to Prometheus monitoring/k8s;" +
			" see the condition Evaluating of the SpokeCluster for why Rulefleet can't query it",
		Meaning: "prometheus-operator reports in `status.bindings` that it passes the rule to the Prometheus. Rulefleet can't query the" +
			" Prometheus: the condition `Evaluating` of the SpokeCluster says why. The rule counts as ready.",
		Remedy: "Nothing. To verify more, grant [the permission to query Prometheus](../how-to/register.md#the-permission-to-query-prometheus).",
	},
	{
		Name: v1alpha1.ReasonLoading, On: []string{row, ready},
		Message: "Prometheus monitoring/k8s selects the rule, but has not loaded and evaluated its current version yet; this takes a minute or two",
		Meaning: "A Prometheus selects the rule, but has not loaded and evaluated its current version yet.",
		Remedy:  "Wait. It takes a minute or two.",
	},
	{
		Name: v1alpha1.ReasonNotLoaded, On: []string{row, ready, stalled},
		Message: "Prometheus monitoring/k8s selects the rule, but has not loaded its current version for more than 5 minutes; …",
		Meaning: "A Prometheus selects the rule, but has not loaded its current version for 5 minutes.",
		Remedy: "Check the log of prometheus-operator and the Events of the PrometheusRule, and then the log of the container" +
			" `config-reloader` of the Prometheus pod: one invalid rule, of any owner, makes the reload of all rules fail.",
	},
	{
		Name: v1alpha1.ReasonEvaluationFailed, On: []string{row, ready},
		Message: "Prometheus monitoring/k8s can't evaluate the rule: …",
		Meaning: "A Prometheus evaluates the rule, and the evaluation ends with the error in the message. The rule can't fire there.",
		Remedy: "Correct the expression. \"many-to-many matching\" and \"duplicate series\" are caused by labels of the spoke's series. Stalled" +
			" is absent, because the error can disappear by itself.",
	},
	{
		Name: v1alpha1.ReasonEvaluatorUnreachable, On: []string{row, ready},
		Message: "Prometheus monitoring/k8s gives no answer that Rulefleet can use; see the condition Evaluating of the SpokeCluster",
		Meaning: "The rule is selected, but its Prometheus does not answer, or its answer is not valid or too large.", Remedy: "See the [SpokeCluster](#spokecluster).",
	},
	{
		Name: v1alpha1.ReasonMetricsMissing, On: []string{metricsPresent},
		Message: "no series in eu-1: up{job=\"web\"}. Without them, the alert can't fire there; check that they are scraped and that the names" +
			" are right",
		Meaning: "A spoke's Prometheus has no series for a selector of the expression. The message lists the selectors by spoke. For a RulePack," +
			" it also lists recording rules that have had no result for 10 minutes, although the series that they read exist.",
		Remedy: "Check in the spoke's Prometheus that the metric is scraped, and that its name and labels are right. A metric that only exists" +
			" after an event can be missing without a fault: for example, a counter of errors does not exist before the first error. If the message names a recording rule, compare the labels on both sides of" +
			" each operation in its expression, and its ranges with the scrape interval.",
	},
}
