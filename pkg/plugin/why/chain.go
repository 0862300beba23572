// Package why explains the state of a rule in one spoke: every link of the chain from the Secret to the
// alert, with its evidence and what fixes it. Chain is a pure function of the objects.
package why

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/reasons"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/rollup"
)

// State is what is known of a link.
type State string

// The states. A link is Unknown if nothing verifies it, often because an earlier link is broken.
const (
	OK      State = "ok"
	NotOK   State = "not ok"
	Unknown State = "unknown"
)

// Link is a link of the chain.
type Link struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// Evidence is the object and the field that the state comes from, and what they say.
	Evidence string `json:"evidence"`
	// Fix says in words what fixes the link. It names all choices that a person has: a command that changes
	// something is part of a sentence that says when to run it.
	Fix string `json:"fix,omitempty"`
}

// registration is what is known of the Secret on the hub.
type registration struct {
	// Readable is false if the person may not read Secrets.
	Readable bool
	// Exists, Labeled and HasKubeconfig are about the Secret.
	Exists, Labeled, HasKubeconfig bool
}

// input has the objects of a chain.
type input struct {
	// Namespace and Generated are Rulefleet's own namespaces on the hub: that of the Secrets, and that of
	// generated AlertRules.
	Namespace, Generated string
	// Cluster is the name of the spoke.
	Cluster string
	// Rule is the AlertRule or RulePack.
	Rule rule.Source
	// Spoke is the SpokeCluster, or nil if there is none.
	Spoke *v1alpha1.SpokeCluster
	// SpokeUnreadable is true if the person may not read SpokeClusters.
	SpokeUnreadable bool
	// Registration is about the spoke's Secret.
	Registration registration
	// Tenant is the namespace of the AlertRule, or nil if it is one of Rulefleet's own. Its labels are only known
	// if spec.tenants of the spoke selects by them.
	Tenant *rule.Tenant
	// TenantUnreadable is true if the person may not read these labels.
	TenantUnreadable bool
}

// chainOf returns all links, from the Secret to the alert.
func chainOf(in input) []Link {
	c := &chain{input: in, row: rowOf(in.Rule, in.Cluster)}
	c.add("registration", c.registration)
	c.add("spoke", c.spoke)
	c.add("connection", c.connection)
	c.add("kinds and permissions", c.ready)
	c.add("rule accepted", c.accepted)
	c.add("placement", c.placement)
	c.add("written", func() Link { return c.ofRow(v1alpha1.PhaseApplied) })
	c.add("selected", func() Link { return c.ofRow(v1alpha1.PhaseSelected) })
	c.add("evaluated", func() Link { return c.ofRow(v1alpha1.PhaseEvaluating) })
	c.add("metrics", c.metrics)
	c.add("firing", c.firing)
	return c.links
}

// Broken returns the first link that is not ok, or nil.
func Broken(links []Link) *Link {
	if i := slices.IndexFunc(links, func(l Link) bool { return l.State == NotOK }); i >= 0 {
		return &links[i]
	}
	return nil
}

type chain struct {
	input

	row   *v1alpha1.ClusterStatus
	links []Link
}

func (c *chain) add(name string, find func() Link) {
	l := find()
	l.Name = name
	c.links = append(c.links, l)
}

// was returns the state of an earlier link.
func (c *chain) was(name string) State {
	for i := range c.links {
		if c.links[i].Name == name {
			return c.links[i].State
		}
	}
	return Unknown
}

func rowOf(s rule.Source, cluster string) *v1alpha1.ClusterStatus {
	rows := s.GetStatus().Clusters
	for i := range rows {
		if string(rows[i].Name) == cluster {
			return &rows[i]
		}
	}
	return nil
}

func ok(format string, args ...any) Link {
	return Link{State: OK, Evidence: fmt.Sprintf(format, args...)}
}

func unknown(format string, args ...any) Link {
	return Link{State: Unknown, Evidence: fmt.Sprintf(format, args...)}
}

func notOK(fix, format string, args ...any) Link {
	return Link{State: NotOK, Evidence: fmt.Sprintf(format, args...), Fix: fix}
}

func (c *chain) condition(kind string) *metav1.Condition {
	if c.Spoke == nil {
		return nil
	}
	return meta.FindStatusCondition(c.Spoke.Status.Conditions, kind)
}

// said is the evidence of a condition.
func said(object string, c *metav1.Condition) string {
	return fmt.Sprintf("%s: %s=%s %s: %s", object, c.Type, c.Status, c.Reason, c.Message)
}

func (c *chain) ofSpoke() string { return "SpokeCluster " + c.Cluster }

func (c *chain) ofRule() string { return rule.KeyOf(c.Rule).String() }

func (c *chain) registration() Link {
	secret := fmt.Sprintf("Secret %s/%s", c.Namespace, c.Cluster)
	connected := c.condition(v1alpha1.ConditionConnected)
	r := c.Registration
	switch {
	case connected != nil && connected.Reason == v1alpha1.ReasonKubeconfigMissing && (!r.Readable || !r.Exists):
		return notOK(c.restore(), "%s", said(c.ofSpoke(), connected))
	case !r.Readable && connected != nil && connected.Status == metav1.ConditionTrue:
		return ok("%s is connected, so its Secret exists; you have no permission to read it", c.ofSpoke())
	case !r.Readable:
		return unknown("you have no permission to read %s", secret)
	case !r.Exists:
		return notOK("If the name is right and the spoke is to be registered: "+c.join()+". Otherwise list the spokes: kubectl rulefleet spokes", "%s does not exist", secret)
	case !r.Labeled:
		return notOK(fmt.Sprintf("Find out why the label is missing: Rulefleet removes it when the SpokeCluster is deleted, and people remove it to disconnect a spoke. To register the spoke: kubectl -n %s label --overwrite secret %s %s=true",
			c.Namespace, c.Cluster, v1alpha1.RegistrationLabel), "%s does not have the label %s=true", secret, v1alpha1.RegistrationLabel)
	case !r.HasKubeconfig:
		return notOK(c.restore(), "%s has no key %s", secret, v1alpha1.KubeconfigKey)
	}
	return ok("%s has the label and a kubeconfig", secret)
}

func (c *chain) spoke() Link {
	switch s := c.Spoke; {
	case c.SpokeUnreadable:
		return unknown("you have no permission to read %s", c.ofSpoke())
	case s == nil && c.was("registration") == OK:
		return notOK(fmt.Sprintf("Check that the manager runs: kubectl -n %s get pods", c.Namespace), "%s does not exist, although its Secret exists", c.ofSpoke())
	case s == nil:
		return notOK("It is created when the spoke is registered: see the step registration.", "%s does not exist", c.ofSpoke())
	case !s.DeletionTimestamp.IsZero():
		return notOK("Wait until it is gone. If you want to keep the cluster, register it again after that.", "%s is being deleted", c.ofSpoke())
	case s.Spec.Suspend != nil && *s.Spec.Suspend:
		return notOK(c.fixSpoke(v1alpha1.ReasonSuspended), "%s: spec.suspend is true, so nothing is written to the spoke", c.ofSpoke())
	}
	return ok("%s exists", c.ofSpoke())
}

// ofCondition returns a link that a condition of the SpokeCluster decides.
func (c *chain) ofCondition(kind string) Link {
	cond := c.condition(kind)
	switch {
	case c.SpokeUnreadable:
		return unknown("you have no permission to read %s", c.ofSpoke())
	case c.Spoke == nil:
		return unknown("%s does not exist", c.ofSpoke())
	case cond == nil:
		return unknown("%s has no condition %s", c.ofSpoke(), kind)
	case cond.Status == metav1.ConditionTrue:
		l := ok("%s", said(c.ofSpoke(), cond))
		if cond.Reason == v1alpha1.ReasonKubeconfigNotUsed { // which ends with the manager's process
			l.Fix = c.fixSpoke(cond.Reason)
		}
		return l
	case cond.Status == metav1.ConditionUnknown:
		l := unknown("%s", said(c.ofSpoke(), cond))
		l.Fix = c.fixSpoke(cond.Reason)
		return l
	}
	return notOK(c.fixSpoke(cond.Reason), "%s", said(c.ofSpoke(), cond))
}

func (c *chain) connection() Link {
	if c.SpokeUnreadable && c.row != nil && reasons.Is(c.row.Reason, reasons.Outage) {
		return notOK("Ask an administrator of the hub to look at "+c.ofSpoke()+".", "%s", c.rowSays())
	}
	return c.ofCondition(v1alpha1.ConditionConnected)
}

// ready is about what the account may do, and the kinds of the spoke. Ready has more causes: those that
// another link has, and those that do not concern a rule that is there.
func (c *chain) ready() Link {
	switch c.was("connection") {
	case OK:
	case NotOK:
		return unknown("the spoke is not connected")
	default:
		return unknown("it is not known whether the spoke is connected")
	}
	served := c.ofCondition(v1alpha1.ConditionPrometheusRuleServed)
	ready := c.condition(v1alpha1.ConditionReady)
	if served.State == OK && ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason == v1alpha1.ReasonForbidden {
		return notOK(c.fixSpoke(ready.Reason), "%s", said(c.ofSpoke(), ready))
	}
	return served
}

func (c *chain) accepted() Link {
	cond := meta.FindStatusCondition(c.Rule.GetStatus().Conditions, v1alpha1.ConditionAccepted)
	switch {
	case cond == nil || c.Rule.GetStatus().ObservedGeneration != c.Rule.GetGeneration():
		l := unknown("%s: the manager has not processed this version yet", c.ofRule())
		l.Fix = fmt.Sprintf("If it lasts, check that the manager runs: kubectl -n %s get pods", c.Namespace)
		return l
	case cond.Status != metav1.ConditionTrue:
		return notOK(c.fixRule(cond.Reason), "%s", said(c.ofRule(), cond))
	case c.Rule.Suspended():
		return notOK("If this is intended, do nothing. To resume, set spec.suspend of the "+c.Rule.SourceKind()+" to false: "+c.set(`"suspend":false`), "%s: spec.suspend is true, so the rule is not changed in any spoke", c.ofRule())
	}
	return ok("%s", said(c.ofRule(), cond))
}

func (c *chain) placement() Link {
	if c.Spoke == nil {
		return unknown("the labels of %s are not known", c.ofSpoke())
	}
	cluster := rule.Cluster{Name: c.Cluster, Labels: c.Spoke.Labels, Tenants: c.Spoke.Spec.Tenants, Tenant: c.Tenant}
	placed, err := rule.Places(c.Rule.GetPlacement(), cluster)
	if err != nil {
		return notOK("Correct the selectors of spec.placement.", "%s: spec.placement: %v", c.ofRule(), err)
	}
	if !placed {
		does := "spec.placement does not select the spoke"
		if c.excluded() {
			does = "spec.placement.exclude leaves out the spoke"
		}
		return notOK(c.place(), "%s: %s; its labels are %s", c.ofRule(), does, cmp.Or(labels.FormatLabels(c.Spoke.Labels), "<none>"))
	}
	if rule.StateIn(c.Rule, cluster) == v1alpha1.Disabled {
		if c.Rule.GetState() == v1alpha1.Disabled {
			return notOK("If this is intended, do nothing. To enable it, set spec.state of the "+c.Rule.SourceKind()+" to Enabled: "+c.set(`"state":"Enabled"`), "%s: spec.state is Disabled", c.ofRule())
		}
		return notOK("If this is intended, do nothing. Otherwise remove state: Disabled from the entry of spec.overrides that selects the spoke.", "%s: spec.overrides disables the rule in this spoke", c.ofRule())
	}
	return c.taken(cluster)
}

// taken is the link of a rule that is placed on the spoke and enabled there: the spoke has to take the AlertRules
// of the namespace.
func (c *chain) taken(cluster rule.Cluster) Link {
	if c.TenantUnreadable {
		return unknown("%s: spec.tenants selects namespaces of the hub by their labels, and you have no permission to read the labels of namespace %s", c.ofSpoke(), c.Rule.GetNamespace())
	}
	taken, err := rule.PlacedIn(c.Rule, cluster)
	switch {
	case err != nil:
		return notOK("Ask an administrator of the hub to correct spec.tenants.selector of "+c.ofSpoke()+".", "%s: spec.tenants: %v", c.ofSpoke(), err)
	case taken:
		return ok("%s: spec.placement selects the spoke", c.ofRule())
	case cluster.Tenants == nil:
		return notOK(c.fixRule(v1alpha1.ReasonTenantNotAllowed), "%s does not take %ss of the platform namespace %s, because its spec.tenants does not list it", c.ofSpoke(), c.Rule.SourceKind(), c.Rule.GetNamespace())
	}
	return notOK(c.fixRule(v1alpha1.ReasonTenantNotAllowed), "%s: spec.tenants does not include namespace %s", c.ofSpoke(), c.Rule.GetNamespace())
}

// place says how the rule would be placed on the spoke. Labels of the spoke also place other rules and templates.
func (c *chain) place() string {
	if w := c.Rule.GetWorkloadRef(); w != nil {
		return fmt.Sprintf("The AlertRule is only for the spoke of spec.workloadRef (%s). A template generates an AlertRule of its own for each spoke: kubectl get alertrules -A -l %s=%s",
			w.Cluster, v1alpha1.ClusterLabel, c.Cluster)
	}
	if c.excluded() {
		return "If it should be in this spoke, change spec.placement.exclude of the " + c.Rule.SourceKind() + ": remove the spoke from names, or change the selector." + c.edit()
	}
	return "If it should be in this spoke, change spec.placement of the " + c.Rule.SourceKind() + ": add the spoke to names, or change the selector." + c.edit()
}

// excluded reports whether the rule would be placed on the spoke without spec.placement.exclude.
func (c *chain) excluded() bool {
	p := c.Rule.GetPlacement()
	if p.Exclude == nil {
		return false
	}
	p.Exclude = nil
	placed, err := rule.Places(p, rule.Cluster{Name: c.Cluster, Labels: c.Spoke.Labels})
	return placed && err == nil
}

// current reports whether the row is about the current version of the rule, and the spoke is connected.
func (c *chain) current() bool {
	connected := c.was("connection") == OK || c.SpokeUnreadable // then the row shows an outage itself
	return c.row != nil && c.row.ObservedGeneration == c.Rule.GetGeneration() && connected && !reasons.Is(c.row.Reason, reasons.Outage)
}

// rowSays is the evidence of the row.
func (c *chain) rowSays() string {
	out := fmt.Sprintf("%s: status.clusters[%s]: phase %s", c.ofRule(), c.Cluster, c.row.Phase)
	if c.row.Reason != "" {
		out += ", " + c.row.Reason
	}
	if c.row.Message != "" {
		out += ": " + c.row.Message
	}
	return out
}

var phases = []v1alpha1.Phase{v1alpha1.PhasePending, v1alpha1.PhaseApplied, v1alpha1.PhaseSelected, v1alpha1.PhaseEvaluating}

// ofRow returns a link that the row decides: it is ok if the row has reached a phase, and the link that is
// not ok is the one after the last phase that it has reached.
func (c *chain) ofRow(phase v1alpha1.Phase) Link {
	at, reached := slices.Index(phases, phase), -1
	if c.row != nil {
		reached = slices.Index(phases, c.row.Phase)
	}
	switch {
	case c.was("placement") == NotOK:
		return unknown("the rule is not placed on the spoke")
	case c.row == nil:
		return c.unlisted()
	case !c.current():
		return unknown("last known: %s", c.rowSays())
	case reached == at && c.row.Reason == v1alpha1.ReasonSuspended:
		return notOK(c.fixRow(), "%s", c.rowSays()) // the spoke has an earlier version
	case reached >= at:
		return ok("%s: status.clusters[%s]: phase %s", c.ofRule(), c.Cluster, c.row.Phase)
	case reached < at && c.row.Reason == v1alpha1.ReasonSuspended && c.row.Phase == v1alpha1.PhaseApplied:
		return unknown("the spoke has an earlier version of the rule")
	case reached < at-1:
		return c.behind()
	case rollup.AtTop(c.row, c.Rule.GetGeneration()):
		l := unknown("nothing more can be verified: %s", c.rowSays())
		l.Fix = c.fixRow()
		return l
	case reasons.Is(c.row.Reason, reasons.Passing):
		l := unknown("%s", c.rowSays())
		l.Fix = c.fixRule(c.row.Reason)
		return l
	}
	return notOK(c.fixRow(), "%s", c.rowSays())
}

// behind is about a step after the one that the row is waiting for.
func (c *chain) behind() Link {
	if Broken(c.links) != nil {
		return unknown("an earlier step is not ok")
	}
	return unknown("an earlier step is unknown")
}

// unlisted is about a spoke that has no row: the status lists at most 100.
func (c *chain) unlisted() Link {
	if len(c.Rule.GetStatus().Groups) > 0 && rollup.Lagging(c.Rule.GetStatus()) == 0 && c.was("rule accepted") == OK && c.was("connection") == OK {
		return ok("%s: the status does not list the spoke, and the rule is ready in all spokes that are not listed", c.ofRule())
	}
	return unknown("%s: the status does not list the spoke", c.ofRule())
}

// fixRow returns the remedy for the row. If a condition of the SpokeCluster has the cause, it is that of the
// condition, with its message.
func (c *chain) fixRow() string {
	for _, kind := range []string{v1alpha1.ConditionEvaluatorsFound, v1alpha1.ConditionEvaluating} {
		cond := c.condition(kind)
		if cond == nil || cond.Status == metav1.ConditionTrue {
			continue
		}
		unasked := kind == v1alpha1.ConditionEvaluating && reasons.Is(c.row.Reason, reasons.TopOfSelected)
		unanswered := kind == v1alpha1.ConditionEvaluating && c.row.Reason == v1alpha1.ReasonEvaluatorUnreachable
		if unasked || unanswered || cond.Reason == c.row.Reason {
			return said(c.ofSpoke(), cond) + ". " + c.fixSpoke(cond.Reason)
		}
	}
	return c.fixRule(c.row.Reason)
}

// kubeStateMetrics is part of an expression that needs kube-state-metrics.
var kubeStateMetrics = regexp.MustCompile(`\bkube_`)

func (c *chain) needsKubeStateMetrics() bool {
	switch s := c.Rule.(type) {
	case *v1alpha1.AlertRule:
		return kubeStateMetrics.MatchString(s.Spec.Expr)
	case *v1alpha1.RulePack:
		return slices.ContainsFunc(s.Spec.Groups, func(g monitoringv1.RuleGroup) bool {
			return slices.ContainsFunc(g.Rules, func(r monitoringv1.Rule) bool { return kubeStateMetrics.MatchString(r.Expr.String()) })
		})
	}
	return false
}

func (c *chain) metrics() Link {
	cond := c.condition(v1alpha1.ConditionMetricsPresent)
	switch {
	case c.row == nil || c.was("evaluated") != OK:
		return unknown("the evaluation is not verified")
	case len(c.row.MissingMetrics) > 0:
		return notOK("Check that these metrics are scraped in the spoke, and that their names and labels in the expression are right."+c.recorded()+c.edit(),
			"%s: status.clusters[%s]: Prometheus has no series for %s", c.ofRule(), c.Cluster, strings.Join(c.row.MissingMetrics, ", "))
	case cond != nil && cond.Reason == v1alpha1.ReasonKubeStateMetricsMissing && c.needsKubeStateMetrics(): // no row shows it
		return notOK(c.fixSpoke(cond.Reason), "%s", said(c.ofSpoke(), cond))
	case cond != nil && cond.Status == metav1.ConditionUnknown:
		l := unknown("%s", said(c.ofSpoke(), cond))
		l.Fix = c.fixSpoke(cond.Reason)
		return l
	}
	return ok("%s: Rulefleet found no missing metric", c.ofRule())
}

func (c *chain) firing() Link {
	switch {
	case c.row == nil || c.was("evaluated") != OK:
		if c.row != nil && c.row.Firing > 0 {
			return unknown("last known: %d alerts fire", c.row.Firing)
		}
		return unknown("the evaluation is not verified")
	case c.row.Firing > 0:
		return ok("%s: status.clusters[%s]: alerts that fire: %d. If nobody was notified, check the Alertmanager of the spoke", c.ofRule(), c.Cluster, c.row.Firing)
	}
	return ok("%s: status.clusters[%s]: no alert fires: no expression returns a result, or the duration that `for` sets has not passed yet", c.ofRule(), c.Cluster)
}
