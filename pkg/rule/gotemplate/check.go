package gotemplate

import (
	"cmp"
	"context"
	"crypto/sha256"
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
	"k8s.io/utils/lru"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

// goTemplatePreamble is the text that Prometheus puts before each template (rules/alerting.go).
const goTemplatePreamble = "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}"

// Check renders texts as Prometheus does, with sample data, and reports the first one that
// can't be rendered.
func Check(field string, texts map[string]v1alpha1.LabelText, b *Budget) *rule.Invalid {
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		text := string(texts[key])
		if !strings.Contains(text, "{{") {
			continue
		}
		if err := rememberedGoTemplate(text, b); err != nil {
			return rule.NewInvalid(rule.Keyed(field, key), "not a valid Prometheus template: %v", err)
		}
	}
	return nil
}

// rendered caches the results of checkGoTemplate by the digest of the text. Controllers validate the
// same rule for every spoke, and rendering takes a millisecond.
var rendered = lru.New(8192)

// renderedText is a result of checkGoTemplate, and the part of the budget that it used.
type renderedText struct {
	err          error
	steps, bytes int
}

// rememberedGoTemplate is checkGoTemplate with a cache. The result and the used budget don't depend on
// the contents of the cache.
func rememberedGoTemplate(text string, b *Budget) error {
	key := sha256.Sum256([]byte(text))
	if found, ok := rendered.Get(key); ok {
		r := found.(renderedText)
		if r.steps <= b.totalSteps && r.bytes <= b.totalBytes {
			b.totalSteps -= r.steps
			b.totalBytes -= r.bytes
			return r.err
		}
	}
	r := renderedText{steps: b.totalSteps, bytes: b.totalBytes}
	r.err = checkGoTemplate(text, b)
	r.steps -= b.totalSteps
	r.bytes -= b.totalBytes
	if !b.exhausted {
		rendered.Add(key, r)
	}
	return r.err
}

// checkGoTemplate refuses a text that Prometheus does not load, that fails with any data, or that is
// too expensive to render.
func checkGoTemplate(text string, b *Budget) error {
	parsed, err := parseGoTemplate(text)
	if err == nil {
		err = trial{}.expander(goTemplatePreamble+text, nil).ParseTest() // all functions exist
	}
	if err != nil {
		_, message, _ := strings.Cut(err.Error(), "template: "+mainTemplate+":")
		return errors.New("line " + excerptLong(message))
	}
	instrumented, err := parsed.instrument()
	if err != nil {
		return err
	}
	return parsed.tryAll(instrumented, b)
}

// tryAll renders the text with the data of each trial. A text whose success depends on the data, such
// as parseDuration of a label, has to work with one of them. A field that no data has is an error even
// if other trials don't reach it.
func (t *goTemplate) tryAll(instrumented string, b *Budget) error {
	var first, wrong error
	worked := false
	for _, s := range trials(t) {
		err := s.run(t, instrumented, b)
		switch {
		case errors.Is(err, errBudget), errors.Is(err, errTotal):
			return t.located(err, b.pos)
		case err == nil:
			worked = true
		case structural(err) && wrong == nil:
			wrong = t.located(err, b.pos)
		case first == nil:
			first = t.located(err, b.pos)
		}
	}
	if worked && wrong == nil {
		return nil
	}
	// A field that a number does not have may be a field of a native histogram.
	if wrong == nil || strings.Contains(wrong.Error(), "in type float64") {
		s := trial{labels: t.labels("1"), found: true, histogram: true}
		if s.run(t, instrumented, b) == nil {
			return nil
		}
	}
	return cmp.Or(wrong, first)
}

// structural reports whether an error is independent of the data.
func structural(err error) bool {
	message := err.Error()
	return strings.Contains(message, "can't evaluate field") || strings.Contains(message, "not a method but has arguments") ||
		strings.HasSuffix(message, " not defined")
}

// executing matches the prefix that text/template puts before an error. Its position refers to the
// instrumented text.
var executing = regexp.MustCompile(`(?s)^.*template: .*: executing ".*?" at <.*?>: `)

// located adds the position in the original text to an error.
func (t *goTemplate) located(err error, pos int) error {
	message := err.Error()
	switch {
	case errors.Is(err, errBudget):
		message = errBudget.Error()
	case errors.Is(err, errTotal):
		message = errTotal.Error()
	default:
		message = executing.ReplaceAllString(message, "")
	}
	pos = min(pos, len(t.text))
	line := 1 + strings.Count(t.text[:pos], "\n")
	near := t.text[max(strings.LastIndex(t.text[:pos], "{{"), 0):]
	if end := strings.Index(near, "}}"); end >= 0 {
		near = near[:end+len("}}")]
	}
	return fmt.Errorf("line %d: %s: %s", line, clip.Excerpt(near), excerptLong(message))
}

func excerptLong(s string) string { return clip.Marked(s, rule.MaxMessage/2) }

// trial is sample data for rendering a text.
type trial struct {
	labels    map[string]string
	found     bool // whether queries return a result
	histogram bool // whether the value is a native histogram
}

// labels returns all labels that the text may refer to, with the same value.
func (t *goTemplate) labels(value string) map[string]string {
	out := make(map[string]string, len(t.words))
	for word := range t.words {
		out[word] = value
	}
	return out
}

// trials returns the sample data for a text: with and without values for all labels that it may refer
// to, and with and without results of queries.
func trials(t *goTemplate) []trial {
	out := []trial{{labels: t.labels("1"), found: true}}
	if len(t.words) > 0 {
		out = append(out, trial{labels: t.labels("x"), found: true}, trial{labels: t.labels("1m"), found: true}, trial{found: true})
	}
	if strings.Contains(t.text, "query") {
		out = append(out, trial{labels: t.labels("1")}, trial{labels: t.labels("x")})
	}
	return out
}

// expander is that of Prometheus, without access to any data source.
func (s trial) expander(text string, query prometheus.QueryFunc) *prometheus.Expander {
	smpl := prom.Sample{F: 1}
	if s.histogram {
		smpl.H = &histogram.FloatHistogram{Count: 1, Sum: 1}
	}
	external := &url.URL{Scheme: "http", Host: "prometheus.example.com"}
	data := prometheus.AlertTemplateData(s.labels, s.labels, external.String(), smpl)
	at := model.TimeFromUnix(1_700_000_000)
	return prometheus.NewTemplateExpander(context.Background(), text, mainTemplate, data, at, query, external, nil)
}

// query checks a query instead of running it.
func (s trial) query(b *Budget) prometheus.QueryFunc {
	return func(_ context.Context, query string, _ time.Time) (prom.Vector, error) {
		// Parsing takes longer than printing.
		if err := b.spend(20, 16*len(query)); err != nil {
			return nil, err
		}
		if f := promql.CheckQuery(query); f != nil {
			return nil, fmt.Errorf("the query %s: %w", clip.Excerpt(query), f)
		}
		if !s.found {
			return nil, nil
		}
		return prom.Vector{{F: 1, Metric: labels.FromMap(s.labels)}}, nil
	}
}

// run renders an instrumented text.
func (s trial) run(t *goTemplate, instrumented string, b *Budget) error {
	_, err := s.render(t, instrumented, b)
	return err
}

func (s trial) render(t *goTemplate, instrumented string, b *Budget) (string, error) {
	if err := b.next(t.nodes); err != nil {
		return "", err
	}
	e := s.expander(instrumented, s.query(b))
	e.Funcs(b.funcs())
	return e.Expand()
}
