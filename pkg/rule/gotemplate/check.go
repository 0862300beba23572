package gotemplate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	prom "github.com/prometheus/prometheus/promql"
	prometheus "github.com/prometheus/prometheus/template"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

// Limit of all texts of an object, and the cost of a query in relation to the cost of parsing it.
const (
	maxTotal  = 16 << 20
	queryCost = 1 << 10
)

var errTotal = errors.New("the templates of this object together take too long to render; use fewer or simpler ones")

// Budget limits the cost of all texts of an object.
type Budget struct{ left int }

// NewBudget returns the budget for the texts of one object.
func NewBudget() *Budget { return &Budget{left: maxTotal} }

func (b *Budget) spend(cost int) error {
	if b.left -= cost; b.left < 0 {
		return errTotal
	}
	return nil
}

// Check renders texts as Prometheus does, with sample data, and reports the first one that can't be
// rendered, or that could be too expensive.
func Check(field string, texts map[string]v1alpha1.LabelText, b *Budget) *rule.Invalid {
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		text := string(texts[key])
		if !strings.Contains(text, "{{") {
			continue
		}
		if err := checkGoTemplate(text, b); err != nil {
			return rule.NewInvalid(rule.Keyed(field, key), "not a valid Prometheus template: %v", err)
		}
	}
	return nil
}

// samples are values that all labels have: a number, which is a duration too, and a longer text.
var samples = []string{"0", "abcdefghij0123456789"}

// checkGoTemplate refuses a text that is too expensive, that Prometheus does not load, or that it cannot
// render with any of the samples.
func checkGoTemplate(text string, b *Budget) error {
	a, err := analyze(text)
	if err != nil {
		return err
	}
	var first error
	for _, sample := range samples {
		if err := b.spend(a.cost); err != nil {
			return err
		}
		_, err := a.expand(sample, b)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// expand renders a text with Prometheus' own code, without access to any data source.
func (a *analysis) expand(sample string, b *Budget) (string, error) {
	set := make(map[string]string, len(a.words))
	for word := range a.words {
		set[word] = sample
	}
	smpl := prom.Sample{F: 1}
	if a.histogram {
		smpl.H = &histogram.FloatHistogram{Count: 1, Sum: 1}
	}
	query := func(_ context.Context, query string, _ time.Time) (prom.Vector, error) {
		cost, _ := promql.Cost(query) // CheckQuery has its error too
		if err := b.spend(queryCost * cost); err != nil {
			return nil, err
		}
		if err := promql.CheckQuery(query); err != nil {
			return nil, fmt.Errorf("the query %s: %w", clip.Excerpt(query), err)
		}
		return prom.Vector{{F: 1, Metric: labels.FromMap(set)}}, nil
	}
	external := &url.URL{Scheme: "http", Host: "prometheus.example.com"}
	data := prometheus.AlertTemplateData(set, set, external.String(), smpl)
	e := prometheus.NewTemplateExpander(context.Background(), preamble+a.text, mainTemplate, data, model.TimeFromUnix(1_700_000_000), query, external, nil)
	out, err := e.Expand()
	if m := executing.FindStringSubmatch(fmt.Sprint(err)); m != nil {
		err = fmt.Errorf("line %s: %s: %s", m[1], clip.Excerpt(m[2]), excerptLong(m[3]))
	}
	return out, err
}

// executing matches an error of text/template: the line, the part of the text, and what is wrong.
var executing = regexp.MustCompile(`(?s)^.*?template: ` + mainTemplate + `:(\d+):\d+: executing ".*?" at <(.*?)>: (.*)$`)
