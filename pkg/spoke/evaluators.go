package spoke

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Evaluators are the Prometheus and ThanosRuler objects of a spoke, as they were last read.
type Evaluators struct {
	// List is sorted by kind, namespace and name. It is never changed.
	List []v1alpha1.Evaluator
	// Known is false until they were read once.
	Known bool
	// WhyNot says why they can't be read at present, and what to change; "" where they can.
	WhyNot string
}

func (e Evaluators) equal(other Evaluators) bool { return reflect.DeepEqual(e, other) }

// Evaluation tells how the evaluators of spokes are.
type Evaluation interface {
	// Show returns what to show of a spoke's evaluators, which were read so: what
	// status.evaluators lists, and conditions by their type. A Finding without a status is a
	// condition to take away; one that is missing stays.
	Show(sc *v1alpha1.SpokeCluster, read Evaluators) ([]v1alpha1.Evaluator, map[string]Finding)
}

// tellEvaluation says in the status of a spoke how its evaluators are. What is wrong with them
// is the reason of Ready, where there is no other: the spoke can be served all the same.
func (r *Registrar) tellEvaluation(s *v1alpha1.SpokeClusterStatus, sc *v1alpha1.SpokeCluster, n news) {
	if r.Evaluation == nil || n.seen == nil {
		return
	}
	list, findings := r.Evaluation.Show(sc, n.seen.Evaluators)
	s.Evaluators = list
	now := metav1.Now()
	for _, kind := range []string{v1alpha1.ConditionEvaluatorsFound, v1alpha1.ConditionEvaluating, v1alpha1.ConditionMetricsPresent} {
		f, known := findings[kind]
		switch {
		case known && f.Status == "":
			meta.RemoveStatusCondition(&s.Conditions, kind)
		case known:
			f.Message = Clip(f.Message, maxMessage)
			setCondition(s, sc.Generation, kind, f, now)
		}
	}
	ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue {
		return
	}
	for _, kind := range []string{v1alpha1.ConditionMetricsPresent, v1alpha1.ConditionEvaluating} {
		if c := meta.FindStatusCondition(s.Conditions, kind); c != nil && c.Status == metav1.ConditionFalse {
			ready.Reason, ready.Message = c.Reason, c.Message
		}
	}
}

// These bound what a spoke may have shown of its evaluators.
const (
	maxEvaluators = 16
	maxListed     = 200 // objects of a kind that are looked at
	maxSelector   = 4 << 10
	maxFeatures   = 32
	maxExcluded   = 64
	maxExclusion  = 317 // bytes of one

	maxLabelName    = 125
	maxClusterLabel = 250
	maxRoutePrefix  = 125
)

// What a path is made of, in which no segment leads up, and nothing is escaped.
var (
	plainService = regexp.MustCompile(`^https?:[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?:web$`)
	plainPath    = regexp.MustCompile(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?$`)
)

// evaluatorsUnreadable is what to do where Prometheus objects can't be read.
const evaluatorsUnreadable = "whether a Prometheus selects the rules can't be known; grant get, list and watch on prometheuses and thanosrulers.monitoring.coreos.com to the operator's account there"

// evaluatorsBack is for how long evaluators that are all gone at once are taken to come back, as
// when prometheus-operator is installed anew: rules would get other labels, and go to other
// namespaces, twice.
const evaluatorsBack = 5 * time.Minute

// evaluatorsGone is what is told meanwhile.
const evaluatorsGone = "all Prometheus and ThanosRuler objects of the spoke are gone; its rules stay as they are for five minutes, in case that one comes back"

// emptyFor returns for how long there have been no evaluators any more.
func (c *connection) emptyFor() time.Duration {
	if c.empty.IsZero() {
		c.empty = time.Now()
	}
	return time.Since(c.empty)
}

// discover reads the spoke's Prometheus and ThanosRuler objects. They change seldom, so that
// asking now and then is cheaper than watching them. Where they can't be read, what is known of
// them stays.
func (c *connection) discover(ctx context.Context, s *session) {
	bounded, cancel := c.patient(ctx)
	defer cancel()
	found, err := s.evaluators(bounded)
	switch {
	case err == nil && len(found) == 0 && len(c.seen.Evaluators.List) > 0 && c.emptyFor() < evaluatorsBack:
		c.seen.Evaluators.WhyNot = evaluatorsGone
	case err == nil:
		c.seen.Evaluators, c.empty = Evaluators{List: found, Known: true}, time.Time{}
	case ctx.Err() != nil:
	case answered(err) || !c.seen.Evaluators.Known: // else the probe finds out
		c.seen.Evaluators.WhyNot = advise(err.Error(), evaluatorsUnreadable)
	}
}

// evaluators lists them. A spoke that does not serve a kind has none of it.
func (s *session) evaluators(ctx context.Context) ([]v1alpha1.Evaluator, error) {
	var out []v1alpha1.Evaluator
	options := metav1.ListOptions{Limit: maxListed}
	prometheuses, err := s.rules.MonitoringV1().Prometheuses(metav1.NamespaceAll).List(ctx, options)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("listing Prometheuses: %w", err)
	}
	if err == nil {
		for i := range prometheuses.Items {
			out = append(out, prometheusOf(&prometheuses.Items[i]))
		}
	}
	rulers, err := s.rules.MonitoringV1().ThanosRulers(metav1.NamespaceAll).List(ctx, options)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("listing ThanosRulers: %w", err)
	}
	if err == nil {
		for i := range rulers.Items {
			out = append(out, rulerOf(&rulers.Items[i]))
		}
	}
	out = slices.DeleteFunc(out, misnamed)
	s.limit(ctx, out)
	slices.SortFunc(out, func(a, b v1alpha1.Evaluator) int {
		// One that takes rules is not pushed out by those that take none.
		return cmp.Or(takesNone(&a)-takesNone(&b), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out[:min(len(out), maxEvaluators)], nil
}

// misnamed tells of an object whose name no API server gives out: the hub's would refuse the whole
// status that lists it.
func misnamed(e v1alpha1.Evaluator) bool {
	return len(validation.IsDNS1123Label(e.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(e.Name)) > 0
}

func takesNone(e *v1alpha1.Evaluator) int {
	if e.RuleSelector == nil {
		return 1
	}
	return 0
}

// prometheusOf returns what matters of a Prometheus. What is in it is the spoke's word.
func prometheusOf(p *monitoringv1.Prometheus) v1alpha1.Evaluator {
	e := v1alpha1.Evaluator{
		Kind: monitoringv1.PrometheusesKind, Namespace: p.Namespace, Name: p.Name,
		RuleSelector: p.Spec.RuleSelector, RuleNamespaceSelector: p.Spec.RuleNamespaceSelector,
		EnforcedNamespaceLabel:  p.Spec.EnforcedNamespaceLabel,
		ExcludedFromEnforcement: excluded(p.Spec.ExcludedFromEnforcement, p.Spec.PrometheusRulesExcludedFromEnforce), // prometheus-operator reads the deprecated one, too
		ClusterLabel:            literal(p.Spec.ExternalLabels[clusterKey]),
		Version:                 p.Spec.Version,
		Service:                 serviceOf(p.Spec.ServiceName, "prometheus-operated", p.Spec.Web != nil && p.Spec.Web.TLSConfig != nil),
		RoutePrefix:             p.Spec.RoutePrefix,
	}
	for _, f := range p.Spec.EnableFeatures {
		e.Features = append(e.Features, string(f))
	}
	if e.Service != "" && p.Spec.ListenLocal {
		e.Service = ""
		e.Message = "it listens on its pods' loopback address (spec.listenLocal), so that it can't be asked"
	}
	return bounded(e)
}

// rulerOf returns what matters of a ThanosRuler.
func rulerOf(r *monitoringv1.ThanosRuler) v1alpha1.Evaluator {
	e := v1alpha1.Evaluator{
		Kind: monitoringv1.ThanosRulerKind, Namespace: r.Namespace, Name: r.Name,
		RuleSelector: r.Spec.RuleSelector, RuleNamespaceSelector: r.Spec.RuleNamespaceSelector,
		EnforcedNamespaceLabel:  r.Spec.EnforcedNamespaceLabel,
		ExcludedFromEnforcement: excluded(r.Spec.ExcludedFromEnforcement, r.Spec.PrometheusRulesExcludedFromEnforce),
		ClusterLabel:            literal(r.Spec.Labels[clusterKey]),
		Service:                 serviceOf(r.Spec.ServiceName, "thanos-ruler-operated", r.Spec.Web != nil && r.Spec.Web.TLSConfig != nil),
		RoutePrefix:             r.Spec.RoutePrefix,
	}
	if r.Spec.Version != nil {
		e.Version = *r.Spec.Version
	}
	for _, f := range r.Spec.EnableFeatures {
		e.Features = append(e.Features, string(f))
	}
	if e.Service != "" && r.Spec.ListenLocal {
		e.Service = ""
		e.Message = "it listens on its pods' loopback address (spec.listenLocal), so that it can't be asked"
	}
	return bounded(e)
}

// clusterKey is the external label that tells clusters apart.
const clusterKey = "cluster"

// literal returns a text that stands for itself: not one that is expanded where it is used.
func literal(s string) string {
	if strings.Contains(s, "$") {
		return ""
	}
	return s
}

// serviceOf is how the API server's proxy names the governing Service of an evaluator, whose
// port prometheus-operator calls web by default.
func serviceOf(named *string, otherwise string, tls bool) string {
	name := otherwise
	if named != nil && *named != "" {
		name = *named
	}
	if tls {
		return "https:" + name + ":web"
	}
	return "http:" + name + ":web"
}

// excluded lists the PrometheusRules that are not confined to their namespace.
func excluded(refs []monitoringv1.ObjectReference, former []monitoringv1.PrometheusRuleExcludeConfig) []string {
	var out []string
	for _, r := range refs {
		if (r.Group == "" || r.Group == ruleKind.Group) && r.Resource == monitoringv1.PrometheusRuleName {
			out = append(out, r.Namespace+"/"+cmp.Or(r.Name, "*"))
		}
	}
	for _, r := range former {
		out = append(out, r.RuleNamespace+"/"+cmp.Or(r.RuleName, "*"))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// bounded returns an evaluator as the hub's API takes it. One of whom that would tell something
// wrong takes no rule, and says why.
func bounded(e v1alpha1.Evaluator) v1alpha1.Evaluator {
	// One that is longer than the names of any object are excludes none.
	e.ExcludedFromEnforcement = slices.DeleteFunc(e.ExcludedFromEnforcement, func(name string) bool { return len(name) > maxExclusion })
	size := func(s *metav1.LabelSelector) int {
		data, _ := json.Marshal(s) // strings alone
		return len(data)
	}
	switch {
	case size(e.RuleSelector) > maxSelector || size(e.RuleNamespaceSelector) > maxSelector:
		e.RuleSelector, e.RuleNamespaceSelector = nil, nil
		e.Message = fmt.Sprintf("its selectors have more than %d KiB", maxSelector>>10)
	case len(e.ExcludedFromEnforcement) > maxExcluded:
		e.ExcludedFromEnforcement = e.ExcludedFromEnforcement[:maxExcluded]
		e.Message = fmt.Sprintf("it excludes more than %d PrometheusRules from enforcement; the rest is not seen", maxExcluded)
	}
	if len(e.EnforcedNamespaceLabel) > maxLabelName {
		e.EnforcedNamespaceLabel, e.RuleSelector, e.RuleNamespaceSelector = "", nil, nil
		e.Message = fmt.Sprintf("its enforcedNamespaceLabel has more than %d bytes", maxLabelName)
	}
	if len(e.ClusterLabel) > maxClusterLabel {
		e.ClusterLabel = ""
	}
	e.Version = Clip(e.Version, maxVersion)
	e.Features = slices.DeleteFunc(e.Features[:min(len(e.Features), maxFeatures)], func(f string) bool { return len(f) > 63 })
	// The operator's credential goes along: it must not lead out of the Service.
	switch {
	case e.Service != "" && !plainService.MatchString(e.Service):
		e.Service, e.RoutePrefix = "", ""
		e.Message = "its spec.serviceName is no name of a Service, so that it can't be asked"
	case !plainPath.MatchString(e.RoutePrefix) || len(e.RoutePrefix) > maxRoutePrefix:
		e.Service, e.RoutePrefix = "", ""
		e.Message = "its spec.routePrefix is no plain path, so that it can't be asked"
	}
	return e
}
