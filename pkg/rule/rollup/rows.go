package rollup

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
)

// present returns the known state of a valid rule. It returns false while too little is known to change a
// status that does not list all spokes: after a start, until the spokes that are connected have reported.
func (in *Input) present() (view, bool) {
	spokes, before, last := in.placed(), in.listedBefore(), in.lastRows()
	v := view{rows: make([]v1alpha1.ClusterStatus, 0, len(spokes)), presumed: map[v1alpha1.ClusterName]bool{}}
	var silent []*Spoke
	var known []v1alpha1.ClusterStatus // of those that the present status counts in groups
	waits := false
	for _, name := range slices.Sorted(maps.Keys(spokes)) {
		spoke, mute := spokes[name], in.mute(name, spokes[name])
		was, presumed := former(name, before, last)
		switch {
		case in.fresh(spoke, mute && was == nil, last): // nothing is known of it
			v.rows = append(v.rows, in.row(name, spoke, nil))
			continue
		case mute && was == nil:
			silent = append(silent, spoke)
			waits = waits || !spoke.Shown.Lagging
			continue
		case mute && presumed:
			v.presumed[was.Name] = true
		}
		r := in.row(name, spoke, was)
		if v.rows = append(v.rows, r); before[name] == nil {
			known = append(known, r)
		}
	}
	presumed := in.presume(silent, known)
	if waits && in.Starting && in.Last == nil && len(presumed) > 0 {
		return view{}, false
	}
	in.add(&v, silent, presumed)
	slices.SortFunc(v.rows, func(a, b v1alpha1.ClusterStatus) int { return cmp.Compare(a.Name, b.Name) })
	v.listed, v.groups = in.list(v.rows, v.presumed)
	return v, true
}

// former returns the row of a spoke that the present status lists, or else the last one, and whether that is presumed.
func former(name string, before map[string]*v1alpha1.ClusterStatus, last map[string]Row) (was *v1alpha1.ClusterStatus, presumed bool) {
	if was := before[name]; was != nil {
		return was, false
	}
	if r, ok := last[name]; ok {
		return new(rowIn(name, &r.State)), r.Presumed
	}
	return nil, false
}

// fresh reports whether a spoke is new to the rule. nothing means that it has not reported, and that no row of it is known.
func (in *Input) fresh(spoke *Spoke, nothing bool, last map[string]Row) bool {
	_, unnamed := last[""]
	return spoke != nil && spoke.Renewed || nothing && in.Last != nil && !unnamed
}

// add adds the rows of spokes that have not reported.
func (in *Input) add(v *view, silent []*Spoke, presumed map[string]*v1alpha1.ClusterStatus) {
	states := map[v1alpha1.ClusterGroup]bool{}
	for _, spoke := range silent {
		r := in.row(spoke.Name, spoke, presumed[spoke.Name])
		v.rows = append(v.rows, r)
		states[stateOf(&r)] = true
	}
	for name := range presumed {
		v.presumed[v1alpha1.ClusterName(name)] = len(states) > 1 // a state that all have is certain
	}
}

// mute reports whether the row of a spoke depends on a verdict that it has not reported.
func (in *Input) mute(name string, spoke *Spoke) bool {
	verdict, ok := in.Verdicts[name]
	return spoke != nil && spoke.taken() && (!ok || verdict.Reason == evaluation.ReasonUnproven)
}

func (in *Input) lastRows() map[string]Row {
	out := make(map[string]Row, len(in.Last))
	for _, r := range in.Last {
		out[r.Value().Cluster] = r.Value()
	}
	return out
}

// lastValid returns the known state of the last valid version of a rule that is now invalid.
func (in *Input) lastValid() view {
	before := in.listedBefore()
	if groups := in.groupsBefore(); len(groups) > 0 {
		// The names of the others are not known.
		v := view{groups: groups}
		for _, name := range slices.Sorted(maps.Keys(before)) {
			v.listed = append(v.listed, in.stands(before[name]))
		}
		v.rows = append(slices.Clone(v.listed), expand(groups)...)
		return v
	}
	names := slices.Collect(maps.Keys(before))
	for name := range in.placed() {
		if _, ok := in.Verdicts[name]; ok && before[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	v := view{}
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
	v.listed, v.groups = in.list(v.rows, nil)
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
		return in.Rule.GetState() == v1alpha1.Disabled
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
	placement := in.Rule.GetPlacement()
	selection, err := rule.SelectionOf(placement)
	if err != nil {
		return out // validation.Rule refuses it
	}
	for _, name := range placement.Names {
		if rule.Selectable(placement, string(name)) {
			out[string(name)] = nil
		}
	}
	for i := range in.Clusters {
		s := &in.Clusters[i]
		switch _, named := out[s.Name]; {
		case !selection.Selects(s.Cluster):
			delete(out, s.Name)
		case named || s.taken():
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
	for i := range in.Rule.GetStatus().Clusters {
		r := &in.Rule.GetStatus().Clusters[i]
		out[string(r.Name)] = r
	}
	return out
}

// Predates reports whether the status of a rule was last written before a SpokeCluster was
// created, so that its row for that name is about a former spoke. Both times are from the hub, in
// whole seconds. It returns false if the time of the status is not known.
func Predates(s rule.Source, created metav1.Time) bool {
	var written *metav1.Time
	fields := s.GetManagedFields()
	for i := range fields {
		if e := &fields[i]; e.Subresource == "status" && e.Time != nil && (written == nil || written.Before(e.Time)) {
			written = e.Time
		}
	}
	return written != nil && written.Before(&created)
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
		if in.Rule.GetWorkloadRef() != nil { // then placement is immutable
			r.Message = "no SpokeCluster has this name; register the spoke again, or delete the AlertRule"
		}
	case !spoke.taken():
		r.Reason = v1alpha1.ReasonTenantNotAllowed
		how := fmt.Sprintf("include namespace %s in", in.Rule.GetNamespace())
		if spoke.Tenants == nil { // a list without the selector would exclude all other namespaces
			how = fmt.Sprintf("set {names: [%s], selector: {}} in", in.Rule.GetNamespace())
		}
		r.Message = fmt.Sprintf("SpokeCluster %s does not take %ss of namespace %s (spec.tenants); remove %[1]s from spec.placement.names, or ask an administrator of the hub to %[4]s spec.tenants", name, in.Rule.SourceKind(), in.Rule.GetNamespace(), how)
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
