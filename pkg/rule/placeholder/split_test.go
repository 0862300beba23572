package placeholder

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/gotemplate"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

func TestSplit(t *testing.T) {
	name := &placeholder{kind: clusterName}
	for in, want := range map[string][]piece{
		"":                     nil,
		"plain $ and $$ and (": {{literal: "plain $ and $$ and ("}},
		"$(cluster.name)":      {{placeholder: name}},
		"a$(cluster.name)b":    {{literal: "a"}, {placeholder: name, pos: 1}, {literal: "b", pos: 16}},
		"$$(cluster.name)":     {{literal: "$(cluster.name)"}},
		"$$$(cluster.name)":    {{literal: "$"}, {placeholder: name, pos: 2}},
		"$$$$(cluster.name)":   {{literal: "$$(cluster.name)"}},
		"a $$(b) $x $$(c":      {{literal: "a $(b) $x $(c"}},
		"$(cluster.labels.topology.kubernetes.io/region)": {
			{placeholder: &placeholder{kind: clusterLabels, key: "topology.kubernetes.io/region"}},
		},
		"$(deployment.annotations.Example.com/Team_A)": {
			{placeholder: &placeholder{kind: workloadAnnotations, former: true, key: "Example.com/Team_A"}},
		},
	} {
		t.Run(fmt.Sprintf("%.40q", in), func(t *testing.T) {
			got, f := split(in)
			if f != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("split(%q) = %+v, %v; want %+v", in, got, f, want)
			}
			if again := join(got); again != in {
				t.Errorf("join(split(%q)) = %q", in, again)
			}
		})
	}
}

func TestSplitRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"a $(cluster.name":                   `placeholder $(cluster.name is not closed; add a ), or write $$( for a literal $(`,
		"a $(cluster.nmae)":                  `unknown placeholder $(cluster.nmae); available are $(cluster.name), `,
		"$(kubectl get pods)":                `write $$( for a literal $(`,
		"$()":                                `unknown placeholder $()`,
		"$(Cluster.name)":                    `unknown placeholder`,
		"$(cluster.labels.)":                 `has an invalid key`,
		"$(cluster.labels.a b)":              `placeholder $(cluster.labels.a b) has an invalid key`,
		"$(cluster.labels.a/b/c)":            `has an invalid key`,
		"$(cluster.annotations.a)":           `unknown placeholder`,
		"$$$(x)":                             `unknown placeholder $(x)`,
		"$(" + ruletest.Long("x", 9000):      `…`,
		"$(" + ruletest.Long("ü", 900) + ")": `…`,
	} {
		t.Run(fmt.Sprintf("%.40q", in), func(t *testing.T) {
			_, f := split(in)
			if f == nil || !strings.Contains(f.Message, want) {
				t.Errorf("split(%s): got %v, want %q", clip.Excerpt(in), f, want)
			}
			if f != nil && len(f.Message) > rule.MaxMessage {
				t.Errorf("split(%s): a message of %d bytes", clip.Excerpt(in), len(f.Message))
			}
		})
	}
}

// Whatever literals hold, and wherever they meet, no placeholder comes of them.
func TestJoinIsReadBack(t *testing.T) {
	rnd := ruletest.Random()
	for range 1500 {
		var pieces, want []piece
		for range rnd.IntN(5) {
			if rnd.IntN(3) == 0 {
				pieces = append(pieces, piece{placeholder: &placeholder{kind: clusterName}})
				continue
			}
			pieces = append(pieces, piece{literal: ruletest.Nasty(rnd)})
		}
		for _, p := range pieces { // merged
			last := len(want) - 1
			switch {
			case p.placeholder == nil && p.literal == "":
			case p.placeholder == nil && last >= 0 && want[last].placeholder == nil:
				want[last].literal += p.literal
			default:
				want = append(want, p)
			}
		}
		got, f := split(join(pieces))
		if f != nil {
			t.Fatalf("%+v: %v", pieces, f)
		}
		for i := range got {
			got[i].pos = 0
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: got %+v, want %+v", join(pieces), got, want)
		}
	}
}

func TestStageErrorsNameTheField(t *testing.T) {
	alert := func(edit func(*v1alpha1.AlertSpec)) v1alpha1.AlertSpec {
		a := v1alpha1.AlertSpec{Alert: "A", Expr: "up", Labels: map[string]v1alpha1.LabelText{}, Annotations: map[string]v1alpha1.LabelText{}}
		edit(&a)
		return a
	}
	d := Workload{Kind: v1alpha1.DeploymentKind, Cluster: "eu-1", Namespace: "shop", Name: "web", Annotations: map[string]string{"big": ruletest.Long("v", 9999), "brace": ruletest.Long("{", 9999)}}
	for name, c := range map[string]struct {
		stage       Stage
		alert       v1alpha1.AlertSpec
		field, want string
	}{
		"cluster without the label": {
			ForCluster("eu-1", nil), alert(func(a *v1alpha1.AlertSpec) { a.Annotations["summary"] = "in $(cluster.labels.region)" }),
			"spec.annotations[summary]", `SpokeCluster eu-1 has no label "region", which $(cluster.labels.region) needs; add it`,
		},
		"deployment without the label": {
			ForWorkload(d, nil), alert(func(a *v1alpha1.AlertSpec) { a.Labels["team"] = "$(deployment.labels.team)" }),
			"spec.labels[team]", `Deployment shop/web in cluster eu-1 has no label "team"`,
		},
		"deployment without the annotation": {
			ForWorkload(d, nil), alert(func(a *v1alpha1.AlertSpec) { a.Expr = `up{a="$(deployment.annotations.b)"}` }),
			"spec.expr", `1:7: Deployment shop/web in cluster eu-1 has no annotation "b"`,
		},
		"deployment in an AlertRule": {
			ForCluster("", nil), alert(func(a *v1alpha1.AlertSpec) { a.Labels["d"] = "$(deployment.name)" }),
			"spec.labels[d]", `$(deployment.name) is only available in an AlertRuleTemplate`,
		},
		"too long a value in an expression": {
			ForWorkload(d, nil), alert(func(a *v1alpha1.AlertSpec) { a.Expr = `up{a="$(deployment.annotations.big)"}` }),
			"spec.expr", `has 9999 bytes; at most 1024 are allowed in an expression`,
		},
		"too long a text": {
			ForWorkload(d, nil), alert(func(a *v1alpha1.AlertSpec) {
				a.Annotations["d"] = v1alpha1.LabelText(ruletest.Long("$(deployment.annotations.brace)", 9))
			}),
			"spec.annotations[d]", `longer than 8192 characters after its placeholders are replaced`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, bad := c.stage.Alert(c.alert)
			if bad == nil || bad.Field != c.field || !strings.Contains(bad.Message, c.want) {
				t.Errorf("%s: got %+v, want %s: %s", name, bad, c.field, c.want)
			}
		})
	}
}

func TestLongValues(t *testing.T) {
	for in, want := range map[string]string{
		ruletest.Long("a", 1025):                   ruletest.Long("a", 1024),
		ruletest.Long("a", 1023) + "é":             ruletest.Long("a", 1023),
		"bad \xff\xfe bytes":                       "bad \ufffd bytes",
		ruletest.Long("a", 1023) + "\xff" + "tail": ruletest.Long("a", 1023),
	} {
		t.Run(fmt.Sprintf("%.40q", in), func(t *testing.T) {
			if got := gotemplate.Literal(in); got != want {
				t.Errorf("dataText(%s…) = %q", clip.Bytes(in, 20), got)
			}
		})
	}
}
