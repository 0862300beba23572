package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// chooser decides as the one of the manager, and shows what is chosen alone.
type chooser struct{}

func (chooser) Choose(_ context.Context, sc *v1alpha1.SpokeCluster, before spoke.Evaluators, seen *spoke.Sighting) []v1alpha1.Evaluator {
	in := &evaluation.Choice{
		Seen: seen.List, More: seen.More, Refs: sc.Spec.EvaluatorRefs, Record: sc.Status.Evaluators, Open: isAmbiguous(sc),
		Cluster: &rule.Cluster{Name: sc.Name}, Now: time.Now(), Grace: evaluation.MissingGrace,
	}
	if before.Known {
		in.Record, in.Open = before.List, true
	}
	return evaluation.Choose(in)
}

func (chooser) Show(_ *v1alpha1.SpokeCluster, read spoke.Evaluators) ([]v1alpha1.Evaluator, map[string]spoke.Finding) {
	out := slices.DeleteFunc(slices.Clone(read.List), func(e v1alpha1.Evaluator) bool { return !e.Chosen })
	found := spoke.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonEvaluatorsFound, Message: "found"}
	if len(out) == 0 && len(read.List) > 0 {
		found = spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAmbiguous, Message: "several"}
	}
	return out, map[string]spoke.Finding{v1alpha1.ConditionEvaluatorsFound: found}
}

// settling is a Reconciler with a spoke that has these Prometheus, each with a namespace of its own.
type settling struct {
	*Reconciler

	t      *testing.T
	has    []string
	asked  []string // what had to be looked for
	writes int
	refuse []error // of the next writes
}

func newSettling(t *testing.T, sc *v1alpha1.SpokeCluster) *settling {
	t.Helper()
	s := &settling{t: t}
	s.Reconciler, _ = registrar(t, sc)
	s.Evaluation = chooser{}
	s.Client = interceptor.NewClient(s.Client.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			s.writes++
			if len(s.refuse) > 0 {
				err := s.refuse[0]
				s.refuse = s.refuse[1:]
				return err
			}
			return c.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
	})
	return s
}

// look settles what is chosen, and returns that, what the status then records, and how many writes it took.
func (s *settling) look(before spoke.Evaluators) (list []v1alpha1.Evaluator, chosen, recorded string, writes int, err error) {
	s.t.Helper()
	s.writes, s.asked = 0, nil
	list, err = s.choose(s.t.Context(), "s", "uid", before, func(_ context.Context, named []v1alpha1.EvaluatorReference) (*spoke.Sighting, error) {
		for _, r := range named {
			s.asked = append(s.asked, string(r.Namespace))
		}
		seen := &spoke.Sighting{}
		for _, namespace := range s.has {
			seen.List = append(seen.List, v1alpha1.Evaluator{Kind: rule.KindPrometheus, Namespace: namespace, Name: "k", RuleSelector: &metav1.LabelSelector{}})
		}
		return seen, nil
	})
	of := func(list []v1alpha1.Evaluator) string {
		var names []string
		for i := range list {
			if list[i].Chosen {
				names = append(names, list[i].Namespace)
			}
		}
		return strings.Join(names, ",")
	}
	sc := &v1alpha1.SpokeCluster{}
	if err := s.Client.Get(s.t.Context(), client.ObjectKey{Name: "s"}, sc); err != nil {
		s.t.Fatal(err)
	}
	recorded = of(sc.Status.Evaluators)
	if isAmbiguous(sc) {
		recorded = "ambiguous"
	}
	return list, of(list), recorded, s.writes, err
}

// A choice is recorded once, before it is used, and is what is chosen from then on, after a restart
// as well.
func TestChoiceIsRecorded(t *testing.T) {
	t.Parallel()
	s := newSettling(t, memberOf("s", "uid"))
	known := spoke.Evaluators{}
	expect := func(what, chosen, recorded string, writes int) {
		t.Helper()
		list, is, was, wrote, err := s.look(known)
		if err != nil || is != chosen || was != recorded || wrote != writes {
			t.Errorf("%s: chosen is %q, recorded %q, by %d writes, and %v; want %q, %q, %d", what, is, was, wrote, err, chosen, recorded, writes)
		}
		known = spoke.Evaluators{List: list, Known: true}
	}
	restart := func() { known = spoke.Evaluators{} }
	s.has = []string{"platform"}
	expect("one", "platform", "platform", 1)
	s.has = []string{"another", "platform", "team"}
	expect("others come", "platform", "platform", 0)
	restart()
	expect("after a restart", "platform", "platform", 0)
	if !slices.Equal(s.asked, []string{"platform"}) {
		t.Errorf("looked for are %v", s.asked)
	}
	s.has = []string{"another", "team"}
	restart()
	expect("it is gone", "platform", "platform", 0)
	if list := known.List; list[len(list)-1].MissingTime.IsZero() {
		t.Errorf("it is not said to be gone: %+v", list)
	}
	for i := range known.List {
		if e := &known.List[i]; e.Chosen {
			e.MissingTime = metav1.NewTime(time.Now().Add(-evaluation.MissingGrace))
		}
	}
	expect("for long", "", "ambiguous", 1)
	expect("and goes on so", "", "ambiguous", 0)
	restart()
	expect("after another restart", "", "ambiguous", 0)
	s.has = []string{"team"}
	expect("one is left", "team", "team", 1)
}

// Two from the start: that none is chosen is recorded before a rule is pushed.
func TestAmbiguityIsRecorded(t *testing.T) {
	t.Parallel()
	s := newSettling(t, memberOf("s", "uid"))
	s.has = []string{"platform", "team"}
	if _, chosen, recorded, writes, err := s.look(spoke.Evaluators{}); chosen != "" || recorded != "ambiguous" || writes != 1 || err != nil {
		t.Errorf("chosen is %q, recorded %q, by %d writes: %v", chosen, recorded, writes, err)
	}
}

// What is not recorded is not used: the next look tries again. A conflict is tried again at once.
func TestChoiceThatIsNotRecorded(t *testing.T) {
	t.Parallel()
	s := newSettling(t, memberOf("s", "uid"))
	s.has = []string{"platform"}
	s.refuse = []error{errors.New("the hub is down")}
	if list, _, recorded, _, err := s.look(spoke.Evaluators{}); err == nil || recorded != "" {
		t.Errorf("recorded is %q, and returned %+v", recorded, list)
	}
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "spokeclusters"}, "s", errors.New("newer"))
	s.refuse = []error{conflict, fmt.Errorf("wrapped: %w", conflict)}
	if _, chosen, recorded, writes, err := s.look(spoke.Evaluators{}); err != nil || chosen != "platform" || recorded != "platform" || writes != 3 {
		t.Errorf("chosen is %q, recorded %q, by %d writes: %v", chosen, recorded, writes, err)
	}
}

// On upgrade, what is chosen stays chosen, if several are. What a person names needs no record, and
// what is recorded of another cluster is none.
func TestRecordsOfBefore(t *testing.T) {
	t.Parallel()
	of := func(name string) v1alpha1.Evaluator {
		return v1alpha1.Evaluator{Kind: rule.KindPrometheus, Namespace: name, Name: "k", Chosen: true, RuleSelector: &metav1.LabelSelector{}}
	}
	for name, c := range map[string]struct {
		change                  func(*v1alpha1.SpokeCluster)
		trusted                 []string
		chosen, recorded, asked string
		writes                  int
	}{
		"upgrade": {
			change: func(sc *v1alpha1.SpokeCluster) {
				sc.Status.Evaluators = []v1alpha1.Evaluator{of("platform"), of("team")}
			},
			chosen: "platform,team", recorded: "platform,team", asked: "platform,team",
		},
		"upgrade, and one is not trusted": {
			change: func(sc *v1alpha1.SpokeCluster) {
				sc.Status.Evaluators = []v1alpha1.Evaluator{of("platform"), of("team")}
			},
			trusted: []string{"platform"}, chosen: "platform,team", recorded: "platform,team", asked: "platform",
		},
		"named": {
			change: func(sc *v1alpha1.SpokeCluster) {
				sc.Spec.EvaluatorRefs = []v1alpha1.EvaluatorReference{{Kind: rule.KindPrometheus, Namespace: "team", Name: "k"}}
			},
			chosen: "team", asked: "team",
		},
		"another cluster's": {
			change: func(sc *v1alpha1.SpokeCluster) {
				sc.Status.Identity, sc.Status.Evaluators = "former", []v1alpha1.Evaluator{of("former")}
				meta.SetStatusCondition(&sc.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionEvaluatorsFound, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonEvaluatorsFound})
			},
			recorded: "ambiguous", writes: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := memberOf("s", "uid")
			c.change(sc)
			s := newSettling(t, sc)
			s.has, s.EvaluatorNamespaces = []string{"platform", "team"}, c.trusted
			_, chosen, recorded, writes, err := s.look(spoke.Evaluators{})
			if err != nil || chosen != c.chosen || recorded != c.recorded || writes != c.writes || strings.Join(s.asked, ",") != c.asked {
				t.Errorf("chosen is %q, recorded %q, by %d writes, looked for %v: %v", chosen, recorded, writes, s.asked, err)
			}
		})
	}
}
