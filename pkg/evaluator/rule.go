package evaluator

import (
	"cmp"
	"math"
	"time"
)

const maxToken = 1 << 10 // bytes; Prometheus' have 40

// rule reads a rule. It returns nil if it is of a kind that is not read.
func (r *reading) rule(s *stream) (*Rule, error) {
	if limit := cmp.Or(r.client.MaxRules, defaultRules); r.found >= limit {
		return nil, NewTooMuch("the answer", int64(r.found+1), int64(limit), "rules", "reduce the number of rules there")
	}
	r.found++
	var (
		out                = &Rule{Health: HealthUnknown}
		kind, at           string
		hold, keep         float64
		health, lastFailed string
	)
	texts := map[string]any{
		"name": &out.Name, "query": &out.Query, "labels": &out.Labels, "annotations": &out.Annotations,
		"duration": &hold, "keepFiringFor": &keep, "type": &kind,
		"health": &health, "lastError": &lastFailed, "lastEvaluation": &at,
	}
	there, err := s.object(func(field string) error {
		if into, ok := texts[field]; ok {
			return s.value(into)
		}
		if field == "alerts" {
			return s.array(func() error { return out.count(s) })
		}
		return s.skip()
	})
	out.Recording = kind == "recording"
	if err != nil || !there || kind != "alerting" && !(r.recording && out.Recording) {
		return nil, err
	}
	out.For, out.KeepFiringFor = seconds(hold), seconds(keep)
	if health == HealthOK || health == HealthErr {
		out.Health = health
	}
	out.LastError = clip(lastFailed, maxLastError)
	if t, err := time.Parse(time.RFC3339Nano, at); err == nil {
		out.LastEvaluation = t
	}
	return out, nil
}

// count reads one of the rule's alerts.
func (r *Rule) count(s *stream) error {
	var alert struct {
		State string `json:"state"`
	}
	if err := s.value(&alert); err != nil {
		return err
	}
	switch alert.State {
	case "firing":
		r.Firing++
	case "pending":
		r.Pending++
	}
	return nil
}

// Size estimates the rule's size in memory, in bytes.
func (r *Rule) Size() int {
	out := ruleOverhead + len(r.Name) + len(r.Query) + len(r.LastError)
	for _, m := range []map[string]string{r.Labels, r.Annotations} {
		for k, v := range m {
			out += ruleOverhead/4 + len(k) + len(v)
		}
	}
	return out
}

// seconds converts seconds of Prometheus into a duration, limited to its range.
func seconds(s float64) time.Duration {
	switch ns := s * float64(time.Second); {
	case ns <= 0:
		return 0
	case ns >= math.MaxInt64:
		return math.MaxInt64
	default:
		return time.Duration(ns)
	}
}
