package contest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// OfRule says what is contested of an AlertRule's objects in a spoke, or of the AlertRule
// itself where spoke is empty. Nothing is where message is empty. Otherwise it is to be
// asked again after a while.
func (w *Writes) OfRule(kind string, rule types.NamespacedName, spoke string) (message string, again time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.messageLocked(rulesOf(w.byRule[rule], kind, spoke))
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

// InSpoke says what is contested of what the operator writes for a spoke, as OfRule does.
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

// messageLocked names the first of the objects that are contested now.
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
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.String(), b.String()), strings.Compare(a.Spoke, b.Spoke))
	})
	message = of[first].message(first)
	if more := len(shown) - 1; more > 0 {
		message = fmt.Sprintf("%d objects are contested, such as: %s", more+1, message)
	}
	return message, again
}

// Message says how an object is contested, or "".
func (w *Writes) Message(o Object) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := w.disputes[o]; d != nil && d.undos >= shownFrom {
		return d.message(o)
	}
	return ""
}

// WebhookConfiguration is the kind of object of which the operator writes one field alone.
const WebhookConfiguration = "ValidatingWebhookConfiguration"

// message says what happens to an object, and what to do. It begins with who does it, for
// messages are cut.
func (d *dispute) message(o Object) string {
	name := o.Name
	if o.Namespace != "" {
		name = o.String()
	}
	how := "changes %s %s back after each write"
	switch {
	case d.absent:
		how = "makes %s %s again after each deletion"
	case d.gone:
		how = "deletes %s %s after each write"
	}
	return fmt.Sprintf("%s "+how+" (%s). The manager tries again less and less often, every %d minutes at least; %s",
		d.by.who(), o.Kind, name, times(d.undos), int(maxDelay.Minutes()), d.by.advice(o.Kind))
}

// times says how often something happened. It is the same for large numbers that are near
// each other, so that what is shown settles.
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

// Writer is who wrote an object last, as far as its managedFields tell. The zero value is
// not known.
type Writer struct {
	// Name is that of a field manager.
	Name string
	// Ours tells that the name is the operator's own.
	Ours bool
}

func (w Writer) who() string {
	switch {
	case w.Ours:
		return fmt.Sprintf("another client named %q", w.Name)
	case w.Name != "":
		return fmt.Sprintf("field manager %q", w.Name)
	}
	return "an unknown client"
}

func (w Writer) advice(kind string) string {
	what := "objects with the label app.kubernetes.io/managed-by=rulefleet"
	if kind == WebhookConfiguration {
		what = "webhooks[].clientConfig.caBundle"
	}
	switch {
	case w.Ours:
		return "look for another manager with the same hub id (--hub-id); the API server's audit log names the clients"
	case w.Name != "":
		return "have that client leave " + what + " alone"
	}
	return "find the client in the API server's audit log, and have it leave " + what + " alone"
}

// Manager is the field manager of the operator's writes, but for those that it applies: the
// API server takes it from the user agent.
const Manager = "rulefleet-manager"

// maxName bounds the name of a field manager, as the API does.
const maxName = 128

// LastWriter tells who wrote an object last. The names of our own field managers count only
// where nobody else wrote since: the API records times in seconds. Who only removed fields
// is not recorded.
func LastWriter(o metav1.Object, ours ...string) Writer {
	var own, others *metav1.ManagedFieldsEntry
	entries := o.GetManagedFields()
	for i := range entries {
		e := &entries[i]
		if e.Subresource != "" || e.Time == nil {
			continue
		}
		latest := &others
		if slices.Contains(ours, e.Manager) {
			latest = &own
		}
		if *latest == nil || (*latest).Time.Before(e.Time) {
			*latest = e
		}
	}
	switch {
	case others != nil && (own == nil || !others.Time.Before(own.Time)):
		return Writer{Name: printable(others.Manager)}
	case own != nil:
		return Writer{Name: printable(own.Manager), Ours: true}
	}
	return Writer{}
}

// printable is a name as it may be shown: it comes from a spoke.
func printable(name string) string {
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(name, ""))
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName], "")
	}
	return name
}
