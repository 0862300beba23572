package prometheus

import (
	"strings"
	"testing"
)

func TestPrometheus(t *testing.T) {
	t.Parallel()
	p, err := Start(t.Context(), Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	const rules = "groups: [{name: a, rules: [{alert: A, expr: up}]}]"
	if err := p.Reload(t.Context(), map[string][]byte{"a.yaml": []byte(rules)}); err != nil {
		t.Error(err)
	}
	if err := p.Reload(t.Context(), map[string][]byte{"a.yaml": []byte("groups: x")}); err == nil {
		t.Error("it loads what is no rule file")
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}

func TestPrometheusThatDoesNotStart(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Options{Dir: t.TempDir(), Rules: map[string][]byte{"a.yaml": []byte("groups: x")}})
	if err == nil || !strings.Contains(err.Error(), "its log") {
		t.Error(err)
	}
}
