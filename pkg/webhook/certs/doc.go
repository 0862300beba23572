// Package certs makes, keeps and rotates the certificates that the API server trusts
// the admission webhook by.
//
// They live in one Secret. Decide says what should become of it, and is a function of
// what it is given. The first replica that starts makes the Secret, and puts the caBundle into
// a ValidatingWebhookConfiguration that has none (Prepare). From then on the Rotator, which
// runs in the leader alone, writes both. The Keeper runs in every replica, and serves what is
// in the Secret.
//
// No rotation costs a request. A new authority first joins the bundle beside the one
// that signs. Only when the configuration has shown it for Lifetimes.Settle does the
// serving certificate come from it. The old authority stays in the bundle until it
// expires, and no certificate outlives the authority that signed it: a replica that is
// behind with reading the Secret is trusted for as long as what it serves is valid.
package certs
