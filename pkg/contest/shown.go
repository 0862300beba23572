package contest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"

	"github.com/rulefleet/rulefleet/pkg/rule"
)

// OfRule returns the message about contested objects of a source in a spoke or, without a spoke, about the
// source itself. Without a message, nothing is contested. Otherwise again is when to ask again.
func (w *Writes) OfRule(kind string, of rule.Key, spoke string) (message string, again time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.messageLocked(rulesOf(w.byRule[of], kind, spoke))
}

func rulesOf(disputes map[Object]*dispute, kind, spoke string) map[Object]*dispute {
	out := map[Object]*dispute{}
	for o, d := range disputes {
		if o.Kind == kind && (spoke == "" || o.Spoke == spoke) {
			out[o] = d
		}
	}
	return out
}

// InSpoke returns the message about contested objects that the operator writes for a spoke, as OfRule does.
func (w *Writes) InSpoke(spoke string) (message string, again time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := map[Object]*dispute{}
	for _, disputes := range w.byRule {
		for o, d := range disputes {
			if o.Spoke == spoke {
				of[o] = d
			}
		}
	}
	return w.messageLocked(of)
}

// messageLocked describes the first of the contested objects.
func (w *Writes) messageLocked(of map[Object]*dispute) (message string, again time.Duration) {
	now := w.now()
	var shown []Object
	for o, d := range of {
		if d.undos < shownFrom || now >= d.until {
			continue
		}
		shown = append(shown, o)
		if left := d.until - now; again == 0 || left < again {
			again = left
		}
	}
	if len(shown) == 0 {
		return "", 0
	}
	first := slices.MinFunc(shown, func(a, b Object) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.String(), b.String()), strings.Compare(a.Spoke, b.Spoke), strings.Compare(a.Annotation, b.Annotation))
	})
	message = of[first].message(first)
	if more := len(shown) - 1; more > 0 {
		message = fmt.Sprintf("%d objects are contested. For example: %s", more+1, message)
	}
	return message, again
}

// Message describes how an object is contested, or returns "".
func (w *Writes) Message(o Object) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := w.disputes[o]; d != nil && d.undos >= shownFrom {
		return d.message(o)
	}
	return ""
}

// Kinds of objects of which the operator writes only a part.
const (
	WebhookConfiguration = "ValidatingWebhookConfiguration"
	SpokeCluster         = "SpokeCluster"
)

// SpokeUser is the user of the operator's account in a spoke, if it was set up with spoke-access.yaml. Unlike a label,
// nobody else in the spoke can have it.
const SpokeUser = "system:serviceaccount:rulefleet-system:rulefleet-spoke"

// message says what happens to an object and what to do. It begins with the client's name, because messages
// are cut.
func (d *dispute) message(o Object) string {
	name := o.Kind + " " + o.Name
	if o.Namespace != "" {
		name = o.Kind + " " + o.String()
	}
	how := "changes %s back after each write"
	switch {
	case d.faster:
		return fmt.Sprintf("%s changes %s so often that no write succeeds; %s. Rulefleet waits longer before each retry, up to %d minutes",
			d.by.who(), name, d.by.advice(o), int(maxDelay.Minutes()))
	case o.Annotation != "":
		how = "sets annotation " + o.Annotation + " of %s again each time that Rulefleet has removed it"
	case o.Status:
		how = "changes the status of %s back after each write"
	case d.absent:
		how = "creates %s again after each deletion"
	case d.gone:
		how = "deletes %s after each write"
	}
	return fmt.Sprintf("%s "+how+" (%s); %s. Rulefleet waits longer before each retry, up to %d minutes",
		d.by.who(), name, times(d.undos), d.by.advice(o), int(maxDelay.Minutes()))
}

// times says how often something happened. Large numbers are rounded down, so that the message settles.
func times(n int) string {
	switch {
	case n < 5:
		return fmt.Sprintf("%d times", n)
	case n < 10:
		return "5 times or more"
	case n < 100:
		return "10 times or more"
	}
	return "100 times or more"
}

func (w writer) who() string {
	switch {
	case w.ours:
		return fmt.Sprintf("another client named %q", w.name)
	case w.name != "":
		return fmt.Sprintf("field manager %q", w.name)
	}
	return "an unknown client"
}

func (w writer) advice(o Object) string {
	leave := "configure it to ignore " + o.Kind + "s labeled app.kubernetes.io/managed-by=rulefleet"
	switch {
	case o.Kind == monitoringv1.PrometheusRuleKind:
		leave += ". If it enforces security, configure it to ignore the user " + SpokeUser + " instead, because anyone can set the label"
	case o.Annotation != "":
		leave = "remove the annotation from the manifest that it applies"
	case o.Status:
		leave = "configure it to ignore the status"
	case o.Kind == WebhookConfiguration:
		leave = "configure it to ignore webhooks[].clientConfig.caBundle"
	case o.Kind == SpokeCluster && o.Spoke == "": // the whole object
		leave = "configure it not to delete SpokeClusters. If it tracks its objects by a label that Rulefleet copies from the Secret, add that label to the chart value trackingLabels, so that it is no longer copied"
	case o.Kind == SpokeCluster:
		leave = "configure it to ignore the labels and finalizers of SpokeClusters"
	}
	server := "the hub's API server"
	if o.Kind == monitoringv1.PrometheusRuleKind { // the only kind of objects in spokes
		server = "the spoke's API server"
	}
	switch {
	case w.ours && o.Kind == monitoringv1.PrometheusRuleKind:
		return "a second Rulefleet manager has the id of this hub; often, it is a restored copy of the hub. Find it by the source addresses in the audit log of the spoke's API server, and stop it." +
			" Do not change hubID: every alert would fire twice"
	case w.ours:
		return "find and stop the other Rulefleet manager on the hub"
	case w.name != "":
		return leave
	}
	return "find it in the audit log of " + server + ", and " + leave
}
