package certs

import (
	"crypto/x509"
	"math/big"
	"time"
)

const (
	// MinLifetime is the shortest that a serving certificate can live: times in
	// certificates are whole seconds.
	MinLifetime = 3 * time.Second
	// MaxLifetime is the longest that a serving certificate can live. Some clients
	// refuse those that live for longer.
	MaxLifetime = 825 * 24 * time.Hour
	// maxSettle is how long API servers may take to hear of a new authority.
	maxSettle = 5 * time.Minute
)

// Lifetimes say how long certificates live.
type Lifetimes struct {
	// Serving is the life of a serving certificate.
	Serving time.Duration
	// Authority is the life of the authority that signs them.
	Authority time.Duration
	// Settle is for how long a new authority has to be in the configuration before
	// it signs.
	Settle time.Duration
}

// LifetimesOf derives all lifetimes from that of a serving certificate. An authority
// lives so long that what it signs in its last days of use is not cut short.
func LifetimesOf(serving time.Duration) Lifetimes {
	return Lifetimes{Serving: serving, Authority: 4 * serving, Settle: min(serving/10, maxSettle)}
}

// renewal is when a certificate of some lifetime is to be replaced: after about two
// thirds of its life, and up to a tenth of it sooner. The serial number says how much
// sooner, so that every replica comes to the same answer.
func renewal(c *x509.Certificate, lifetime time.Duration) time.Time {
	const parts = 1024
	part := new(big.Int).Mod(c.SerialNumber, big.NewInt(parts)).Int64()
	sooner := lifetime / 10 * time.Duration(part) / parts
	return c.NotAfter.Add(-lifetime/3 - sooner)
}
