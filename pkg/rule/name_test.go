package rule_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

// The names of objects in spokes must not change from release to release: each rule
// would be created anew, and Prometheus would forget how long alerts are pending.
func TestNamesArePinned(t *testing.T) {
	long := strings.Repeat("l", 253)
	for want, got := range map[string]string{
		"shop-web-down-bgynpsyosr":                                 rule.ObjectName("hub-1", rule.AlertRuleKey("shop", "web-down")),
		"shop-web-down-cze5jlzcfk":                                 rule.ObjectName("hub-2", rule.AlertRuleKey("shop", "web-down")),
		"shop-web.v2-mgp4d3ihpz":                                   rule.ObjectName("hub-1", rule.AlertRuleKey("shop", "web.v2")),
		"shop-" + long[:131] + "-krivnmss35":                       rule.ObjectName("hub-1", rule.AlertRuleKey("shop", long)),
		"deployment-down-eu-1-shop-web-mdnaas4mjg":                 rule.GeneratedName("deployment-down", "eu-1", v1alpha1.DeploymentKind, "shop", "web"),
		"down-" + long[:62] + "-shop-" + long[:62] + "-fsxidxu6bn": rule.GeneratedName("down", long, v1alpha1.DeploymentKind, "shop", long),
		"ij2xor3isemhgtpqhxa2gad2wg":                               rule.Hash("shop", "web-down"),
	} {
		t.Run(want, func(t *testing.T) {
			if got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestNamesTellApart(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 253)
	seen := map[string]string{}
	check := func(from, name string) {
		t.Helper()
		checkName(t, from, name)
		if other, ok := seen[name]; ok && other != from {
			t.Errorf("%s and %s have the same name %s", from, other, name)
		}
		seen[name] = from
	}
	pairs := [][2]string{
		{"a-b", "c"}, {"a", "b-c"}, {"a", "b.c"}, {"a", "b--c"}, {"ab", "c"}, {"a", "bc"}, {"a-", "c"},
		{long[:63], long}, {long[:62], long}, {long[:63], long[:252]}, {"a", long[:250] + "-z"}, {"a", long[:250] + ".z"},
		{"a", strings.Repeat("a.", 126) + "a"}, {"a", strings.Repeat("a.", 126) + "b"}, {"a", strings.Repeat("a-.", 80)},
	}
	rnd := ruletest.Random()
	check("h2\x00a-b\x00c", rule.ObjectName("h2", rule.AlertRuleKey("a-b", "c")))
	for range 800 {
		pairs = append(pairs, [2]string{randomName(rnd, 12), randomName(rnd, 253)})
	}
	for _, p := range pairs {
		check(strings.Join([]string{"h1", p[0], p[1]}, "\x00"), rule.ObjectName("h1", rule.AlertRuleKey(p[0], p[1])))
		check(strings.Join([]string{"t", p[1], p[0], "w"}, "\x00"), rule.GeneratedName("t", p[1], v1alpha1.DeploymentKind, p[0], "w"))
		if hash := rule.Hash(p[0], p[1]); len(validation.IsValidLabelValue(hash)) > 0 {
			t.Errorf("hash %q of %v is no label's value", hash, p)
		}
	}
	// One long name does not push the others out.
	if got := rule.GeneratedName("t", long, v1alpha1.DeploymentKind, "shop", "web"); !strings.Contains(got, "-shop-web-") {
		t.Errorf("a long cluster's name pushes the workload out: %s", got)
	}
}

func checkName(t *testing.T, from, name string) {
	t.Helper()
	if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
		t.Errorf("%q, of %q: %v", name, from, errs)
	}
	if len(name) > rule.MaxNameLength {
		t.Errorf("%q, of %q, has %d characters", name, from, len(name))
	}
}

// randomName returns a string of few characters, so that separators fall everywhere.
func randomName(r *rand.Rand, limit int) string {
	const alphabet = "ab0-."
	b := make([]byte, 1+r.IntN(limit))
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(b)
}

func FuzzNames(f *testing.F) {
	f.Add("hub", "shop", "web", "eu-1")
	f.Add("", "", "", "")
	f.Add("h", "a-b", "c", "d")
	f.Add("h", ".-.", "-..-", "A B/ü\x00")
	f.Add("h", strings.Repeat("n", 63), strings.Repeat("a.", 126), strings.Repeat("c-", 126))
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		checkName(t, b+"/"+c, rule.ObjectName(a, rule.AlertRuleKey(b, c)))
		checkName(t, a, rule.GeneratedName(a, b, v1alpha1.DeploymentKind, c, d))
		if errs := validation.IsValidLabelValue(rule.Hash(b, c)); len(errs) > 0 {
			t.Error(errs)
		}
	})
}

// pack is a source of another kind than AlertRule.
type pack struct{ *v1alpha1.AlertRule }

// SourceKind implements rule.Source.
func (pack) SourceKind() string { return "RulePack" }

// Sources of two kinds with one name have different keys, objects and texts; those of AlertRules have no kind in lists.
func TestKindsDiffer(t *testing.T) {
	ar := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-down"}}
	a, b := rule.KeyOf(ar), rule.KeyOf(pack{ar})
	if a == b || a != rule.AlertRuleKey("shop", "web-down") || a.NamespacedName() != b.NamespacedName() {
		t.Errorf("the keys are %v and %v", a, b)
	}
	if a.String() != "AlertRule shop/web-down" || a.Listed() != "shop/web-down" || b.String() != "RulePack shop/web-down" || b.Listed() != b.String() {
		t.Errorf("the texts are %s, %s, %s and %s", a, a.Listed(), b, b.Listed())
	}
	if rule.ObjectName("hub-1", a) == rule.ObjectName("hub-1", b) {
		t.Error("their objects have the same name")
	}
}
