package controlplane

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// Stages of a request that ReadAudit tells apart.
const (
	stageResponseStarted  = "ResponseStarted"
	stageResponseComplete = "ResponseComplete"
)

// AuditEvent is one request that the API server has answered, from its audit log. It has only the fields that
// tests use.
type AuditEvent struct {
	// AuditID is unique to the request.
	AuditID string `json:"auditID"`

	// Stage is ResponseComplete, or ResponseStarted for a watch.
	Stage string `json:"stage"`

	// Verb is the Kubernetes verb (get, list, watch, create, update, patch,
	// delete, deletecollection), or the HTTP method of a non-resource request.
	Verb string `json:"verb"`

	// RequestURI is the path and the query.
	RequestURI string `json:"requestURI"`

	// User is the user of the request.
	User AuditUser `json:"user"`

	// UserAgent is the client program, as it calls itself.
	UserAgent string `json:"userAgent"`

	// ObjectRef is the requested object or collection; it is zero for a non-resource request such as /readyz.
	ObjectRef AuditObject `json:"objectRef"`

	// ResponseStatus is the answer.
	ResponseStatus AuditStatus `json:"responseStatus"`

	// RequestReceivedTimestamp is when the request reached the API server.
	RequestReceivedTimestamp time.Time `json:"requestReceivedTimestamp"`
}

// AuditUser is the identity behind a request.
type AuditUser struct {
	// Username is the authenticated name, such as
	// "system:serviceaccount:NAMESPACE:NAME".
	Username string `json:"username"`

	// Groups are the groups that the user is in.
	Groups []string `json:"groups"`
}

// AuditObject is the object or collection that a request is about.
type AuditObject struct {
	// APIGroup is empty for the core group.
	APIGroup string `json:"apiGroup"`

	// APIVersion is the version within the group.
	APIVersion string `json:"apiVersion"`

	// Resource is the lower-case plural, such as "prometheusrules".
	Resource string `json:"resource"`

	// Subresource is empty for the object itself.
	Subresource string `json:"subresource"`

	// Namespace is empty for cluster-scoped objects and all namespaces.
	Namespace string `json:"namespace"`

	// Name is empty for collections.
	Name string `json:"name"`
}

// AuditStatus is the answer to a request.
type AuditStatus struct {
	// Code is the HTTP status.
	Code int `json:"code"`
}

// IsWrite reports whether the request was for a change (create, update, patch, delete or deletecollection),
// granted or not. A review of permissions is created but changes nothing.
func (e AuditEvent) IsWrite() bool {
	if e.ObjectRef.APIGroup == "authorization.k8s.io" {
		return false
	}
	switch e.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// counts reports whether the event represents its request, so that every request counts once. A watch is
// represented by its start, because its end may be far away. A request without valid credentials is logged
// only at that stage.
func (e AuditEvent) counts() bool {
	if e.Verb == "watch" || e.ResponseStatus.Code == http.StatusUnauthorized {
		return e.Stage == stageResponseStarted
	}
	return e.Stage == stageResponseComplete
}

// ReadAudit reads the events of an audit log from a byte offset on, and returns the offset to read from next.
// Each request appears once. An incomplete last line is left for the next call.
func ReadAudit(path string, offset int64) (events []AuditEvent, next int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, offset, fmt.Errorf("reading the audit log: %w", err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, offset, fmt.Errorf("reading the audit log: %w", err)
	}
	lines := bufio.NewReader(f)
	for next = offset; ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, next, nil
		}
		if err != nil {
			return events, next, fmt.Errorf("reading the audit log: %w", err)
		}
		var event AuditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return events, next, fmt.Errorf("parsing the audit log at byte %d: %w", next, err)
		}
		next += int64(len(line))
		if event.counts() {
			events = append(events, event)
		}
	}
}

// AuditCursor returns the requests to a cluster since a chosen moment. It is safe for concurrent use.
type AuditCursor struct {
	path string

	mu     sync.Mutex
	offset int64
	events []AuditEvent
}

// NewAuditCursor returns a cursor over an audit log, from its present end on.
func NewAuditCursor(path string) (*AuditCursor, error) {
	a := &AuditCursor{path: path}
	if err := a.Reset(); err != nil {
		return nil, err
	}
	return a, nil
}

// Reset skips everything up to now: Events returns only later requests.
func (a *AuditCursor) Reset() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, next, err := ReadAudit(a.path, a.offset)
	if err != nil {
		return err
	}
	a.offset, a.events = next, nil
	return nil
}

// Events returns the requests answered since the last Reset that the filter accepts, oldest first; a nil
// filter accepts all. It includes every request whose response a client has read to the end.
func (a *AuditCursor) Events(filter func(AuditEvent) bool) ([]AuditEvent, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	events, next, err := ReadAudit(a.path, a.offset)
	if err != nil {
		return nil, err
	}
	a.offset, a.events = next, append(a.events, events...)
	if filter == nil {
		return slices.Clone(a.events), nil
	}
	var accepted []AuditEvent
	for _, event := range a.events {
		if filter(event) {
			accepted = append(accepted, event)
		}
	}
	return accepted, nil
}
