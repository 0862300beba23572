package generate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/testing/model"
	"github.com/rulefleet/rulefleet/pkg/testing/oracle"
)

const exploredNamespace = "rulefleet-generated"

var exploredValidator = validation.New(validation.Options{AdminNamespace: "rulefleet-system", GeneratedNamespace: exploredNamespace})

// exploration is a hub and a spoke, what people do there, and what must hold whatever happens.
type exploration struct {
	*model.Schedule

	// lost are the AlertRules whose template was lost with its kind, by the template.
	lost      map[string]map[types.UID]bool
	templates []client.Object // a backup
	rules     []client.Object // a backup
	// edited is the value of field for that a person set in an AlertRule, and touched whether kubectl wrote any
	// field of it.
	edited  map[types.UID]v1alpha1.Duration
	touched map[types.UID]bool
	version int
	// contests are those of the leader, and reverted is true if anyone may have reverted a write of the operator.
	contests *contest.Writes
	reverted bool
}

// hubClient is the client of a process, with applies and deletions of AlertRules, which are checked.
type hubClient struct {
	model.Client

	e *exploration
	p *model.Process
}

func (c *hubClient) Apply(_ context.Context, config runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	o := (&client.ApplyOptions{}).ApplyOptions(opts)
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, u); err != nil {
		return err
	}
	err = c.e.Write(c.p, "applying "+u.GetName(), func() error {
		if !c.e.Defined("alertrules") {
			c.e.Disturbed = true
			return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("alertrules").GroupResource(), "")
		}
		c.e.CountWrite(u.GetName())
		out, err := c.e.Hub.Apply(u, o.FieldManager, o.Force != nil && *o.Force)
		if err != nil {
			return err
		}
		c.e.keepsEdits(out)
		text, err := json.Marshal(out)
		if err != nil {
			return err
		}
		return json.Unmarshal(text, config)
	})
	c.e.unrecorded(err)
	return err
}

func (c *hubClient) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	err := c.e.Write(c.p, "deleting "+o.GetName(), func() error {
		conditions := options.Preconditions
		if conditions == nil || conditions.UID == nil || conditions.ResourceVersion == nil {
			c.e.Violation("%s is deleted, whatever it is by now", o.GetName())
		}
		if now := c.e.rule(o.GetName()); now != nil && now.UID == *conditions.UID && now.ResourceVersion == *conditions.ResourceVersion {
			c.e.removes(c.p, now)
		}
		return c.e.Hub.Delete(model.RefOf(o), conditions)
	})
	c.e.unrecorded(err)
	return err
}

// unrecorded notes that a write may have been made that is not recorded, so that the next one seems to be reverted.
func (e *exploration) unrecorded(err error) {
	e.reverted = e.reverted || (err != nil && !apierrors.IsNotFound(err))
}

// spokeOf is the spoke while a process has engaged it.
type spokeOf struct {
	*emptied

	p *model.Process
}

func (s *spokeOf) Spoke(name string) *spoke.Spoke {
	if s.p.Away {
		return nil
	}
	return s.emptied.Spoke(name)
}

func (s *spokeOf) Spokes() []*spoke.Spoke {
	if s.p.Away {
		return nil
	}
	return s.emptied.Spokes()
}

func explore(s *model.Schedule) *exploration {
	e := &exploration{
		Schedule: s, lost: map[string]map[types.UID]bool{}, edited: map[types.UID]v1alpha1.Duration{}, touched: map[types.UID]bool{},
	}
	ns := spoke.NamespaceMetadata()
	ns.Name, ns.Labels = "shop", map[string]string{"team": "a"}
	e.Create(e.Spoke, ns)
	e.Register(map[string]string{"env": "prod"})
	e.Start = e.start
	e.Managed = func() map[types.NamespacedName]client.Object { return e.Hub.Objects("AlertRule") }
	e.Undo = e.hubIsRestored
	e.Begin()
	if rapid.Bool().Draw(e.T, "with a template") {
		e.Say("a person has applied a template, and workloads have AlertRules")
		t := &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: exploredTemplates[0]}}
		t.Spec.AlertSpec, t.Spec.State = v1alpha1.AlertSpec{Alert: "Down", Expr: "up == 0", For: "1m", Severity: "warning"}, v1alpha1.Enabled
		t.Spec.Placement = &v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}}
		t.Spec.Workloads = &v1alpha1.WorkloadSelection{Kinds: exploredKinds}
		e.put(t)
		for _, kind := range exploredKinds {
			for _, name := range exploredNames {
				e.deploy(kind, types.NamespacedName{Namespace: "shop", Name: name}, "web")
			}
		}
		e.Live(time.Minute, e.observe)
	}
	return e
}

func (e *exploration) start(p *model.Process) {
	ctx := context.Background()
	if err := hub.SetupIndexes(ctx, p.OnHub, "hub", exploredNamespace); err != nil {
		e.Fatal(err)
	}
	only := &emptied{one: spoke.Spoke{Name: model.SpokeName, Kinds: exploredKinds, Reader: p.InSpoke, Identity: &identity{}, Since: time.Now()}}
	e.contests = contest.New(clock.RealClock{}, 0)
	r := NewReconciler(Options{
		Hub: &hubClient{Client: model.Client{Schedule: e.Schedule, Process: p}, e: e, p: p}, Guard: hub.Guard{Kinds: e.Kinds()},
		Witness: hub.NewWitness(), Brake: e.Hold(p, brake.Generate), Spokes: &spokeOf{emptied: only, p: p}, Recorder: model.NoEvents{},
		Contests: e.contests, Namespace: exploredNamespace, Validator: exploredValidator,
	})
	_, _ = r.Guard.Kinds.Learn(ctx) // as Start does; reads may fail
	p.Reconcile = r.Reconcile
	p.Begins = func() { // an answer would be used for another second, in which people may change anything
		r.Guard.Live, only.one.Live = live.New(e.Reads(e.Hub), clock.RealClock{}), live.New(e.Reads(e.Spoke), clock.RealClock{})
	}
	p.Forget = r.Forget
	p.Restored = func() { r.Contests.ForgetSpoke(model.SpokeName) }
	p.Engaged = func() {
		only.one.Since = time.Now()
		r.replay(ctx, model.SpokeName, p.Queue)
	}
	content := predicate.Or(hub.Edited, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	p.SawOnHub = func(c model.Change) {
		switch c.Kind {
		case "AlertRule":
			p.Deliver(r.onAlertRule("", nil), c, content.Update)
		case "AlertRuleTemplate":
			p.Deliver(r.onTemplate("", nil), c, hub.Edited.Update)
		case "SpokeCluster":
			p.Deliver(r.onSpokeCluster("", nil), c, hub.Decided.Update)
		}
	}
	p.SawInSpoke = func(c model.Change) {
		switch c.Kind {
		case "Deployment", "StatefulSet":
			p.Deliver(r.onWorkload(v1alpha1.WorkloadKind(c.Kind))(model.SpokeName, nil), c, read.Update)
		case "Namespace":
			p.Deliver(r.onNamespace(model.SpokeName, nil), c, func(e event.UpdateEvent) bool {
				return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
			})
		}
	}
}

// What must hold.

func (e *exploration) rule(name string) *v1alpha1.AlertRule {
	ar, _ := e.Hub.Find(model.Ref{Kind: "AlertRule", NamespacedName: types.NamespacedName{Namespace: exploredNamespace, Name: name}}).(*v1alpha1.AlertRule)
	return ar
}

// workloads returns the workloads in the spoke.
func (e *exploration) workloads() (out []rule.Key) {
	for _, kind := range exploredKinds {
		for _, key := range slices.SortedFunc(maps.Keys(e.Spoke.Objects(string(kind))), oracle.CompareKeys) {
			out = append(out, rule.Key{Kind: string(kind), Namespace: key.Namespace, Name: key.Name})
		}
	}
	return out
}

// wanted returns the AlertRules of a workload by name, with the labels of the SpokeCluster, or other labels. known is
// false without either.
func (e *exploration) wanted(key rule.Key, labels map[string]string) (_ map[string]*v1alpha1.AlertRule, known bool) {
	d, ok := e.Spoke.Find(refOf(key)).(*metav1.PartialObjectMetadata)
	if !ok {
		return nil, true
	}
	ns, _ := e.Spoke.Find(model.Ref{Kind: "Namespace", NamespacedName: types.NamespacedName{Name: key.Namespace}}).(*metav1.PartialObjectMetadata)
	c, err := hub.Cluster(context.Background(), e.Hub, model.SpokeName)
	if c == nil && labels != nil {
		c = &rule.Cluster{Name: model.SpokeName}
	}
	if err != nil || c == nil {
		return nil, false
	}
	w := workload(v1alpha1.WorkloadKind(key.Kind), d, ns)
	w.Cluster = *c
	if labels != nil {
		w.Cluster.Labels = labels
	}
	var templates []*v1alpha1.AlertRuleTemplate
	for _, o := range e.Hub.Objects("AlertRuleTemplate") {
		templates = append(templates, o.(*v1alpha1.AlertRuleTemplate))
	}
	return oracle.Generated(*w, templates, exploredNamespace), true
}

func refOf(workload rule.Key) model.Ref {
	return model.Ref{Kind: workload.Kind, NamespacedName: workload.NamespacedName()}
}

func workloadOf(ar *v1alpha1.AlertRule) rule.Key { return rule.WorkloadKey(ar.Spec.WorkloadRef) }

// keepsEdits checks what the operator applied.
func (e *exploration) keepsEdits(o client.Object) {
	ar := o.(*v1alpha1.AlertRule)
	if want, ok := e.edited[ar.UID]; ok && ar.Spec.For != want {
		e.Violation("a person set for of %s to %s, and it is %q now", ar.Name, want, ar.Spec.For)
	}
}

// removes checks the removal of an AlertRule.
func (e *exploration) removes(p *model.Process, ar *v1alpha1.AlertRule) {
	if !hub.Generated(ar) {
		want := false
		for _, key := range e.workloads() {
			wanted, _ := e.wanted(key, nil)
			want = want || wanted[ar.Name] != nil
		}
		if !want {
			e.Violation("the foreign AlertRule %s is removed", ar.Name)
		}
		return
	}
	key, template := workloadOf(ar), ar.Labels[v1alpha1.TemplateLabel]
	want, known := e.wanted(key, nil)
	switch {
	case !known && e.Hub.Find(model.Ref{Kind: "AlertRuleTemplate", NamespacedName: types.NamespacedName{Name: template}}) != nil:
		e.Violation("%s is removed, and there is no SpokeCluster", ar.Name)
	case want[ar.Name] != nil && fixed(want[ar.Name], ar):
		e.Violation("%s is removed, and it is wanted", ar.Name)
	case e.Released(rule.KeyOf(ar)): // a person asked for it
	case e.lost[template][ar.UID] && e.Spoke.Find(refOf(key)) != nil:
		e.Violation("%s is removed, and its template was lost", ar.Name)
	case e.Unlabeled[ar.UID]:
		if before, _ := e.wanted(key, e.Lost); before[ar.Name] != nil {
			e.Violation("%s is removed, and the labels by which its template selected the spoke were lost", ar.Name)
		}
	}
	holds := 0
	for _, o := range e.Hub.Objects("AlertRule") {
		if hub.Generated(o.(*v1alpha1.AlertRule)) {
			holds++
		}
	}
	if !e.Released(rule.KeyOf(ar)) {
		e.CountRemoval(p, ar.Name, holds)
	}
}

// observe notes which AlertRules are wanted.
func (e *exploration) observe() {
	e.reverted = e.reverted || e.Former != nil
	if message, _ := e.contests.InSpoke(model.SpokeName); message != "" && !e.reverted {
		e.Violation("nobody reverted anything, and the spoke shows: %s", message)
	}
	wanted := map[string]bool{}
	for _, o := range e.Hub.Objects("AlertRule") {
		ar := o.(*v1alpha1.AlertRule)
		if !hub.Generated(ar) {
			continue
		}
		want, known := e.wanted(workloadOf(ar), nil)
		wanted[ar.Name] = !known || want[ar.Name] != nil
		if known && want[ar.Name] != nil {
			delete(e.Unlabeled, ar.UID) // it does not depend on the labels that were lost
		} else if e.Unlabeled[ar.UID] {
			if before, _ := e.wanted(workloadOf(ar), e.Lost); before[ar.Name] == nil {
				delete(e.Unlabeled, ar.UID) // a person decided against it
			}
		}
	}
	e.Observe(wanted)
}

// check compares the AlertRules with the templates and the workloads.
func (e *exploration) check() {
	wanted := map[string]bool{}
	for _, key := range e.workloads() {
		want, known := e.wanted(key, nil)
		if !known {
			e.Violation("there is no SpokeCluster")
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			wanted[name] = true
			is := e.rule(name)
			if is == nil {
				e.Violation("AlertRule %s is missing", name)
			}
			e.follows(is, want[name])
		}
	}
	all := e.Hub.Objects("AlertRule")
	for _, key := range slices.SortedFunc(maps.Keys(all), oracle.CompareKeys) {
		ar := all[key].(*v1alpha1.AlertRule)
		if hub.Generated(ar) && !wanted[ar.Name] && !e.Pending(rule.KeyOf(ar)) {
			e.Violation("AlertRule %s stays", key)
		}
	}
}

// follows checks that an AlertRule has the values of its template, except in fields that people changed.
func (e *exploration) follows(is, want *v1alpha1.AlertRule) {
	edited := templating.Overridden(is)
	if len(edited) > 0 && !e.touched[is.UID] {
		e.Violation("nobody changed %s, and these fields count as changed: %q", is.Name, edited)
	}
	switch {
	case !fixed(want, is):
		e.Violation("%s is for another workload", is.Name)
	case !slices.Contains(edited, "expr") && is.Spec.Expr != want.Spec.Expr:
		e.Violation("%s has the expression %q, and its template %q", is.Name, is.Spec.Expr, want.Spec.Expr)
	case !slices.Contains(edited, "for") && is.Spec.For != want.Spec.For:
		e.Violation("%s has for %q, and its template %q", is.Name, is.Spec.For, want.Spec.For)
	}
	if len(want.Spec.Annotations) == 0 && len(is.Spec.Annotations) > 0 && !e.touched[is.UID] {
		e.Violation("%s has the annotations %v, and its template none", is.Name, is.Spec.Annotations)
	}
	if v, ok := e.edited[is.UID]; ok && is.Spec.For != v {
		e.Violation("a person set for of %s to %s, and it is %q", is.Name, v, is.Spec.For)
	}
}

// The operations of people, and of those who deploy to the spoke.

var exploredTemplates = []string{"t1", "t2"}

func (e *exploration) personAppliesATemplate(*rapid.T) {
	if !e.Defined("alertruletemplates") {
		e.Skip("the kind is lost")
	}
	name := rapid.SampledFrom(exploredTemplates).Draw(e.T, "template")
	where := rapid.SampledFrom([]string{"everywhere", "by label", "by other label", "by name", "elsewhere"}).Draw(e.T, "clusters")
	which := rapid.SampledFrom([]string{"all", "app=web", "team=a"}).Draw(e.T, "workloads")
	state := rapid.SampledFrom([]v1alpha1.State{v1alpha1.Enabled, v1alpha1.Enabled, v1alpha1.Disabled}).Draw(e.T, "state")
	e.version++
	e.Budget.Edits++
	kinds := exploredKinds[:rapid.IntRange(1, len(exploredKinds)).Draw(e.T, "kinds")]
	e.Say("a person applies template %s, version %d, %s, %s %v, %s", name, e.version, where, which, kinds, state)
	t := &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	t.Spec.AlertSpec = v1alpha1.AlertSpec{Alert: "Down", Expr: fmt.Sprintf("up == %d", e.version), For: "1m", Severity: "warning"}
	t.Spec.State = state
	if rapid.Bool().Draw(e.T, "with an annotation") {
		t.Spec.Annotations = map[string]v1alpha1.LabelText{"summary": "it is down"}
	}
	t.Spec.Placement = map[string]*v1alpha1.ClusterSelection{
		"by label":       {Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}},
		"by other label": {Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "dev"}}},
		"by name":        {Names: []v1alpha1.ClusterName{model.SpokeName}}, "elsewhere": {Names: []v1alpha1.ClusterName{"other"}},
	}[where]
	t.Spec.Workloads = &v1alpha1.WorkloadSelection{Kinds: kinds}
	switch which {
	case "app=web":
		t.Spec.Workloads.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	case "team=a":
		t.Spec.Namespaces = &v1alpha1.NamespaceSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}}
	}
	delete(e.lost, name)
	e.put(t)
}

// put creates or replaces a template.
func (e *exploration) put(t *v1alpha1.AlertRuleTemplate) {
	if e.Hub.Find(model.RefOf(t)) == nil {
		e.Create(e.Hub, t)
		return
	}
	if _, err := e.Hub.Update(t); err != nil {
		e.Fatal(err)
	}
}

func (e *exploration) personDeletesATemplate(*rapid.T) {
	name := rapid.SampledFrom(exploredTemplates).Draw(e.T, "template")
	r := model.Ref{Kind: "AlertRuleTemplate", NamespacedName: types.NamespacedName{Name: name}}
	if e.Hub.Find(r) == nil {
		e.Skip("there is none")
	}
	e.Say("a person deletes template %s", name)
	_ = e.Hub.Delete(r, nil)
}

// some returns a copy of an AlertRule.
func (e *exploration) some() *v1alpha1.AlertRule {
	all := e.Hub.Objects("AlertRule")
	if len(all) == 0 {
		e.Skip("there is none")
	}
	key := rapid.SampledFrom(slices.SortedFunc(maps.Keys(all), oracle.CompareKeys)).Draw(e.T, "rule")
	return all[key].DeepCopyObject().(*v1alpha1.AlertRule)
}

func (e *exploration) personEditsARule(*rapid.T) {
	ar := e.some()
	if ar.Annotations[v1alpha1.ResetFieldsAnnotation] != "" {
		e.Skip("it will be reset, with this edit")
	}
	e.version++
	e.Budget.Edits++
	e.Disturbed = true
	ar.Spec.For = v1alpha1.Duration(fmt.Sprintf("%ds", e.version))
	e.Say("a person sets for of %s to %s", ar.Name, ar.Spec.For)
	if _, err := e.Hub.Update(ar); err != nil {
		e.Fatal(err)
	}
	e.edited[ar.UID], e.touched[ar.UID] = ar.Spec.For, true
}

func (e *exploration) personResetsARule(*rapid.T) {
	ar := e.some()
	e.Budget.Edits++
	e.Disturbed = true
	e.Say("a person resets %s", ar.Name)
	e.reverted = true
	metav1.SetMetaDataAnnotation(&ar.ObjectMeta, v1alpha1.ResetFieldsAnnotation, templating.AllFields)
	if _, err := e.Hub.Update(ar); err != nil {
		e.Fatal(err)
	}
	delete(e.edited, ar.UID)
	delete(e.touched, ar.UID)
}

func (e *exploration) personDeletesARule(*rapid.T) {
	ar := e.some()
	e.Budget.Edits++
	e.Disturbed = true
	e.Say("a person deletes %s", ar.Name)
	e.reverted = true
	_ = e.Hub.Delete(model.RefOf(ar), nil)
}

// otherCreates creates an AlertRule in the place of one that a template may generate.
func (e *exploration) otherCreates(*rapid.T) {
	template := rapid.SampledFrom(exploredTemplates).Draw(e.T, "template")
	kind, key := e.pick()
	name := rule.GeneratedName(template, model.SpokeName, kind, key.Namespace, key.Name)
	if !e.Defined("alertrules") || e.Terminating("alertrules") || e.rule(name) != nil {
		e.Skip("not now")
	}
	e.Disturbed, e.reverted = true, true
	e.Say("another client creates an AlertRule with the name %s", name)
	ar := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: exploredNamespace, Name: name}}
	ar.Spec.AlertSpec = v1alpha1.AlertSpec{Alert: "Other", Expr: "vector(1)"}
	ar.Spec.Placement.Names = []v1alpha1.ClusterName{"other"}
	e.Create(e.Hub, ar)
}

func (e *exploration) pick() (v1alpha1.WorkloadKind, types.NamespacedName) {
	return rapid.SampledFrom(exploredKinds).Draw(e.T, "kind"), types.NamespacedName{Namespace: "shop", Name: rapid.SampledFrom(exploredNames).Draw(e.T, "name")}
}

// Workloads of different kinds have the same names.
var (
	exploredKinds = rule.WorkloadKinds()[:2]
	exploredNames = []string{"a", "b"}
)

func (e *exploration) deploy(kind v1alpha1.WorkloadKind, key types.NamespacedName, app string) {
	d := spoke.WorkloadMetadata(kind)
	d.Namespace, d.Name, d.Labels = key.Namespace, key.Name, map[string]string{"app": app}
	if e.Spoke.Find(model.RefOf(d)) == nil {
		e.Create(e.Spoke, d)
		return
	}
	_, _ = e.Spoke.Update(d)
}

func (e *exploration) workloadIsApplied(*rapid.T) {
	kind, key := e.pick()
	app := rapid.SampledFrom([]string{"web", "web", "other"}).Draw(e.T, "app")
	e.Say("%s %s is applied, app=%s", kind, key.Name, app)
	e.Budget.Edits++
	e.deploy(kind, key, app)
}

func (e *exploration) workloadIsDeleted(*rapid.T) {
	kind, key := e.pick()
	r := model.Ref{Kind: string(kind), NamespacedName: key}
	if e.Spoke.Find(r) == nil {
		e.Skip("there is none")
	}
	e.Say("%s %s is deleted", kind, r.Name)
	_ = e.Spoke.Delete(r, nil)
}

func (e *exploration) manyAreApplied(*rapid.T) {
	if e.Spoke.Find(model.Ref{Kind: "Deployment", NamespacedName: model.Many(0)}) != nil {
		e.Skip("they are there")
	}
	e.Say("%d Deployments are applied", model.Crowd)
	for i := range model.Crowd {
		e.deploy(v1alpha1.DeploymentKind, model.Many(i), "web")
	}
}

func (e *exploration) manyAreDeleted(*rapid.T) {
	if e.Spoke.Find(model.Ref{Kind: "Deployment", NamespacedName: model.Many(0)}) == nil {
		e.Skip("there are none")
	}
	e.Say("%d Deployments are deleted", model.Crowd)
	for i := range model.Crowd {
		_ = e.Spoke.Delete(model.Ref{Kind: "Deployment", NamespacedName: model.Many(i)}, nil)
	}
}

func (e *exploration) namespaceIsLabeled(*rapid.T) {
	ns := spoke.NamespaceMetadata()
	ns.Name = "shop"
	team := rapid.SampledFrom([]string{"a", "b"}).Draw(e.T, "team")
	e.Say("the namespace is labeled team=%s", team)
	ns.Labels = map[string]string{"team": team}
	e.Budget.Edits++
	_, _ = e.Spoke.Update(ns)
}

func (e *exploration) hubLosesTemplates(*rapid.T) {
	if !e.Defined("alertruletemplates") {
		e.Skip("they are lost")
	}
	e.Say("the hub loses the kind AlertRuleTemplate")
	e.templates = nil
	e.Lose("alertruletemplates", "AlertRuleTemplate", func(key types.NamespacedName, o client.Object) {
		e.templates = append(e.templates, o)
		e.lost[key.Name] = map[types.UID]bool{}
		for _, ar := range e.Hub.Objects("AlertRule") {
			if ar.GetLabels()[v1alpha1.TemplateLabel] == key.Name {
				e.lost[key.Name][ar.GetUID()] = true
			}
		}
	})
}

func (e *exploration) hubDefinesTemplatesAgain(*rapid.T) { e.DefineAgain("alertruletemplates") }

func (e *exploration) personRestoresTemplates(*rapid.T) {
	if !e.Defined("alertruletemplates") || e.templates == nil {
		e.Skip("nothing to restore")
	}
	e.Say("a person restores the templates")
	for _, o := range e.templates {
		t := &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: o.GetName()}, Spec: o.(*v1alpha1.AlertRuleTemplate).Spec}
		delete(e.lost, t.Name)
		e.put(t)
	}
	e.templates = nil
	e.Budget.Edits++
}

func (e *exploration) hubLosesRules(*rapid.T) {
	if !e.Defined("alertrules") {
		e.Skip("they are lost")
	}
	e.Disturbed = true
	if e.Terminating("alertrules") {
		e.Say("the kind AlertRule is gone")
		e.Undefine("alertrules", "AlertRule")
		return
	}
	e.rules = nil
	keep := func(_ types.NamespacedName, o client.Object) { e.rules = append(e.rules, o) }
	if rapid.Bool().Draw(e.T, "slowly") {
		e.Say("the hub begins to lose the kind AlertRule")
		e.Terminate("alertrules", "AlertRule", keep)
		return
	}
	e.Say("the hub loses the kind AlertRule")
	e.Lose("alertrules", "AlertRule", keep)
}

// hubIsRestored forgets what a restore of the hub undoes: AlertRules, templates and labels are those of one moment again.
// What was lost before that moment is forgotten as well.
func (e *exploration) hubIsRestored() (done func()) {
	e.reverted = true
	return func() {
		clear(e.lost)
		e.Unlabeled = nil
		for _, o := range e.Hub.Objects("AlertRule") {
			ar := o.(*v1alpha1.AlertRule)
			overridden := templating.Overridden(ar)
			delete(e.edited, ar.UID)
			if slices.Contains(overridden, "for") && ar.Annotations[v1alpha1.ResetFieldsAnnotation] == "" {
				e.edited[ar.UID] = ar.Spec.For
			}
			if len(overridden) > 0 {
				e.touched[ar.UID] = true
			}
		}
	}
}

func (e *exploration) hubDefinesRulesAgain(*rapid.T) { e.DefineAgain("alertrules") }

// personRestoresRules applies the backup as the documentation says.
func (e *exploration) personRestoresRules(*rapid.T) {
	if !e.Defined("alertrules") || e.rules == nil {
		e.Skip("nothing to restore")
	}
	e.Say("a person restores the AlertRules")
	e.Disturbed, e.reverted = true, true
	for _, o := range e.rules {
		was := o.(*v1alpha1.AlertRule)
		u := &unstructured.Unstructured{}
		ar := &v1alpha1.AlertRule{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AlertRule"},
			ObjectMeta: metav1.ObjectMeta{Namespace: was.Namespace, Name: was.Name, Labels: was.Labels, Annotations: was.Annotations}, Spec: was.Spec,
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(ar)
		if err != nil {
			e.Fatal(err)
		}
		delete(content, "status")
		unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
		u.Object = content
		now := e.rule(was.Name)
		if now != nil && !fixed(was, now) {
			continue // another one took its place
		}
		restored, err := e.Hub.Apply(u, "kubectl", true)
		if err != nil {
			e.Fatal(err)
		}
		e.touched[restored.GetUID()] = true
		if restored.GetAnnotations()[v1alpha1.ResetFieldsAnnotation] == "" {
			e.edited[restored.GetUID()] = was.Spec.For
		} else { // it is reset again, with what was edited since
			delete(e.edited, restored.GetUID())
		}
	}
	e.rules = nil
	e.Budget.Edits++
}

// TestExplore runs random schedules of operations and faults, and checks what must hold at any time and after
// quiet: see explore.Run.
func TestExplore(t *testing.T) {
	model.Explore(t, func(s *model.Schedule) {
		e := explore(s)
		e.Run(map[string]func(*rapid.T){
			"applyTemplate": e.personAppliesATemplate, "deleteTemplate": e.personDeletesATemplate,
			"edit": e.personEditsARule, "reset": e.personResetsARule, "delete": e.personDeletesARule, "otherCreates": e.otherCreates,
			"deploy": e.workloadIsApplied, "undeploy": e.workloadIsDeleted, "deployMany": e.manyAreApplied, "undeployMany": e.manyAreDeleted,
			"labelNamespace": e.namespaceIsLabeled,
			"loseTemplates":  e.hubLosesTemplates, "defineTemplates": e.hubDefinesTemplatesAgain, "restoreTemplates": e.personRestoresTemplates,
			"loseRules": e.hubLosesRules, "defineRules": e.hubDefinesRulesAgain, "restoreRules": e.personRestoresRules,
		}, e.observe, e.check)
	})
}
