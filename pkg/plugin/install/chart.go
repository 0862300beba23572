// Package install installs Rulefleet on the hub, upgrades it and uninstalls it, with Helm's library and the chart
// that the plugin embeds.
package install

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/cli/values"
	"helm.sh/helm/v3/pkg/getter"
	"helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/charts"
	"github.com/rulefleet/rulefleet/pkg/plugin/advice"
	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
	"github.com/rulefleet/rulefleet/pkg/plugin/output"
)

// load returns the embedded chart. version replaces that in Chart.yaml, unless it is empty.
func load(version string) (*chart.Chart, error) {
	rules, err := fs.ReadFile(charts.Files, path.Join(charts.Folder, ".helmignore"))
	if err != nil {
		return nil, fmt.Errorf("reading the embedded chart: %w", err)
	}
	ignored := strings.Fields(string(rules))
	var files []*loader.BufferedFile
	err = fs.WalkDir(charts.Files, charts.Folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || matches(ignored, path.Base(name)) {
			return err
		}
		data, err := fs.ReadFile(charts.Files, name)
		files = append(files, &loader.BufferedFile{Name: strings.TrimPrefix(name, charts.Folder+"/"), Data: data})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the embedded chart: %w", err)
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		return nil, fmt.Errorf("reading the embedded chart: %w", err)
	}
	if version != "" {
		c.Metadata.Version, c.Metadata.AppVersion = version, version
	}
	return c, nil
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// merge returns the values of --values, --set and --set-string.
func merge(o *values.Options) (map[string]any, error) {
	web := getter.Provider{Schemes: []string{"http", "https"}, New: getter.NewHTTPGetter}
	out, err := o.MergeValues(getter.Providers{web})
	if err != nil {
		return nil, exit.New(exit.Usage, "", "reading the values: %w", err)
	}
	return out, nil
}

// target is a release.
type target struct{ name, namespace string }

// check refuses names that Kubernetes or Helm would refuse.
func (t target) check() error {
	if err := chartutil.ValidateReleaseName(t.name); err != nil {
		return exit.New(exit.Usage, "", "--release-name %q: %w", t.name, err)
	}
	if errs := validation.IsDNS1123Label(t.namespace); len(errs) > 0 {
		return exit.New(exit.Usage, "", "--namespace %q: %s", t.namespace, errs[0])
	}
	return nil
}

// command returns a command of the plugin for the release.
func (t target) command(verb string) string {
	out := "kubectl rulefleet " + verb
	if t.namespace != cluster.DefaultNamespace {
		out += " --namespace " + t.namespace
	}
	if t.name != defaultRelease {
		out += " --release-name " + t.name
	}
	return out
}

// render returns what Helm would apply, with its hooks. It asks no API server.
func render(c *chart.Chart, t target, vals map[string]any, caps *chartutil.Capabilities, upgrade bool) (*release.Release, error) {
	in := action.NewInstall(&action.Configuration{Log: func(string, ...any) {}})
	in.ClientOnly, in.DryRun, in.IsUpgrade = true, true, upgrade
	in.ReleaseName, in.Namespace = t.name, t.namespace
	in.KubeVersion, in.APIVersions = &caps.KubeVersion, caps.APIVersions
	rel, err := in.Run(c, vals)
	if err != nil {
		return nil, exit.New(exit.Usage, "The values are described in "+advice.Docs+"charts/rulefleet/README.md", "the chart does not accept the values: %s", strings.TrimSpace(err.Error()))
	}
	return rel, nil
}

// document is an object of a manifest, and the file of the chart that it comes from.
type document struct {
	*unstructured.Unstructured

	source string
}

const sourcePrefix = "# Source: "

// parse returns the objects of a manifest, in its order.
func parse(manifest string) ([]document, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifest)))
	var out []document
	for {
		data, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		d := document{Unstructured: &unstructured.Unstructured{}}
		if err == nil {
			err = yaml.Unmarshal(data, &d.Object)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the manifest of the release: %w", err)
		}
		if len(d.Object) == 0 {
			continue
		}
		if rest, ok := bytes.CutPrefix(bytes.TrimPrefix(data, []byte("---\n")), []byte(sourcePrefix)); ok {
			line, _, _ := bytes.Cut(rest, []byte("\n"))
			d.source = string(line)
		}
		out = append(out, d)
	}
}

// newNamespace returns the Namespace that --create-namespace creates, as Helm does.
func newNamespace(name string) document {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	o.SetName(name)
	o.SetLabels(map[string]string{"name": name})
	return document{o, "the flag --create-namespace"}
}

// show prints the objects of a release.
func show(p *output.Printer, documents []document) error {
	for _, d := range documents {
		if err := p.Document("Source: "+d.source, d.Unstructured); err != nil {
			return err
		}
	}
	return nil
}
