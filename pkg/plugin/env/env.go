// Package env is what all commands of the plugin share: the hub, the terminal, and names to complete.
package env

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
	"github.com/rulefleet/rulefleet/pkg/plugin/output"
)

// Env is the environment of a command.
type Env struct {
	genericiooptions.IOStreams

	Hub     *cluster.Hub
	Version string
	// Release is the version of the embedded chart, and of the manager's image, if the plugin was built for a
	// release. Otherwise it is empty, and Chart.yaml has the version.
	Release string
	// Color and ErrColor are true if the output, or the standard error, is a terminal that shows colors.
	Color, ErrColor bool
	// Screen is true if the output is a terminal that can be cleared.
	Screen bool
	// Interactive is true if a person can answer a question.
	Interactive bool
	// Columns returns the width of the terminal that shows the standard error. It is nil if that is not a terminal.
	Columns func() int
	// Now is the clock by which ages are computed.
	Now func() time.Time
}

// Printer returns a printer to the output, with the flag --output of a command.
func (e *Env) Printer(cmd *cobra.Command, formats ...string) *output.Printer {
	p := &output.Printer{Out: e.Out, Color: e.Color}
	p.AddFlag(cmd, formats...)
	return p
}

// Say tells the person about progress. It is not part of the output.
func (e *Env) Say(format string, args ...any) {
	_, _ = fmt.Fprintln(e.ErrOut, output.Clean(fmt.Sprintf(format, args...))) // a lost note changes nothing
}

// Confirm asks a question, unless it is answered by yes, the flag --yes.
func (e *Env) Confirm(yes bool, question string) error {
	switch {
	case yes:
		return nil
	case !e.Interactive:
		return exit.New(exit.Usage, "Run the command again with --yes.", "the command needs a confirmation, and the input is not a terminal")
	}
	answer, err := e.ask(question + " [y/N] ")
	if err == nil && !slices.Contains([]string{"y", "yes"}, strings.ToLower(answer)) {
		return exit.New(exit.Failed, "", "not confirmed; nothing was changed")
	}
	return err
}

// Choose asks a person for one of several names.
func (e *Env) Choose(question string, names []string) (string, error) {
	for i, name := range names {
		e.Say("  %d) %s", i+1, name)
	}
	answer, err := e.ask(fmt.Sprintf("%s [1-%d] ", question, len(names)))
	if err != nil {
		return "", err
	}
	if n, err := strconv.Atoi(answer); err == nil && n >= 1 && n <= len(names) {
		return names[n-1], nil
	}
	return "", exit.New(exit.Failed, "", "%q is none of the numbers; nothing was changed", answer)
}

// ask returns what a person answers to a question.
func (e *Env) ask(question string) (string, error) {
	_, _ = fmt.Fprint(e.ErrOut, output.Clean(question))
	answer, err := bufio.NewReader(e.In).ReadString('\n')
	if err != nil && err != io.EOF {
		return "", fmt.Errorf("reading the answer: %w", err)
	}
	return strings.TrimSpace(answer), nil
}

// completing bounds the requests for a completion, so that a hub that is away does not block the shell.
const completing = 3 * time.Second

// complete offers the names of a list of the hub that begin with prefix.
func (e *Env) complete(ctx context.Context, list client.ObjectList, word, prefix string, opts ...client.ListOption) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(ctx, completing)
	defer cancel()
	c, err := e.Hub.Connect()
	if err == nil {
		err = c.List(ctx, list, opts...)
	}
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	_ = meta.EachListItem(list, func(o runtime.Object) error { // the function returns no error
		if name := word + o.(client.Object).GetName(); strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
		return nil
	})
	slices.Sort(out)
	return out, cobra.ShellCompDirectiveNoFileComp
}

// CompleteSpokes completes the name of a spoke, as a flag or as the only argument.
func (e *Env) CompleteSpokes(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return e.complete(cmd.Context(), &v1alpha1.SpokeClusterList{}, "", prefix)
}

// CompleteSpokeArg completes the only argument of a command.
func (e *Env) CompleteSpokeArg(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return e.CompleteSpokes(cmd, args, prefix)
}

// CompleteContexts completes the name of a context of the kubeconfig.
func (e *Env) CompleteContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	raw, err := e.Hub.Flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(raw.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

// CompleteRef returns the completion of KIND/NAME, for some kinds.
func (e *Env) CompleteRef(kinds ...Kind) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if !strings.Contains(prefix, "/") {
			if len(kinds) == 1 && prefix != "" && !strings.HasPrefix(string(kinds[0]), prefix) {
				return e.completeKind(cmd.Context(), kinds[0], "", prefix)
			}
			out := make([]string, 0, len(kinds))
			for _, k := range kinds {
				out = append(out, string(k)+"/")
			}
			return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		word, _, _ := strings.Cut(prefix, "/")
		kind, ok := kindOf(word)
		if !ok || !slices.Contains(kinds, kind) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return e.completeKind(cmd.Context(), kind, word+"/", prefix)
	}
}

func (e *Env) completeKind(ctx context.Context, kind Kind, word, prefix string) ([]string, cobra.ShellCompDirective) {
	switch kind {
	case KindSpoke:
		return e.complete(ctx, &v1alpha1.SpokeClusterList{}, word, prefix)
	case KindTemplate:
		return e.complete(ctx, &v1alpha1.AlertRuleTemplateList{}, word, prefix)
	}
	scope, err := e.Hub.Scope(false)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if kind == KindPack {
		return e.complete(ctx, &v1alpha1.RulePackList{}, word, prefix, scope...)
	}
	return e.complete(ctx, &v1alpha1.AlertRuleList{}, word, prefix, scope...)
}
