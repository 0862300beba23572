package evaluate

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// indexer gives a fake client the indexes of a cache.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, fn client.IndexerFunc) error {
	i.WithIndex(o, field, fn)
	return nil
}

// inNamespace returns a Prometheus that is not chosen.
func inNamespace(namespace string, edit ...func(*v1alpha1.Evaluator)) v1alpha1.Evaluator {
	e := v1alpha1.Evaluator{Kind: rule.KindPrometheus, Namespace: namespace, Name: "k", RuleSelector: everything, RuleNamespaceSelector: everything, Version: "v3.0.0"}
	for _, fn := range edit {
		fn(&e)
	}
	return e
}

func isChosen(e *v1alpha1.Evaluator) { e.Chosen = true }

func namesOf(list []v1alpha1.Evaluator) string {
	var out []string
	for i := range list {
		if list[i].Chosen {
			out = append(out, list[i].Namespace)
		}
	}
	return strings.Join(out, ",")
}

// The choice is that of this process, or of the status; without either, the evaluators that select the rules
// pushed for this hub's AlertRules are chosen.
func TestChoose(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	builder := newClient(scheme)
	if err := hub.SetupIndexes(t.Context(), indexer{builder}, hubID, "rulefleet-generated"); err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, hub: builder.WithObjects(&v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "r1"}}).Build(), spoke: &spoke.Spoke{Name: "s"}}
	w.restart()
	// Objects with our labels in a tenant's namespace stand for no AlertRule.
	ours, made, foreign := object(1, "up == 0"), object(2, "up == 0"), object(1, "up == 0")
	made.Namespace, foreign.Namespace, foreign.Labels[v1alpha1.HubLabel] = "team", "team", "another"
	for _, o := range []*monitoringv1.PrometheusRule{ours, made, foreign} {
		o.Labels["release"], o.Annotations[v1alpha1.RuleLabelsAnnotation] = "kps", "release"
	}
	held := newClient(spoke.Scheme).WithObjects(ours, made, foreign)
	for _, ns := range []string{"shop", "team"} {
		held.WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	}
	reader := held.Build()

	wanting := func(e *v1alpha1.Evaluator) {
		e.RuleSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"release": "kps"}}
	}
	platform, tenant := inNamespace("platform", wanting), inNamespace("team", wanting, func(e *v1alpha1.Evaluator) { e.RuleNamespaceSelector = nil })
	seen := &spoke.Sighting{List: []v1alpha1.Evaluator{platform, tenant}, Rules: reader}
	for name, c := range map[string]struct {
		status []v1alpha1.Evaluator
		found  string // the reason of EvaluatorsFound
		before spoke.Evaluators
		seen   *spoke.Sighting
		want   string
	}{
		"lost":                       {seen: seen, want: "platform"},
		"lost, though it was found":  {found: v1alpha1.ReasonEvaluatorsFound, seen: seen, want: "platform"},
		"lost, without rules":        {seen: &spoke.Sighting{List: seen.List}},
		"none, as is recorded":       {found: v1alpha1.ReasonAmbiguous, seen: seen},
		"none there was":             {found: v1alpha1.ReasonNoEvaluator, seen: seen},
		"recorded":                   {status: []v1alpha1.Evaluator{inNamespace("team", isChosen)}, found: v1alpha1.ReasonEvaluatorsFound, seen: seen, want: "team"},
		"by this process":            {status: []v1alpha1.Evaluator{inNamespace("team", isChosen)}, before: spoke.Evaluators{Known: true, List: []v1alpha1.Evaluator{inNamespace("platform", isChosen)}}, seen: seen, want: "platform"},
		"by this process, none":      {before: spoke.Evaluators{Known: true, List: []v1alpha1.Evaluator{platform}}, seen: seen},
		"by this process, not known": {status: []v1alpha1.Evaluator{inNamespace("team", isChosen)}, before: spoke.Evaluators{WhyNot: "so"}, seen: seen, want: "team"},
	} {
		t.Run(name, func(t *testing.T) {
			sc := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
			sc.Status.Evaluators = c.status
			if c.found != "" {
				apimeta.SetStatusCondition(&sc.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionEvaluatorsFound, Status: metav1.ConditionFalse, Reason: c.found})
			}
			if got := namesOf(w.Choose(t.Context(), sc, c.before, c.seen)); got != c.want {
				t.Errorf("chosen is %q, want %q", got, c.want)
			}
		})
	}
}

// The status lists the chosen evaluators, so that others cost no writes; if a person has to choose, it lists
// all of them.
func TestStatusOfEvaluators(t *testing.T) {
	t.Parallel()
	platform, tenant := inNamespace("platform", isChosen), inNamespace("team")
	byName := func(e v1alpha1.Evaluator) v1alpha1.Evaluator {
		return v1alpha1.Evaluator{Kind: e.Kind, Namespace: e.Namespace, Name: e.Name}
	}
	gone := inNamespace("platform", func(e *v1alpha1.Evaluator) { e.MissingTime = metav1.NewTime(time.Unix(1, 0)) })
	justGone := gone
	justGone.Chosen = true
	unchosen := platform
	unchosen.Chosen = false
	ref := func(namespace string) []v1alpha1.EvaluatorReference {
		return []v1alpha1.EvaluatorReference{{Kind: rule.KindPrometheus, Namespace: v1alpha1.NamespaceName(namespace), Name: "k"}}
	}
	type list = []v1alpha1.Evaluator
	for name, c := range map[string]struct {
		seen  list
		refs  []v1alpha1.EvaluatorReference
		want  list
		found string
		says  string
	}{
		"chosen":           {list{platform, tenant}, nil, list{platform}, "True/Found", "Prometheus platform/k"},
		"none":             {list{unchosen, tenant}, nil, list{byName(platform), byName(tenant)}, "False/Ambiguous", `kubectl patch spokecluster s --type merge -p '{"spec":{"evaluatorRefs":[{"kind":"Prometheus","namespace":"platform","name":"k"}]}}'`},
		"named":            {list{platform, tenant}, ref("team"), list{inNamespace("team", isChosen)}, "True/Found", "Prometheus team/k"},
		"named, not there": {list{platform, tenant}, ref("slip"), list{byName(platform), byName(tenant)}, "False/NoSuchEvaluator", "Prometheus slip/k not found in the spoke"},
		"just gone":        {list{tenant, justGone}, nil, list{justGone}, "Unknown/EvaluatorsUnknown", "Prometheus platform/k not found in the spoke any more; the rules stay as they are for 5 minutes"},
		"gone":             {list{tenant, inNamespace("x"), gone}, nil, list{gone, byName(tenant), byName(inNamespace("x"))}, "False/Ambiguous", "Prometheus team/k, Prometheus x/k"},
		"gone, no other":   {list{gone}, nil, list{gone}, "False/NoEvaluator", "no Prometheus or ThanosRuler object"},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := newWorld(t)
			sc := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
			sc.Spec.EvaluatorRefs = c.refs
			got, findings := w.Show(sc, spoke.Evaluators{List: c.seen, Known: true})
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("listed are %+v", got)
			}
			f := findings[v1alpha1.ConditionEvaluatorsFound]
			if string(f.Status)+"/"+f.Reason != c.found || !strings.Contains(f.Message, c.says) {
				t.Errorf("it is found: %+v", f)
			}
		})
	}
}
