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

// longest is the maximum time until decide has to be called again.
const longest = 12 * time.Hour

// fingerprint identifies an authority.
type fingerprint [sha256.Size]byte

func fingerprintOf(c *x509.Certificate) fingerprint { return sha256.Sum256(c.Raw) }

// input is the input of decide.
type input struct {
	// Data is the content of the Secret, or nil if it does not exist.
	Data map[string][]byte
	// Now is the current time.
	Now time.Time
	// Lifetimes are the lifetimes of new certificates.
	Lifetimes Lifetimes
	// Hosts are the DNS names and addresses of the webhook.
	Hosts []string
	// Trusted is the time since when each authority has been in the configuration that API servers
	// read.
	Trusted map[fingerprint]time.Time
	// Absent is the time since when the configuration has not existed. It is zero if it exists.
	Absent time.Time
}

// decision is the next content of the Secret.
type decision struct {
	// Data is the content of the Secret. It follows from the input, except random keys.
	Data map[string][]byte
	// Bundle is the CA bundle for the configuration.
	Bundle []byte
	// Why lists the reasons for changes. If it is empty, nothing changes.
	Why []string
	// Again is the time of the next decision, if nothing happens before.
	Again time.Time
}

// decide returns the next content of the Secret. It only returns errors of the random source.
func decide(in input) (*decision, error) {
	d := &decider{input: in, state: parse(in.Data, in.Now)}
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
		d.because("removed certificates that are expired, or that the manager did not create")
	}
	return &decision{Data: data, Bundle: data[bundleKey], Why: d.why, Again: d.again()}, nil
}

type decider struct {
	input
	state *state
	why   []string
}

func (d *decider) because(format string, args ...any) {
	d.why = append(d.why, fmt.Sprintf(format, args...))
}

// early replaces authorities that are not valid yet because the clock was ahead when they were
// created. They keep their keys. An API server whose clock is still ahead therefore trusts the next
// serving certificate with the bundle that it has, and all others do so as soon as they have the new
// bundle. The former authorities stay in the bundle, and sign again when they become valid.
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

// authorities ensures that one authority signs, and that the next one is ready in time. As long as a
// certificate can be served, a new authority has to be trusted first.
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

// takeover returns the time from which the next authority may sign.
func (d *decider) takeover() time.Time {
	since, ok := d.Trusted[fingerprintOf(d.state.next.cert)]
	switch {
	case ok:
		return since.Add(d.Lifetimes.Settle)
	case !d.Absent.IsZero():
		return d.Absent.Add(d.Lifetimes.Settle) // no API server trusts any authority
	default:
		return d.Now.Add(longest)
	}
}

// certificate ensures that there is a valid serving certificate for the right hosts.
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

// again returns the next time at which the decision changes by time alone.
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

// same reports whether our keys in a Secret have the right content.
func same(have, want map[string][]byte) bool {
	for _, key := range secretKeys {
		if !bytes.Equal(have[key], want[key]) {
			return false
		}
	}
	return true
}
