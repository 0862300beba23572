package certs

import (
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// trust records since when API servers can know each authority. A new leader starts again, which only
// makes it wait longer.
type trust struct {
	since  map[fingerprint]time.Time
	absent time.Time
}

// observe records the configuration. nil, or a configuration without our webhooks, counts as absent.
// An authority that one of our webhooks lacks is not trusted.
func (t *trust) observe(config *admissionv1.ValidatingWebhookConfiguration, names []string, now time.Time) {
	var bundles [][]byte
	if config != nil {
		for i := range config.Webhooks {
			if slices.Contains(names, config.Webhooks[i].Name) {
				bundles = append(bundles, config.Webhooks[i].ClientConfig.CABundle)
			}
		}
	}
	if len(bundles) == 0 {
		if t.absent.IsZero() {
			t.absent = now
		}
		t.since = nil
		return
	}
	t.absent = time.Time{}
	count := map[fingerprint]int{}
	for _, bundle := range bundles {
		seen := map[fingerprint]bool{}
		for _, c := range decode(bundle) {
			seen[fingerprintOf(c)] = true
		}
		for f := range seen {
			count[f]++
		}
	}
	before := t.since
	t.since = map[fingerprint]time.Time{}
	for f, n := range count {
		if n < len(bundles) {
			continue
		}
		t.since[f] = now
		if at, ok := before[f]; ok {
			t.since[f] = at
		}
	}
}
