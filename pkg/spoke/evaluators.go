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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
)

// Evaluators are the Prometheus and ThanosRuler objects of a spoke, as they were last read.
type Evaluators struct {
	// List contains the evaluators. Chosen ones are marked, as in the status. Chosen ones that have
	// disappeared are at the end. It is never modified.
	List []v1alpha1.Evaluator
	// Known is true once the evaluators were read and the choice was recorded.
	Known bool
	// WhyNot explains why the evaluators can't be read at present, and what to change. It is empty if they
	// can be read.
	WhyNot string
}

func (e Evaluators) equal(other Evaluators) bool { return reflect.DeepEqual(e, other) }

// relevant returns the part on which rules depend: the chosen evaluators or, if none is chosen, all of them.
// Changes of other evaluators in the spoke do not matter.
func (e Evaluators) relevant() Evaluators {
	all := e.List
	e.List = slices.DeleteFunc(slices.Clone(all), func(e v1alpha1.Evaluator) bool { return !evaluation.IsRecorded(e) })
	if len(e.List) == 0 {
		e.List = all
	}
	return e
}

// These bound the part of a spoke's evaluators that is kept.
const (
	maxListed   = 200 // objects of a kind, in a list, and of all kinds together
	maxSelector = 4 << 10
	maxFeatures = 32
	maxExcluded = 64

	maxExclusion    = 317 // bytes of one
	maxLabelName    = 125
	maxClusterLabel = 250
	maxRoutePrefix  = 125
)

// plainService and plainPath match names and paths in which no segment leads up and nothing is escaped.
var (
	plainService = regexp.MustCompile(`^https?:[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?:[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?$`)
	plainPath    = regexp.MustCompile(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?$`)
)

// unknown is what follows if evaluators can't be read.
const unknown = "it is unknown whether a Prometheus selects the rules"

// hiddenEvaluators is WhyNot if none was found that selects rules, and there are others: anyone who can create one in the
// spoke can make it so large that it hides those after it.
var hiddenEvaluators = advise(fmt.Sprintf("one of the Prometheus or ThanosRuler objects is too large to be listed, or there are more than %d", maxListed),
	unknown+"; name the one that evaluates them in spec.evaluatorRefs of the SpokeCluster")

// unreadable says why the Prometheus and ThanosRuler objects can't be read, and what to do.
func unreadable(err error) string {
	if apierrors.IsForbidden(err) {
		return advise(err.Error(), unknown+"; grant get and list on prometheuses and thanosrulers.monitoring.coreos.com to Rulefleet's account in the spoke")
	}
	return advise("the Prometheus and ThanosRuler objects can't be read: "+err.Error(), unknown+"; Rulefleet tries again")
}

// Sighting is the result of reading the Prometheus and ThanosRuler objects of a spoke.
type Sighting struct {
	// List contains the objects in the searched namespaces, and those that spec.evaluatorRefs names.
	List []v1alpha1.Evaluator
	// More is true if there may be others.
	More bool
	// Rules reads the spoke's cache of PrometheusRules and namespaces. It is nil if the spoke does not serve
	// PrometheusRules.
	Rules client.Reader

	limit func(ctx context.Context, list []v1alpha1.Evaluator)
}

// Limit adds to chosen evaluators the namespaces that prometheus-operator leaves out.
func (s *Sighting) Limit(ctx context.Context, list []v1alpha1.Evaluator) {
	if s.limit != nil {
		s.limit(ctx, list)
	}
}

// Look reads the evaluators of a spoke, including the named ones.
type Look func(ctx context.Context, named []v1alpha1.EvaluatorReference) (*Sighting, error)

// Choose decides which evaluators of a spoke are chosen, and records the choice. identity is that of the spoke's
// cluster, and before is what was known of its evaluators.
type Choose func(ctx context.Context, name, identity string, before Evaluators, look Look) ([]v1alpha1.Evaluator, error)

// seenAlone chooses nothing.
func seenAlone(ctx context.Context, _, _ string, _ Evaluators, look Look) ([]v1alpha1.Evaluator, error) {
	seen, err := look(ctx, nil)
	if err != nil {
		return nil, err
	}
	return seen.List, nil
}

// discover reads the spoke's Prometheus and ThanosRuler objects. They change rarely, so reading them now and
// then is cheaper than watching them. If they can't be read, or the choice can't be recorded, the known ones
// stay.
func (c *connection) discover(ctx context.Context, s *session) {
	before := c.seen.Evaluators
	if c.evaluated != c.seen.Identity {
		before = Evaluators{} // of another cluster
	}
	var unread error
	more := false
	var until time.Time // for all attempts to record the choice: the spoke is not probed meanwhile
	choose := c.choose
	if choose == nil {
		choose = seenAlone
	}
	list, err := choose(ctx, c.name, c.seen.Identity, before, func(ctx context.Context, named []v1alpha1.EvaluatorReference) (seen *Sighting, err error) {
		ctx, cancel := c.patient(ctx)
		defer cancel()
		if seen, unread = s.evaluators(ctx, &c.p.opts, named); unread != nil {
			return nil, unread
		}
		more = seen.More
		seen.limit = func(ctx context.Context, list []v1alpha1.Evaluator) {
			if until.IsZero() {
				until = time.Now().Add(readTimeout)
			}
			ctx, end := context.WithDeadline(ctx, until)
			defer end()
			ctx, cancel := c.patient(ctx)
			defer cancel()
			s.limit(ctx, c.p.opts.OperatorNamespaces, list)
		}
		return seen, nil
	})
	switch {
	case err == nil:
		c.seen.Evaluators, c.evaluated = Evaluators{List: list, Known: true}, c.seen.Identity
		if more && !slices.ContainsFunc(list, func(e v1alpha1.Evaluator) bool { return evaluation.IsRecorded(e) || e.RuleSelector != nil }) {
			c.seen.Evaluators.WhyNot = hiddenEvaluators
		}
	case ctx.Err() != nil:
	case unread == nil:
		c.log.Error(err, "recording the choice of evaluators failed; retrying")
	case answered(unread) || drips(unread) || tooLarge(unread) != nil || !c.seen.Evaluators.Known: // else the probe finds out
		c.seen.Evaluators.WhyNot = unreadable(unread)
	}
}

// evaluators lists the evaluators. A spoke that does not serve a kind has none of it. A named evaluator is
// read separately if it is not in the lists and these may be incomplete.
func (s *session) evaluators(ctx context.Context, o *Options, named []v1alpha1.EvaluatorReference) (*Sighting, error) {
	seen := &Sighting{}
	if s.served {
		seen.Rules = s.cluster.GetClient()
	}
	namespaces := o.EvaluatorNamespaces
	everywhere := len(namespaces) == 0
	if everywhere {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		if err := s.listEvaluators(ctx, namespace, seen); err != nil {
			return nil, err
		}
	}
	for _, ref := range named {
		has := func(e v1alpha1.Evaluator) bool { return evaluation.IsNamed([]v1alpha1.EvaluatorReference{ref}, &e) }
		if slices.ContainsFunc(seen.List, has) || everywhere && !seen.More {
			continue
		}
		if err := s.readEvaluator(ctx, ref, seen); err != nil {
			return nil, err
		}
	}
	seen.List = slices.DeleteFunc(seen.List, misnamed)
	// Named evaluators come first, then those that select rules, so that the others can't displace them.
	rank := func(e *v1alpha1.Evaluator) int {
		switch {
		case evaluation.IsNamed(named, e):
			return 0
		case e.RuleSelector != nil:
			return 1
		}
		return 2
	}
	slices.SortFunc(seen.List, func(a, b v1alpha1.Evaluator) int {
		return cmp.Or(rank(&a)-rank(&b), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	if len(seen.List) > maxListed {
		seen.List, seen.More = seen.List[:maxListed], true
	}
	return seen, nil
}

// listEvaluators adds the evaluators of a namespace, or of all namespaces, to a Sighting.
func (s *session) listEvaluators(ctx context.Context, namespace string, seen *Sighting) error {
	err := seen.add(ctx, func(ctx context.Context, o metav1.ListOptions) (page []v1alpha1.Evaluator, next string, err error) {
		list, err := s.rules.MonitoringV1().Prometheuses(namespace).List(ctx, o)
		err = s.confirm(ctx, monitoringv1.PrometheusName, err)
		if err != nil {
			return nil, "", err
		}
		return evaluatorsOf(list.Items, prometheusOf), list.Continue, nil
	})
	if err != nil {
		return fmt.Errorf("listing Prometheuses: %w", err)
	}
	err = seen.add(ctx, func(ctx context.Context, o metav1.ListOptions) (page []v1alpha1.Evaluator, next string, err error) {
		list, err := s.rules.MonitoringV1().ThanosRulers(namespace).List(ctx, o)
		err = s.confirm(ctx, monitoringv1.ThanosRulerName, err)
		if err != nil {
			return nil, "", err
		}
		return evaluatorsOf(list.Items, rulerOf), list.Continue, nil
	})
	if err != nil {
		return fmt.Errorf("listing ThanosRulers: %w", err)
	}
	return nil
}

// evaluatorsOf returns the relevant parts of objects.
func evaluatorsOf[T any](items []T, of func(*T) v1alpha1.Evaluator) []v1alpha1.Evaluator {
	out := make([]v1alpha1.Evaluator, 0, min(len(items), maxListed))
	for i := range items[:min(len(items), maxListed+1)] {
		out = append(out, of(&items[i]))
	}
	return out
}

// maxEvaluatorPages bounds the requests for one list of evaluators.
const maxEvaluatorPages = 8

// partialKey marks requests for a list that may be read in part, if an object has too many values.
type partialKey struct{}

// add adds a list of evaluators, up to maxListed of them. Anyone who can create such objects can make them large, so a
// page that is too large is requested again with fewer objects. An object with too many values, which etcd accepts, hides
// those after it, and the session goes on. One with too many bytes does not come from etcd.
func (s *Sighting) add(ctx context.Context, list func(context.Context, metav1.ListOptions) (page []v1alpha1.Evaluator, next string, err error)) error {
	ctx = context.WithValue(ctx, partialKey{}, true)
	options, found := metav1.ListOptions{Limit: maxListed}, 0
	for range maxEvaluatorPages {
		request, done := context.WithCancel(ctx)
		page, next, err := list(request, options)
		done() // it is decoded
		excess := tooLarge(err)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case excess != nil && excess.part && options.Limit == 1:
			s.More = true
			return nil
		case excess != nil && excess.part:
			options.Limit = max(1, options.Limit/16)
			continue
		case err != nil:
			return err
		}
		room := maxListed - found
		s.List = append(s.List, page[:min(len(page), room)]...)
		if found += len(page); next == "" || found >= maxListed {
			s.More = s.More || next != "" || found > maxListed
			return nil
		}
		if err := tokenFits("evaluator", next); err != nil {
			return err
		}
		options.Continue = next
	}
	s.More = true
	return nil
}

// readEvaluator adds a named evaluator to a Sighting, if it exists. Anyone who can write it can make it so dense that it is
// not read.
func (s *session) readEvaluator(ctx context.Context, ref v1alpha1.EvaluatorReference, seen *Sighting) error {
	ctx, done := context.WithCancel(spare(ctx))
	defer done()
	var err error
	resource := monitoringv1.PrometheusName
	switch ref.Kind {
	case monitoringv1.PrometheusesKind:
		var p *monitoringv1.Prometheus
		if p, err = s.rules.MonitoringV1().Prometheuses(string(ref.Namespace)).Get(ctx, ref.Name, metav1.GetOptions{}); err == nil {
			seen.List = append(seen.List, prometheusOf(p))
		}
	case monitoringv1.ThanosRulerKind:
		resource = monitoringv1.ThanosRulerName
		var r *monitoringv1.ThanosRuler
		if r, err = s.rules.MonitoringV1().ThanosRulers(string(ref.Namespace)).Get(ctx, ref.Name, metav1.GetOptions{}); err == nil {
			seen.List = append(seen.List, rulerOf(r))
		}
	}
	if Absent(err, resource, ref.Name) {
		return nil
	}
	if err = s.confirm(ctx, resource, err); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading %s %s/%s: %w", ref.Kind, ref.Namespace, ref.Name, err)
	}
	return nil
}

// misnamed reports whether an object has a name that no API server accepts. The hub would refuse the whole
// status that lists it.
func misnamed(e v1alpha1.Evaluator) bool {
	return len(validation.IsDNS1123Label(e.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(e.Name)) > 0
}

// orAddress says how to query an evaluator whose Service can't be used, and listensLocally is the message about
// one that has no usable Service.
const (
	orAddress      = "; correct it, or set the address in spec.evaluatorRefs[].url of the SpokeCluster"
	listensLocally = "it listens only on the loopback address of its pods (spec.listenLocal), so it can't be queried; set the address of a proxy to it in spec.evaluatorRefs[].url of the SpokeCluster"
)

// prometheusOf returns the relevant part of a Prometheus. Its content is untrusted.
func prometheusOf(p *monitoringv1.Prometheus) v1alpha1.Evaluator {
	e := v1alpha1.Evaluator{
		Kind: monitoringv1.PrometheusesKind, Namespace: p.Namespace, Name: p.Name,
		RuleSelector: p.Spec.RuleSelector, RuleNamespaceSelector: p.Spec.RuleNamespaceSelector,
		EnforcedNamespaceLabel:  p.Spec.EnforcedNamespaceLabel,
		ExcludedFromEnforcement: excluded(p.Spec.ExcludedFromEnforcement, p.Spec.PrometheusRulesExcludedFromEnforce), // prometheus-operator reads the deprecated one, too
		ClusterLabel:            literal(p.Spec.ExternalLabels[clusterKey]),
		Version:                 p.Spec.Version,
		Service:                 serviceOf(p.Spec.ServiceName, "prometheus-operated", p.Spec.PortName, p.Spec.Web != nil && p.Spec.Web.TLSConfig != nil),
		RoutePrefix:             p.Spec.RoutePrefix,
	}
	return bounded(e, p.Spec.EnableFeatures, p.Spec.ListenLocal)
}

// rulerOf returns the relevant part of a ThanosRuler. Its content is untrusted.
func rulerOf(r *monitoringv1.ThanosRuler) v1alpha1.Evaluator {
	e := v1alpha1.Evaluator{
		Kind: monitoringv1.ThanosRulerKind, Namespace: r.Namespace, Name: r.Name,
		RuleSelector: r.Spec.RuleSelector, RuleNamespaceSelector: r.Spec.RuleNamespaceSelector,
		EnforcedNamespaceLabel:  r.Spec.EnforcedNamespaceLabel,
		ExcludedFromEnforcement: excluded(r.Spec.ExcludedFromEnforcement, r.Spec.PrometheusRulesExcludedFromEnforce),
		ClusterLabel:            literal(r.Spec.Labels[clusterKey]),
		Service:                 serviceOf(r.Spec.ServiceName, "thanos-ruler-operated", r.Spec.PortName, r.Spec.Web != nil && r.Spec.Web.TLSConfig != nil),
		RoutePrefix:             r.Spec.RoutePrefix,
	}
	if r.Spec.Version != nil {
		e.Version = *r.Spec.Version
	}
	return bounded(e, r.Spec.EnableFeatures, r.Spec.ListenLocal)
}

// clusterKey is the external label that identifies the cluster.
const clusterKey = "cluster"

// literal returns a text, or "" if the text would be expanded where it is used.
func literal(s string) string {
	if strings.Contains(s, "$") {
		return ""
	}
	return s
}

// serviceOf returns the governing Service of an evaluator and its port, as the API server's proxy names them.
// prometheus-operator names the port web by default, and kube-prometheus-stack sets http-web.
func serviceOf(named *string, otherwise, port string, tls bool) string {
	scheme := "http"
	if tls {
		scheme = "https"
	}
	return scheme + ":" + cmp.Or(ptr.Deref(named, ""), otherwise) + ":" + cmp.Or(port, "web")
}

// excluded lists the PrometheusRules that are not restricted to their namespace.
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

// bounded adds features to an evaluator, and returns it within the limits of the hub's API. One that listens only locally
// has no Service. If a selector or the enforced label exceeds the limits, the evaluator counts as one that selects nothing,
// and its message says why.
func bounded(e v1alpha1.Evaluator, features []monitoringv1.EnableFeature, local bool) v1alpha1.Evaluator {
	for _, f := range features {
		e.Features = append(e.Features, string(f))
	}
	if local {
		e.Service, e.Message = "", listensLocally
	}
	// A name longer than any object name can be never excludes one.
	e.ExcludedFromEnforcement = slices.DeleteFunc(e.ExcludedFromEnforcement, func(name string) bool { return len(name) > maxExclusion })
	size := func(s *metav1.LabelSelector) int {
		data, _ := json.Marshal(s) // strings alone
		return len(data)
	}
	switch {
	case size(e.RuleSelector) > maxSelector || size(e.RuleNamespaceSelector) > maxSelector:
		e.RuleSelector, e.RuleNamespaceSelector = nil, nil
		e.Message = fmt.Sprintf("its selectors are larger than %d KiB, so Rulefleet treats it as if it selected no rules; shorten spec.ruleSelector and spec.ruleNamespaceSelector", maxSelector>>10)
	case len(e.ExcludedFromEnforcement) > maxExcluded:
		e.ExcludedFromEnforcement = e.ExcludedFromEnforcement[:maxExcluded]
		e.Message = fmt.Sprintf("it excludes more than %d PrometheusRules from enforcement, and only the first %[1]d are used; exclude whole namespaces in spec.excludedFromEnforcement", maxExcluded)
	}
	if len(e.EnforcedNamespaceLabel) > maxLabelName {
		e.EnforcedNamespaceLabel, e.RuleSelector, e.RuleNamespaceSelector = "", nil, nil
		e.Message = fmt.Sprintf("its enforcedNamespaceLabel is longer than %d bytes, so Rulefleet treats it as if it selected no rules; shorten it", maxLabelName)
	}
	if len(e.ClusterLabel) > maxClusterLabel {
		e.ClusterLabel = ""
	}
	e.Version = Clip(e.Version, maxVersion)
	e.Features = slices.DeleteFunc(e.Features[:min(len(e.Features), maxFeatures)], func(f string) bool { return len(f) > 63 })
	// Requests carry the manager's credential, so the path must not lead out of the Service.
	switch {
	case e.Service != "" && !plainService.MatchString(e.Service):
		e.Service, e.RoutePrefix = "", ""
		e.Message = "its spec.serviceName is not a valid Service name, or its spec.portName is not a valid port name, so it can't be queried" + orAddress
	case !plainPath.MatchString(e.RoutePrefix) || len(e.RoutePrefix) > maxRoutePrefix:
		e.Service, e.RoutePrefix = "", ""
		e.Message = "its spec.routePrefix is not a plain path of letters, digits, -, _, . and ~, so it can't be queried" + orAddress
	}
	return e
}
