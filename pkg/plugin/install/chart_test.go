package install

import (
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"k8s.io/apimachinery/pkg/api/equality"

	testchart "github.com/rulefleet/rulefleet/pkg/testing/chart"
)

// files returns what a chart consists of, by name.
func files(c *chart.Chart) map[string]string {
	out := map[string]string{}
	for _, list := range [][]*chart.File{c.Raw, c.Templates, c.Files} {
		for _, f := range list {
			out[f.Name] = string(f.Data)
		}
	}
	return out
}

// TestEmbeddedChart is what Helm reads from the folder.
func TestEmbeddedChart(t *testing.T) {
	got, err := load("")
	if err != nil {
		t.Fatal(err)
	}
	want, err := loader.Load(filepath.Join("..", "..", "..", "charts", "rulefleet"))
	if err != nil {
		t.Fatal(err)
	}
	have := files(got)
	for name, content := range files(want) {
		if have[name] != content {
			t.Errorf("%s is different", name)
		}
		delete(have, name)
	}
	for name := range have {
		t.Errorf("%s is not in Helm's", name)
	}
	if !chartutil.IsCompatibleRange(got.Metadata.KubeVersion, oldest().KubeVersion.Version) || chartutil.IsCompatibleRange(got.Metadata.KubeVersion, "v1.29.99") {
		t.Errorf("%s is not the oldest version that the chart supports (%s)", oldest().KubeVersion.Version, got.Metadata.KubeVersion)
	}
}

// TestSameAsHelm parses what the chart renders to, without hooks.
func TestSameAsHelm(t *testing.T) {
	c, err := load("")
	if err != nil {
		t.Fatal(err)
	}
	rel, err := render(c, target{"rulefleet", "rulefleet-system"}, nil, oldest(), false)
	if err != nil {
		t.Fatal(err)
	}
	documents, err := parse(rel.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := testchart.Render(c, testchart.Release{Name: "rulefleet", Namespace: "rulefleet-system"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]map[string]any{}
	for _, o := range rendered.Objects {
		if o.GetAnnotations()[testchart.HookAnnotation] == "" {
			want[identity(document{Unstructured: o})] = o.Object
		}
	}
	for _, d := range documents {
		if d.source == "" || !equality.Semantic.DeepEqual(d.Object, want[identity(d)]) {
			t.Errorf("%s, from %q: got\n%v\nwant\n%v", identity(d), d.source, d.Object, want[identity(d)])
		}
		delete(want, identity(d))
	}
	for name := range want {
		t.Errorf("%s is missing", name)
	}
}

// TestVersionOfARelease is that of the chart, and that of the image.
func TestVersionOfARelease(t *testing.T) {
	c, err := load("9.8.7")
	if err != nil {
		t.Fatal(err)
	}
	rel, err := render(c, target{"rulefleet", "rulefleet-system"}, nil, oldest(), false)
	if err != nil {
		t.Fatal(err)
	}
	if c.Metadata.Version != "9.8.7" || !strings.Contains(rel.Manifest, `image: "ghcr.io/rulefleet/manager:9.8.7"`) {
		t.Errorf("the chart has version %s, and the manifest is\n%s", c.Metadata.Version, rel.Manifest)
	}
}

func TestNewer(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"0.2.0", "0.1.0", true},
		{"0.1.0", "0.1.0", false},
		{"0.1.0", "0.10.0", false},
		{"0.1.0", "0.1.0-rc.1", true},
		{"v0.2.0", "0.1.0", true},
		{"", "0.1.0", false},
		{"abc", "0.1.0", false},
	} {
		if got := newer(tc.a, tc.b); got != tc.want {
			t.Errorf("newer(%q, %q) is %v", tc.a, tc.b, got)
		}
	}
	if got := chartVersion("rulefleet-0.1.0_build.1"); got != "0.1.0+build.1" {
		t.Errorf("chartVersion: %q", got)
	}
}
