package certs

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// longest is after how long Decide asks to be called again at the latest.
const longest = 12 * time.Hour

// Fingerprint identifies an authority.
type Fingerprint [sha256.Size]byte

func fingerprint(c *x509.Certificate) Fingerprint { return sha256.Sum256(c.Raw) }

// Input is what Decide decides by.
type Input struct {
	// Data is what the Secret holds; nil when there is none.
	Data map[string][]byte
	// Now is the time.
	Now time.Time
	// Lifetimes are those that certificates are to have.
	Lifetimes Lifetimes
	// Hosts are the DNS names and addresses that the webhook is reached by.
	Hosts []string
	// Trusted says since when each authority has been seen in the configuration that
	// API servers read.
	Trusted map[Fingerprint]time.Time
	// Absent is since when there has been no such configuration; zero when there is one.
	Absent time.Time
}

// Decision is what should become of the Secret.
type Decision struct {
	// Data is what it should hold. Beside random keys, it follows from the Input.
	Data map[string][]byte
	// Bundle is what the configuration should trust.
	Bundle []byte
	// Why tells what is changed; nothing is when it is empty.
	Why []string
	// Again is when to look again, if nothing happens before.
	Again time.Time
}

// Decide says what should become of the Secret. An error is one of the random source.
func Decide(in Input) (*Decision, error) {
	d := &decider{Input: in, state: parse(in.Data, in.Now)}
	if err := d.early(); err != nil {
		return nil, err
	}
	if err := d.authorities(); err != nil {
		return nil, err
	}
	if err := d.certificate(); err != nil {
		return nil, err
	}
	data, err := d.state.data()
	if err != nil {
		return nil, err
	}
	if len(d.why) == 0 && !same(in.Data, data) {
		d.because("expired and foreign certificates are left out")
	}
	return &Decision{Data: data, Bundle: data[bundleKey], Why: d.why, Again: d.again()}, nil
}

type decider struct {
	Input
	state *state
	why   []string
}

func (d *decider) because(format string, args ...any) {
	d.why = append(d.why, fmt.Sprintf(format, args...))
}

// early replaces authorities that are not valid yet, because the clock was ahead when they were made.
// They keep their keys. So an API server whose clock still is ahead trusts the next serving
// certificate by the bundle that it has, and all others do as soon as they have the new one. The
// authorities of before stay in the bundle, and sign again when the clock has come to their time.
func (d *decider) early() error {
	s := d.state
	for _, a := range []**authority{&s.signer, &s.next} {
		if *a == nil || !early((*a).cert, d.Now) {
			continue
		}
		renewed, err := (*a).renew(d.Now, d.Lifetimes.Authority)
		if err != nil {
			return err
		}
		d.because("an authority is not valid before %s; it is created again with the same key", (*a).cert.NotBefore.Format(time.RFC3339))
		s.retire((*a).cert, d.Now)
		*a = renewed
	}
	return nil
}

// authorities sees to it that there is one that signs, and one to follow it in time.
// As long as something can be served, a new one has to be trusted first.
func (d *decider) authorities() error {
	s := d.state
	due := s.signer == nil || !d.Now.Before(renewal(s.signer.cert, d.Lifetimes.Authority))
	if due && s.next == nil {
		next, err := newAuthority(d.Now, d.Lifetimes.Authority)
		if err != nil {
			return err
		}
		s.next = next
		if s.signer == nil {
			d.because("no authority can sign; a new one is added to the bundle")
		} else {
			d.because("the authority expires at %s; a new one is added to the bundle", s.signer.cert.NotAfter.Format(time.RFC3339))
		}
	}
	switch {
	case s.next == nil:
		return nil
	case s.serving != nil && d.Now.Before(d.takeover()):
		return nil
	case s.serving == nil && s.signer != nil:
		return nil // what is broken is replaced by the one that is trusted
	}
	before := s.retired
	if s.signer != nil {
		before = append([]*x509.Certificate{s.signer.cert}, before...)
	}
	s.signer, s.next, s.serving, s.retired = s.next, nil, nil, nil
	for _, c := range before {
		s.retire(c, d.Now)
	}
	d.because("the new authority now signs")
	return nil
}

// takeover is when the next authority may sign.
func (d *decider) takeover() time.Time {
	since, ok := d.Trusted[fingerprint(d.state.next.cert)]
	switch {
	case ok:
		return since.Add(d.Lifetimes.Settle)
	case !d.Absent.IsZero():
		return d.Absent.Add(d.Lifetimes.Settle) // nobody trusts anything
	default:
		return d.Now.Add(longest)
	}
}

// certificate sees to it that there is a valid serving certificate, for the right hosts.
func (d *decider) certificate() error {
	s := d.state
	if s.signer == nil {
		return nil // what there is stays until an authority takes over
	}
	switch {
	case s.serving == nil:
		d.because("a new serving certificate is needed")
	case !sameHosts(hosts(s.serving.cert), d.Hosts):
		d.because("the serving certificate is not for the hosts %s", strings.Join(d.Hosts, ", "))
	case !d.Now.Before(renewal(s.serving.cert, d.Lifetimes.Serving)) && s.signer.end(d.Now, d.Lifetimes.Serving).After(s.serving.cert.NotAfter):
		d.because("the serving certificate expires at %s", s.serving.cert.NotAfter.Format(time.RFC3339))
	default:
		return nil
	}
	serving, err := s.signer.issue(d.Now, d.Lifetimes.Serving, d.Hosts)
	if err != nil {
		return err
	}
	s.serving = serving
	return nil
}

// again is the next moment at which time alone changes the decision.
func (d *decider) again() time.Time {
	s := d.state
	at := d.Now.Add(longest)
	consider := func(t time.Time) {
		if t.After(d.Now) && t.Before(at) {
			at = t
		}
	}
	if s.signer != nil {
		consider(renewal(s.signer.cert, d.Lifetimes.Authority))
	}
	if s.next != nil {
		consider(d.takeover())
	}
	if s.serving != nil {
		consider(renewal(s.serving.cert, d.Lifetimes.Serving))
		consider(s.serving.cert.NotAfter)
	}
	for _, c := range s.bundle() {
		consider(c.NotAfter)
	}
	return at
}

func sameHosts(a, b []string) bool { return slices.Equal(canonical(a), canonical(b)) }

func canonical(hosts []string) []string {
	out := make([]string, 0, len(hosts))
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			host = ip.String()
		}
		out = append(out, host)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// same tells whether a Secret holds what it should under our keys.
func same(have, want map[string][]byte) bool {
	for _, key := range secretKeys {
		if !bytes.Equal(have[key], want[key]) {
			return false
		}
	}
	return true
}
