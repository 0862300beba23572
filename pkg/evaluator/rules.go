package evaluator

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"
)

const (
	maxLastError = 512     // bytes
	maxHeld      = 8 << 20 // bytes of the rules of one group
	ruleOverhead = 512     // bytes of a rule without its strings
	maxRestarts  = 2
)

// The values of Rule.Health.
const (
	HealthOK      = "ok"
	HealthErr     = "err"
	HealthUnknown = "unknown" // it was not evaluated yet
)

// Rule is a rule as loaded in an evaluator. It is untrusted. Fields are as the evaluator sent them,
// for comparison, unless their comment says otherwise.
type Rule struct {
	// File is the file name; names by prometheus-operator end with <namespace>-<name>-<uid>.yaml.
	File string
	// Group is unique within a file.
	Group string
	// Interval is the evaluation interval of the group.
	Interval time.Duration

	// Recording is true for a recording rule. It has no annotations and durations.
	Recording          bool
	Name               string
	Query              string // as the evaluator formats it
	For, KeepFiringFor time.Duration
	Labels             map[string]string
	Annotations        map[string]string

	// Health is HealthOK, HealthErr or HealthUnknown.
	Health string
	// LastError is the reason of HealthErr, at most 512 bytes in one printable line.
	LastError string
	// LastEvaluation is zero before the first evaluation.
	LastEvaluation time.Time

	// Firing and Pending count its alerts by state.
	Firing, Pending int
}

// Stats describes a call of Rules.
type Stats struct {
	// Requests counts the requests, including failed ones.
	Requests int
	// Groups and Rules count what was passed to the function.
	Groups, Rules int
	// Bytes counts the bytes of answers.
	Bytes int64
	// Restarts counts how often reading started again because the rules changed.
	Restarts int
}

// Filter selects rules.
type Filter struct {
	// Match is a selector for the labels of alerting rules, or empty. Evaluators without support for it (Prometheus
	// before 2.54, ThanosRuler before 0.38) return all of them.
	Match string
	// Groups are the names of the groups of which all rules are read, recording rules too, in place of alerting
	// rules. Evaluators without support for them (Prometheus before 2.44) return all rules.
	Groups []string
}

const (
	// maxNames bounds the length of the names of groups in the address of a request, in bytes. Servers accept at least
	// 8 KiB.
	maxNames = 4 << 10
	// maxParts is the number of requests above which all rules are read instead.
	maxParts = 8
)

// parts returns the filters of the requests that are needed.
func (f Filter) parts() []url.Values {
	if f.Groups == nil {
		out := url.Values{"type": {"alert"}}
		if f.Match != "" {
			out.Set("match[]", f.Match)
		}
		return []url.Values{out}
	}
	var out []url.Values
	length := 0
	for _, name := range f.Groups {
		size := len("&rule_group%5B%5D=") + len(url.QueryEscape(name))
		if len(out) == 0 || length+size > maxNames {
			out, length = append(out, url.Values{}), 0
		}
		length += size
		out[len(out)-1].Add("rule_group[]", name)
	}
	if len(out) > maxParts {
		return []url.Values{{}} // all rules
	}
	return out
}

// Rules reads the rules that a filter selects, and passes each to a function, which may keep it.
//
// The answer comes in pages. If the rules change so that there is no next page, reading starts again, without
// the groups that were already passed: each group comes once, as it was when its page was read. With an error,
// some rules are missing.
func (c *Client) Rules(ctx context.Context, filter Filter, each func(*Rule)) (Stats, error) {
	do, ctx, cancel := c.newCall(ctx)
	defer cancel()
	r := &reading{call: do, recording: filter.Groups != nil, each: each, told: map[uint64]bool{}, seed: maphash.MakeSeed()}
	requests, bytes := do.requestsLeft, do.bytesLeft
	var err error
	for _, part := range filter.parts() {
		if r.part = part; err != nil || r.unfiltered {
			break
		}
		err = r.pages(ctx)
	}
	r.stats.Requests, r.stats.Bytes = requests-do.requestsLeft, bytes-do.bytesLeft
	return r.stats, err
}

// reading is the state of one call of Rules.
type reading struct {
	*call
	// part is the filter of the present request. recording means that recording rules are read as well.
	part      url.Values
	recording bool
	// unfiltered means that the answer has a group that was not requested: all groups come at once.
	unfiltered bool
	each       func(*Rule)
	stats      Stats
	found      int // rules in all pages
	// groups counts all groups that were read, including those without rules.
	groups int

	// told has the groups that were passed on. An evaluator can't create a collision, because it does not know
	// the seed.
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
	query := maps.Clone(r.part)
	query.Set("group_limit", strconv.Itoa(cmp.Or(r.client.PageSize, defaultPage)))
	if token != "" {
		query.Set("group_next_token", token)
	}
	res, err := r.get(ctx, r.client.address("rules", query))
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	s := r.stream(res)
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

// group reads a group. Its rules are kept until its end, because its common fields may follow them.
func (r *reading) group(s *stream) error {
	if most := cmp.Or(r.client.MaxRules, defaultRules); r.groups-r.found >= most {
		return NewTooMuch("the answer", int64(r.groups-r.found+1), int64(most), "groups without rules", "reduce the number of groups there")
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
				if held += rule.Size(); held > maxHeld {
					return NewTooMuch("the rules of a group", int64(held), maxHeld, "bytes", "split the group")
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
	if names := r.part["rule_group[]"]; names != nil && !slices.Contains(names, name) {
		r.unfiltered = true
	}
	r.tell(rules)
	return nil
}

// tell passes on the rules of a group, once.
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
