package evaluate

import (
	"errors"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/evaluator"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// The advice depends on who answered.
func TestAdvice(t *testing.T) {
	t.Parallel()
	const (
		pods  = ". Check the pods of the Prometheus and their logs in namespace monitoring of the spoke"
		url   = "spec.evaluatorRefs[].url of SpokeCluster eu-1"
		login = ". Rulefleet does not support a login. Rules are verified only up to Selected. To verify more, set " + url + " to an address without a login that only the hub can reach, including any path prefix"
		load  = ". Check the load and the log of the Prometheus"
		proxy = ". Set " + url + " to an address at which the Prometheus itself answers"
		check = ". Check the Prometheus at the address in " + url + ", and any proxy in front of it"
		path  = ". Check in namespace monitoring of the spoke that the pods of the Prometheus are ready, and that no firewall or NetworkPolicy keeps the API server from reaching them"
		busy  = ". Find out what overloads the spoke's API server"

		changes = ". If this lasts, find out what changes the rules of the Prometheus so often"
	)
	e := rule.EvaluatorOf(&prometheus)
	for kind, want := range map[evaluator.Kind]struct{ apiServer, behind, byURL string }{
		evaluator.Unreachable:    {"", pods, ". Check " + url + ", and that the hub can reach the Prometheus there"},
		evaluator.Unauthorized:   {". Put a kubeconfig with a valid credential into the Secret", login, login},
		evaluator.Forbidden:      {"", login, login}, // the API server's error names the permission
		evaluator.NotFound:       {". Check in namespace monitoring of the spoke that the Service exists and that the pods of the Prometheus are ready", "", ". Check the path in " + url},
		evaluator.Throttled:      {busy, busy + ", or the proxy in front of the Prometheus", check},
		evaluator.Unavailable:    {path, pods, check},
		evaluator.NotAnEvaluator: {"", proxy, proxy},
		evaluator.Rejected:       {"", load, load},
		evaluator.Changing:       {"", changes, changes},
		evaluator.Redirected:     {}, evaluator.TooMuch: {}, evaluator.Partial: {},
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			through := &rule.Cluster{Name: "eu-1"}
			direct := &rule.Cluster{Name: "eu-1", EvaluatorRefs: []v1alpha1.EvaluatorReference{{Kind: e.Kind, Namespace: "monitoring", Name: e.Name, URL: "https://p"}}}
			for name, c := range map[string]struct {
				cluster   *rule.Cluster
				apiServer bool
				want      string
			}{
				"by the API server": {through, true, want.apiServer}, "behind it": {through, false, want.behind},
				"by URL": {direct, false, want.byURL}, "by URL, to an API server": {direct, true, want.byURL},
			} {
				if got := (&task{cluster: c.cluster}).strangers(&e, 1); errors.Is(got, errOtherAtURL) != (c.cluster == direct) {
					t.Errorf("%s: got %v", name, got)
				}
				if got := advice(c.cluster, &e, &evaluator.Error{Kind: kind, FromAPIServer: c.apiServer}); got != c.want {
					t.Errorf("%s: got %q, want %q", name, got, c.want)
				}
			}
		})
	}
	if got := advice(&rule.Cluster{}, &e, nil); got != "" {
		t.Errorf("without an error of the evaluator: %q", got)
	}
}
