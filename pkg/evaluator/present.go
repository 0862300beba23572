package evaluator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

const (
	maxURL       = 8 << 10 // bytes, the limit of many a proxy
	queryTimeout = 10 * time.Second
	indexLabel   = "i"
)

// Presence tells whether an evaluator has any series that a selector selects.
type Presence int

// The values of Presence.
const (
	Unknown Presence = iota // it could not be found out
	Absent
	Present
)

// Present tells of each vector selector whether the evaluator has such a series at
// present: one with a sample in the last five minutes that did not end. With an error,
// some are Unknown; it is the worst of several. A ThanosRuler answers no queries: the
// error is NotFound then.
func (c *Client) Present(ctx context.Context, selectors []string) ([]Presence, error) {
	do, ctx, cancel := c.newCall(ctx)
	defer cancel()
	a := &asking{call: do, out: make([]Presence, len(selectors))}
	var questions []question
	for i, s := range selectors {
		if q, err := a.question(i, s); err != nil {
			a.failed(err)
		} else {
			questions = append(questions, q)
		}
	}
	for on := true; on && len(questions) > 0; {
		n := a.fitting(questions)
		on = a.ask(ctx, questions[:n])
		questions = questions[n:]
	}
	return a.out, a.err()
}

// asking is one call of Present.
type asking struct {
	*call
	out   []Presence
	worst error
	errs  int
}

// failed takes note of an error, and tells whether it is about a question alone, so
// that others may be asked.
func (a *asking) failed(err error) bool {
	kind := KindOf(err)
	goesOn := kind == Rejected || kind == Partial
	if a.worst == nil || !goesOn {
		a.worst = err
	}
	a.errs++
	return goesOn
}

func (a *asking) err() error {
	if a.errs > 1 {
		return fmt.Errorf("%w (and %d more)", a.worst, a.errs-1)
	}
	return a.worst
}

// question asks for one selector. It has at most one series for an answer, whose only
// label is the selector's index: grouping leaves no other, so it can't be mistaken.
type question struct {
	index int
	text  string
}

// anyPromQL takes the selectors of every Prometheus.
var anyPromQL = parser.NewParser(parser.Options{})

// question makes a question of a selector, and refuses everything else. What is too long for a URL is not parsed.
func (a *asking) question(index int, selector string) (question, error) {
	tooLong := &Error{Kind: TooMuch, Message: fmt.Sprintf("the selector %q is too long for a query", clip(selector, maxSaid))}
	if len(selector) > maxURL {
		return question{}, tooLong
	}
	expr, err := anyPromQL.ParseExpr(selector)
	if err != nil {
		return question{}, &Error{Kind: Rejected, Message: clip(fmt.Sprintf("%q does not parse: %v", clip(selector, maxSaid), err), 2*maxSaid)}
	}
	s, ok := expr.(*parser.VectorSelector)
	if !ok || s.OriginalOffset != 0 || s.OriginalOffsetExpr != nil || s.Timestamp != nil || s.StartOrEnd != 0 || s.Anchored || s.Smoothed {
		return question{}, &Error{Kind: Rejected, Message: fmt.Sprintf("%q is not a plain vector selector", clip(selector, maxSaid))}
	}
	// Written anew, it is what was parsed, and nothing else.
	q := question{index, fmt.Sprintf(`label_replace(group(%s),%q,"%d","","")`, s, indexLabel, index)}
	if len(a.address([]question{q})) > maxURL {
		return question{}, tooLong
	}
	return q, nil
}

// fitting returns how many of the questions fit into one request.
func (a *asking) fitting(questions []question) int {
	size := len(a.address(questions[:1]))
	for i, q := range questions[1:] {
		if size += len(url.QueryEscape(separator + q.text)); size > maxURL {
			return i + 1
		}
	}
	return len(questions)
}

const separator = " or "

// address is that of a request that asks all of the questions. Evaluators may take a
// lower timeout than is asked for.
func (a *asking) address(questions []question) string {
	texts := make([]string, len(questions))
	for i, q := range questions {
		texts[i] = q.text
	}
	return a.client.address("query", url.Values{
		"query":   {strings.Join(texts, separator)},
		"timeout": {queryTimeout.String()},
		"limit":   {strconv.Itoa(len(a.out))},
	})
}

// ask asks questions in one request, and tells whether more may be asked. When the
// evaluator refuses it, it asks each half: one selector that it does not take is not to
// hide the others.
func (a *asking) ask(ctx context.Context, questions []question) bool {
	err := a.askOnce(ctx, questions)
	if err == nil {
		return true
	}
	if half := len(questions) / 2; half > 0 && refusesContent(err) {
		return a.ask(ctx, questions[:half]) && a.ask(ctx, questions[half:])
	}
	return a.failed(err)
}

// refusesContent tells whether an error is about what a query says or needs.
func refusesContent(err error) bool {
	bad := (*Error)(nil)
	return errors.As(err, &bad) && (bad.Code == http.StatusBadRequest || bad.Code == http.StatusUnprocessableEntity)
}

func (a *asking) askOnce(ctx context.Context, questions []question) error {
	res, err := a.get(ctx, a.address(questions))
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	asked := make(map[string]int, len(questions))
	for _, q := range questions {
		asked[strconv.Itoa(q.index)] = q.index
	}
	found := map[int]bool{}
	s := newStream(res, &a.bytesLeft)
	warnings, err := s.answer(func() error { return series(s, asked, found) })
	if err != nil {
		return err
	}
	return a.conclude(questions, found, warnings)
}

// conclude takes in an answer. What an evaluator did not find is not known to be absent
// when it says that it could not look everywhere.
func (a *asking) conclude(questions []question, found map[int]bool, warnings []string) error {
	missing := 0
	for _, q := range questions {
		switch {
		case found[q.index]:
			a.out[q.index] = Present
		case len(warnings) == 0:
			a.out[q.index] = Absent
		default:
			missing++
		}
	}
	if missing == 0 {
		return nil
	}
	return &Error{Kind: Partial, Code: http.StatusOK, Message: "the evaluator returned an incomplete answer: " + clip(warnings[0], maxSaid)}
}

// series reads the series of an answer to the questions that were asked, and adds their
// indexes to those that are found.
func series(s *stream, asked map[string]int, found map[int]bool) error {
	results := false
	_, err := s.object(func(field string) error {
		switch field {
		case "resultType":
			var kind string
			if err := s.value(&kind); err != nil {
				return err
			}
			if kind != "vector" {
				return fmt.Errorf("it is a %q, not a vector", clip(kind, maxSaid))
			}
			return nil
		case "result":
			results = true
			return s.array(func() error {
				var sample struct {
					Metric map[string]string `json:"metric"`
				}
				if err := s.value(&sample); err != nil {
					return err
				}
				index, ok := asked[sample.Metric[indexLabel]]
				if !ok || len(sample.Metric) != 1 {
					return errors.New("it has series that the query did not select")
				}
				found[index] = true
				return nil
			})
		}
		return s.skip()
	})
	if err == nil && !results {
		return errors.New("it has no result")
	}
	return err
}
