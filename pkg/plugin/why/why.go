package why

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
	"github.com/rulefleet/rulefleet/pkg/plugin/env"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
	"github.com/rulefleet/rulefleet/pkg/plugin/output"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// New returns the command why.
func New(e *env.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why [alertrule/|rulepack/]NAME --cluster SPOKE",
		Short: "Explain the state of a rule in a spoke, and what fixes it",
		Long: `Explain the state of a rule in a spoke, step by step, beginning with the Secret that registers the spoke and ending
with the alert. For each step, the command shows whether it is ok, not ok or unknown, and the evidence. It also shows
what fixes the first step that is not ok or, with -o wide, each step.

The command reads only the hub. If you have no permission to read the Secret or the SpokeCluster, its step is unknown,
unless another object that you can read shows the state.

The exit code is 5 if a step is not ok. In the output, CONTEXT stands for the context of the spoke in your
kubeconfig.`,
		Example:           "  kubectl rulefleet why high-error-rate -n rulefleet-system --cluster eu-prod-1",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: e.CompleteRef(env.KindRule, env.KindPack),
	}
	var spoke, system, generated string
	cmd.Flags().StringVar(&spoke, "cluster", "", "the name of the `spoke` (required)")
	cmd.Flags().StringVar(&system, "system-namespace", cluster.DefaultNamespace, "Rulefleet's own `namespace` on the hub, which has the Secrets of the spokes")
	cmd.Flags().StringVar(&generated, "generated-namespace", cluster.DefaultGeneratedNamespace, "the `namespace` of generated AlertRules on the hub")
	_ = cmd.RegisterFlagCompletionFunc("cluster", e.CompleteSpokes)
	p := e.Printer(cmd, output.FormatTable, output.FormatWide, output.FormatJSON, output.FormatYAML)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := p.Check(); err != nil {
			return err
		}
		kinds := []env.Kind{env.KindRule}
		if len(args) > 1 || strings.Contains(args[0], "/") {
			kinds = append(kinds, env.KindPack)
		}
		ref, err := env.ParseRef(args, kinds...)
		if err != nil {
			return err
		}
		if spoke == "" {
			return exit.New(exit.Usage, "List them: kubectl rulefleet spokes", "--cluster is missing; name the spoke")
		}
		namespace, err := e.Hub.Namespace()
		if err != nil {
			return err
		}
		c, err := e.Hub.Connect()
		if err != nil {
			return err
		}
		in := input{Namespace: system, Generated: generated, Cluster: spoke}
		if in.Rule = (&v1alpha1.AlertRule{}); ref.Kind == env.KindPack {
			in.Rule = &v1alpha1.RulePack{}
		}
		if err := in.read(cmd.Context(), c, client.ObjectKey{Namespace: namespace, Name: ref.Name}); err != nil {
			return err
		}
		return explain(p, in)
	}
	return cmd
}

// explain writes the links of the chain. The error names the first link that is not ok.
func explain(p *output.Printer, in input) error {
	links := chainOf(in)
	if err := write(p, links); err != nil {
		return err
	}
	if broken := Broken(links); broken != nil {
		return exit.New(exit.NotReady, "Cause: "+output.Clean(broken.Evidence)+"\nNext step: "+output.Clean(broken.Fix), "%s does not work in spoke %s: the step %q is not ok", rule.KeyOf(in.Rule), in.Cluster, broken.Name)
	}
	return nil
}

// read reads the objects of the chain, as far as the person may.
func (in *input) read(ctx context.Context, c client.Client, key client.ObjectKey) error {
	if err := c.Get(ctx, key, in.Rule); err != nil {
		return fmt.Errorf("reading %s %s: %w", in.Rule.SourceKind(), key, err)
	}
	s := &v1alpha1.SpokeCluster{}
	err := c.Get(ctx, client.ObjectKey{Name: in.Cluster}, s)
	switch {
	case err == nil:
		in.Spoke = s
	case apierrors.IsForbidden(err):
		in.SpokeUnreadable = true
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading SpokeCluster %s: %w", in.Cluster, err)
	}
	if err := in.readTenant(ctx, c); err != nil {
		return err
	}
	secret := &corev1.Secret{}
	err = c.Get(ctx, client.ObjectKey{Namespace: in.Namespace, Name: in.Cluster}, secret)
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("reading Secret %s/%s: %w", in.Namespace, in.Cluster, err)
	}
	_, has := secret.Data[v1alpha1.KubeconfigKey]
	in.Registration = registration{Readable: true, Exists: err == nil, Labeled: secret.Labels[v1alpha1.RegistrationLabel] == "true", HasKubeconfig: has}
	return nil
}

// readTenant reads the namespace of the rule, as far as spec.tenants of the spoke needs it.
func (in *input) readTenant(ctx context.Context, c client.Client) error {
	name := in.Rule.GetNamespace()
	if in.Spoke == nil || name == in.Namespace || name == in.Generated {
		return nil
	}
	in.Tenant = &rule.Tenant{Name: name}
	if asked := (rule.Cluster{Tenants: in.Spoke.Spec.Tenants}); !asked.ByTenantLabels(name) {
		return nil
	}
	var ns corev1.Namespace
	err := c.Get(ctx, client.ObjectKey{Name: name}, &ns)
	if apierrors.IsForbidden(err) {
		in.TenantUnreadable = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading namespace %s on the hub: %w", name, err)
	}
	in.Tenant.Labels = ns.Labels
	return nil
}

var tones = map[State]output.Tone{OK: output.Good, NotOK: output.Bad, Unknown: output.Warn}

func write(p *output.Printer, links []Link) error {
	if !p.Tabular() {
		content, err := json.MarshalIndent(map[string]any{"links": links}, "", "    ")
		if err == nil && p.Format == output.FormatYAML {
			content, err = yaml.JSONToYAML(content)
		} else {
			content = append(content, '\n')
		}
		if err != nil {
			return fmt.Errorf("writing the output: %w", err)
		}
		if _, err := p.Out.Write(content); err != nil {
			return fmt.Errorf("writing the output: %w", err)
		}
		return nil
	}
	t := &output.Table{Columns: []string{"STEP", "STATE", "EVIDENCE"}}
	if p.Wide() {
		t.Columns = append(t.Columns, "FIX")
	}
	for _, l := range links {
		row := []output.Cell{output.Text(l.Name), {Text: string(l.State), Tone: tones[l.State]}, output.Text(l.Evidence)}
		if p.Wide() {
			row = append(row, output.Text(l.Fix))
		}
		t.Add(row...)
	}
	return p.Table(t)
}
