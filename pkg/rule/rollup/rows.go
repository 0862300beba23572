package rollup

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
)

// present returns the known state of a valid rule.
func (in *Input) present() view {
	spokes := in.placed()
	before := in.listedBefore()
	absent := in.absentBefore(spokes, before)
	var (
		rows    = make([]v1alpha1.ClusterStatus, 0, len(spokes))
		again   []v1alpha1.ClusterStatus // of those that were in the crowd, and are known now
		unknown = map[string]*Spoke{}
		partial = false
	)
	for _, name := range slices.Sorted(maps.Keys(spokes)) {
		spoke := spokes[name]
		last, crowded := in.recall(name, spoke, before[name], absent)
		verdict, reported := in.Verdicts[name]
		reported = reported && verdict.Reason != evaluation.ReasonUnproven
		partial = partial || last == nil && !reported && absent != absentNew
		if crowded && spoke != nil && !reported {
			unknown[name] = spoke
			continue
		}
		if last == nil && !crowded && absent != absentNew && !spoke.renewed() {
			last = in.topBefore(name, spoke)
		}
		r := in.row(name, spoke, last)
		if rows = append(rows, r); crowded {
			again = append(again, r)
		}
	}
	v := view{rows: rows, crowd: in.crowd(unknown, again), partial: partial && len(before) == listMax}
	v.listed, v.unlisted = in.list(v.rows, v.crowd)
	v.memory = in.remember(v, unknown)
	return v
}

// recall returns the last row of a spoke, which may not be in the status, and whether it belongs to
// the crowd. Nothing is known of a spoke whose name belonged to a former spoke.
func (in *Input) recall(name string, spoke *Spoke, listed *v1alpha1.ClusterStatus, absent absence) (last *v1alpha1.ClusterStatus, crowded bool) {
	switch {
	case spoke.renewed():
		return nil, false
	case listed != nil:
		return listed, false
	case in.Memory == nil:
		return nil, absent == absentUnknown
	}
	if r, ok := in.Memory.rows[name]; ok {
		last = &r
	}
	return last, in.Memory.of[name]
}

// remember returns the part of a view that is not in the status.
func (in *Input) remember(v view, unknown map[string]*Spoke) *Memory {
	m := &Memory{rows: map[string]v1alpha1.ClusterStatus{}, crowd: v.crowd, of: map[string]bool{}, top: in.unlistedTop(v)}
	if v.unlisted == 0 {
		return m
	}
	for name := range unknown {
		m.of[name] = true
	}
	for _, r := range in.lagging(v.rows) {
		m.rows[string(r.Name)] = r
	}
	for i := range v.listed {
		delete(m.rows, string(v.listed[i].Name))
	}
	return m
}

// lastValid returns the known state of the last valid version of a rule that is now invalid.
func (in *Input) lastValid() view {
	was := &in.Rule.Status
	if was.Summary != nil && was.Summary.Desired > listMax {
		// Those that are not listed are known by their number alone.
		rows := make([]v1alpha1.ClusterStatus, 0, len(was.Clusters))
		for i := range was.Clusters {
			rows = append(rows, in.stands(&was.Clusters[i]))
		}
		return view{
			rows: rows, crowd: in.crowdBefore(),
			listed: slices.Clone(rows), unlisted: was.UnlistedClusters, memory: in.Memory,
			partial: len(was.Clusters) == listMax,
		}
	}
	before := in.listedBefore()
	names := slices.Collect(maps.Keys(before))
	for name := range in.placed() {
		if _, ok := in.Verdicts[name]; ok && before[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	v := view{memory: in.Memory}
	for _, name := range names {
		if verdict, ok := in.Verdicts[name]; ok {
			if verdict.Reason == evaluation.ReasonUnproven {
				verdict = unproven(before[name], verdict)
			}
			v.rows = append(v.rows, in.since(before[name], in.fit(name, verdict)))
			continue
		}
		v.rows = append(v.rows, in.stands(before[name]))
	}
	v.listed, v.unlisted = in.list(v.rows, v.crowd)
	return v
}

// stands returns the part of a row that is still true while the rule is invalid: the row is about the
// last valid version, if it is about the spoke that has the name now.
func (in *Input) stands(last *v1alpha1.ClusterStatus) v1alpha1.ClusterStatus {
	name := string(last.Name)
	i := slices.IndexFunc(in.Clusters, func(s Spoke) bool { return s.Name == name })
	switch {
	case i < 0:
		return in.derive(name, nil, last)
	case in.Clusters[i].Renewed:
		return in.derive(name, &in.Clusters[i], nil)
	case last.Reason == v1alpha1.ReasonNotRegistered && last.ObservedGeneration == 0:
		return in.derive(name, &in.Clusters[i], last)
	}
	return *last.DeepCopy()
}

// disabled reports whether the rule belongs in no spoke: it is disabled, and no override makes an
// exception.
func (in *Input) disabled() bool {
	all := in.picked()
	if len(all) == 0 {
		return in.Rule.Spec.State == v1alpha1.Disabled
	}
	for name, spoke := range all {
		if rule.StateIn(in.Rule, clusterOf(name, spoke)) != v1alpha1.Disabled {
			return false
		}
	}
	return true
}

// placed returns the spokes in which the rule belongs.
func (in *Input) placed() map[string]*Spoke {
	all := in.picked()
	maps.DeleteFunc(all, func(name string, spoke *Spoke) bool {
		return rule.StateIn(in.Rule, clusterOf(name, spoke)) == v1alpha1.Disabled
	})
	return all
}

// picked returns the spokes that the placement selects. Names that are not registered have no state.
func (in *Input) picked() map[string]*Spoke {
	out := map[string]*Spoke{}
	placement := in.Rule.Spec.Placement
	selector, err := rule.SelectorOf(placement.Selector)
	if err != nil {
		return out // validation.Rule refuses it
	}
	for _, name := range placement.Names {
		out[string(name)] = nil
	}
	for i := range in.Clusters {
		s := &in.Clusters[i]
		if _, named := out[s.Name]; named || s.taken() && rule.Selects(nil, selector, s.Cluster) {
			out[s.Name] = s
		}
	}
	return out
}

// taken reports whether a spoke takes AlertRules of the rule's namespace. An invalid selector takes none.
func (s *Spoke) taken() bool {
	taken, err := s.Takes()
	return taken && err == nil
}

func clusterOf(name string, spoke *Spoke) rule.Cluster {
	if spoke == nil {
		return rule.Cluster{Name: name}
	}
	return spoke.Cluster
}

func (in *Input) listedBefore() map[string]*v1alpha1.ClusterStatus {
	out := map[string]*v1alpha1.ClusterStatus{}
	for i := range in.Rule.Status.Clusters {
		r := &in.Rule.Status.Clusters[i]
		out[string(r.Name)] = r
	}
	return out
}

// absence is the meaning of a spoke's absence from the present status.
type absence int

const (
	absentNew     absence = iota // nothing: the spoke may be new
	absentAtTop                  // it was at the top
	absentUnknown                // it was at the top, or there was no room for it
)

// absentBefore returns the meaning of a spoke's absence from the present status. If more spokes are
// absent than the status left out, some are new, and it is not known which.
func (in *Input) absentBefore(spokes map[string]*Spoke, before map[string]*v1alpha1.ClusterStatus) absence {
	was := &in.Rule.Status
	if was.Summary == nil || was.Summary.Desired <= listMax {
		return absentNew
	}
	absent := 0
	for name := range spokes {
		if before[name] == nil {
			absent++
		}
	}
	switch {
	case absent > int(was.Summary.Desired)-len(before):
		return absentNew
	case was.UnlistedClusters == 0:
		return absentAtTop
	case len(spokes) <= listMax:
		return absentNew // all are listed from now on
	}
	return absentUnknown
}

// topBefore returns the row of a spoke that was at the top phase and is not listed.
func (in *Input) topBefore(name string, spoke *Spoke) *v1alpha1.ClusterStatus {
	return &v1alpha1.ClusterStatus{
		Name: v1alpha1.ClusterName(name), Phase: cmp.Or(spoke.top(), v1alpha1.PhaseApplied),
		ObservedGeneration: in.generationBefore(), LastTransitionTime: in.Now,
	}
}

// top returns the phase that rules reach in a spoke, or "".
func (s *Spoke) top() v1alpha1.Phase {
	if s == nil {
		return ""
	}
	return s.Top
}

// Predates reports whether the status of a rule was last written before a SpokeCluster was
// created, so that its row for that name is about a former spoke. Both times are from the hub, in
// whole seconds. It returns false if the time of the status is not known.
func Predates(r *v1alpha1.AlertRule, created metav1.Time) bool {
	var written *metav1.Time
	for i := range r.ManagedFields {
		if e := &r.ManagedFields[i]; e.Subresource == "status" && e.Time != nil && (written == nil || written.Before(e.Time)) {
			written = e.Time
		}
	}
	return written != nil && written.Before(&created)
}

// renewed reports whether the present status is about a former spoke of the same name.
func (s *Spoke) renewed() bool { return s != nil && s.Renewed }

// generationBefore returns the last generation that the present status knows to have been at the top
// phase somewhere. While a rule is not accepted, it is an older one.
func (in *Input) generationBefore() int64 {
	generation := in.Rule.Status.ObservedGeneration
	if meta.IsStatusConditionFalse(in.Rule.Status.Conditions, v1alpha1.ConditionAccepted) {
		generation--
	}
	return generation
}

// row returns the known row of one spoke: the reported one, or the one in the present status, or one
// that explains why nothing is known.
func (in *Input) row(name string, spoke *Spoke, last *v1alpha1.ClusterStatus) v1alpha1.ClusterStatus {
	verdict, reported := in.Verdicts[name]
	if reported && verdict.Reason == evaluation.ReasonUnproven {
		verdict = unproven(last, verdict)
	}
	switch {
	case spoke == nil, !spoke.taken():
		return in.derive(name, spoke, last)
	case reported:
		return in.since(last, in.outage(spoke, last, in.fit(name, verdict)))
	case last != nil && last.ObservedGeneration > 0:
		// Only a reported row has a generation. A row without one was derived.
		return in.since(last, in.outage(spoke, last, in.fit(name, *last.DeepCopy())))
	}
	return in.derive(name, spoke, last)
}

// unproven returns the row of a selected rule whose evaluator has not been queried yet: the row in the
// status, if it is about the same generation.
func unproven(last *v1alpha1.ClusterStatus, verdict v1alpha1.ClusterStatus) v1alpha1.ClusterStatus {
	if last != nil && last.ObservedGeneration == verdict.ObservedGeneration && reached(last, v1alpha1.PhaseSelected) {
		stands := *last.DeepCopy()
		stands.Rule = verdict.Rule
		return stands
	}
	verdict.Reason = v1alpha1.ReasonLoading
	verdict.Message = "the rule is selected; Rulefleet is about to check whether it is evaluated"
	return verdict
}

// derive returns the row of a spoke about which nothing was reported.
func (in *Input) derive(name string, spoke *Spoke, last *v1alpha1.ClusterStatus) v1alpha1.ClusterStatus {
	r := v1alpha1.ClusterStatus{Name: v1alpha1.ClusterName(name), Phase: v1alpha1.PhasePending}
	switch {
	case spoke == nil:
		r.Reason, r.Message = v1alpha1.ReasonNotRegistered, "no SpokeCluster has this name; register the spoke, or remove the name from spec.placement.names"
		if in.Rule.Spec.WorkloadRef != nil { // then placement is immutable
			r.Message = "no SpokeCluster has this name; register the spoke again, or delete the AlertRule"
		}
	case !spoke.taken():
		r.Reason = v1alpha1.ReasonTenantNotAllowed
		how := "include the namespace in"
		if spoke.Tenants == nil { // a list without the selector would exclude all other namespaces
			how = fmt.Sprintf("set {names: [%s], selector: {}} in", in.Rule.Namespace)
		}
		r.Message = fmt.Sprintf("SpokeCluster %s does not take AlertRules of namespace %s (spec.tenants); remove the name from spec.placement.names, or ask an administrator of the hub to %s spec.tenants", name, in.Rule.Namespace, how)
	case spoke.Shown.Lagging || showsOutage(last):
		r = withOutage(r, last, spoke.Shown.Reason)
	default:
		r.Reason, r.Message = v1alpha1.ReasonWaiting, "the rule has not been processed for this spoke yet"
	}
	return in.since(last, in.fit(name, r))
}

// since sets the transition time of a row.
func (in *Input) since(last *v1alpha1.ClusterStatus, r v1alpha1.ClusterStatus) v1alpha1.ClusterStatus {
	r.LastTransitionTime = in.Now
	if last != nil && last.Phase == r.Phase && last.Reason == r.Reason && !last.LastTransitionTime.IsZero() {
		r.LastTransitionTime = last.LastTransitionTime
	}
	return r
}

// fit limits a row to the limits of the API, which would otherwise refuse the whole status.
func (in *Input) fit(name string, r v1alpha1.ClusterStatus) v1alpha1.ClusterStatus {
	r.Name = v1alpha1.ClusterName(name)
	if !slices.Contains(phases, r.Phase) {
		r.Phase = v1alpha1.PhasePending
	}
	r.Reason = clip.Marked(r.Reason, 64)
	r.Message = clip.Marked(r.Message, maxRowMessage)
	r.Rule = clip.Marked(r.Rule, 317)
	r.AnswerDigest = clip.Marked(r.AnswerDigest, 64)
	r.ObservedGeneration = max(r.ObservedGeneration, 0)
	r.Firing = max(r.Firing, 0)
	return r
}
