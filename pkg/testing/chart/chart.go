// Package chart renders the Helm chart for tests, as helm template does, so that tests run with what users
// install.
package chart

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rulefleet/rulefleet/pkg/manifest"
)

// HookAnnotation marks objects that Helm creates only at an event, such as an uninstallation.
const HookAnnotation = "helm.sh/hook"

// Release describes the release for which a chart is rendered.
type Release struct {
	// Name and Namespace are the release's.
	Name, Namespace string
	// Values override the chart's own.
	Values map[string]any
	// APIVersions are what the API server serves. nil means what the API servers of the tests serve.
	APIVersions chartutil.VersionSet
}

// served has what a chart looks for in an API server of the tests.
var served = append(slices.Clone(chartutil.DefaultVersionSet), "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy")

// Rendered is a rendered chart.
type Rendered struct {
	// Objects are in the order of the chart's files, and include hooks.
	Objects []*unstructured.Unstructured
	// Notes are what helm install prints.
	Notes string
}

// Load reads the chart from its folder below the module's root.
func Load(root string) (*helmchart.Chart, error) {
	c, err := loader.Load(filepath.Join(root, "charts", "rulefleet"))
	if err != nil {
		return nil, fmt.Errorf("loading the chart: %w", err)
	}
	return c, nil
}

// Check validates the values against the chart's schema.
func Check(c *helmchart.Chart, r Release) error {
	_, err := renderValues(c, r)
	return err
}

func renderValues(c *helmchart.Chart, r Release) (chartutil.Values, error) {
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.APIVersions = served
	if r.APIVersions != nil {
		capabilities.APIVersions = r.APIVersions
	}
	values, err := chartutil.ToRenderValues(c, r.Values, chartutil.ReleaseOptions{Name: r.Name, Namespace: r.Namespace, IsInstall: true, Revision: 1}, capabilities)
	if err != nil {
		return nil, fmt.Errorf("checking the values: %w", err)
	}
	return values, nil
}

// Render renders a chart. It returns an error for values that the schema rejects.
func Render(c *helmchart.Chart, r Release) (*Rendered, error) {
	values, err := renderValues(c, r)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, values)
	if err != nil {
		return nil, fmt.Errorf("rendering the chart: %w", err)
	}
	out := &Rendered{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		switch {
		case strings.HasPrefix(path.Base(name), "_"):
		case strings.HasSuffix(name, "NOTES.txt"):
			out.Notes = files[name]
		default:
			objects, err := manifest.Objects([]byte(files[name]))
			if err != nil {
				return nil, fmt.Errorf("reading what %s was rendered to: %w", name, err)
			}
			out.Objects = append(out.Objects, objects...)
		}
	}
	return out, nil
}

// Kind returns the objects of a kind.
func (r *Rendered) Kind(kind string) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(r.Objects), func(o *unstructured.Unstructured) bool { return o.GetKind() != kind })
}
