package e2e

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/rulefleet/rulefleet/pkg/testing/faultproxy"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// ofALink chooses a fault between the manager and a spoke.
func (x *exploration) ofALink(s *explored) breakage {
	switch x.rnd.IntN(11) {
	case 0:
		return x.ofAnIdentity(s)
	case 1:
		return over(s.proxy, breakage{what: "empty lists", at: s.name}, faultproxy.EmptyLists)
	case 2:
		// The objects stay as they are, so they seem to have been made an hour earlier.
		b := over(s.proxy, breakage{what: "the clock is ahead", at: s.name}, faultproxy.Ahead(time.Hour))
		begin := b.inject
		b.inject = func() error { s.ahead = true; return begin() }
		return b
	}
	return x.breaks(s.proxy, s.name)
}

// breaks chooses a fault of the requests over a link.
func (x *exploration) breaks(link *faultproxy.Proxy, at string) breakage {
	b := breakage{at: at}
	f := faultproxy.Pass
	switch x.rnd.IntN(8) {
	case 0:
		b.what, f = "connections are reset", faultproxy.Reset(0.4, x.rnd.Uint64())
	case 1:
		b.what, b.dead, f = "500 and 503", true, faultproxy.Storm(x.rnd.Uint64())
	case 2:
		b.what, b.dead, f = "429", true, faultproxy.TooManyRequests(2*time.Second)
	case 3:
		b.what, f = "410", faultproxy.Gone
	case 4:
		b.what, f = "slow", faultproxy.Latency(2*time.Second)
	case 5:
		b.what, b.dead, f = "truncated answers", true, faultproxy.Truncated
	case 6:
		b.what, b.dead = "hangs", true
		f = func(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() }
	case 7:
		return isCut(link, at)
	}
	return over(link, b, f)
}

// over makes a fault of a link.
func over(link *faultproxy.Proxy, b breakage, f faultproxy.Fault) breakage {
	b.inject = func() error { link.Set(f); link.EndWatches(); return nil }
	b.heal = func() error { link.Set(faultproxy.Pass); link.Sever(); return nil }
	return b
}

// isCut lets a byte per second pass, as if a cable was cut: connections stay, and nothing comes over them.
func isCut(link *faultproxy.Proxy, at string) breakage {
	return breakage{
		what: "cut", at: at, dead: true,
		inject: func() error { link.Limit(1); return nil },
		heal:   func() error { link.Limit(0); link.Sever(); return nil },
	}
}

// ofAnIdentity has another cluster answer at the address of a spoke.
func (x *exploration) ofAnIdentity(s *explored) breakage {
	exchange := func(with *fleet.Member) error {
		kubeconfig, err := with.UserKubeconfig(fleet.SpokeUser)
		if err == nil {
			err = s.proxy.Exchange(kubeconfig)
		}
		s.proxy.Sever()
		return err
	}
	return breakage{
		what: "another cluster answers", at: s.name, dead: true,
		inject: func() error { return exchange(x.Spoke(strangerName)) },
		heal:   func() error { return exchange(s.m) },
	}
}

func (x *exploration) ofTheManager() breakage {
	r := x.replicas[x.rnd.IntN(len(x.replicas))]
	m := r.current()
	switch x.rnd.IntN(4) {
	case 0:
		return breakage{what: "a replica is killed", inject: m.Kill, heal: nothing}
	case 1:
		// Another one leads meanwhile, or soon, and the first does not know it when it goes on.
		return breakage{
			what: "a replica is frozen",
			inject: func() error {
				within(x.t, convergedWithin, "the replica runs", func(context.Context) error { // it may have ended after a restore of the hub
					if m = r.current(); m.Ended() {
						return errors.New("it has ended")
					}
					return nil
				})
				return m.Pause()
			},
			heal: func() error { return m.Resume() },
		}
	case 2:
		if x.managed() { // otherwise it may not start
			return x.upgrades(r)
		}
	}
	b := x.breaks(r.link, "")
	b.what = "to the hub: " + b.what
	return b
}

// upgrades replaces a replica by the program that BEFORE names, as in a rollback, and later that one by the present
// program, as in an upgrade. Meanwhile either may lead. Without BEFORE, both are the present program.
func (x *exploration) upgrades(r *replica) breakage {
	before := os.Getenv("BEFORE")
	b := breakage{what: "an upgrade"}
	if before == "" {
		before, b.what = plainManager, "a rollout"
	}
	replace := func(path string) error {
		r.upgradeTo(path)
		return r.current().Stop()
	}
	b.inject = func() error {
		was := r.current()
		if err := replace(before); err != nil {
			return err
		}
		within(x.t, convergedWithin, "the replica is replaced", func(context.Context) error {
			if r.current() == was {
				return errors.New("not yet")
			}
			return nil
		})
		return nil
	}
	b.heal = func() error { return replace(plainManager) }
	return b
}
