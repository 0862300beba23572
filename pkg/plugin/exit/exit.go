// Package exit has the exit codes of the plugin, and errors that say what to do next.
package exit

import (
	"context"
	"errors"
	"fmt"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// The exit codes. docs/how-to/plugin.md documents them.
const (
	// OK means that the command did what it was asked to do.
	OK = 0
	// Failed means any failure that has no code of its own.
	Failed = 1
	// Usage means that the command line is not valid. Nothing was done.
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

// Of returns the exit code of a command and its next step. Errors of an API server are recognized. where
// names the cluster, as in "hub".
func Of(err error) (code int, next string) {
	var own *Error
	var network *net.OpError
	switch {
	case err == nil:
		return OK, ""
	case errors.As(err, &own):
		return own.Code, own.Next
	case apierrors.IsUnauthorized(err):
		return Denied, "The API server rejects your credential. Log in again, or select another user with --user or --context."
	case apierrors.IsForbidden(err):
		return Denied, "Ask an administrator of the cluster for this permission. The plugin only has your own permissions: kubectl auth can-i --list"
	case meta.IsNoMatchError(err):
		return Missing, "Rulefleet is not installed in this cluster. Select the hub with --context, or install Rulefleet: kubectl rulefleet install"
	case apierrors.IsNotFound(err):
		return Missing, "Check the name and the namespace. kubectl rulefleet spokes and kubectl rulefleet status -A list what exists."
	case errors.Is(err, context.DeadlineExceeded):
		return NotReady, ""
	case errors.As(err, &network):
		return Failed, "The API server cannot be reached. Check the context and the network: kubectl cluster-info"
	}
	return Failed, ""
}
