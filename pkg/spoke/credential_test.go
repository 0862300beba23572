package spoke

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
)

// expiresAt is when the credential of these tests expires.
var expiresAt = time.Date(2026, 1, 1, 12, 15, 0, 0, time.UTC)

// The credential of a new kubeconfig is shown when it is in use, although nothing else has changed.
func TestCredentialOfTheConnectionInUse(t *testing.T) {
	p := NewProvider(Options{})
	var told []string
	p.changes.Listen(func(c change) { told = append(told, c.spoke) })
	former := kubeconfig.Credential{Kind: "token", Issued: expiresAt.Add(-time.Hour), Expires: expiresAt}
	engagedAs(p, "s", "id")
	e := p.entries["s"]
	e.current.conn.credential = former
	seen := Observation{Connected: Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConnected}}
	p.observe(e.current.conn, seen)
	renewed, err := p.newConnection("s", &rest.Config{Host: "https://spoke", BearerToken: "e30.eyJleHAiOjE3NjcyNjk3MDB9.x"})
	if err != nil {
		t.Fatal(err)
	}
	e.pending = &registration{conn: renewed, cancel: func() {}}
	p.observe(renewed, Observation{Connected: disconnected(apierrors.NewUnauthorized("no"))})
	if got := p.Observation("s"); got.Credential != former {
		t.Errorf("while the new kubeconfig is tried: %+v", got.Credential)
	}
	e.current, e.pending, e.fault = e.pending, nil, ""
	told = nil
	p.observe(renewed, seen)
	if got := p.Observation("s"); !got.Credential.Expires.Equal(expiresAt) || !got.Credential.Issued.IsZero() || len(told) != 1 {
		t.Errorf("told %q of %+v", told, got.Credential)
	}
}
