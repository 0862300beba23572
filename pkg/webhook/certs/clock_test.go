package certs

import (
	"crypto/x509"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestClockSetBack makes certificates while the clock is ahead, and sets it back. Nothing that is
// decided then may be refused by an API server that could be served: by one whose clock is ahead
// still and that has any of the bundles, nor by one whose clock was set back, too, and that has the
// new bundle.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	rotating := decided(t, input{Data: fresh(t), Now: epoch.Add(quarter.Authority * 7 / 10)}).Data
	for name, c := range map[string]struct {
		data  map[string][]byte
		ahead time.Time
		back  time.Duration
		want  []string
	}{
		"not enough to matter": {data: fresh(t), ahead: epoch, back: backdate - time.Second, want: []string{nothingAtAll}},
		"an hour":              {data: fresh(t), ahead: epoch, back: time.Hour, want: []string{bundleGrows, servingNew, noSuccessor}},
		"years":                {data: fresh(t), ahead: epoch, back: 5 * 365 * 24 * time.Hour, want: []string{bundleGrows, servingNew, noSuccessor}},
		"after a renewal": {
			data:  decided(t, input{Data: fresh(t), Now: epoch.Add(quarter.Serving * 7 / 10)}).Data,
			ahead: epoch.Add(quarter.Serving * 7 / 10), back: time.Hour, want: []string{bundleSame, servingNew, noSuccessor},
		},
		"with a successor": {
			data: rotating, ahead: epoch.Add(quarter.Authority * 7 / 10), back: time.Hour, want: []string{bundleGrows, servingNew, successor},
		},
		"with all of it": {
			data: rotating, ahead: epoch.Add(quarter.Authority * 7 / 10), back: quarter.Authority, want: []string{servingNew, successor},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := c.ahead.Add(-c.back)
			d := decided(t, input{Data: c.data, Now: now, Trusted: trusting(c.data[bundleKey], c.ahead.Add(-c.back))})
			for _, want := range c.want {
				if !holds(want, c.data, d) {
					t.Errorf("not so: %s; %q", want, d.Why)
				}
			}
			serving := servable(t, d.Data, now)
			if slices.Contains(c.want, servingNew) && !serving.NotBefore.Equal(now.Add(-backdate).Truncate(time.Second)) {
				t.Errorf("it is valid from %v, and it is %v", serving.NotBefore, now)
			}
			if c.ahead.Before(serving.NotAfter) {
				for what, bundle := range map[string][]byte{"former": c.data[bundleKey], "new": d.Bundle} {
					if err := verify(serving, decode(bundle), c.ahead); err != nil {
						t.Errorf("an API server with the %s bundle whose clock is ahead refuses it: %v", what, err)
					}
				}
			}
			// Neither time goes on, nor the clock to and fro, to have another one made.
			for range 3 {
				for _, at := range []time.Time{now, now.Add(time.Hour), c.ahead, now.Add(-backdate + time.Second)} {
					if at.Before(serving.NotBefore) || !at.Before(serving.NotAfter.Add(-quarter.Serving/2)) {
						continue // it is not valid yet, or may be renewed
					}
					if again := decided(t, input{Data: d.Data, Now: at}); len(again.Why) > 0 {
						t.Fatalf("at %v: %q", at, again.Why)
					}
				}
			}
		})
	}
}

// TestClockSetBackAgain sets the clock back many times, by more each time.
func TestClockSetBackAgain(t *testing.T) {
	t.Parallel()
	data, now := fresh(t), epoch
	for i := range 3 * maxRetired {
		now = now.Add(-time.Hour)
		d := decided(t, input{Data: data, Now: now})
		servable(t, d.Data, now)
		if len(d.Why) == 0 {
			t.Fatalf("step %d: nothing was decided", i)
		}
		if again := decided(t, input{Data: d.Data, Now: now}); len(again.Why) > 0 {
			t.Fatalf("step %d: %q, and then %q", i, d.Why, again.Why)
		}
		data = d.Data
	}
	if got := len(decode(data[bundleKey])); got != 1+maxRetired {
		t.Errorf("there are %d authorities", got)
	}
}

// TestClockOfAuthorityGone leaves the authorities of a former key out that are not valid yet.
func TestClockOfAuthorityGone(t *testing.T) {
	t.Parallel()
	const years = 5 * 365 * 24 * time.Hour
	far := decided(t, input{Now: epoch.Add(years)}).Data
	back := decided(t, input{Data: far, Now: epoch})
	if got := len(decode(back.Bundle)); got != 2 {
		t.Fatalf("the bundle has %d", got)
	}
	due := epoch.Add(quarter.Authority * 7 / 10)
	joined := decided(t, input{Data: back.Data, Now: due})
	taken := decided(t, input{Data: joined.Data, Now: due.Add(quarter.Settle), Trusted: trusting(joined.Bundle, due)})
	servable(t, taken.Data, due.Add(quarter.Settle))
	if slices.ContainsFunc(decode(taken.Bundle), func(c *x509.Certificate) bool { return c.NotBefore.After(due) }) {
		t.Error("an authority stays in the bundle for years, and nothing was signed by it")
	}
	if again := decided(t, input{Data: taken.Data, Now: due.Add(quarter.Settle)}); len(again.Why) > 0 {
		t.Errorf("%q, and then %q", taken.Why, again.Why)
	}
}

// TestRetire keeps what replicas may serve by, however many authorities are not valid yet.
func TestRetire(t *testing.T) {
	t.Parallel()
	authorityAt := func(at time.Time) *authority {
		a, err := newAuthority(at, quarter.Authority)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	signer, former := authorityAt(epoch), authorityAt(epoch.Add(-time.Hour))
	s := &state{signer: signer}
	s.retire(former.cert, epoch)
	for i := range maxRetired {
		a, err := signer.renew(epoch.Add(time.Duration(i+1)*time.Hour), quarter.Authority)
		if err != nil {
			t.Fatal(err)
		}
		s.retire(a.cert, epoch)
	}
	if len(s.retired) != maxRetired || !s.retired[0].Equal(former.cert) {
		t.Errorf("%d are kept, and the one that is valid is not", len(s.retired))
	}
}

// TestKeeperAndClocks: whether a certificate is valid is said by the clocks of API servers. But one
// that is not valid yet by the replica's own clock does not replace one that is.
func TestKeeperAndClocks(t *testing.T) {
	t.Parallel()
	first, later := fresh(t), map[string][]byte{}
	maps.Copy(later, decided(t, input{Data: first, Now: epoch.Add(quarter.Serving * 7 / 10)}).Data)
	begin := decode(later[servingCertKey])[0].NotBefore
	serves := func(k *Keeper, data map[string][]byte) bool {
		c, err := k.GetCertificate(nil)
		return err == nil && c.Leaf.Equal(decode(data[servingCertKey])[0])
	}
	take := func(k *Keeper, data map[string][]byte, want bool) {
		t.Helper()
		if changed, err := k.take(&corev1.Secret{Data: data}); err != nil || changed != want {
			t.Errorf("changed is %v, error %v", changed, err)
		}
	}
	clock := clocktesting.NewFakePassiveClock(epoch.Add(-time.Hour))
	k := &Keeper{Clock: clock}
	take(k, first, true)
	if k.Ready() != nil || !serves(k, first) {
		t.Error("a replica whose clock is behind serves nothing")
	}
	clock.SetTime(epoch)
	take(k, later, false)
	if !serves(k, first) {
		t.Error("it serves what is not valid yet, in place of what is")
	}
	clock.SetTime(begin.Add(-time.Second))
	if !serves(k, first) {
		t.Error("it serves what is not valid yet, in place of what is")
	}
	clock.SetTime(begin)
	if !serves(k, later) {
		t.Error("it goes on to serve the former one")
	}
	// Back again: what is served is not valid, nor is what comes.
	clock.SetTime(epoch.Add(-time.Hour))
	if !serves(k, later) {
		t.Error("it goes back to the former one by itself")
	}
	take(k, first, true)
	// And a clock that is behind for long: in the end, the former one is not valid either.
	clock.SetTime(epoch)
	take(k, later, false)
	take(k, first, false)
	clock.SetTime(begin)
	if !serves(k, first) {
		t.Error("it serves what the Secret holds no more")
	}
	other := decided(t, input{Now: epoch.Add(2 * quarter.Serving)}).Data
	clock.SetTime(epoch.Add(time.Hour))
	take(k, other, false)
	clock.SetTime(epoch.Add(quarter.Serving))
	if !serves(k, other) {
		t.Error("it serves what is not valid any more")
	}
	if _, err := k.take(&corev1.Secret{Data: with(first, bundleKey, string(other[bundleKey]))}); err == nil {
		t.Error("it took what its own bundle does not trust")
	}
}

func TestClockWatch(t *testing.T) {
	t.Parallel()
	monotonic, wall := clocktesting.NewFakePassiveClock(epoch), clocktesting.NewFakePassiveClock(epoch)
	w := newClockWatch(monotonic, wall)
	for i, step := range []struct {
		monotonic, wall time.Duration // that pass
		want            bool
	}{
		{0, 0, false},
		{clockLook, clockLook, false},
		{12 * time.Hour, 12 * time.Hour, false},
		{clockLook, clockLook + clockSlack, false},
		{clockLook, clockLook + time.Second, true}, // slowly, but surely
		{clockLook, clockLook, false},
		{clockLook, -time.Hour, true},
		{clockLook, clockLook, false},
		{clockLook, time.Hour, true},
		{0, -clockSlack, false},
	} {
		monotonic.SetTime(monotonic.Now().Add(step.monotonic))
		wall.SetTime(wall.Now().Add(step.wall))
		if got := w.set(); got != step.want {
			t.Errorf("step %d: %v", i, got)
		}
	}
}
