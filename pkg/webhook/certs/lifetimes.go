package certs

import (
	"crypto/x509"
	"math/big"
	"time"
)

const (
	// MinLifetime is the minimum lifetime of a serving certificate. Times in certificates are in whole
	// seconds.
	MinLifetime = 3 * time.Second
	// MaxLifetime is the maximum lifetime of a serving certificate. Some clients refuse longer ones.
	MaxLifetime = 825 * 24 * time.Hour
	// maxSettle is the maximum time until API servers know a new authority.
	maxSettle = 5 * time.Minute
)

// Lifetimes are the lifetimes of certificates.
type Lifetimes struct {
	// Serving is the lifetime of a serving certificate.
	Serving time.Duration
	// Authority is the lifetime of the authority that signs them.
	Authority time.Duration
	// Settle is the time for which a new authority has to be in the configuration before it signs.
	Settle time.Duration
}

// LifetimesOf derives all lifetimes from that of a serving certificate. An authority is valid long
// enough that certificates from its last days of use have their full lifetime.
func LifetimesOf(serving time.Duration) Lifetimes {
	return Lifetimes{Serving: serving, Authority: 4 * serving, Settle: min(serving/10, maxSettle)}
}

// renewal returns the time at which a certificate has to be replaced: after about two thirds of its
// lifetime, and up to a tenth of it earlier. The serial number determines how much earlier, so that
// every replica gets the same result.
func renewal(c *x509.Certificate, lifetime time.Duration) time.Time {
	const parts = 1024
	part := new(big.Int).Mod(c.SerialNumber, big.NewInt(parts)).Int64()
	sooner := lifetime / 10 * time.Duration(part) / parts
	return c.NotAfter.Add(-lifetime/3 - sooner)
}
