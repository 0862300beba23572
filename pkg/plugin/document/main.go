// Command document writes docs/cli: a page for each command of the kubectl plugin.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/rulefleet/rulefleet/pkg/plugin"
	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
	"github.com/rulefleet/rulefleet/pkg/plugin/env"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "document:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: document FOLDER")
	}
	if err := os.Setenv("KUBECACHEDIR", "~/.kube/cache"); err != nil { // a default that the pages show
		return fmt.Errorf("preparing the environment: %w", err)
	}
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: os.Stdout, ErrOut: os.Stderr}
	root := plugin.New(&env.Env{IOStreams: streams, Hub: cluster.NewHub("", os.Stderr), Version: "VERSION", Now: time.Now})
	root.InitDefaultVersionFlag() // Execute does it otherwise
	root.DisableAutoGenTag = true // it has the date
	dir := args[0]
	pages, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return fmt.Errorf("looking for pages: %w", err)
	}
	for _, page := range pages { // a command may be gone
		if err := os.Remove(page); err != nil {
			return fmt.Errorf("removing a page: %w", err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating the folder: %w", err)
	}
	return write(root, dir)
}

// write writes the pages of a command and of those below it. cobra has a function for this, but the level of its
// headings is that of a section.
func write(cmd *cobra.Command, dir string) error {
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && !c.IsAdditionalHelpTopicCommand() {
			if err := write(c, dir); err != nil {
				return err
			}
		}
	}
	var b strings.Builder
	if err := doc.GenMarkdownCustom(cmd, &b, func(name string) string { return name }); err != nil {
		return fmt.Errorf("describing %s: %w", cmd.CommandPath(), err)
	}
	name := filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "_")+".md")
	if err := os.WriteFile(name, []byte(page(b.String(), own(cmd))), 0o644); err != nil {
		return fmt.Errorf("writing a page: %w", err)
	}
	return nil
}

// own returns the flags of a command that have the names of flags of all commands, but another meaning.
func own(cmd *cobra.Command) []string {
	var names []string
	cmd.Root().PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if here := cmd.Flags().Lookup(f.Name); here != nil && here != f {
			names = append(names, "`--"+f.Name+"`")
		}
	})
	return names
}

// page raises the headings, marks the page as generated, and refers to the flags that all commands have, except for own.
func page(text string, own []string) string {
	var b strings.Builder
	code := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		if !code && strings.HasPrefix(line, "##") {
			line = line[1:]
		}
		b.WriteString(line)
	}
	heading, rest, _ := strings.Cut(b.String(), "\n")
	rest, links, _ := strings.Cut(rest, "\n## SEE ALSO\n")
	if before, _, found := strings.Cut(rest, inherited); found {
		rest = before + "\nThe [options of kubectl rulefleet](kubectl_rulefleet.md#options) are valid, too.\n"
		if len(own) > 0 {
			rest = strings.TrimSuffix(rest, ".\n") + ", except " + strings.Join(own, " and ") + ", which has the meaning above.\n"
		}
	}
	return heading + "\n\n<!-- Made by `make generate` from pkg/plugin. Do not edit. -->\n" + rest + "\n## See also\n" + strings.TrimRight(links, "\n") + "\n"
}

// inherited is the heading of the flags of the parent commands, which are the same on each page.
const inherited = "\n## Options inherited from parent commands\n"
