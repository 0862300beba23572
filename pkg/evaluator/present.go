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
	maxURL       = 8 << 10 // bytes; the limit of many proxies
	queryTimeout = 10 * time.Second
	indexLabel   = "i"
)

// Presence says whether an evaluator has series for a selector.
type Presence int

// The values of Presence.
const (
	Unknown Presence = iota // it could not be determined
	Absent
	Present
)

// Present reports for each vector selector whether the evaluator has such a series at present: one with a
// sample in the last five minutes that is not stale. With an error, some are Unknown; it returns the worst of
// several errors. A ThanosRuler answers no queries: the error is NotFound then.
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

// asking is the state of one call of Present.
type asking struct {
	*call
	out   []Presence
	worst error
	errs  int
}

// failed records an error, and reports whether it concerns only one query, so that others can be sent.
func (a *asking) failed(err error) bool {
	kind := kindOf(err)
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

// question is the query for one selector. Its answer has at most one series, whose only label is the
// selector's index, because grouping removes all others.
type question struct {
	index int
	text  string
}

// anyPromQL parses the selectors of every version of Prometheus.
var anyPromQL = parser.NewParser(parser.Options{})

// question creates a query for a selector, and refuses any other expression. It does not parse a selector that
// is too long for a URL.
func (a *asking) question(index int, selector string) (question, error) {
	tooLong := func(size int) *Error {
		e := NewTooMuch(fmt.Sprintf("the query for the selector %q", clip(selector, maxSaid)), int64(size), maxURL, "bytes", "shorten the selector")
		e.Kind = Rejected // the evaluator was not asked, and answers others
		return e
	}
	if len(selector) > maxURL {
		return question{}, tooLong(len(selector))
	}
	expr, err := anyPromQL.ParseExpr(selector)
	if err != nil {
		return question{}, &Error{Kind: Rejected, Message: clip(fmt.Sprintf("%q does not parse: %v", clip(selector, maxSaid), err), 2*maxSaid)}
	}
	s, ok := expr.(*parser.VectorSelector)
	if !ok || s.OriginalOffset != 0 || s.OriginalOffsetExpr != nil || s.Timestamp != nil || s.StartOrEnd != 0 || s.Anchored || s.Smoothed {
		return question{}, &Error{Kind: Rejected, Message: fmt.Sprintf("%q is not a plain vector selector", clip(selector, maxSaid))}
	}
	// Formatting the parsed selector ensures that nothing else is sent.
	q := question{index, fmt.Sprintf(`label_replace(group(%s),%q,"%d","","")`, s, indexLabel, index)}
	if size := len(a.address([]question{q})); size > maxURL {
		return question{}, tooLong(size)
	}
	return q, nil
}

// fitting returns how many of the queries fit into one request.
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

// address returns the address of a request with all of the queries. Evaluators may apply a lower timeout than
// requested.
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

// ask sends queries in one request, and reports whether more may be sent. If the evaluator rejects the
// request, it sends each half, so that one rejected selector does not affect the others.
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

// refusesContent reports whether an error concerns the content or the cost of a query.
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
	s := a.stream(res)
	warnings, err := s.answer(func() error { return series(s, asked, found) })
	if err != nil {
		return err
	}
	return a.conclude(questions, found, warnings)
}

// conclude records an answer. If the evaluator says that the answer is incomplete, series that were not found
// are unknown rather than absent.
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
	return &Error{Kind: Partial, Code: http.StatusOK, Message: "it returned an incomplete answer: " + clip(warnings[0], maxSaid)}
}

// series reads the series of an answer, and adds their indexes to found.
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
