package plugin

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
	"github.com/rulefleet/rulefleet/pkg/plugin/env"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
)

var update = flag.Bool("update", false, "write the golden files")

// noon is the time of every command.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// hubObjects returns the objects of testdata/hub.yaml.
func hubObjects(t *testing.T) []client.Object {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "hub.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(cluster.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var out []client.Object
	for doc := range strings.SplitSeq(string(data), "\n---\n") {
		o, _, err := decoder.Decode([]byte(doc), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, o.(client.Object))
	}
	return out
}

// hub is a hub in memory.
func hub(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) client.Client {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(cluster.Scheme).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
}

// invocation is a run of the plugin.
type invocation struct {
	out, err bytes.Buffer
	code     int
}

// invoke runs the plugin on a hub.
func invoke(t *testing.T, c client.Client, stdin string, change func(*env.Env), args ...string) *invocation {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBECACHEDIR", "~/.kube/cache") // a default that the help shows
	r := &invocation{}
	h := cluster.NewHub("test", &r.err)
	h.Connect = func() (client.Client, error) { return c, nil }
	e := &env.Env{
		IOStreams: genericiooptions.IOStreams{In: strings.NewReader(stdin), Out: &r.out, ErrOut: &r.err},
		Hub:       h, Version: "test", Now: func() time.Time { return noon },
	}
	if change != nil {
		change(e)
	}
	r.code = Run(t.Context(), e, args)
	return r
}

// TestWatch prints an answer again when it changes, and goes on when the hub is away.
func TestWatch(t *testing.T) {
	for _, tc := range []struct {
		name, args string
		screen     bool
	}{
		{"watch-screen-false", "firing -A --cluster us-1 --watch --interval 1ms", false},
		{"watch-screen-true", "firing -A --cluster us-1 --watch --interval 1ms", true},
		{"watch-status", "status -n rulefleet-system --watch --interval 1ms", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			lists := 0
			c := hub(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				rules, ok := list.(*v1alpha1.AlertRuleList)
				if !ok {
					return c.List(ctx, list, opts...)
				}
				lists++
				err := c.List(ctx, list, opts...)
				switch lists {
				case 1, 2, 3: // nothing changes
				case 4:
					return errors.New("the hub is away")
				case 5, 6:
					rules.Items = nil
				default:
					cancel()
				}
				return err
			}}, hubObjects(t)...)
			var out, errOut bytes.Buffer
			h := cluster.NewHub("test", &errOut)
			h.Connect = func() (client.Client, error) { return c, nil }
			e := &env.Env{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &errOut}, Hub: h, Screen: tc.screen, Now: func() time.Time { return noon }}
			code := Run(ctx, e, strings.Fields(tc.args))
			golden(t, tc.name, fmt.Sprintf("$ kubectl rulefleet %s\n%q\n%s[exit code %d]\n", tc.args, out.String(), errOut.String(), code))
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (go test ./pkg/plugin -update writes it):\ngot\n%s\nwant\n%s", file, got, want)
	}
}

func denied(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.Group, Resource: resource}, "", errors.New("not for you"))
}

// webPack is a RulePack of which a rule fails in a spoke.
const webPack = `
apiVersion: rulefleet.io/v1alpha1
kind: RulePack
metadata: {namespace: packs, name: web, generation: 2}
spec:
  groups:
    - name: requests
      rules:
        - {record: "job:errors:rate5m", expr: 'sum by (job) (rate(errors_total[5m]))'}
        - {alert: ErrorsHigh, expr: "job:errors:rate5m > 10", for: 5m, labels: {severity: critical}}
  placement: {names: [eu-1]}
status:
  observedGeneration: 2
  summary: {desired: 1, applied: 1, selected: 1, failing: 1, ready: 0/1, firing: 2}
  conditions:
    - {type: Accepted, status: "True", reason: Accepted, message: the spec is valid, lastTransitionTime: "2026-01-01T00:00:05Z"}
    - {type: Ready, status: "False", reason: EvaluationFailed, message: "ready in 0/1 spokes", lastTransitionTime: "2026-01-01T00:00:05Z"}
  clusters:
    - {name: eu-1, phase: Selected, reason: EvaluationFailed, firing: 2, rule: packs/web, observedGeneration: 2, lastTransitionTime: "2026-01-01T11:59:30Z",
       message: "Prometheus monitoring/k8s can't evaluate the rule: 1 of 2 rules fail; the first is job:errors:rate5m of group requests: many-to-many matching not allowed"}
`

// withCoverage adds the workloads of two spokes to the objects of hub.yaml, and names the workload of an AlertRule.
func withCoverage(t *testing.T) []client.Object {
	t.Helper()
	objects := hubObjects(t)
	for _, o := range objects {
		switch o := o.(type) {
		case *v1alpha1.SpokeCluster:
			switch o.Name {
			case "eu-1":
				o.Status.Workloads = []v1alpha1.WorkloadCount{
					{Kind: v1alpha1.DeploymentKind, Total: 7, Covered: 2}, {Kind: v1alpha1.StatefulSetKind, Total: 2, Covered: 1},
					{Kind: v1alpha1.DaemonSetKind}, {Kind: v1alpha1.CronJobKind, Total: 3},
				}
				o.Status.Uncovered = []v1alpha1.UncoveredWorkload{
					{Kind: v1alpha1.StatefulSetKind, Namespace: "bank", Name: "db", Reason: v1alpha1.UncoveredNoTemplate},
					{Kind: v1alpha1.DeploymentKind, Namespace: "batch", Name: "report", Reason: v1alpha1.UncoveredDisabled},
					{Kind: v1alpha1.DeploymentKind, Namespace: "kube-system", Name: "coredns", Reason: v1alpha1.UncoveredNoTemplate},
					{Kind: v1alpha1.DeploymentKind, Namespace: "shop", Name: "cart", Reason: v1alpha1.UncoveredRefused},
					{Kind: v1alpha1.DeploymentKind, Namespace: "shop", Name: "pay", Reason: v1alpha1.UncoveredFailed},
					{Kind: v1alpha1.DeploymentKind, Namespace: "shop", Name: "web", Reason: v1alpha1.UncoveredNotEvaluating},
				}
			case "ap-1":
				o.Status.Workloads = []v1alpha1.WorkloadCount{{Kind: v1alpha1.DeploymentKind, Total: 1}} // it lacks the permission for other kinds
				o.Status.Uncovered = []v1alpha1.UncoveredWorkload{{Kind: v1alpha1.DeploymentKind, Namespace: "shop", Name: "web", Reason: v1alpha1.UncoveredNotEvaluating}}
			}
		case *v1alpha1.AlertRule:
			if o.Name == "web-down" {
				o.Spec.WorkloadRef = &v1alpha1.WorkloadReference{Cluster: "eu-1", Kind: v1alpha1.DeploymentKind, Namespace: "shop", Name: "web"}
				o.Status.Clusters = []v1alpha1.ClusterStatus{{
					Name: "eu-1", Phase: v1alpha1.PhaseApplied, Reason: v1alpha1.ReasonNotSelected, Message: "Prometheus monitoring/k8s has a ruleSelector that requires release=monitoring",
				}}
				other := o.DeepCopy()
				other.Name, other.ResourceVersion, other.Spec.WorkloadRef.Cluster = "web-down-ap-1", "", "ap-1"
				other.Status.Clusters = []v1alpha1.ClusterStatus{{Name: "ap-1", Phase: v1alpha1.PhaseSelected, Reason: v1alpha1.ReasonPredicted}}
				objects = append(objects, other)
			}
		}
	}
	return objects
}

// TestOutput has the output of every command that asks, in every format.
func TestOutput(t *testing.T) {
	tenant := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, ok := list.(*v1alpha1.SpokeClusterList); ok {
			return denied("spokeclusters")
		}
		return c.List(ctx, list, opts...)
	}}
	outsider := interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return denied("alertrules")
	}}
	notInstalled := interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: v1alpha1.Group, Kind: "SpokeCluster"}, SearchedVersions: []string{"v1alpha1"}}
	}}
	guest := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if _, ok := o.(*v1alpha1.AlertRule); !ok {
			return denied("spokeclusters")
		}
		return c.Get(ctx, key, o, opts...)
	}}
	none := func() []client.Object { return nil }
	counted := func() []client.Object { return withCoverage(t) }
	ofSpokes := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, ok := list.(*v1alpha1.AlertRuleList); ok {
			return denied("alertrules")
		}
		return c.List(ctx, list, opts...)
	}}
	withPack := func() []client.Object {
		var p v1alpha1.RulePack
		if err := yaml.UnmarshalStrict([]byte(webPack), &p); err != nil {
			t.Fatal(err)
		}
		return append(hubObjects(t), &p)
	}
	for _, tc := range []struct {
		name    string
		args    string
		objects func() []client.Object // by default those of hub.yaml
		funcs   interceptor.Funcs
		color   bool
	}{
		{name: "spokes", args: "spokes"},
		{name: "spokes-color", args: "spokes", color: true},
		{name: "spokes-wide", args: "spokes -o wide"},
		{name: "spokes-selector", args: "spokes -l env=prod"},
		{name: "spokes-name", args: "spokes -o name"},
		{name: "spokes-json", args: "spokes -o json -l region=eu"},
		{name: "spokes-yaml", args: "spokes -o yaml -l region=eu"},
		{name: "spokes-none", args: "spokes", objects: none},
		{name: "spokes-denied", args: "spokes", funcs: tenant},
		{name: "spokes-not-installed", args: "spokes", funcs: notInstalled},
		{name: "spokes-bad-selector", args: "spokes -l =prod"},
		{name: "bad-format", args: "spokes -o xml"},
		{name: "unknown-command", args: "spoke"},
		{name: "unknown-flag", args: "spokes --frobnicate"},
		{name: "status", args: "status -A"},
		{name: "status-wide", args: "status -A -o wide"},
		{name: "status-denied", args: "status -A", funcs: outsider},
		{name: "status-namespace", args: "status -n fine"},
		{name: "status-json", args: "status -n fine -o json"},
		{name: "status-yaml", args: "status -n fine -o yaml"},
		{name: "status-empty", args: "status -n empty"},
		{name: "status-tenant", args: "status -n rulefleet-system", funcs: tenant},
		{name: "status-name", args: "status -A -o name"},
		{name: "status-rule", args: "status alertrule/high-error-rate -n rulefleet-system"},
		{name: "status-rule-two-words", args: "status ar high-error-rate -n rulefleet-system"},
		{name: "status-rule-yaml", args: "status alertrules.rulefleet.io/good -n fine -o yaml"},
		{name: "status-rule-missing", args: "status alertrule/none -n fine"},
		{name: "status-spoke", args: "status spoke/us-1"},
		{name: "status-spoke-fine", args: "status spokecluster/ap-1"},
		{name: "status-template", args: "status art/deployment-down"},
		{name: "status-rule-wide", args: "status ar/high-error-rate -n rulefleet-system -o wide"},
		{name: "status-rule-json", args: "status ar/good -n fine -o json"},
		{name: "status-rule-name", args: "status ar/good -n fine -o name"},
		{name: "status-spoke-wide", args: "status spoke/us-1 -o wide"},
		{name: "status-spoke-json", args: "status spoke/ap-1 -o json"},
		{name: "status-spoke-yaml", args: "status spoke/ap-1 -o yaml"},
		{name: "status-spoke-name", args: "status spoke/ap-1 -o name"},
		{name: "status-template-wide", args: "status art/deployment-down -o wide"},
		{name: "status-template-json", args: "status art/deployment-down -o json"},
		{name: "status-template-yaml", args: "status art/deployment-down -o yaml"},
		{name: "status-template-name", args: "status art/deployment-down -o name"},
		{name: "status-color", args: "status -A", color: true},
		{name: "firing-color", args: "firing -A", color: true},
		{name: "why-color", args: "why web-down -n rulefleet-generated --cluster eu-1", color: true},
		{name: "status-bad-kind", args: "status deployment/web"},
		{name: "status-bad-ref", args: "status high-error-rate"},
		{name: "firing", args: "firing -A"},
		{name: "firing-wide", args: "firing -A -o wide"},
		{name: "firing-cluster", args: "firing -A --cluster us-1"},
		{name: "firing-name", args: "firing -A -o name"},
		{name: "firing-json", args: "firing -A --cluster us-1 -o json"},
		{name: "firing-yaml", args: "firing -A --cluster us-1 -o yaml"},
		{name: "firing-no-spoke", args: "firing -A --cluster none"},
		{name: "firing-tenant", args: "firing -n fine --cluster none", funcs: tenant},
		{name: "firing-bad-interval", args: "firing --watch --interval 0"},
		{name: "firing-watch-denied", args: "firing -A --watch", funcs: outsider},
		{name: "firing-none", args: "firing -n fine"},
		{name: "coverage", args: "coverage", objects: counted},
		{name: "coverage-wide", args: "coverage -o wide", objects: counted},
		{name: "coverage-color", args: "coverage", objects: counted, color: true},
		{name: "coverage-cluster", args: "coverage --cluster eu-1", objects: counted},
		{name: "coverage-covered", args: "coverage --cluster ap-1", objects: counted},
		{name: "coverage-namespace", args: "coverage -n shop", objects: counted},
		{name: "coverage-json", args: "coverage --cluster ap-1 -o json", objects: counted},
		{name: "coverage-yaml", args: "coverage --cluster ap-1 -o yaml", objects: counted},
		{name: "coverage-name", args: "coverage -o name", objects: counted},
		{name: "coverage-no-spoke", args: "coverage --cluster none", objects: counted},
		{name: "coverage-no-rules", args: "coverage --cluster eu-1 -n shop", objects: counted, funcs: ofSpokes},
		{name: "coverage-denied", args: "coverage", funcs: tenant},
		{name: "coverage-not-counted", args: "coverage --cluster us-2"},
		{name: "why", args: "why alertrule/high-error-rate -n rulefleet-system --cluster eu-1"},
		{name: "why-written", args: "why alertrule/web-down -n rulefleet-generated --cluster eu-1"},
		{name: "why-wide", args: "why alertrule/web-down -n rulefleet-generated --cluster eu-1 -o wide"},
		{name: "why-json", args: "why alertrule/web-down -n rulefleet-generated --cluster eu-1 -o json"},
		{name: "why-yaml", args: "why alertrule/web-down -n rulefleet-generated --cluster eu-1 -o yaml"},
		{name: "why-fine", args: "why ar good -n fine --cluster eu-1"},
		{name: "why-tenant", args: "why ar good -n fine --cluster eu-1", funcs: guest},
		{name: "why-no-spoke", args: "why ar good -n fine --cluster none"},
		{name: "why-no-rule", args: "why ar none -n fine --cluster eu-1"},
		{name: "why-no-cluster", args: "why ar good -n fine"},
		{name: "why-bad-kind", args: "why spoke/eu-1 --cluster eu-1"},
		{name: "join-no-name", args: "join --spoke-context eu-1"},
		{name: "join-bad-name", args: "join EU_1 --spoke-context eu-1"},
		{name: "join-bad-timeout", args: "join eu-1 --spoke-context eu-1 --timeout=-1m"},
		{name: "help", args: "--help"},
		{name: "pack-status", args: "status -A", objects: withPack},
		{name: "pack-status-name", args: "status -n packs -o name", objects: withPack},
		{name: "pack-status-json", args: "status -n packs -o json", objects: withPack},
		{name: "pack-status-pack", args: "status rp/web -n packs", objects: withPack},
		{name: "pack-status-spoke", args: "status spoke/eu-1", objects: withPack},
		{name: "pack-firing", args: "firing -A", objects: withPack},
		{name: "pack-why", args: "why rulepack/web -n packs --cluster eu-1", objects: withPack},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects := hubObjects
			if tc.objects != nil {
				objects = func(*testing.T) []client.Object { return tc.objects() }
			}
			r := invoke(t, hub(t, tc.funcs, objects(t)...), "", func(e *env.Env) { e.Color = tc.color }, strings.Fields(tc.args)...)
			golden(t, tc.name, fmt.Sprintf("$ kubectl rulefleet %s\n%s%s[exit code %d]\n", tc.args, r.out.String(), r.err.String(), r.code))
		})
	}
}

// sample matches a command that a page shows, with its output.
var sample = regexp.MustCompile("(?ms)^```\n\\$ kubectl rulefleet (\\S+)[^\n]*\n(.*?\n)?```$")

// TestDocumentedOutput compares the outputs in docs/how-to/plugin.md with the golden files. Those of join and
// unjoin need a spoke, and are compared by TestJoin.
func TestDocumentedOutput(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "how-to", "plugin.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join("testdata", "*.golden"))
	if err != nil {
		t.Fatal(err)
	}
	var outputs strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		outputs.Write(content)
	}
	samples := sample.FindAllStringSubmatch(string(page), -1)
	if len(samples) < 10 {
		t.Errorf("only %d samples were found", len(samples))
	}
	for _, s := range samples {
		command, output := s[1], strings.ReplaceAll(s[2], "[y/N] y\n", "[y/N] ") // what a person types is no output
		if command != "join" && command != "unjoin" && !strings.Contains(outputs.String(), output) {
			t.Errorf("no golden file has this output of kubectl rulefleet %s:\n%s", command, output)
		}
	}
}

// TestCompletion completes names from the hub.
func TestCompletion(t *testing.T) {
	for _, tc := range []struct {
		args string
		want []string
	}{
		{"status a", []string{"alertrule/", "rulepack/", "spoke/", "alertruletemplate/"}}, // the shell filters
		{"status spoke/us", []string{"spoke/us-1", "spoke/us-2"}},
		{"status ar/h -n rulefleet-system", []string{"ar/high-error-rate"}},
		{"status art/", []string{"art/deployment-down"}},
		{"status spoke/us-1 ", nil},
		{"ack e", []string{"eu-1"}},
		{"reset ", []string{"alertrule/"}},
		{"reset alertrule/w -n rulefleet-generated", []string{"alertrule/web-down"}},
		{"install --output ", []string{"yaml", "json", "name"}},
		{"install r", nil},
		{"up", []string{"upgrade\tUpgrade Rulefleet on the hub, or change its values"}},
		{"firing --cluster ap", []string{"ap-1"}},
		{"coverage --cluster ap", []string{"ap-1"}},
		{"spokes --output ", []string{"table", "wide", "json", "yaml", "name"}},
	} {
		t.Run(tc.args, func(t *testing.T) {
			args := strings.Split(tc.args, " ")
			if i := len(args) - 2; i > 0 && args[i] == "-n" { // what is completed comes last
				args = append([]string{args[0], "-n", args[i+1]}, args[1:i]...)
			}
			r := invoke(t, hub(t, interceptor.Funcs{}, hubObjects(t)...), "", nil, append([]string{"__complete"}, args...)...)
			lines := strings.Split(strings.TrimSpace(r.out.String()), "\n")
			got := lines[:len(lines)-1] // the last is the directive
			if lines[len(lines)-1] == ":0" {
				t.Error("the shell offers the names of files")
			}
			if strings.Join(got, " ") != strings.Join(tc.want, " ") {
				t.Errorf("got %q, want %q\n%s", got, tc.want, r.err.String())
			}
		})
	}
}

// TestAck releases what the person has seen, and nothing else.
func TestAck(t *testing.T) {
	value := func(t *testing.T, c client.Client) string {
		t.Helper()
		var s v1alpha1.SpokeCluster
		if err := c.Get(t.Context(), client.ObjectKey{Name: "us-1"}, &s); err != nil {
			t.Fatal(err)
		}
		return s.Annotations[v1alpha1.AcknowledgeDeletionsAnnotation]
	}
	// manager acts on the annotation as soon as it is set, and may hold other deletions afterwards.
	manager := func(held bool) interceptor.Funcs {
		return interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := c.Patch(ctx, o, p, opts...); err != nil {
				return err
			}
			delete(o.GetAnnotations(), v1alpha1.AcknowledgeDeletionsAnnotation)
			if !held {
				o.(*v1alpha1.SpokeCluster).Status.PendingDeletions = nil
			}
			return c.Update(ctx, o)
		}}
	}
	// others change the SpokeCluster while the person reads.
	others := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		var s v1alpha1.SpokeCluster
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), &s); err != nil {
			return err
		}
		s.Labels = map[string]string{"changed": "true"}
		if err := c.Update(ctx, &s); err != nil {
			return err
		}
		return c.Patch(ctx, o, p, opts...)
	}}
	for _, tc := range []struct {
		name, args, stdin string
		terminal          bool
		funcs             interceptor.Funcs
		code              int
		want              string
	}{
		{name: "ack", args: "ack us-1 --yes", funcs: manager(true)},
		{name: "ack-asked", args: "ack us-1", stdin: "y\n", terminal: true, funcs: manager(false)},
		{name: "ack-refused", args: "ack us-1", stdin: "\n", terminal: true, code: exit.Failed},
		{name: "ack-end-of-input", args: "ack us-1", terminal: true, code: exit.Failed},
		{name: "ack-not-asked", args: "ack us-1", stdin: "y\n", code: exit.Usage},
		{name: "ack-no-wait", args: "ack us-1 --yes --timeout 0", want: "true"},
		{name: "ack-nobody-acts", args: "ack us-1 --yes --timeout 1ms", code: exit.NotReady, want: "true"},
		{name: "ack-changed", args: "ack us-1 --yes", funcs: others, code: exit.Failed},
		{name: "ack-nothing-held", args: "ack eu-1 --yes"},
		{name: "ack-no-such-spoke", args: "ack none --yes", code: exit.Missing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := hub(t, tc.funcs, hubObjects(t)...)
			r := invoke(t, c, tc.stdin, func(e *env.Env) { e.Interactive = tc.terminal }, strings.Fields(tc.args)...)
			if r.code != tc.code {
				t.Errorf("exit code %d, want %d", r.code, tc.code)
			}
			if got := value(t, c); got != tc.want {
				t.Errorf("the annotation is %q, want %q", got, tc.want)
			}
			golden(t, tc.name, fmt.Sprintf("$ kubectl rulefleet %s\n%s%s[exit code %d]\n", tc.args, r.out.String(), r.err.String(), r.code))
		})
	}
}

// TestReset returns the edited fields that the person has seen, and no others.
func TestReset(t *testing.T) {
	key := client.ObjectKey{Namespace: "rulefleet-generated", Name: "web-down"}
	requested := ""
	// manager acts on the annotation as soon as it is set.
	manager := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if err := c.Patch(ctx, o, p, opts...); err != nil {
			return err
		}
		requested = o.GetAnnotations()[v1alpha1.ResetFieldsAnnotation]
		delete(o.GetAnnotations(), v1alpha1.ResetFieldsAnnotation)
		return c.Update(ctx, o)
	}}
	// others edit the AlertRule while the person reads.
	others := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		var r v1alpha1.AlertRule
		if err := c.Get(ctx, key, &r); err != nil {
			return err
		}
		r.Spec.For = "5m"
		if err := c.Update(ctx, &r); err != nil {
			return err
		}
		return c.Patch(ctx, o, p, opts...)
	}}
	const reset = "reset alertrule/web-down -n rulefleet-generated"
	for _, tc := range []struct {
		name, args, stdin string
		funcs             interceptor.Funcs
		code              int
		requested         string // what the manager has acted on
		left              string // what is left on the AlertRule
	}{
		{name: "reset", args: reset + " --yes", funcs: manager, requested: "*"},
		{name: "reset-fields", args: reset + " --yes --fields labels.team,for", funcs: manager, requested: "labels.team,for"},
		{name: "reset-asked", args: reset, stdin: "y\n", funcs: manager, requested: "*"},
		{name: "reset-refused", args: reset, stdin: "n\n", code: exit.Failed},
		{name: "reset-not-asked", args: reset, code: exit.Usage},
		{name: "reset-other-field", args: reset + " --yes --fields for,severity", code: exit.Usage},
		{name: "reset-no-wait", args: reset + " --yes --timeout 0", left: "*"},
		{name: "reset-nobody-acts", args: reset + " --yes --timeout 1ms", code: exit.NotReady, left: "*"},
		{name: "reset-changed", args: reset + " --yes", funcs: others, code: exit.Failed},
		{name: "reset-not-generated", args: "reset alertrule/good -n fine --yes", code: exit.Failed},
		{name: "reset-not-edited", args: "reset alertrule/untouched -n fine --yes"},
		{name: "reset-missing", args: "reset ar none -n fine --yes", code: exit.Missing},
		{name: "reset-bad-kind", args: "reset spoke/eu-1 --yes", code: exit.Usage},
	} {
		t.Run(tc.name, func(t *testing.T) {
			requested = ""
			untouched := &v1alpha1.AlertRule{}
			untouched.Namespace, untouched.Name = "fine", "untouched"
			untouched.Labels = map[string]string{v1alpha1.TemplateLabel: "deployment-down"}
			c := hub(t, tc.funcs, append(hubObjects(t), untouched)...)
			r := invoke(t, c, tc.stdin, func(e *env.Env) { e.Interactive = tc.stdin != "" }, strings.Fields(tc.args)...)
			if r.code != tc.code {
				t.Errorf("exit code %d, want %d", r.code, tc.code)
			}
			var after v1alpha1.AlertRule
			if err := c.Get(t.Context(), key, &after); err != nil {
				t.Fatal(err)
			}
			if left := after.Annotations[v1alpha1.ResetFieldsAnnotation]; left != tc.left || requested != tc.requested {
				t.Errorf("requested %q, and left %q", requested, left)
			}
			golden(t, tc.name, fmt.Sprintf("$ kubectl rulefleet %s\n%s%s[exit code %d]\n", tc.args, r.out.String(), r.err.String(), r.code))
		})
	}
}
