// Package charts tests the Helm chart: each of its values, what its schema refuses, and
// what a real API server says of what it renders to.
package charts

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/pkg/testing/chart"
)

const (
	releaseName = "rulefleet"
	namespace   = "rulefleet-system"
)

type values = map[string]any

// effect is what another value than the default changes.
type effect struct {
	// value is the other value.
	value any
	// with are further values, without which it would have no effect.
	with values
	// want is there with the value and not without, gone the other way round.
	want, gone string
}

// effects has an entry for every value of the chart, by its path.
var effects = map[string]effect{
	"global.imageRegistry": {value: "mirror.example:5000", want: "image: mirror.example:5000/rulefleet/manager:"},
	"nameOverride":         {value: "other", want: "app.kubernetes.io/name: other"},
	"fullnameOverride":     {value: "other", want: "name: other-webhook"},

	"commonLabels": {value: values{"cost-center": "7"}, want: "    cost-center: \"7\"\n"},

	"image.registry":   {value: "mirror.example", with: at("global.imageRegistry", "unused.example"), want: "image: mirror.example/rulefleet/manager:"},
	"image.repository": {value: "team/manager", want: "image: team/manager:"},
	"image.tag":        {value: "v7", want: "image: ghcr.io/rulefleet/manager:v7"},
	"image.digest":     {value: digest, want: "image: ghcr.io/rulefleet/manager@" + digest},
	"image.pullPolicy": {value: "Always", want: "imagePullPolicy: Always"},
	"imagePullSecrets": {value: []any{values{"name": "pull"}}, want: "imagePullSecrets:\n      - name: pull"},

	"replicas":                           {value: 3, want: "replicas: 3"},
	"resources.requests.cpu":             {value: "7m", want: "cpu: 7m"},
	"resources.requests.memory":          {value: "77Mi", want: "memory: 77Mi"},
	"resources.limits.memory":            {value: "777Mi", want: "memory: 777Mi"},
	"spokeLimits.objects":                {value: 5_000_000, want: "- --spoke-max-objects=5000000"},
	"spokeLimits.memory":                 {value: "96Mi", want: "- --spoke-max-memory=96Mi"},
	"spokeLimits.writesPerSecond":        {value: 7, want: "- --spoke-max-writes=7"},
	"spokeLimits.namespaceShare":         {value: 50, want: "- --spoke-namespace-share=50"},
	"podDisruptionBudget.enabled":        {value: false, gone: "kind: PodDisruptionBudget"},
	"podDisruptionBudget.minAvailable":   {value: 1, want: "minAvailable: 1"},
	"podDisruptionBudget.maxUnavailable": {value: "50%", want: "maxUnavailable: 50%"},
	"topologySpread.constraints":         {value: []any{values{"topologyKey": "rack"}}, want: "topologySpreadConstraints:\n      - topologyKey: rack\n"},
	"extraVolumes":                       {value: []any{values{"name": "ca"}}, want: "volumes:\n      - name: ca\n"},
	"extraVolumeMounts":                  {value: []any{values{"name": "ca"}}, want: "volumeMounts:\n        - name: ca\n"},
	"runAsUser":                          {value: 1_000_680_000, want: "runAsGroup: 1000680000\n        runAsNonRoot: true\n        runAsUser: 1000680000\n"},
	"topologySpread.enabled":             {value: false, gone: "topologySpreadConstraints:"},
	"topologySpread.whenUnsatisfiable":   {value: "DoNotSchedule", want: "whenUnsatisfiable: DoNotSchedule"},
	"nodeSelector":                       {value: values{"disk": "ssd"}, want: "nodeSelector:\n        disk: ssd"},
	"tolerations":                        {value: []any{values{"key": "hub"}}, want: "tolerations:\n      - key: hub"},
	"affinity":                           {value: values{"podAntiAffinity": values{}}, want: "affinity:\n        podAntiAffinity: {}"},
	"priorityClassName":                  {value: "important", want: "priorityClassName: important"},
	"podAnnotations":                     {value: values{"a": "b"}, want: "\n        a: b\n"},
	"podLabels":                          {value: values{"team": "platform"}, want: "\n        team: platform\n"},
	"env":                                {value: []any{values{"name": "NO_PROXY", "value": "x"}}, want: "- name: NO_PROXY\n          value: x"},

	"serviceAccount.create":      {value: false, with: at("serviceAccount.name", "theirs"), gone: "kind: ServiceAccount\nmetadata:\n  labels:"},
	"serviceAccount.name":        {value: "mine", want: "serviceAccountName: mine"},
	"serviceAccount.annotations": {value: values{"cloud.example/role": "r"}, want: "cloud.example/role: r"},
	"rbac.create":                {value: false, gone: "kind: ClusterRole\n"},
	"rbac.aggregate":             {value: true, want: "aggregate-to-view"},
	"admissionPolicies":          {value: "Disabled", gone: "kind: ValidatingAdmissionPolicy"},
	"crds.enabled":               {value: false, gone: "kind: CustomResourceDefinition"},
	"crds.keep":                  {value: false, gone: "helm.sh/resource-policy: keep"},

	"hubID":                    {value: "hub-1", want: "--hub-id=hub-1"},
	"generatedNamespace":       {value: "made", want: "--generated-namespace=made"},
	"ruleNamespace":            {value: "observability", want: "--rule-namespace=observability"},
	"clusterLabel":             {value: "site", want: "--cluster-label=site"},
	"kubeStateMetricsSelector": {value: `job="ksm: a"`, want: `--kube-state-metrics-selector=job="ksm: a"`},
	"prometheusVersion":        {value: "2.53", want: "--prometheus-version=2.53"},
	"prometheusFeatures":       {value: []any{"a", "b"}, want: "--prometheus-features=a,b"},
	"evaluatorPollInterval":    {value: "1m", want: "--evaluator-poll-interval=1m"},
	"evaluatorNamespaces":      {value: []any{"monitoring", "thanos"}, want: "--evaluator-namespaces=monitoring,thanos"},
	"checkMetrics":             {value: false, want: "--check-metrics=false"},

	"prometheusOperatorNamespaces": {value: []any{"operators"}, want: "--prometheus-operator-namespaces=operators"},

	"builtInTemplates.deployment-down":               {value: "Disabled", want: "--built-in-templates=\n"},
	"builtInTemplates.replicas-mismatch":             {value: "Enabled", want: "--built-in-templates=deployment-down,replicas-mismatch\n"},
	"builtInTemplates.rollout-stuck":                 {value: "Enabled", want: "--built-in-templates=deployment-down,rollout-stuck\n"},
	"builtInTemplates.generation-mismatch":           {value: "Enabled", want: "--built-in-templates=deployment-down,generation-mismatch\n"},
	"builtInTemplates.crash-looping":                 {value: "Enabled", want: "--built-in-templates=crash-looping,deployment-down\n"},
	"builtInTemplates.container-waiting":             {value: "Enabled", want: "--built-in-templates=container-waiting,deployment-down\n"},
	"builtInTemplates.hpa-maxed-out":                 {value: "Enabled", want: "--built-in-templates=deployment-down,hpa-maxed-out\n"},
	"builtInTemplates.statefulset-down":              {value: "Enabled", want: "--built-in-templates=deployment-down,statefulset-down\n"},
	"builtInTemplates.statefulset-replicas-mismatch": {value: "Enabled", want: "--built-in-templates=deployment-down,statefulset-replicas-mismatch\n"},
	"builtInTemplates.statefulset-rollout-stuck":     {value: "Enabled", want: "--built-in-templates=deployment-down,statefulset-rollout-stuck\n"},
	"builtInTemplates.statefulset-crash-looping":     {value: "Enabled", want: "--built-in-templates=deployment-down,statefulset-crash-looping\n"},
	"builtInTemplates.statefulset-container-waiting": {value: "Enabled", want: "--built-in-templates=deployment-down,statefulset-container-waiting\n"},
	"builtInTemplates.daemonset-down":                {value: "Enabled", want: "--built-in-templates=daemonset-down,deployment-down\n"},
	"builtInTemplates.daemonset-not-ready":           {value: "Enabled", want: "--built-in-templates=daemonset-not-ready,deployment-down\n"},
	"builtInTemplates.daemonset-rollout-stuck":       {value: "Enabled", want: "--built-in-templates=daemonset-rollout-stuck,deployment-down\n"},
	"builtInTemplates.daemonset-not-scheduled":       {value: "Enabled", want: "--built-in-templates=daemonset-not-scheduled,deployment-down\n"},
	"builtInTemplates.daemonset-misscheduled":        {value: "Enabled", want: "--built-in-templates=daemonset-misscheduled,deployment-down\n"},
	"builtInTemplates.daemonset-crash-looping":       {value: "Enabled", want: "--built-in-templates=daemonset-crash-looping,deployment-down\n"},
	"builtInTemplates.daemonset-container-waiting":   {value: "Enabled", want: "--built-in-templates=daemonset-container-waiting,deployment-down\n"},
	"builtInTemplates.cronjob-failing":               {value: "Enabled", want: "--built-in-templates=cronjob-failing,deployment-down\n"},
	"builtInTemplates.cronjob-missed":                {value: "Enabled", want: "--built-in-templates=cronjob-missed,deployment-down\n"},

	"tenants.protectedLabels":  {value: []any{"team", "tier"}, want: "--protected-labels=team,tier\n"},
	"tenants.minInterval":      {value: "30s", want: "--tenant-min-interval=30s"},
	"tenants.maxRules":         {value: 0, want: "--tenant-max-rules=0"},
	"tenants.enforceNamespace": {value: true, want: "--enforce-namespace=true"},

	"allowKubeconfig":          {value: []any{"loopback", "http"}, want: "--allow-kubeconfig=loopback,http"},
	"allowKubeconfigOfSpokes":  {value: map[string]any{"edge-1": []any{"http", "proxy-url"}, "edge-2": []any{"http"}}, want: "--allow-kubeconfig=edge-1=http,edge-1=proxy-url,edge-2=http\n"},
	"deletionHold":             {value: "1h", want: "--deletion-hold=1h"},
	"leaveTimeout":             {value: "5m", want: "--leave-timeout=5m"},
	"trackingLabels":           {value: []any{"example.com/app", "example.org"}, want: "--tracking-labels=example.com/app,example.org"},
	"renewTokens":              {value: false, want: "--renew-tokens=false"},
	"releaseSpokesOnUninstall": {value: false, gone: "--release-spokes"},
	"log.format":               {value: "console", want: "--log-format=console"},
	"log.level":                {value: "debug", want: "--log-level=debug"},

	"webhook.enabled":                     {value: false, gone: "kind: ValidatingWebhookConfiguration"},
	"webhook.port":                        {value: 10250, want: "--webhook-port=10250"},
	"webhook.hostNetwork":                 {value: true, want: "hostNetwork: true"},
	"webhook.failurePolicy":               {value: "Ignore", want: "failurePolicy: Ignore"},
	"webhook.timeoutSeconds":              {value: 9, want: "timeoutSeconds: 9"},
	"webhook.certLifetime":                {value: "48h", want: "--webhook-cert-lifetime=48h"},
	"webhook.certManager.enabled":         {value: true, want: "--webhook-cert-dir=/etc/rulefleet/webhook"},
	"webhook.certManager.issuerRef.name":  {value: "corporate", with: at("webhook.certManager.enabled", true), want: "issuerRef:\n    group: cert-manager.io\n    kind: Issuer\n    name: corporate"},
	"webhook.certManager.issuerRef.kind":  {value: "ClusterIssuer", with: issuer, want: "kind: ClusterIssuer\n    name: corporate"},
	"webhook.certManager.issuerRef.group": {value: "pki.example", with: issuer, want: "group: pki.example"},

	"metrics.enabled":                            {value: false, want: "--metrics-bind-address=0"},
	"metrics.port":                               {value: 9090, want: "--metrics-bind-address=:9090"},
	"metrics.secure":                             {value: false, want: "--metrics-secure=false"},
	"metrics.serviceMonitor.enabled":             {value: true, want: "kind: ServiceMonitor"},
	"metrics.serviceMonitor.labels":              {value: values{"release": "hub"}, with: at("metrics.serviceMonitor.enabled", true), want: "release: hub"},
	"metrics.serviceMonitor.interval":            {value: "17s", with: at("metrics.serviceMonitor.enabled", true), want: "interval: 17s"},
	"metrics.serviceMonitor.tokenSecret.name":    {value: "theirs", with: at("metrics.serviceMonitor.enabled", true), want: "key: token\n        name: theirs"},
	"metrics.serviceMonitor.tokenSecret.key":     {value: "bearer", with: at("metrics.serviceMonitor.enabled", true), want: "key: bearer"},
	"metrics.prometheusRule.enabled":             {value: true, want: "kind: PrometheusRule"},
	"metrics.prometheusRule.labels":              {value: values{"release": "hub"}, with: at("metrics.prometheusRule.enabled", true), want: "release: hub"},
	"metrics.dashboard.enabled":                  {value: true, want: "rulefleet-fleet-overview.json"},
	"metrics.dashboard.labels.grafana_dashboard": {value: "yes", with: at("metrics.dashboard.enabled", true), want: `grafana_dashboard: "yes"`},
	"metrics.dashboard.annotations":              {value: values{"folder": "Fleet"}, with: at("metrics.dashboard.enabled", true), want: "folder: Fleet"},
	"metrics.dashboard.namespace":                {value: "grafana", with: at("metrics.dashboard.enabled", true), want: "namespace: grafana"},

	"networkPolicy.enabled":     {value: false, gone: "kind: NetworkPolicy"},
	"networkPolicy.metricsFrom": {value: []any{values{"podSelector": values{}}}, want: "- from:\n    - podSelector: {}"},
	"networkPolicy.egress":      {value: []any{values{"ports": []any{values{"port": 443}}}}, want: "- Egress"},
	"extraArgs":                 {value: []any{"--version"}, want: "- --version"},
}

var (
	digest = "sha256:" + strings.Repeat("0123456789abcdef", 4)
	issuer = merged(at("webhook.certManager.enabled", true), at("webhook.certManager.issuerRef.name", "corporate"))
)

// TestEveryValueHasAnEffect changes each value of values.yaml, and looks at what is rendered.
func TestEveryValueHasAnEffect(t *testing.T) {
	c := load(t)
	defaults := leaves(c.Values, "")
	for _, path := range slices.Sorted(maps.Keys(defaults)) {
		t.Run(path, func(t *testing.T) {
			e, ok := effects[path]
			if !ok {
				t.Fatal("there is no entry in effects, so nobody knows whether it does anything")
			}
			base := e.with
			if !strings.HasPrefix(path, "crds.") {
				base = merged(base, at("crds.enabled", false)) // they take most of the time
			}
			without, with := text(t, c, base), text(t, c, merged(base, at(path, e.value)))
			if e.want != "" && (!strings.Contains(with, e.want) || strings.Contains(without, e.want)) {
				t.Errorf("%v does not bring %q", e.value, e.want)
			}
			if e.gone != "" && (strings.Contains(with, e.gone) || !strings.Contains(without, e.gone)) {
				t.Errorf("%v does not remove %q", e.value, e.gone)
			}
			if e.want == "" && e.gone == "" {
				t.Error("nothing is expected of it")
			}
		})
	}
	for path := range effects {
		t.Run(path, func(t *testing.T) {
			if _, ok := defaults[path]; !ok {
				t.Errorf("effects has %s, and values.yaml does not", path)
			}
		})
	}
}

// TestSchemaRefuses gives each value a wrong type, and each object an unknown key.
func TestSchemaRefuses(t *testing.T) {
	c := load(t)
	for path, value := range leaves(c.Values, "") {
		wrong := any([]any{"wrong"})
		switch value.(type) {
		case values, []any:
			wrong = "wrong"
		}
		refused(t, c, path, at(path, wrong), strings.ReplaceAll(path, ".", "/"))
	}
	for _, path := range objects(c.Values, "") {
		switch path {
		case "global.", "resources.requests.", "resources.limits.":
			continue // keys that this chart does not know may be meant
		}
		refused(t, c, path, at(path+"unknown", 1), "unknown")
	}
	for name, v := range map[string]values{
		"pull policy":     at("image.pullPolicy", "Sometimes"),
		"digest":          at("image.digest", "sha256:1"),
		"template":        at("builtInTemplates.deployment-down", "On"),
		"duration":        at("deletionHold", "ten minutes"),
		"interval":        at("evaluatorPollInterval", "often"),
		"port":            at("webhook.port", 70000),
		"common label":    at("commonLabels.a", 1),
		"disruption":      at("podDisruptionBudget.maxUnavailable", "some"),
		"availability":    at("podDisruptionBudget.minAvailable", -1),
		"policies":        at("admissionPolicies", "On"),
		"root":            at("runAsUser", 0),
		"name of a user":  at("runAsUser", "nobody"),
		"version":         at("prometheusVersion", "latest"),
		"label":           at("clusterLabel", "a-b"),
		"namespace":       at("generatedNamespace", "Made"),
		"kubeconfig":      at("allowKubeconfig", []any{"exec"}),
		"of a spoke":      at("allowKubeconfigOfSpokes.edge-1", []any{"exec"}),
		"no namespace":    at("evaluatorNamespaces", []any{}),
		"replicas":        at("replicas", -1),
		"label of a pod":  at("podLabels.a", 1),
		"item of a list":  at("extraArgs", []any{1}),
		"timeout":         at("webhook.timeoutSeconds", 31),
		"number for text": at("hubID", 7),
		"id":              at("hubID", "a b"),
		"full name":       at("fullnameOverride", "My_App"),
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, c, name, v, strings.ReplaceAll(slices.Collect(maps.Keys(leaves(v, "")))[0], ".", "/"))
		})
	}
}

func refused(t *testing.T, c *helmchart.Chart, name string, v values, says string) {
	t.Helper()
	err := chart.Check(c, chart.Release{Name: releaseName, Namespace: namespace, Values: v})
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v: got %v, want a message with %q", name, v, err, says)
	}
}

// TestSchemaDescribes has a description for every value.
func TestSchemaDescribes(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("rulefleet", "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	type node struct {
		Description string
		Properties  map[string]*node
	}
	var root node
	if err := json.Unmarshal(data, &root); err != nil {
		t.Fatal(err)
	}
	for path := range leaves(load(t).Values, "") {
		n, described := &root, false
		for key := range strings.SplitSeq(path, ".") {
			if n = n.Properties[key]; n == nil {
				t.Fatalf("the schema does not know %s", path)
			}
			described = described || n.Description != ""
		}
		if !described {
			t.Errorf("%s has no description", path)
		}
	}
}

// TestMistakesThatTheSchemaCannotSee are refused by the templates.
func TestMistakesThatTheSchemaCannotSee(t *testing.T) {
	c := load(t)
	for says, v := range map[string]values{
		"generatedNamespace must not be the namespace of the release": at("generatedNamespace", namespace),
		"webhook.port and metrics.port are both 9443":                 at("metrics.port", 9443),
		"port 8081 is used for the probes":                            at("webhook.port", 8081),
		"set metrics.serviceMonitor.tokenSecret.name":                 merged(at("rbac.create", false), at("metrics.serviceMonitor.enabled", true)),
		"set serviceAccount.name":                                     at("serviceAccount.create", false),
		"metrics.dashboard need metrics.enabled":                      merged(at("metrics.enabled", false), at("metrics.dashboard.enabled", true)),
		"port 8081 is used for the probes; set webhook.port and me":   at("metrics.port", 8081),
	} {
		t.Run(says, func(t *testing.T) {
			if _, err := chart.Render(c, chart.Release{Name: releaseName, Namespace: namespace, Values: v}); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%v: got %v, want a message with %q", v, err, says)
			}
		})
	}
}

// TestNamesThatLookLikeNumbers stay texts, and what can't be a name is refused.
func TestNamesThatLookLikeNumbers(t *testing.T) {
	v := merged(at("generatedNamespace", "789"), at("podLabels", values{"app.kubernetes.io/component": "mine"}))
	r, err := chart.Render(load(t), chart.Release{Name: "123", Namespace: "456", Values: merged(v, at("fullnameOverride", "fleet"))})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range r.Objects {
		if o.GetNamespace() != "456" && (o.GetKind() == "Deployment" || o.GetKind() == "Role") || o.GetLabels()["app.kubernetes.io/instance"] != "123" {
			t.Errorf("%s %s is in %q, with labels %v", o.GetKind(), o.GetName(), o.GetNamespace(), o.GetLabels())
		}
	}
	labels, _, _ := unstructured.NestedStringMap(r.Kind("Deployment")[0].Object, "spec", "template", "metadata", "labels")
	if labels["app.kubernetes.io/component"] != "manager" {
		t.Errorf("the selector does not select the pods: %v", labels)
	}
	if _, err := chart.Render(load(t), chart.Release{Name: "123", Namespace: "456"}); err == nil || !strings.Contains(err.Error(), "set fullnameOverride") {
		t.Errorf("a Service can't be named 123-rulefleet: %v", err)
	}
}

func load(t *testing.T) *helmchart.Chart {
	t.Helper()
	c, err := chart.Load("..")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func render(t *testing.T, c *helmchart.Chart, v values) *chart.Rendered {
	t.Helper()
	r, err := chart.Render(c, chart.Release{Name: releaseName, Namespace: namespace, Values: v})
	if err != nil {
		t.Fatalf("%v: %v", v, err)
	}
	return r
}

// text is all that is rendered, in one form of YAML.
func text(t *testing.T, c *helmchart.Chart, v values) string {
	t.Helper()
	r := render(t, c, v)
	var out strings.Builder
	for _, o := range r.Objects {
		data, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "---\n%s", data)
	}
	return out.String()
}

// at makes values with one at a path.
func at(path string, value any) values {
	first, rest, nested := strings.Cut(path, ".")
	if !nested {
		return values{first: value}
	}
	return values{first: at(rest, value)}
}

// merged has all of a and b, of which b goes first.
func merged(a, b values) values {
	out := values{}
	for _, v := range []values{a, b} {
		out = chartutil.CoalesceTables(copied(v), out)
	}
	return out
}

// copied is a deep copy of the maps: merging changes them.
func copied(v values) values {
	out := values{}
	for key, value := range v {
		if m, ok := value.(values); ok {
			value = copied(m)
		}
		out[key] = value
	}
	return out
}

// leaves are the values by their paths: scalars, lists, and objects without keys.
func leaves(v values, prefix string) map[string]any {
	out := map[string]any{}
	for key, value := range v {
		if m, ok := value.(values); ok && len(m) > 0 {
			maps.Copy(out, leaves(m, prefix+key+"."))
		} else {
			out[prefix+key] = value
		}
	}
	return out
}

// objects are the paths of all objects that have keys, each with a dot at its end.
func objects(v values, prefix string) []string {
	out := []string{prefix}
	for key, value := range v {
		if m, ok := value.(values); ok && len(m) > 0 {
			out = append(out, objects(m, prefix+key+".")...)
		}
	}
	return out
}

// TestImage replaces the registry in the name of an image, and keeps a name without one.
func TestImage(t *testing.T) {
	for repository, want := range map[string]string{
		"ghcr.io/rulefleet/manager":   "mirror.example/rulefleet/manager:v1",
		"localhost:5000/team/manager": "mirror.example/team/manager:v1",
		"team/manager":                "mirror.example/team/manager:v1",
		"manager":                     "mirror.example/manager:v1",
	} {
		v := values{"image": values{"registry": "mirror.example/", "repository": repository, "tag": "v1"}}
		o := render(t, load(t), v).Kind("Deployment")[0]
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		if image := containers[0].(map[string]any)["image"]; image != want {
			t.Errorf("%s: the image is %v, want %s", repository, image, want)
		}
	}
}
