package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/rulefleet/rulefleet/pkg/metrics"
)

var (
	epoch     = time.Date(2030, 1, 2, 3, 4, 5, 678e6, time.UTC)
	testHosts = []string{"rulefleet-webhook.rulefleet-system.svc", "127.0.0.1"}
	quarter   = LifetimesOf(90 * 24 * time.Hour)
)

func decided(t *testing.T, in input) *decision {
	t.Helper()
	if in.Hosts == nil {
		in.Hosts = testHosts
	}
	if in.Lifetimes == (Lifetimes{}) {
		in.Lifetimes = quarter
	}
	d, err := decide(in)
	if err != nil {
		t.Fatal(err)
	}
	if !d.Again.After(in.Now) || d.Again.After(in.Now.Add(longest)) {
		t.Errorf("it looks again at %v, %v from now", d.Again, d.Again.Sub(in.Now))
	}
	return d
}

// fresh is a Secret as it is first made.
func fresh(t *testing.T) map[string][]byte {
	t.Helper()
	return decided(t, input{Now: epoch}).Data
}

func trusting(bundle []byte, since time.Time) map[fingerprint]time.Time {
	out := map[fingerprint]time.Time{}
	for _, c := range decode(bundle) {
		out[fingerprintOf(c)] = since
	}
	return out
}

func with(data map[string][]byte, key, value string) map[string][]byte {
	out := maps.Clone(data)
	out[key] = []byte(value)
	return out
}

// without is a Secret that lacks some keys.
func without(data map[string][]byte, keys ...string) map[string][]byte {
	out := maps.Clone(data)
	for _, key := range keys {
		delete(out, key)
	}
	return out
}

// servable is what has to be true of every Secret that is written.
func servable(t *testing.T, data map[string][]byte, now time.Time) *x509.Certificate {
	t.Helper()
	p, err := parsePair(data, decode(data[bundleKey]), now)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range testHosts {
		if err := p.cert.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	for _, ca := range decode(data[bundleKey]) {
		if p.cert.CheckSignatureFrom(ca) == nil && p.cert.NotAfter.After(ca.NotAfter) {
			t.Error("the certificate outlives its authority")
		}
	}
	return p.cert
}

// What a decision changes of a Secret.
const (
	bundleGrows  = "bundle grows"
	bundleNew    = "bundle is new"
	bundleSame   = "bundle is the same"
	servingNew   = "serving is new"
	servingSame  = "serving is the same"
	successor    = "a successor waits"
	noSuccessor  = "no successor"
	nothingAtAll = "nothing"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	first := fresh(t)
	joined := decided(t, input{Data: first, Now: epoch.Add(quarter.Authority * 7 / 10), Trusted: trusting(first[bundleKey], epoch)})
	rotating, joinedAt := joined.Data, epoch.Add(quarter.Authority*7/10)
	other := fresh(t)
	cases := map[string]struct {
		data    map[string][]byte
		at      time.Duration
		trusted map[fingerprint]time.Time
		absent  time.Time
		hosts   []string
		want    []string
	}{
		"no Secret":               {data: nil, want: []string{bundleNew, servingNew, noSuccessor}},
		"empty Secret":            {data: map[string][]byte{}, want: []string{bundleNew, servingNew, noSuccessor}},
		"good":                    {data: first, want: []string{nothingAtAll}},
		"good, somebody's key":    {data: with(first, "note", "mine"), want: []string{nothingAtAll}},
		"before renewal":          {data: first, at: quarter.Serving / 2, want: []string{nothingAtAll}},
		"renewal":                 {data: first, at: quarter.Serving * 67 / 100, want: []string{bundleSame, servingNew, noSuccessor}},
		"served but expired":      {data: first, at: quarter.Serving + time.Second, want: []string{bundleSame, servingNew, noSuccessor}},
		"authority due":           {data: first, at: quarter.Authority * 7 / 10, want: []string{bundleGrows, servingNew, successor}},
		"successor not trusted":   {data: rotating, at: quarter.Authority*7/10 + time.Hour, trusted: trusting(first[bundleKey], epoch), want: []string{nothingAtAll}},
		"successor settling":      {data: rotating, at: quarter.Authority*7/10 + time.Minute, trusted: trusting(rotating[bundleKey], joinedAt), want: []string{nothingAtAll}},
		"successor trusted":       {data: rotating, at: quarter.Authority*7/10 + quarter.Settle, trusted: trusting(rotating[bundleKey], joinedAt), want: []string{servingNew, noSuccessor}},
		"successor, nobody cares": {data: rotating, at: quarter.Authority*7/10 + quarter.Settle, absent: joinedAt, want: []string{servingNew, noSuccessor}},
		"successor never trusted": {data: rotating, at: quarter.Authority - time.Hour, want: []string{servingNew, successor}},
		"all expired":             {data: first, at: quarter.Authority + time.Second, want: []string{bundleNew, servingNew, noSuccessor}},
		"other hosts":             {data: first, hosts: []string{"elsewhere.example.com"}, want: []string{bundleSame, servingNew, noSuccessor}},
		"hosts otherwise spelled": {data: first, hosts: []string{testHosts[1], testHosts[0], testHosts[0]}, want: []string{nothingAtAll}},
		"garbage certificate":     {data: with(first, servingCertKey, "garbage"), want: []string{bundleSame, servingNew, noSuccessor}},
		"garbage key":             {data: with(first, servingKeyKey, "garbage"), want: []string{bundleSame, servingNew, noSuccessor}},
		"another's key":           {data: with(first, servingKeyKey, string(other[servingKeyKey])), want: []string{bundleSame, servingNew, noSuccessor}},
		"another's pair": {
			data: with(with(first, servingKeyKey, string(other[servingKeyKey])), servingCertKey, string(other[servingCertKey])),
			want: []string{bundleSame, servingNew, noSuccessor},
		},
		"garbage bundle":       {data: with(first, bundleKey, "garbage"), want: []string{bundleNew, servingNew, noSuccessor}},
		"authority's key lost": {data: without(first, signerKey), want: []string{bundleGrows, servingSame, successor}},
		"garbage authority's key": {
			data: with(first, signerKey, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), want: []string{bundleGrows, servingSame, successor},
		},
		"both keys lost":         {data: without(first, signerKey, servingKeyKey), want: []string{servingNew, noSuccessor}},
		"successor's key lost":   {data: without(rotating, nextKey), at: quarter.Authority * 7 / 10, want: []string{bundleGrows, servingSame, successor}},
		"signer's key lost, too": {data: without(rotating, signerKey, servingKeyKey), at: quarter.Authority * 7 / 10, want: []string{servingNew, noSuccessor}},
		"a stranger in the bundle": {
			data: with(first, bundleKey, string(first[bundleKey])+string(first[servingCertKey])), want: []string{servingSame, noSuccessor},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := epoch.Add(c.at)
			d := decided(t, input{Data: c.data, Now: now, Trusted: c.trusted, Absent: c.absent, Hosts: c.hosts})
			if c.hosts == nil {
				servable(t, d.Data, now)
			}
			if !bytes.Equal(d.Bundle, d.Data[bundleKey]) {
				t.Error("the configuration would not trust what the Secret holds")
			}
			for _, want := range c.want {
				if !holds(want, c.data, d) {
					t.Errorf("not so: %s; %q", want, d.Why)
				}
			}
			// What was decided needs no further decision.
			if again := decided(t, input{Data: d.Data, Now: now, Trusted: c.trusted, Absent: c.absent, Hosts: c.hosts}); len(again.Why) > 0 {
				t.Errorf("it is never content: %q, and then %q", d.Why, again.Why)
			}
		})
	}
}

func holds(want string, before map[string][]byte, d *decision) bool {
	servingSays := bytes.Equal(before[servingCertKey], d.Data[servingCertKey])
	missing := 0
	for _, c := range decode(before[bundleKey]) {
		if !bytes.Contains(d.Bundle, encode(c)) {
			missing++
		}
	}
	switch want {
	case nothingAtAll:
		return len(d.Why) == 0 && same(before, d.Data)
	case bundleSame:
		return bytes.Equal(before[bundleKey], d.Bundle)
	case bundleNew:
		return missing == len(decode(before[bundleKey])) && len(decode(d.Bundle)) == 1
	case bundleGrows:
		return missing == 0 && len(decode(d.Bundle)) == len(decode(before[bundleKey]))+1
	case servingSame:
		return servingSays
	case servingNew:
		return !servingSays
	case successor:
		return d.Data[nextKey] != nil
	case noSuccessor:
		return d.Data[nextKey] == nil
	}
	return false
}

// TestNoRotationCostsARequest goes through years of rotations. API servers hear of a
// bundle late, by up to the settling time, and replicas hear of a certificate so late
// that they serve the one before until it expires. None of them may ever meet
// a certificate that it does not trust.
func TestNoRotationCostsARequest(t *testing.T) {
	t.Parallel()
	for _, lifetimes := range []Lifetimes{LifetimesOf(5 * 24 * time.Hour), LifetimesOf(6 * time.Second), LifetimesOf(MinLifetime)} {
		type seen struct {
			bundle []*x509.Certificate
			until  time.Time // zero: still
		}
		var (
			now     = epoch
			data    map[string][]byte
			tracker = map[fingerprint]time.Time{}
			views   []seen
			served  []*x509.Certificate
			made    = map[fingerprint]bool{}
			writes  int
		)
		for now.Before(epoch.Add(6 * lifetimes.Authority)) {
			d := decided(t, input{Data: data, Now: now, Lifetimes: lifetimes, Trusted: tracker})
			if len(d.Why) > 0 {
				data = d.Data
				writes++
				// Then the configuration is written.
				if len(views) > 0 {
					views[len(views)-1].until = now
				}
				views = append(views, seen{bundle: decode(d.Bundle)})
				before := tracker
				tracker = map[fingerprint]time.Time{}
				for f := range trusting(d.Bundle, now) {
					tracker[f] = now
					if at, ok := before[f]; ok {
						tracker[f] = at
					}
					made[f] = true
				}
				served = append(served, servable(t, data, now))
			}
			// No API server is later than that.
			views = slices.DeleteFunc(views, func(v seen) bool { return !v.until.IsZero() && !now.Before(v.until.Add(lifetimes.Settle)) })
			served = slices.DeleteFunc(served, func(c *x509.Certificate) bool { return !now.Before(c.NotAfter) })
			for _, v := range views {
				for _, c := range served {
					if err := verify(c, v.bundle, now); err != nil {
						t.Fatalf("%v after the beginning, %d authorities, %q: %v", now.Sub(epoch), len(made), d.Why, err)
					}
				}
			}
			next := decided(t, input{Data: data, Now: now, Lifetimes: lifetimes, Trusted: tracker}).Again
			if left := served[len(served)-1].NotAfter.Sub(next); left < lifetimes.Serving/4 && left < lifetimes.Serving-2*time.Second {
				t.Errorf("the certificate is renewed only %v before its end", left)
			}
			now = next
		}
		if len(made) < 8 || writes > 100 {
			t.Errorf("%d authorities and %d writes in six lives of an authority of %v", len(made), writes, lifetimes.Authority)
		}
		if got := len(decode(data[bundleKey])); got > 3 {
			t.Errorf("the bundle grows: %d", got)
		}
		t.Logf("lifetime %v: %d authorities, %d writes", lifetimes.Serving, len(made), writes)
	}
}

func TestRenewalIsSpread(t *testing.T) {
	t.Parallel()
	earliest, latest := quarter.Serving, time.Duration(0)
	for range 50 {
		c := servable(t, fresh(t), epoch)
		at := renewal(c, quarter.Serving).Sub(epoch)
		earliest, latest = min(earliest, at), max(latest, at)
		if at < quarter.Serving*56/100 || at > quarter.Serving*67/100 {
			t.Errorf("it is renewed after %v", at)
		}
	}
	if latest-earliest < quarter.Serving/50 {
		t.Errorf("renewals are between %v and %v", earliest, latest)
	}
}

// TestKeeper is not parallel to others: Keepers share the metric.
func TestKeeper(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(epoch)
	k := &Keeper{Clock: clock}
	if _, err := k.GetCertificate(nil); err == nil || k.Ready() == nil {
		t.Error("it is ready without a certificate")
	}
	first := fresh(t)
	if _, err := k.take(&corev1.Secret{Data: with(first, servingKeyKey, "garbage")}); err == nil || k.Ready() == nil {
		t.Error("it took garbage")
	}
	take := func(data map[string][]byte, wantChange bool) *tls.Certificate {
		t.Helper()
		if changed, err := k.take(&corev1.Secret{Data: data}); err != nil || changed != wantChange || k.Ready() != nil {
			t.Errorf("changed is %v, error %v, ready %v", changed, err, k.Ready())
		}
		c, err := k.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	one := take(first, true)
	take(first, false)
	end := time.Unix(int64(testutil.ToFloat64(metrics.WebhookCertificateExpiry)), 0)
	if served, err := k.GetCertificate(nil); err != nil || !served.Leaf.NotAfter.Equal(end) {
		t.Errorf("the metric says that the certificate ends at %s: %v", end, err)
	}
	if _, err := k.take(&corev1.Secret{Data: with(first, bundleKey, string(fresh(t)[bundleKey]))}); err == nil {
		t.Error("it took what its own bundle does not trust")
	}
	if c, _ := k.GetCertificate(nil); c != one {
		t.Error("what can't be used replaced what can")
	}
	if two := take(fresh(t), true); bytes.Equal(two.Leaf.Raw, one.Leaf.Raw) {
		t.Error("it serves what it did before")
	}
	clock.SetTime(epoch.Add(quarter.Serving))
	if err := k.Ready(); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("it is ready with an expired certificate: %v", err)
	}
}
