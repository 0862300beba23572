package generate

import (
	"context"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/coverage"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// Outcomes keeps what became of each workload.
type Outcomes interface {
	// Record records the outcomes of a workload of an engaged spoke, which replace those that were recorded before. They
	// are nil if there is no such workload.
	Record(s *spoke.Spoke, workload rule.Key, outcomes coverage.Outcomes)
	// Changed is called when a workload was created or deleted in a spoke, before it is processed.
	Changed(spoke string)
}

type outcomesKey struct{}

// telling returns a context in which tell records outcomes.
func telling(ctx context.Context) (context.Context, coverage.Outcomes) {
	told := coverage.Outcomes{}
	return context.WithValue(ctx, outcomesKey{}, told), told
}

// tell records the outcome of a template for the workload that is being reconciled.
func tell(ctx context.Context, template string, outcome coverage.Outcome) {
	if told, ok := ctx.Value(outcomesKey{}).(coverage.Outcomes); ok {
		told[template] = outcome
	}
}

// withKept adds the templates whose AlertRules stay because it is unknown whether they select the workload. It returns
// nil if there is no such workload.
func withKept(w *templating.Workload, told coverage.Outcomes, keep map[string]bool, existing []v1alpha1.AlertRule) coverage.Outcomes {
	if w == nil {
		return nil
	}
	for i := range existing {
		template := existing[i].Labels[v1alpha1.TemplateLabel]
		if _, known := told[template]; !known && keep[template] {
			told[template] = coverage.Generated
		}
	}
	return told
}

// report passes on the outcomes of a workload.
func (r *Reconciler) report(s *spoke.Spoke, req queue.Request, outcomes coverage.Outcomes) {
	if r.Outcomes != nil {
		r.Outcomes.Record(s, hub.KeyOf(req), outcomes)
	}
}
