// Package hub has the controllers' shared access to the hub: indexes of sources, and the guard of
// deletions.
package hub

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

const (
	placementIndex = "placement"
	workloadIndex  = "workload"
	templateIndex  = "template"
	objectIndex    = "object"

	namedPrefix = "name/"
	bySelector  = "selector"
)

// SetupIndexes adds the indexes that this package uses to the hub's cache.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer, hubID, generatedNamespace string) error {
	generated := func(keys client.IndexerFunc) client.IndexerFunc {
		return func(o client.Object) []string {
			if o.GetNamespace() != generatedNamespace {
				return nil // anybody can set our labels on their own AlertRules
			}
			return keys(o)
		}
	}
	ofSources := map[string]client.IndexerFunc{
		objectIndex: func(o client.Object) []string {
			return []string{rule.ObjectName(hubID, rule.KeyOf(o.(rule.Source)))}
		},
		placementIndex: placementKeys,
	}
	for _, k := range sourceKinds {
		for field, fn := range ofSources {
			if err := indexer.IndexField(ctx, k.Object(), field, fn); err != nil {
				return fmt.Errorf("indexing %ss by %s: %w", k.kind, field, err)
			}
		}
	}
	for field, fn := range map[string]client.IndexerFunc{workloadIndex: generated(workloadKeys), templateIndex: generated(templateKeys)} {
		if err := indexer.IndexField(ctx, &v1alpha1.AlertRule{}, field, fn); err != nil {
			return fmt.Errorf("indexing AlertRules by %s: %w", field, err)
		}
	}
	return indexNamed(ctx, indexer, generatedNamespace)
}

func placementKeys(o client.Object) []string {
	p := o.(rule.Source).GetPlacement()
	keys := make([]string, 0, len(p.Names)+1)
	for _, name := range p.Names {
		keys = append(keys, namedPrefix+string(name))
	}
	if p.Selector != nil {
		keys = append(keys, bySelector)
	}
	return keys
}

func workloadKeys(o client.Object) []string {
	r := o.(*v1alpha1.AlertRule)
	if !Generated(r) {
		return nil
	}
	w := r.Spec.WorkloadRef
	keys := []string{string(w.Cluster), workloadKey(string(w.Cluster), rule.WorkloadKey(w))}
	if w.Kind != v1alpha1.DeploymentKind { // see WorkloadKinds
		keys = append(keys, kindKey(string(w.Cluster), w.Kind))
	}
	return keys
}

func workloadKey(cluster string, workload rule.Key) string {
	return cluster + "/" + workload.Kind + "/" + workload.Namespace + "/" + workload.Name
}

func kindKey(cluster string, kind v1alpha1.WorkloadKind) string { return cluster + "/" + string(kind) }

// WorkloadKinds returns the kinds of workloads, beside Deployments, that are to be read in a spoke: those that a template
// names which is placed and enabled there, and those of which AlertRules exist.
func WorkloadKinds(ctx context.Context, reader client.Reader, cluster string) ([]v1alpha1.WorkloadKind, error) {
	var templates v1alpha1.AlertRuleTemplateList
	if err := reader.List(ctx, &templates); err != nil {
		return nil, fmt.Errorf("listing AlertRuleTemplates: %w", err)
	}
	c, err := Cluster(ctx, reader, cluster)
	if err != nil {
		return nil, err
	}
	named := sets.New[v1alpha1.WorkloadKind]()
	for i := range templates.Items {
		t := &templates.Items[i]
		enabled := rule.MaybeGenerates(t)
		if c != nil { // otherwise, its labels are unknown
			enabled, err = templating.EnabledIn(t, *c)
		}
		if enabled || err != nil { // of an invalid selector, nothing is known
			named.Insert(rule.KindsOf(t)...)
		}
	}
	var out []v1alpha1.WorkloadKind
	for _, kind := range rule.WorkloadKinds()[1:] {
		held := named.Has(kind)
		if !held {
			rules, err := generated(ctx, reader, workloadIndex, kindKey(cluster, kind), client.Limit(1))
			if err != nil {
				return nil, err
			}
			held = len(rules) > 0
		}
		if held {
			out = append(out, kind)
		}
	}
	return out, nil
}

func templateKeys(o client.Object) []string {
	if r := o.(*v1alpha1.AlertRule); Generated(r) {
		return []string{r.Labels[v1alpha1.TemplateLabel]}
	}
	return nil
}

// Generated reports whether a template generated the source.
func Generated(s rule.Source) bool {
	labels := s.GetLabels()
	return labels[v1alpha1.ManagedByLabel] == v1alpha1.ManagedByValue && labels[v1alpha1.TemplateLabel] != "" && s.GetWorkloadRef() != nil
}

// GeneratedFor returns the AlertRules that templates generated for a workload.
func GeneratedFor(ctx context.Context, reader client.Reader, cluster string, workload rule.Key) ([]v1alpha1.AlertRule, error) {
	return generated(ctx, reader, workloadIndex, workloadKey(cluster, workload))
}

// GeneratedOn returns the AlertRules that templates generated for workloads of a spoke.
func GeneratedOn(ctx context.Context, reader client.Reader, cluster string) ([]v1alpha1.AlertRule, error) {
	return generated(ctx, reader, workloadIndex, cluster)
}

// GeneratedBy returns the AlertRules that a template generated.
func GeneratedBy(ctx context.Context, reader client.Reader, template string) ([]v1alpha1.AlertRule, error) {
	return generated(ctx, reader, templateIndex, template)
}

func generated(ctx context.Context, reader client.Reader, field, value string, opts ...client.ListOption) ([]v1alpha1.AlertRule, error) {
	var list v1alpha1.AlertRuleList
	if err := reader.List(ctx, &list, append(opts, client.MatchingFields{field: value})...); err != nil {
		return nil, fmt.Errorf("listing the AlertRules generated for %s %s: %w", field, value, err)
	}
	return list.Items, nil
}

// Sources returns the sources of all kinds that list options select.
func Sources(ctx context.Context, reader client.Reader, opts ...client.ListOption) ([]rule.Source, error) {
	var rules v1alpha1.AlertRuleList
	if err := reader.List(ctx, &rules, opts...); err != nil {
		return nil, fmt.Errorf("listing AlertRules: %w", err)
	}
	var packs v1alpha1.RulePackList
	if err := reader.List(ctx, &packs, opts...); err != nil {
		return nil, fmt.Errorf("listing RulePacks: %w", err)
	}
	out := make([]rule.Source, 0, len(rules.Items)+len(packs.Items))
	for i := range rules.Items {
		out = append(out, &rules.Items[i])
	}
	for i := range packs.Items {
		out = append(out, &packs.Items[i])
	}
	return out, nil
}

// RulesMaybeOn returns the sources that name a spoke, and all that select spokes by label. They include
// those that are placed on the spoke, whatever its labels are.
func RulesMaybeOn(ctx context.Context, reader client.Reader, cluster string) ([]rule.Source, error) {
	seen := map[types.UID]bool{}
	var out []rule.Source
	for _, key := range []string{namedPrefix + cluster, bySelector} {
		found, err := Sources(ctx, reader, client.MatchingFields{placementIndex: key})
		if err != nil {
			return nil, fmt.Errorf("finding the rules for spoke %s: %w", cluster, err)
		}
		for _, s := range found {
			if !seen[s.GetUID()] {
				seen[s.GetUID()] = true
				out = append(out, s)
			}
		}
	}
	return out, nil
}

// RulesOn returns the sources that are placed on a spoke.
func RulesOn(ctx context.Context, reader client.Reader, cluster rule.Cluster) ([]rule.Source, error) {
	maybe, err := RulesMaybeOn(ctx, reader, cluster.Name)
	return slices.DeleteFunc(maybe, func(s rule.Source) bool {
		// An invalid selector places nothing; the status says so.
		placed, err := rule.Places(s.GetPlacement(), cluster)
		return err != nil || !placed
	}), err
}

// RuleOfObject returns the source whose PrometheusRules have a name, whatever their labels and annotations
// say, because people can change those but not the name.
func RuleOfObject(ctx context.Context, reader client.Reader, name string) (key rule.Key, found bool, err error) {
	sources, err := Sources(ctx, reader, client.MatchingFields{objectIndex: name})
	if err != nil || len(sources) == 0 {
		return key, false, err
	}
	return rule.KeyOf(sources[0]), true, nil
}

// Source reads a source. It returns nil if there is none.
func Source(ctx context.Context, reader Getter, key rule.Key) (rule.Source, error) {
	o := KindOf(key).Object()
	switch err := reader.Get(ctx, key.NamespacedName(), o); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", key, err)
	}
	return o.(rule.Source), nil
}

// Cluster returns a spoke as placement sees it, or nil if there is no such SpokeCluster.
func Cluster(ctx context.Context, reader Getter, name string) (*rule.Cluster, error) {
	var sc v1alpha1.SpokeCluster
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, &sc); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("reading SpokeCluster %s: %w", name, err)
	}
	return ClusterOf(&sc), nil
}

// ClusterOf returns a SpokeCluster as placement sees it.
func ClusterOf(sc *v1alpha1.SpokeCluster) *rule.Cluster {
	c := &rule.Cluster{
		Name: sc.Name, Labels: sc.Labels, UID: sc.UID, Created: sc.CreationTimestamp.Time, Identity: sc.Status.Identity,
		MaxRules: sc.Spec.MaxRules, Suspended: ptr.Deref(sc.Spec.Suspend, false),
	}
	for key, value := range sc.Spec.RuleLabels {
		if c.RuleLabels == nil {
			c.RuleLabels = make(map[string]string, len(sc.Spec.RuleLabels))
		}
		c.RuleLabels[key] = string(value)
	}
	c.EvaluatorRefs, c.Tenants = sc.Spec.EvaluatorRefs, sc.Spec.Tenants
	WithEvaluators(c, sc.Status.Evaluators, "")
	for _, id := range sc.Spec.AdoptHubIDs {
		c.AdoptHubIDs = append(c.AdoptHubIDs, string(id))
	}
	return c
}

// WithEvaluators sets a spoke's evaluators. whyNot says why others may exist that are unknown.
func WithEvaluators(c *rule.Cluster, list []v1alpha1.Evaluator, whyNot string) {
	c.Evaluators, c.EvaluatorsUnknown = make([]rule.Evaluator, 0, len(list)), whyNot
	for i := range list {
		c.Evaluators = append(c.Evaluators, rule.EvaluatorOf(&list[i]))
	}
	evaluation.ApplyRefs(c.Evaluators, c.EvaluatorRefs)
}

// Request returns the key of an object, for a spoke, in the queue of a controller. KeyOf is the reverse.
func Request(spoke string, key rule.Key) queue.Request {
	return queue.Request{Request: reconcile.Request{NamespacedName: key.NamespacedName()}, Kind: key.Kind, ClusterName: multicluster.ClusterName(spoke)}
}

// KeyOf returns the key of the object that a key in a queue is about.
func KeyOf(req queue.Request) rule.Key {
	return rule.Key{Kind: req.Kind, Namespace: req.Namespace, Name: req.Name}
}

// Key returns an object's namespace and name.
func Key(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
