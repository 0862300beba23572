// Package certs creates, stores and rotates the certificates with which the API server verifies the
// admission webhook.
//
// They are stored in one Secret. decide is a pure function that returns the next content of the Secret.
// The first replica that starts creates the Secret, and sets the caBundle of a
// ValidatingWebhookConfiguration that has none (Prepare). After that, only the rotator in the leader
// writes both. The Keeper runs in every replica, and serves the certificate in the Secret.
//
// No request fails because of a rotation. A new authority is first added to the bundle, next to the one
// that signs. When the configuration has had it for Lifetimes.Settle, it signs the serving certificate.
// The old authority stays in the bundle until it expires, and no certificate is valid longer than the
// authority that signed it: a replica that has not read the new Secret yet is trusted as long as its
// certificate is valid.
package certs
