package reasons

import "github.com/rulefleet/rulefleet/api/v1alpha1"

const (
	accepted       = v1alpha1.ConditionAccepted
	connected      = v1alpha1.ConditionConnected
	credential     = v1alpha1.ConditionCredentialValid
	evaluating     = v1alpha1.ConditionEvaluating
	found          = v1alpha1.ConditionEvaluatorsFound
	metricsPresent = v1alpha1.ConditionMetricsPresent
	ready          = v1alpha1.ConditionReady
	served         = v1alpha1.ConditionPrometheusRuleServed
	stalled        = v1alpha1.ConditionStalled
	readable       = v1alpha1.ConditionWorkloadsReadable

	nothing = "Nothing."

	rejoin = "If no other tool writes the Secret, you can have a new kubeconfig written:" +
		" `kubectl rulefleet join {spoke} --spoke-context CONTEXT --force-conflicts`, with the right address, and with the options that you used the last time."

	prometheusRuleCRD = "https://raw.githubusercontent.com/prometheus-operator/prometheus-operator/v0.93.1/example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"
)

// ofSpokes are the reasons of a SpokeCluster's conditions.
var ofSpokes = []Reason{
	{
		Name: v1alpha1.ReasonReady, On: []string{ready},
		Message: "the hub manages the rules in the spoke",
		Meaning: "Rulefleet manages the rules in the spoke.", Remedy: nothing,
	},
	{
		Name: v1alpha1.ReasonConnected, On: []string{connected},
		Message: "the spoke answers",
		Meaning: "The spoke's API server answers. If the message says that changes arrive late, objects in the spoke change faster than Rulefleet reads the changes" +
			" (at most 10,000 changes or 32 MiB in 5 s), or one object is so large that a slow network link takes too long to transfer it. Nothing is lost, but Rulefleet reacts late to changes in this spoke.",
		Remedy: "Nothing. If changes arrive late, look at the objects that the message names: find out what changes them so often, or which of them is so large.",
	},
	{
		Name: v1alpha1.ReasonKubeconfigNotUsed, On: []string{connected},
		Message: "the last good kubeconfig stays in use, but only until the manager restarts or another replica becomes the leader; correct the new one: …",
		Meaning: "Connected is True, but the new kubeconfig in the Secret is refused or does not work. The last good one stays in use.",
		Remedy:  "Follow the message, and correct the Secret soon: after a restart of the manager, the spoke cannot be managed. " + rejoin,
	},
	{
		Name: v1alpha1.ReasonServed, On: []string{served},
		Message: "PrometheusRules can be read",
		Meaning: "The spoke serves PrometheusRules, and they can be read.", Remedy: nothing,
	},
	{
		Name: v1alpha1.ReasonConnecting, On: []string{connected, served, ready},
		Message: "the spoke has not answered yet",
		Meaning: "The spoke has not answered yet, or the manager has not read all of its objects since the manager was started. In the second case, the message" +
			" shows every 10 s how many have been read.",
		Remedy: "Wait. After at most 25 s it is known whether the spoke answers. How long reading takes depends on the link: Rulefleet reads" +
			" about 0.1 KB for each workload, or 1 to 2 KB if a proxy or `disable-compression` in the kubeconfig prevents compression. A link on which" +
			" less than 1 KB/s arrives for 30 s counts as broken. If the message says that the list started again, Rulefleet's watch was" +
			" interrupted before the list was complete: look for a load balancer that closes long requests.",
	},
	{
		Name: v1alpha1.ReasonRulesFailing, On: []string{ready},
		Message: "the spoke is connected, but 2 rules are not in effect there: 1 Conflict, 1 Mutated. For example …",
		Meaning: "Ready is True, but some rules are not in effect in the spoke: their current version is not in it, or a Prometheus that" +
			" should evaluate it does not. Or rules could not be removed from the spoke. The message counts them by reason and names one of them.",
		Remedy: "Find the rules by the columns READY and REASON of `kubectl get alertrules,rulepacks -A`, and look up their reasons" +
			" [below](#alertrule).",
	},
	{
		Name: v1alpha1.ReasonUnreachable, On: []string{connected, served, ready, readable},
		Meaning: "The API server has not answered three probes in a row, or the answer is not from a Kubernetes API server. The rules stay in" +
			" the spoke and keep alerting. Until the API server answers, Rulefleet sends only one probe (health check) at a time." +
			" On WorkloadsReadable, only the kinds of workloads in the message could not be listed; Rulefleet tries again after 5 minutes.",
		Remedy: "Follow the message: check the network, the address in the kubeconfig and the API server of the spoke. When the API server answers" +
			" again at this address, nothing has to be done on the hub. If it has another address now, correct the kubeconfig. " + rejoin,
	},
	{
		Name: v1alpha1.ReasonThrottled, On: []string{connected, served, ready, readable},
		Message: "the spoke answers 429 (Too Many Requests); until its Retry-After has passed (at most 5 minutes), only health checks are sent. …",
		Meaning: "The API server answers 429 (Too Many Requests). Until the time in the answer has passed (Retry-After, at most 5 minutes)," +
			" Rulefleet sends only one probe (health check) every 30 s.",
		Remedy: "If this continues, give Rulefleet's account its own FlowSchema in the spoke, or find out what overloads the API server.",
	},
	{
		Name: v1alpha1.ReasonTooLarge, On: []string{connected, served, evaluating, metricsPresent, ready},
		Message: "the cache of the spoke is too large: 60,000,000 bytes; the limit is 50,331,648 …",
		Meaning: "An answer of the spoke's API server, or the number or size of the spoke's objects, exceeds a limit." +
			" Or an event of a watch arrived at less than 1 KB/s for 20 s, and is not complete. Or all spokes together use too much of" +
			" the manager's memory, and this one uses the most. The message gives the value, the limit and, if" +
			" there is one, the chart value that raises the limit. The rules in the spoke stay unchanged, and nothing is written to it. Rulefleet tries" +
			" again after at most 20 s. On Evaluating, an answer of the Prometheus exceeds a limit. Then rules are still written, but" +
			" it is unknown whether they are evaluated. If MetricsPresent has this reason, it is Unknown, because an answer about metrics exceeds a limit.",
		Remedy: "If the spoke really is that large, raise the chart value in the message and `resources.limits.memory` ([limits](limits.md))." +
			" Otherwise find out what fills the cluster, or which server answers at the address in the kubeconfig." +
			" On Evaluating and MetricsPresent, follow the message.",
	},
	{
		Name: v1alpha1.ReasonAuthFailed, On: []string{connected, served, credential, ready},
		Message: "the spoke rejects the credential (401); put a kubeconfig with a valid credential into the Secret",
		Meaning: "The spoke rejects the credential (401). It has expired or was revoked. If it has expired, the message says when, and" +
			" CredentialValid has the reason Expired.",
		Remedy: "[Register the spoke again](../how-to/register.md#renew-tokens) with the same options (`kubectl rulefleet join {spoke} --spoke-context CONTEXT`)," +
			" or put a kubeconfig with a valid credential into the Secret.",
	},
	{
		Name: v1alpha1.ReasonCredentialValid, On: []string{credential},
		Message: "the token expires at 2026-12-31T12:00:00Z",
		Meaning: "The credential in the kubeconfig has not expired, or does not expire. The message says which.", Remedy: nothing,
	},
	{
		Name: v1alpha1.ReasonExpiring, On: []string{credential},
		Message: "the token expires at 2026-12-31T12:00:00Z; before that, run 'kubectl rulefleet join eu-1 --spoke-context CONTEXT' again with" +
			" the same options, or put a kubeconfig with a new credential into the Secret of the spoke",
		Meaning: "CredentialValid is True, but less than a third of the life of the credential is left (`status.credential.renewalTime`)," +
			" or the manager could not renew the token. In the second case, the message says why, and the manager tries again. The spoke is" +
			" managed until the credential expires.",
		Remedy: "Follow the message, if it says why the manager could not renew the token. Otherwise" +
			" [renew the credential](../how-to/register.md#renew-tokens) before the time in the message.",
	},
	{
		Name: v1alpha1.ReasonRenewed, On: []string{credential},
		Message: "the manager has renewed the token, which expires at 2026-12-31T12:00:00Z; it renews it again before 2026-08-31T20:00:00Z",
		Meaning: "The manager has [renewed the token](../how-to/register.md#renew-tokens) of a spoke that was registered with `kubectl rulefleet join`.",
		Remedy:  nothing,
	},
	{
		Name: v1alpha1.ReasonUnmanaged, On: []string{credential},
		Message: "the token expires at 2026-12-31T12:00:00Z, and the manager does not renew it, because field manager \"external-secrets\" has written" +
			" the kubeconfig in the Secret of the spoke; renew it with that client or, if Rulefleet is to renew it, …",
		Meaning: "`kubectl rulefleet join` has asked the manager to renew the token, but another client, such as a GitOps tool or a person, has" +
			" written the kubeconfig since. The manager leaves the Secret as it is.",
		Remedy: "Renew the token where the Secret comes from. To have the manager renew it, stop the other client from writing this Secret, and" +
			" run `kubectl rulefleet join {spoke} --spoke-context CONTEXT` again with the same options and `--force-conflicts`.",
	},
	{
		Name: v1alpha1.ReasonExpired, On: []string{credential},
		Message: "the token expired at 2026-12-31T12:00:00Z; run 'kubectl rulefleet join eu-1 --spoke-context CONTEXT' again with the same" +
			" options, or put a kubeconfig with a new credential into the Secret of the spoke",
		Meaning: "The credential has expired, by the hub's clock. As soon as the spoke rejects it, Connected and Ready have the reason" +
			" AuthFailed. The rules stay in the spoke and keep alerting.",
		Remedy: "[Renew the credential](../how-to/register.md#renew-tokens). If Connected is True and stays so, compare the clocks of the hub" +
			" and the spoke.",
	},
	{
		Name: v1alpha1.ReasonExpirationUnknown, On: []string{credential},
		Message: "the token does not say when it expires",
		Meaning: "The credential is a password, or a token that is not a JWT, so Rulefleet cannot warn before it expires.",
		Remedy:  "Nothing, if it is renewed in another way. Otherwise use a token of a ServiceAccount or a client certificate.",
	},
	{
		Name: v1alpha1.ReasonForbidden, On: []string{connected, served, ready, readable},
		Message: "Rulefleet's account in the spoke lacks permissions: …; run kubectl rulefleet join again with the same options, or apply …",
		Meaning: "The account lacks the permissions that the message names, as verbs and resources. If reading Deployments or namespaces is" +
			" forbidden, the reason is on Connected. If reading PrometheusRules is forbidden, it is on PrometheusRuleServed. If only writing" +
			" PrometheusRules is forbidden, it is on Ready. If reading StatefulSets, DaemonSets or CronJobs is forbidden, although a template names" +
			" the kind, it is on WorkloadsReadable, and the spoke is served without AlertRules for them.",
		Remedy: "Run `kubectl rulefleet join {spoke} --spoke-context CONTEXT` again with the same options, or apply [spoke-access.yaml](../../charts/rulefleet/files/spoke-access.yaml)" +
			" of the installed version in the spoke: `kubectl --context CONTEXT apply -f spoke-access.yaml`. To" +
			" leave out the optional permissions, add `-l 'app.kubernetes.io/component notin (evaluate, renew)'`. If the account has other" +
			" ClusterRoles, add the permissions there, and check that they are bound. Rulefleet notices it within 30 s.",
	},
	{
		Name: v1alpha1.ReasonInvalidKubeconfig, On: []string{connected, served, ready},
		Meaning: "The kubeconfig is refused. The message names the field and says what to write instead.",
		Remedy: "Change that field. " + rejoin + " If a spoke needs a feature that is refused by default, allow it for that spoke with the chart value" +
			" `allowKubeconfigOfSpokes`, or for all spokes with `allowKubeconfig` ([what a kubeconfig may contain](kubeconfig.md)).",
	},
	{
		Name: v1alpha1.ReasonKubeconfigMissing, On: []string{connected, served, ready},
		Message: "Secret rulefleet-system/eu-1 with label sigs.k8s.io/multicluster-runtime-kubeconfig=true not found. Rulefleet does" +
			" not manage the spoke until this is corrected. The rules in the spoke stay. …",
		Meaning: "The Secret, its registration label or its key `kubeconfig` is missing. The rules stay in the spoke. If another spoke is the" +
			" same cluster, the message names it.",
		Remedy: "If you renamed the spoke, see [Rename a spoke](../how-to/manage-spokes.md#rename-a-spoke). Otherwise, create or restore the Secret, its label or its key, or [let the spoke leave](../how-to/leave.md). If you delete the" +
			" SpokeCluster while it has no kubeconfig, its generated AlertRules on the hub are deleted, with their edits. Its rules stay in the" +
			" spoke, and nothing manages them any more. There is one exception: if another SpokeCluster is the same cluster, Rulefleet removes" +
			" the rules that are placed only on the deleted SpokeCluster.",
	},
	{
		Name: v1alpha1.ReasonDuplicateCluster, On: []string{connected, served, ready},
		Message: "this is the same cluster as spoke eu-2, which stays in use. …",
		Meaning: "The spoke is the same cluster as the spoke that the message names: the UIDs of their namespaces `kube-system` are equal." +
			" The other spoke remains in use.",
		Remedy: "Decide which of the two names to give up, and delete the Secret with that name. The spoke that you keep takes over, or" +
			" remains in use, without a gap. When it is Ready, change placements of AlertRules and RulePacks, and" +
			" `spec.placement` of templates: replace the name that you give up with the name that you keep. Rules that are placed only on the former name are removed from the cluster. Then delete the SpokeCluster with that name.",
	},
	{
		Name: v1alpha1.ReasonIdentityChanged, On: []string{connected, served, ready},
		Message: "the kubeconfig leads to another cluster (kube-system UID was …, is …); nothing is written to either; if this is a mistake, restore the former kubeconfig. …",
		Meaning: "The kubeconfig leads to a different cluster than before: the kubeconfigs were mixed up, or the cluster was rebuilt. Nothing is" +
			" written to either cluster.",
		Remedy: "If this is a mistake, restore the former kubeconfig. " + rejoin + " If the cluster was replaced, confirm the new one with the command in the" +
			" message; the rules in the former cluster stay there, and are no longer managed" +
			" ([more](../how-to/manage-spokes.md#replace-a-cluster-under-the-same-name)). If you exchanged the Secrets of" +
			" two spokes on purpose, confirm both. For 10 minutes after a confirmation (chart value `deletionHold`), every deletion in the spoke is held" +
			" with reason DeletionsHeld, also if the manager is restarted (`status.identityTime`).",
	},
	{
		Name: v1alpha1.ReasonRestored, On: []string{connected, served, ready},
		Meaning: "The spoke's etcd was restored from a backup. Rulefleet reads everything that it watches there again, and updates" +
			" AlertRules, PrometheusRules and status.",
		Remedy: "Nothing. Connected is True again as soon as that is done. When you restore the etcd of a cluster, restart its API servers, as" +
			" etcd's documentation says: an API server that keeps running shows the objects from before the restore.",
	},
	{
		Name: v1alpha1.ReasonCRDMissing, On: []string{served, ready},
		Message: "the spoke does not serve prometheusrules.monitoring.coreos.com; install the CRDs of prometheus-operator there",
		Meaning: "The spoke does not serve PrometheusRules.",
		Remedy: "Install the CustomResourceDefinitions of prometheus-operator in the spoke, in the version of the prometheus-operator that runs" +
			" there. For example, if prometheus-operator 0.93.1 runs there, and only the CustomResourceDefinition of PrometheusRules is missing, run: `kubectl --context CONTEXT apply --server-side -f " + prometheusRuleCRD + "`",
	},
	{
		Name: v1alpha1.ReasonDeletionsHeld, On: []string{ready},
		Message: "60 AlertRules will be deleted at 2026-01-01T12:00:00Z, because workloads or templates are gone or no longer match" +
			" (20 others were deleted before, within the limit). To keep the rules, …. To delete them now: kubectl annotate spoke eu-1" +
			" rulefleet.io/acknowledge-deletions=true",
		Meaning: "So many rules are to be deleted at once that it may be a mistake. Or rules are to be deleted shortly after somebody confirmed" +
			" that another cluster replaces the spoke (IdentityChanged), after the identity of the spoke was lost with the" +
			" CustomResourceDefinition of SpokeClusters and read again, or after a restart of the manager while deletions were held. The deletions wait until the time in the message, and then continue." +
			" If the AlertRules, templates or placement labels of the rules may have been lost on the hub, the deletions wait until you" +
			" acknowledge them, without a time limit. An acknowledgement releases all deletions that have a time limit. Of the deletions" +
			" without a time limit, it releases only those that `status.pendingDeletions.names` lists" +
			" ([more](../how-to/backup.md#deletions-that-wait-for-you)).",
		Remedy: "To keep the rules, restore the objects from which they were created ([restore a kind](../how-to/backup.md#restore-a-kind))." +
			" If the deletions have a time limit and you need more time, suspend the spoke first:" +
			" `kubectl patch spoke {spoke} --type=merge -p '{\"spec\":{\"suspend\":true}}'`. While it is suspended, AlertRules on the hub can still be deleted." +
			" If the rules are to be deleted: `kubectl annotate spoke {spoke} rulefleet.io/acknowledge-deletions=true`.",
	},
	{
		Name: v1alpha1.ReasonContested, On: []string{ready},
		Message: "2 objects are contested. For example: …",
		Meaning: "Another client reverts or deletes what Rulefleet writes in the spoke, or recreates what Rulefleet deletes there. The client can" +
			" also do this on the hub: to generated AlertRules of the spoke, or to the labels, finalizer or annotations of the SpokeCluster. The message" +
			" names one of the objects and, if it is known, the client.",
		Remedy: "See [Contested objects](../how-to/contested-objects.md).",
	},
	{
		Name: v1alpha1.ReasonMaxRulesReached, On: []string{ready},
		Message: "5 workloads lack AlertRules: spec.maxRules (10000) is reached. Existing AlertRules stay. …",
		Meaning: "The templates would generate more AlertRules for the spoke than `spec.maxRules` (10000 by default) allows, or more for one" +
			" namespace of the spoke than the chart value `spokeLimits.namespaceShare` allows. Existing AlertRules stay, and no more are generated.",
		Remedy: "Find out what creates so many workloads, and narrow the templates. Alternatively, raise a limit:" +
			" `spokeLimits.namespaceShare` if one namespace has used up its share, or else `spec.maxRules`. At most 2,000 rules of Rulefleet are supported in one Prometheus.",
	},
	{
		Name: v1alpha1.ReasonSuspended, On: []string{ready},
		Message: "the SpokeCluster is suspended: nothing is written to the spoke. Before you resume, check the deletions in status.pendingDeletions. To resume: kubectl patch spoke eu-1 --type=merge" +
			" -p '{\"spec\":{\"suspend\":false}}'",
		Meaning: "`spec.suspend` is true: nothing is written to the spoke.",
		Remedy:  "If this is intended, do nothing. Before you resume, check the deletions in `status.pendingDeletions`. To resume: `kubectl patch spoke {spoke} --type=merge -p '{\"spec\":{\"suspend\":false}}'`.",
	},
	{
		Name: v1alpha1.ReasonLeaving, On: []string{ready},
		Message: "the SpokeCluster is being deleted: removing 12 rules from the spoke until 2026-01-01T12:00:00Z at the latest",
		Meaning: "The SpokeCluster is being deleted and, if its deletionPolicy is Delete, the rules are being removed from the spoke.",
		Remedy:  "Wait. It takes at most 2 minutes (chart value `leaveTimeout`). If the message names a Secret, do what it says.",
	},
	{
		Name: v1alpha1.ReasonEvaluatorsFound, On: []string{found},
		Message: "Prometheus monitoring/k8s",
		Meaning: "The Prometheus and ThanosRuler objects in the message are chosen to evaluate the rules.", Remedy: nothing,
	},
	{
		Name: v1alpha1.ReasonEvaluating, On: []string{evaluating},
		Message: "Prometheus monitoring/k8s answers queries",
		Meaning: "Every chosen Prometheus and ThanosRuler answers.", Remedy: nothing,
	},
	{
		Name: v1alpha1.ReasonMetricsPresent, On: []string{metricsPresent},
		Message: "Prometheus has the metrics of kube-state-metrics that rules need",
		Meaning: "Prometheus has the metrics of kube-state-metrics that rules need.", Remedy: nothing,
	},
	{
		Name: v1alpha1.ReasonNoEvaluator, On: []string{found},
		Message: "the spoke has no Prometheus or ThanosRuler object, so it is unknown whether the rules are evaluated",
		Meaning: "The spoke has no Prometheus or ThanosRuler object. The furthest phase of rules there is Applied, because Rulefleet can't" +
			" verify more. Another program, such as the VictoriaMetrics operator, can read the PrometheusRules.",
		Remedy: "If another program reads them, do nothing. Otherwise install a Prometheus with prometheus-operator.",
	},
	{
		Name: v1alpha1.ReasonEvaluatorsUnknown, On: []string{found},
		Meaning: "The Prometheus and ThanosRuler objects can't be read. Their last known state stays in use. The reason is also used for five" +
			" minutes if the chosen object is missing; the rules stay unchanged.",
		Remedy: "If the message says that an object is not found, create it again, or wait: after five minutes, Rulefleet chooses again." +
			" If it says forbidden, grant get and list on `prometheuses` and `thanosrulers`" +
			" ([spoke-access.yaml](../../charts/rulefleet/files/spoke-access.yaml)). Otherwise follow the message; Rulefleet tries again.",
	},
	{
		Name: v1alpha1.ReasonAmbiguous, On: []string{found, ready},
		Message: "the spoke has several Prometheus or ThanosRuler objects (Prometheus monitoring/a, Prometheus monitoring/b), and none is" +
			" chosen; existing rules keep their labels and their namespace. Name the one that evaluates them, for example the first one: kubectl patch spokecluster eu-1 …",
		Meaning: "The spoke has several Prometheus or ThanosRuler objects, and none of them is chosen. Existing rules keep their labels and" +
			" their namespace, and new rules are written without the labels that a `ruleSelector` may require, so Prometheus may not load them.",
		Remedy: "Name the one that evaluates the rules (the command in the message names the first one as an example), or limit the namespaces that count (chart value `evaluatorNamespaces`)." +
			" See [Choose the Prometheus](../how-to/choose-prometheus.md).",
	},
	{
		Name: v1alpha1.ReasonNoSuchEvaluator, On: []string{found},
		Message: "Prometheus monitoring/k8s not found in the spoke; correct spec.evaluatorRefs",
		Meaning: "`spec.evaluatorRefs` names a Prometheus or ThanosRuler that the spoke does not have. Existing rules keep their labels.",
		Remedy:  "Correct `spec.evaluatorRefs`. `status.evaluators` lists the objects that exist.",
	},
	{
		Name: v1alpha1.ReasonNotSelected, On: []string{found},
		Message: "the ruleSelectors of the chosen Prometheus allow several values of label team (a, b); set the label in spec.ruleLabels, or" +
			" name the Prometheus to use in spec.evaluatorRefs: kubectl edit spoke eu-1",
		Meaning: "For at least one label that the selectors of the chosen Prometheus require, several values match, or no value matches. The message" +
			" names the label. Or a Prometheus has no `spec.ruleSelector`, so it selects no rule at all.",
		Remedy: "Set `spec.ruleLabels`, or name the Prometheus to use in `spec.evaluatorRefs`." +
			" See [Labels of the PrometheusRule](../how-to/choose-prometheus.md#labels-of-the-prometheusrule).",
	},
	{
		Name: v1alpha1.ReasonEvaluatorUnreachable, On: []string{evaluating, metricsPresent, ready},
		Message: "Prometheus monitoring/k8s: it did not answer in time: …. Check the pods of the Prometheus and their logs in" +
			" namespace monitoring of the spoke",
		Meaning: "A Prometheus has not answered three polls in a row (two, if they timed out), or its answer is not that of a Prometheus." +
			" The last known state of its alerts stays. The message describes the failure. If Evaluating is Unknown, Rulefleet has waited" +
			" more than 20 s for the first complete answer. If MetricsPresent is Unknown, a Prometheus answers queries about rules, but two consecutive" +
			" queries for metrics failed (one, if it timed out).",
		Remedy: "Follow the message. If it does not name a cause, check the pods of the Prometheus in the spoke, and its Service" +
			" (`prometheus-operated`). If the Prometheus requires a login, which Rulefleet does not support, rules are verified only up to Selected. To" +
			" verify more, provide an address without a login that only the hub can reach, and set it in `spec.evaluatorRefs[].url`, including any path prefix.",
	},
	{
		Name: v1alpha1.ReasonNotGranted, On: []string{evaluating},
		Message: "Prometheus monitoring/k8s: permission denied: Rulefleet's account in the spoke needs \"get\" on services/proxy for the" +
			" queried Service (HTTP 403): …",
		Meaning: "Evaluating is Unknown: Rulefleet cannot query a Prometheus. Its account in the spoke lacks get on" +
			" `services/proxy`, a proxy in front of the Prometheus denies access, or there is no address that Rulefleet can use. Or another" +
			" Prometheus has the same Service, and for five minutes, no answer came from the chosen one. The message" +
			" says which of these is the case. The furthest phase of rules is Selected.",
		Remedy: "If this is intended, do nothing. Otherwise run `kubectl rulefleet join {spoke} --spoke-context CONTEXT` again with the same options, and without `--no-evaluate`," +
			" or grant [the permission to query Prometheus](../how-to/register.md#the-permission-to-query-prometheus) yourself. If the Service" +
			" has another name (`spec.serviceName`), allow that name with a ClusterRole of your own. If two Prometheus objects in a namespace share" +
			" `prometheus-operated`, give each its own Service, or set its address in `spec.evaluatorRefs[].url`. If a proxy denies access, set" +
			" `url` to an address without the proxy.",
	},
	{
		Name: v1alpha1.ReasonTooManyRules, On: []string{evaluating},
		Message: "Prometheus monitoring/k8s has more than 1600 rules of Rulefleet; at most 2000 are supported. Narrow the templates or" +
			" placements",
		Meaning: "Evaluating is True, but a Prometheus has more than 1,600 rules of Rulefleet. At most 2,000 are supported in one Prometheus.",
		Remedy:  "Narrow templates or placements. A second Prometheus does not help, because Rulefleet does not divide the rules.",
	},
	{
		Name: v1alpha1.ReasonKubeStateMetricsMissing, On: []string{metricsPresent, ready},
		Message: "Prometheus has none of the metrics of kube-state-metrics that rules need, such as kube_deployment_spec_replicas, so these rules can't" +
			" fire. …",
		Meaning: "Prometheus has none of the metrics of kube-state-metrics that rules in the spoke need. These rules can't fire. The reason is" +
			" shown here, and not on every AlertRule.",
		Remedy: "Install kube-state-metrics in the spoke, or check in Prometheus' targets why it is not scraped. If it is scraped and its series" +
			" have other labels, correct the chart value `kubeStateMetricsSelector`.",
	},
}
