package evaluator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net/url"
	"strconv"
	"time"
)

const (
	maxLastError = 512     // bytes
	maxHeld      = 8 << 20 // bytes of the rules of one group
	ruleOverhead = 512     // bytes that a rule takes without its texts
	maxRestarts  = 2
)

// The values of Rule.Health.
const (
	HealthOK      = "ok"
	HealthErr     = "err"
	HealthUnknown = "unknown" // it was not evaluated yet
)

// Rule is one alerting rule as an evaluator has it loaded. What it holds is untrusted;
// what is not said to be cleaned is as the evaluator sent it, to be compared with.
type Rule struct {
	// File is as the evaluator names it: prometheus-operator's end with
	// <namespace>-<name>-<uid>.yaml.
	File string
	// Group is unique within a file.
	Group string
	// Interval is how often the group is evaluated.
	Interval time.Duration

	Name               string
	Query              string // as the evaluator formats it
	For, KeepFiringFor time.Duration
	Labels             map[string]string
	Annotations        map[string]string

	// Health is HealthOK, HealthErr or HealthUnknown.
	Health string
	// LastError is the reason of HealthErr, at most 512 bytes, in one printable line.
	LastError string
	// LastEvaluation is zero before the first.
	LastEvaluation time.Time

	// Firing and Pending count its alerts by state.
	Firing, Pending int
}

// Stats tell what a call of Rules took.
type Stats struct {
	// Requests counts requests, also those that failed.
	Requests int
	// Groups and Rules count what was handed over.
	Groups, Rules int
	// Bytes counts what was read of answers.
	Bytes int64
	// Restarts counts how often reading began anew because the rules changed.
	Restarts int
}

// Rules reads all alerting rules, and hands each to a function, which may keep it. A
// match that is not empty is a selector for the rules' labels; evaluators that don't
// know of it (Prometheus before 2.54, ThanosRuler before 0.38) hand over all rules
// nonetheless.
//
// The answer comes in pages. When the rules change in between so that there is no next
// page, reading begins anew, without the groups that were handed over already: no
// group comes twice, and each is as it was when its page was read. With an error, what
// was handed over is not all.
func (c *Client) Rules(ctx context.Context, match string, each func(*Rule)) (Stats, error) {
	do, ctx, cancel := c.newCall(ctx)
	defer cancel()
	r := &reading{call: do, match: match, each: each, told: map[uint64]bool{}, seed: maphash.MakeSeed()}
	requests, bytes := do.requestsLeft, do.bytesLeft
	err := r.pages(ctx)
	r.stats.Requests, r.stats.Bytes = requests-do.requestsLeft, bytes-do.bytesLeft
	return r.stats, err
}

// reading is one call of Rules.
type reading struct {
	*call
	match string
	each  func(*Rule)
	stats Stats
	found int // rules in all pages
	// groups are all that were read, those without rules included.
	groups int

	// told has the groups that were handed over. An evaluator can't make two look the
	// same, as it does not know the seed.
	told map[uint64]bool
	seed maphash.Seed
}

// pages reads all pages.
func (r *reading) pages(ctx context.Context) error {
	token := ""
	for {
		next, err := r.page(ctx, token)
		if bad := (*Error)(nil); token != "" && errors.As(err, &bad) && bad.staleToken {
			if r.stats.Restarts == maxRestarts {
				return &Error{Code: bad.Code, Kind: Changing, Message: "its rules kept changing while they were read"}
			}
			r.stats.Restarts++
			token = ""
			continue
		}
		if err != nil || next == "" {
			return err
		}
		token = next
	}
}

// page reads one page, and returns the token of the next.
func (r *reading) page(ctx context.Context, token string) (next string, err error) {
	query := url.Values{
		"type":        {"alert"},
		"group_limit": {strconv.Itoa(cmp.Or(r.client.PageSize, defaultPage))},
	}
	if r.match != "" {
		query.Set("match[]", r.match)
	}
	if token != "" {
		query.Set("group_next_token", token)
	}
	res, err := r.get(ctx, r.client.address("rules", query))
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	s := newStream(res, &r.bytesLeft)
	_, err = s.answer(func() error {
		next, err = r.data(s)
		return err
	})
	return next, err
}

// data reads the groups of a page.
func (r *reading) data(s *stream) (next string, err error) {
	groups := false
	_, err = s.object(func(name string) error {
		switch name {
		case "groups":
			groups = true
			return s.array(func() error { return r.group(s) })
		case "groupNextToken":
			return s.value(&next)
		}
		return s.skip()
	})
	switch {
	case err != nil:
		return "", err
	case !groups:
		return "", errors.New("it has no groups of rules")
	case len(next) > maxToken:
		return "", errors.New("the token of the next page is too long")
	}
	return next, nil
}

// group reads a group. Its rules wait for its end: what they have in common may come
// after them.
func (r *reading) group(s *stream) error {
	if most := cmp.Or(r.client.MaxRules, defaultRules); r.groups-r.found >= most {
		return &Error{Kind: TooMuch, Message: fmt.Sprintf("it has more than %d groups without rules", most)}
	}
	r.groups++
	var (
		file, name string
		interval   float64
		rules      []*Rule
		held       int
	)
	there, err := s.object(func(field string) error {
		switch field {
		case "name":
			return s.value(&name)
		case "file":
			return s.value(&file)
		case "interval":
			return s.value(&interval)
		case "rules":
			return s.array(func() error {
				rule, err := r.rule(s)
				if err != nil || rule == nil {
					return err
				}
				rules = append(rules, rule)
				if held += rule.size(); held > maxHeld {
					return &Error{Kind: TooMuch, Message: "a group of rules is too large"}
				}
				return nil
			})
		}
		return s.skip()
	})
	if err != nil || !there {
		return err
	}
	for _, rule := range rules {
		rule.File, rule.Group, rule.Interval = file, name, seconds(interval)
	}
	r.tell(rules)
	return nil
}

// tell hands over the rules of a group, once.
func (r *reading) tell(group []*Rule) {
	if len(group) == 0 {
		return
	}
	id := maphash.Comparable(r.seed, [2]string{group[0].File, group[0].Group})
	if r.told[id] {
		return
	}
	r.told[id] = true
	r.stats.Groups++
	for _, rule := range group {
		r.stats.Rules++
		r.each(rule)
	}
}
