package coverage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
	"unique"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/coverage"
)

// summary is what may be shown of a template, and since when. It is replaced at most once per publishInterval.
type summary struct {
	v1alpha1.TemplateSummary

	at time.Time
}

// sumsOf counts workloads by template.
func sumsOf(of map[rule.Key]unique.Handle[string]) map[string]v1alpha1.TemplateSummary {
	combinations := map[unique.Handle[string]]int32{}
	for _, o := range of {
		combinations[o]++
	}
	out := map[string]v1alpha1.TemplateSummary{}
	for o, n := range combinations {
		for template, outcome := range decode(o.Value()) {
			sum := out[template]
			sum.Matched += n
			switch outcome {
			case coverage.Generated:
				sum.Generated += n
			case coverage.Disabled:
				sum.Disabled += n
			case coverage.Refused:
				sum.Refused += n
			case coverage.Failed:
				sum.Failed += n
			}
			out[template] = sum
		}
	}
	return out
}

// replaceLocked replaces the sums of a spoke.
func (c *Counter) replaceLocked(is *counted, sums map[string]v1alpha1.TemplateSummary) {
	c.addLocked(is.sums, -1)
	c.addLocked(sums, 1)
	is.sums = sums
}

// addLocked adds or, with sign -1, subtracts sums of a spoke.
func (c *Counter) addLocked(sums map[string]v1alpha1.TemplateSummary, sign int32) {
	for template, n := range sums {
		sum := c.sums[template]
		sum.Matched += sign * n.Matched
		sum.Generated += sign * n.Generated
		sum.Disabled += sign * n.Disabled
		sum.Refused += sign * n.Refused
		sum.Failed += sign * n.Failed
		c.sums[template] = sum
		if sum == (v1alpha1.TemplateSummary{}) {
			delete(c.sums, template)
		}
	}
}

// publish publishes the summaries that have changed and are due, once all spokes are known or settleTime has passed.
func (c *Counter) publish(ctx context.Context) error {
	var spokes v1alpha1.SpokeClusterList
	if err := c.Hub.List(ctx, &spokes); err != nil {
		return fmt.Errorf("listing SpokeClusters: %w", err)
	}
	var templates v1alpha1.AlertRuleTemplateList
	if err := c.Hub.List(ctx, &templates); err != nil {
		return fmt.Errorf("listing AlertRuleTemplates: %w", err)
	}
	for _, name := range c.due(spokes.Items, templates.Items) {
		c.changes.Send(name)
	}
	return nil
}

// due publishes summaries, and returns the templates whose summary has changed.
func (c *Counter) due(spokes []v1alpha1.SpokeCluster, templates []v1alpha1.AlertRuleTemplate) (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Clock.Now()
	if now.Sub(c.began) < c.Intervals.Of(settleTime) && slices.ContainsFunc(spokes, func(sc v1alpha1.SpokeCluster) bool {
		is := c.spokes[sc.Name]
		return is == nil || is.complete.IsZero()
	}) {
		return nil
	}
	exist := map[string]bool{}
	for i := range templates {
		name := templates[i].Name
		exist[name] = true
		is := c.sums[name]
		if never := templates[i].Status.Summary == nil && !rule.MaybeGenerates(&templates[i]); never && is == (v1alpha1.TemplateSummary{}) {
			continue // most built-in templates are never enabled, and need no write
		}
		was, shown := c.summaries[name]
		if shown && (was.TemplateSummary == is || now.Sub(was.at) < c.Intervals.Of(publishInterval)) || !shown && templates[i].Status.Summary != nil && !c.startedLocked(now) {
			continue
		}
		c.summaries[name] = summary{is, now}
		out = append(out, name)
	}
	maps.DeleteFunc(c.summaries, func(name string, _ summary) bool { return !exist[name] })
	return out
}
