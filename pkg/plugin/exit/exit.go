// Package exit has the exit codes of the plugin, and errors that say what to do next.
package exit

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/rulefleet/rulefleet/pkg/plugin/advice"
)

// The exit codes. docs/how-to/plugin.md documents them.
const (
	// OK means that the command did what it was asked to do.
	OK = 0
	// Failed means any failure that has no code of its own.
	Failed = 1
	// Usage means that the command line or the kubeconfig is not valid. Nothing was done.
	Usage = 2
	// Denied means that the hub or the spoke does not permit a request.
	Denied = 3
	// Missing means that an object, or the whole installation, does not exist.
	Missing = 4
	// NotReady means that the command was carried out, and that the result is not ready, or not in time.
	NotReady = 5
)

// Error is an error with an exit code and a next step.
type Error struct {
	Code int
	Err  error
	// Next says what to do. It is a sentence or a command, and may be empty.
	Next string
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// New returns an error with a code and a next step.
func New(code int, next, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...), Next: next}
}

// NoSpoke returns the error for the name of a spoke that does not exist.
func NoSpoke(name string) error {
	return New(Missing, "List the spokes: kubectl rulefleet spokes", "there is no spoke %s", name)
}

// Of returns the exit code of a command and its next step. Errors of an API server are recognized.
func Of(err error) (code int, next string) {
	var own *Error
	var certificate *tls.CertificateVerificationError
	var request *url.Error
	switch {
	case err == nil:
		return OK, ""
	case errors.As(err, &own):
		return own.Code, own.Next
	case apierrors.IsUnauthorized(err):
		return Denied, "The API server rejects your credential. Log in again, or select another user with --user or --context."
	case apierrors.IsForbidden(err):
		return Denied, "Ask an administrator of the cluster for this permission. The plugin only has your own permissions. To list them: kubectl auth can-i --list"
	case meta.IsNoMatchError(err):
		return Missing, "If Rulefleet is not installed in this cluster, select the hub with --context, or install it: kubectl rulefleet install. If Rulefleet is installed here, the CustomResourceDefinition was deleted: " +
			advice.Docs + "docs/how-to/backup.md#restore-a-kind"
	case apierrors.IsNotFound(err):
		return Missing, "Check the name and the namespace. kubectl rulefleet spokes and kubectl rulefleet status -A list what exists."
	case errors.As(err, &certificate):
		return Failed, "Check the address of the API server and its certificate authority in the kubeconfig: kubectl config view"
	case errors.As(err, &request): // there was no answer
		return Failed, "The API server cannot be reached. Check the context, the network and how you log in. To test the connection: kubectl cluster-info"
	case errors.Is(err, context.DeadlineExceeded):
		return NotReady, ""
	}
	return Failed, ""
}
