package reasons

import "github.com/rulefleet/rulefleet/api/v1alpha1"

const (
	kindRule     = "AlertRule"
	kindPack     = "RulePack"
	kindTemplate = "AlertRuleTemplate"
	kindSpoke    = "SpokeCluster"
	kindSecret   = "Secret"
)

// ofEvents are the reasons of Events that are not those of a SpokeCluster's conditions.
var ofEvents = []Reason{
	{
		Name: "CredentialRenewed", On: []string{kindSpoke},
		Message: "the token expires at 2026-12-31T12:00:00Z",
		Meaning: "A credential that was about to expire, or had expired, was replaced by another one. Or the manager has renewed the token" +
			" of a spoke for the first time since `kubectl rulefleet join` was last run for it.", Remedy: nothing,
	},
	{
		Name: "Left", On: []string{kindSpoke},
		Message: "12 PrometheusRules were removed from the spoke; none is left",
		Meaning: "The spoke has left.", Remedy: nothing,
	},
	{
		Name: "LeftBehind", On: []string{kindSpoke},
		Message: "12 PrometheusRules were left in the spoke: …. Rules: …",
		Meaning: "The spoke has left, but PrometheusRules are still in it or, if the spoke could not be read, may be. The message names their" +
			" AlertRules and RulePacks.",
		Remedy: "A Normal Event: nothing, because the rules were meant to stay (the spoke was suspended, or its deletionPolicy was Orphan). A Warning:" +
			" remove the rules with the command in the message. Run it only in the cluster with the UID in the message:" +
			" `kubectl get namespace kube-system -o jsonpath='{.metadata.uid}'`.",
	},
	{
		Name: "Deregistered", On: []string{kindSecret},
		Message: "label sigs.k8s.io/multicluster-runtime-kubeconfig was removed from this Secret, because SpokeCluster eu-1 was deleted; …",
		Meaning: "The registration label was removed from the Secret, because the SpokeCluster was deleted.",
		Remedy:  "Nothing. To register the spoke again, set the label to `true`.",
	},
	{
		Name: v1alpha1.ReasonDeletionsHeld, On: []string{kindSpoke},
		Meaning: "Deletions are held.", Remedy: "See [DeletionsHeld](#spokecluster) of the SpokeCluster.",
	},
	{
		Name: "DeletionsReleased", On: []string{kindSpoke},
		Message: "the hold is over; the deletions continue",
		Meaning: "Deletions that were held continue, or are no longer necessary.", Remedy: nothing,
	},
	{
		Name: "DeletionsAcknowledged", On: []string{kindSpoke},
		Message: "60 held deletions were acknowledged and continue",
		Meaning: "Held deletions were acknowledged and continue.",
		Remedy:  "Nothing. If the message says that more need another acknowledgement, decide about those.",
	},
	{
		Name: "NothingReleased", On: []string{kindSpoke},
		Message: "annotation rulefleet.io/acknowledge-deletions was removed and had no effect: no deletion is held; …",
		Meaning: "An acknowledgement had no effect: no deletion was held, or the deletions that wait for an acknowledgement were not listed in" +
			" `status.pendingDeletions.names`.",
		Remedy: "Set the annotation only when deletions are held. If some wait for an acknowledgement, set it again when they are listed.",
	},
	{
		Name: v1alpha1.ReasonInvalidExpr, On: []string{kindRule, kindPack},
		Meaning: "The object is not accepted: an expression is not valid.", Remedy: "See [InvalidExpr](#alertrule).",
	},
	{
		Name: v1alpha1.ReasonInvalidSpec, On: []string{kindRule, kindPack},
		Meaning: "The object is not accepted: a field is not valid.", Remedy: "See [InvalidSpec](#alertrule).",
	},
	{
		Name: v1alpha1.ReasonNamespaceNotAllowed, On: []string{kindRule, kindPack},
		Meaning: "The object is not accepted: it can't write to that namespace.", Remedy: "See [NamespaceNotAllowed](#alertrule).",
	},
	{
		Name: v1alpha1.ReasonLimitExceeded, On: []string{kindRule, kindPack},
		Meaning: "The object is not accepted: the namespace has too many rules.", Remedy: "See [LimitExceeded](#alertrule).",
	},
	{
		Name: v1alpha1.ReasonUnsupported, On: []string{kindRule, kindPack},
		Meaning: "The object is not accepted: the oldest Prometheus of the fleet can't parse it.", Remedy: "See [Unsupported](#alertrule).",
	},
	{
		Name: "AnnotationIgnored", On: []string{kindRule},
		Meaning: "An annotation of the workload is not valid, or the template does not allow it, and it is ignored. The other" +
			" annotations still apply, unless the message says that they are ignored as well.",
		Remedy: "Correct the annotation that the message names.",
	},
	{
		Name: "NotApplied", On: []string{kindRule},
		Message: "template deployment-down and the edited fields of this AlertRule (status.overriddenFields) are not valid together; …",
		Meaning: "The template and the edited fields of the AlertRule are not valid together.",
		Remedy:  "Change the template, or return the fields to it with the annotation `rulefleet.io/reset-fields`.",
	},
	{
		Name: "FieldsReset", On: []string{kindRule},
		Message: "fields reset to the template: for, severity",
		Meaning: "Edited fields were returned to the template.", Remedy: nothing,
	},
	{
		Name: "FieldsNotReset", On: []string{kindRule},
		Message: "fields not reset, because they are not in status.overriddenFields: …",
		Meaning: "Fields in the annotation `rulefleet.io/reset-fields` are not in `status.overriddenFields`.",
		Remedy:  "Correct the names, and set the annotation again.",
	},
	{
		Name: v1alpha1.ReasonContested, On: []string{kindRule, kindSpoke, "ValidatingWebhookConfiguration", "Secret of the webhook", "Secret of a spoke"},
		Meaning: "Another client undoes what Rulefleet writes.",
		Remedy:  "See [Contested objects](../how-to/contested-objects.md).",
	},
	{
		Name: "NotGenerated", On: []string{kindTemplate},
		Meaning: "The template can't be rendered for a workload. The message names the workload and the cause.",
		Remedy:  "Correct the template, or add the label or annotation that it needs to the workload.",
	},
}
