package controlplane

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	createLine = `{"auditID":"1","stage":"ResponseComplete","verb":"create","requestURI":"/api/v1/namespaces/shop/configmaps",` +
		`"user":{"username":"jane","groups":["g"]},"userAgent":"test","objectRef":{"resource":"configmaps","namespace":"shop","name":"a","apiVersion":"v1"},` +
		`"responseStatus":{"code":201},"requestReceivedTimestamp":"2026-01-02T03:04:05.678901Z"}` + "\n"
	watchStart   = `{"auditID":"2","stage":"ResponseStarted","verb":"watch","responseStatus":{"code":200}}` + "\n"
	watchEnd     = `{"auditID":"2","stage":"ResponseComplete","verb":"watch","responseStatus":{"code":200}}` + "\n"
	execStart    = `{"auditID":"3","stage":"ResponseStarted","verb":"create","objectRef":{"subresource":"exec"},"responseStatus":{"code":101}}` + "\n"
	execEnd      = `{"auditID":"3","stage":"ResponseComplete","verb":"create","objectRef":{"subresource":"exec"},"responseStatus":{"code":101}}` + "\n"
	unauthorized = `{"auditID":"4","stage":"ResponseStarted","verb":"list","responseStatus":{"code":401}}` + "\n"
	readyz       = `{"auditID":"5","stage":"ResponseComplete","verb":"get","requestURI":"/readyz","responseStatus":{"code":200}}` + "\n"
)

func TestReadAudit(t *testing.T) {
	for name, c := range map[string]struct {
		log  string
		want []string // Audit ids.
		rest int      // Bytes left for the next call.
	}{
		"nothing":                          {},
		"a request":                        {log: createLine, want: []string{"1"}},
		"a watch counts when it starts":    {log: watchStart, want: []string{"2"}},
		"a watch counts once":              {log: watchStart + watchEnd, want: []string{"2"}},
		"an exec counts when it ends":      {log: execStart + execEnd, want: []string{"3"}},
		"a request without credentials":    {log: unauthorized, want: []string{"4"}},
		"a non-resource request":           {log: readyz, want: []string{"5"}},
		"several":                          {log: createLine + watchStart + readyz, want: []string{"1", "2", "5"}},
		"a line that is still written":     {log: createLine + readyz[:20], want: []string{"1"}, rest: 20},
		"a line that lacks only its end":   {log: strings.TrimSuffix(readyz, "\n"), rest: len(readyz) - 1},
		"a line longer than any buffer is": {log: strings.Replace(readyz, "/readyz", "/"+strings.Repeat("x", 1<<17), 1), want: []string{"5"}},
	} {
		t.Run(name, func(t *testing.T) {
			events, next, err := ReadAudit(auditFile(t, c.log), 0)
			if err != nil {
				t.Fatal(err)
			}
			if got := ids(events); !slices.Equal(got, c.want) {
				t.Errorf("got requests %v, want %v", got, c.want)
			}
			if want := int64(len(c.log) - c.rest); next != want {
				t.Errorf("next is %d, want %d", next, want)
			}
		})
	}
}

func TestReadAuditFields(t *testing.T) {
	events, _, err := ReadAudit(auditFile(t, createLine), 0)
	if err != nil || len(events) != 1 {
		t.Fatalf("got %v, %v", events, err)
	}
	got := events[0]
	if got.RequestURI != "/api/v1/namespaces/shop/configmaps" || got.UserAgent != "test" || got.User.Username != "jane" ||
		!slices.Equal(got.User.Groups, []string{"g"}) || got.ResponseStatus.Code != 201 ||
		got.ObjectRef != (AuditObject{APIVersion: "v1", Resource: "configmaps", Namespace: "shop", Name: "a"}) ||
		!got.RequestReceivedTimestamp.Equal(time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)) {
		t.Errorf("got %+v", got)
	}
}

func TestReadAuditErrors(t *testing.T) {
	if _, next, err := ReadAudit(filepath.Join(t.TempDir(), "none"), 7); err == nil || next != 7 {
		t.Errorf("without a file: next %d, %v", next, err)
	}
	events, next, err := ReadAudit(auditFile(t, createLine+"garbage\n"), 0)
	if err == nil || len(events) != 1 || next != int64(len(createLine)) {
		t.Errorf("with garbage: %d events, next %d, %v", len(events), next, err)
	}
}

func TestAuditCursor(t *testing.T) {
	path := auditFile(t, createLine)
	cursor, err := NewAuditCursor(path)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(when string, filter func(AuditEvent) bool, want ...string) {
		t.Helper()
		events, err := cursor.Events(filter)
		if got := ids(events); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v; want %v", when, got, err, want)
		}
	}
	expect("at first", nil)
	appendTo(t, path, createLine+readyz[:20])
	expect("in the middle of a line", nil, "1")
	appendTo(t, path, readyz[20:])
	expect("after it", nil, "1", "5")
	expect("asked again", nil, "1", "5")
	expect("filtered", AuditEvent.IsWrite, "1")
	if err := cursor.Reset(); err != nil {
		t.Fatal(err)
	}
	expect("after Reset", nil)
	appendTo(t, path, watchStart)
	expect("later", nil, "2")
}

func TestIsWrite(t *testing.T) {
	for verb, want := range map[string]bool{
		"create": true, "update": true, "patch": true, "delete": true, "deletecollection": true,
		"get": false, "list": false, "watch": false, "post": false, "": false,
	} {
		t.Run(verb, func(t *testing.T) {
			if got := (AuditEvent{Verb: verb}).IsWrite(); got != want {
				t.Errorf("%q: got %t, want %t", verb, got, want)
			}
		})
	}
	review := AuditEvent{Verb: "create", ObjectRef: AuditObject{APIGroup: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}}
	if review.IsWrite() {
		t.Error("a review of permissions is taken for a write")
	}
}

func auditFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path, []byte(content), privateFile); err != nil {
		t.Fatal(err)
	}
	return path
}

func appendTo(t *testing.T, path, content string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func ids(events []AuditEvent) []string {
	var got []string
	for _, e := range events {
		got = append(got, e.AuditID)
	}
	return got
}
