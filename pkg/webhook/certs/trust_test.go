package certs

import (
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

func TestTrust(t *testing.T) {
	t.Parallel()
	names := []string{"one.rulefleet.io", "two.rulefleet.io"}
	old, recent := fresh(t)[bundleKey], fresh(t)[bundleKey]
	both := append(append([]byte{}, recent...), old...)
	config := func(one, two []byte) *admissionv1.ValidatingWebhookConfiguration {
		c := &admissionv1.ValidatingWebhookConfiguration{}
		for name, bundle := range map[string][]byte{names[0]: one, names[1]: two, "foreign.example.com": old} {
			w := admissionv1.ValidatingWebhook{Name: name}
			w.ClientConfig.CABundle = bundle
			c.Webhooks = append(c.Webhooks, w)
		}
		return c
	}
	foreign := &admissionv1.ValidatingWebhookConfiguration{Webhooks: []admissionv1.ValidatingWebhook{{Name: "foreign.example.com"}}}
	tr := &trust{}
	for i, step := range []struct {
		config              *admissionv1.ValidatingWebhookConfiguration
		old, recent, absent int // the step since when it is so; -1 for not so
	}{
		{nil, -1, -1, 0},
		{foreign, -1, -1, 0},
		{config(old, old), 2, -1, -1},
		{config(both, old), 2, -1, -1}, // one of two does not do
		{config(both, both), 2, 4, -1},
		{config(both, both), 2, 4, -1},
		{config(both, []byte("garbage")), -1, -1, -1},
		{config(both, both), 7, 7, -1},
		{config(recent, both), -1, 7, -1},
		{nil, -1, -1, 9},
	} {
		at := func(step int) time.Time {
			if step < 0 {
				return time.Time{}
			}
			return epoch.Add(time.Duration(step) * time.Second)
		}
		tr.observe(step.config, names, at(i))
		gotOld, gotRecent := tr.since[fingerprintOf(decode(old)[0])], tr.since[fingerprintOf(decode(recent)[0])]
		if gotOld != at(step.old) || gotRecent != at(step.recent) || tr.absent != at(step.absent) {
			t.Errorf("step %d: the old one since %v, the recent one since %v, none since %v", i, gotOld, gotRecent, tr.absent)
		}
	}
}
