package evaluate

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httputil"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	testprometheus "github.com/rulefleet/rulefleet/pkg/testing/prometheus"
)

// A real Prometheus with rule files as from prometheus-operator loads and evaluates the rules.
func TestRealPrometheus(t *testing.T) {
	t.Parallel()
	fires, quiet := object(1, "vector(1)  >0"), object(2, `up{job="none"}==0`)
	fires.Spec.Groups[0].Rules[0].For = nil
	fires.Spec.Groups[0].Rules[0].Annotations = map[string]string{"summary": "it is {{ $value }}"}
	quiet.Spec.Groups[0].Rules[0].For = new(monitoringv1.Duration("1h500ms"))
	quiet.Spec.Groups[0].Rules[0].KeepFiringFor = new(monitoringv1.NonEmptyDuration("570ms"))
	w, _ := newWorld(t, fires, quiet)
	p, err := testprometheus.Start(t.Context(), testprometheus.Options{Dir: t.TempDir(), Rules: files(t, fires, quiet)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Process().Kill(); err != nil {
			t.Error(err)
		}
	})
	proxy := httputil.NewSingleHostReverseProxy(p.URL())
	w.prometheus = http.StripPrefix("/api/v1/namespaces/monitoring/services/http:prometheus-operated:web/proxy", proxy)
	eventually(t, func() error {
		w.once()
		if is := w.says(fires); is.Outcome != evaluation.Evaluates || is.Firing != 1 {
			return fmt.Errorf("the one that fires: %+v", is)
		}
		if is := w.says(quiet); is.Outcome != evaluation.Evaluates || is.Firing != 0 {
			return fmt.Errorf("the one that is quiet: %+v", is)
		}
		if is := w.says(quiet); len(is.Missing) != 1 || is.Missing[0] != `up{job="none"}` {
			return fmt.Errorf("it misses %q", is.Missing)
		}
		return nil
	})
	// An edited rule is not loaded until Prometheus has reloaded.
	other := edited(fires)
	w.hold(other, quiet)
	w.once()
	if is := w.says(other); is.Outcome != evaluation.Absent {
		t.Errorf("edited: %+v", is)
	}
	if err := p.Reload(t.Context(), files(t, other, quiet)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		w.once()
		if is := w.says(other); is.Outcome != evaluation.Evaluates || is.Firing != 0 {
			return fmt.Errorf("loaded: %+v", is)
		}
		return nil
	})
	// A stopped one is unreachable.
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	for range patience {
		w.once()
	}
	if is := w.says(other); is.Outcome != evaluation.Unreachable {
		t.Errorf("stopped: %+v", is)
	}
}

// files are the rule files that prometheus-operator would make.
func files(t *testing.T, objects ...*monitoringv1.PrometheusRule) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, o := range objects {
		text, err := yaml.Marshal(o.Spec)
		if err != nil {
			t.Fatal(err)
		}
		out[fmt.Sprintf("%s-%s-%s.yaml", o.Namespace, o.Name, o.UID)] = text
	}
	return out
}

// eventually polls until there is no error.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%v: %v", err, last)
	}
}
