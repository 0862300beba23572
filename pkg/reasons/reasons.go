package reasons

// Reason is one row of a table.
type Reason struct {
	// Name is the reason, a CamelCase word.
	Name string
	// On lists the conditions of the object, or for an Event the kinds of objects, that have the
	// reason. "row" is a row of AlertRule.status.clusters.
	On []string
	// Message is a typical message, with sample names and numbers. It is empty if the message has no
	// fixed form.
	Message string
	// Meaning and Remedy explain the reason, and say what to do. They are Markdown. In commands of Remedy, SpokeName
	// stands for the name of the spoke, and CONTEXT for its context in the reader's kubeconfig.
	Meaning, Remedy string
}

// SpokeName stands for the name of the spoke in a Remedy.
const SpokeName = "{spoke}"

// Table is a list of reasons with a heading and an introduction.
type Table struct {
	Heading, Intro string
	Reasons        []Reason
}

// Tables returns all tables, in the order of the document.
func Tables() []Table {
	return []Table{
		{
			Heading: "SpokeCluster",
			Intro:   "`kubectl get spokes` shows the reason of condition Ready. `kubectl describe spoke NAME` shows all conditions.",
			Reasons: ofSpokes,
		},
		{
			Heading: "AlertRule",
			Intro: "`kubectl get alertrules,rulepacks -A` shows the reason of condition Ready. The reasons also apply to RulePacks. A *row* is an entry of `status.clusters`: it describes\n" +
				"the rule in one spoke. If all spokes in which the rule is not ready have the same reason, condition Ready has it, too.",
			Reasons: ofRules,
		},
		{
			Heading: "AlertRuleTemplate",
			Intro: "Condition Accepted of a template has the reason Accepted, InvalidExpr, InvalidSpec or Unsupported, as that of an\n" +
				"AlertRule. If the template is valid, Ready is True with the reason Accepted. If it is not valid, Ready is False and\n" +
				"Stalled is True, both with the reason of Accepted.",
		},
		{
			Heading: "Events",
			Intro: "A SpokeCluster also gets an Event when the status or the reason of a condition changes, with the reason of the\n" +
				"condition. There is no Event when a condition becomes Unknown, and only one when several conditions get the same\n" +
				"reason. For condition Connected, and for the reasons Expiring, Expired and Unmanaged of CredentialValid,\n" +
				"the Secret gets the Event, too. The reasons Valid and Renewed of CredentialValid have no Event of their own: the Event is CredentialRenewed.",
			Reasons: ofEvents,
		},
	}
}
