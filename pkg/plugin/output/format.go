package output

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
)

// The formats.
const (
	FormatTable = "table"
	FormatWide  = "wide"
	FormatJSON  = "json"
	FormatYAML  = "yaml"
	FormatName  = "name"
)

// Formats are all formats of a command that answers with API objects.
var Formats = []string{FormatTable, FormatWide, FormatJSON, FormatYAML, FormatName}

// Printer prints in the format that the flag --output selects.
type Printer struct {
	Format  string
	Out     io.Writer
	Color   bool
	Formats []string

	output, dryRun *pflag.Flag
}

// AddFlag adds the flag --output. It comes after the flag --dry-run of a command, without which there is no output.
func (p *Printer) AddFlag(cmd *cobra.Command, formats ...string) {
	p.Formats, p.Format = formats, formats[0]
	of := "output"
	if p.dryRun = cmd.Flags().Lookup("dry-run"); p.dryRun != nil {
		of = "objects that --dry-run prints"
	}
	cmd.Flags().StringVarP(&p.Format, "output", "o", formats[0], "the `format` of the "+of+": "+strings.Join(formats, ", "))
	p.output = cmd.Flags().Lookup("output")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// Check refuses a format that the command does not have, and one for objects that are not printed.
func (p *Printer) Check() error {
	if p.output.Changed && p.dryRun != nil && p.dryRun.Value.String() != "true" {
		return exit.New(exit.Usage, "To see the objects, add --dry-run. To carry the command out, omit --output.", "--output is the format of what --dry-run prints, and --dry-run is not set")
	}
	if !slices.Contains(p.Formats, p.Format) {
		return exit.New(exit.Usage, "", "--output %q is not a format; use one of %s", p.Format, strings.Join(p.Formats, ", "))
	}
	return nil
}

// Wide reports whether tables have all columns.
func (p *Printer) Wide() bool { return p.Format == FormatWide }

// Tabular reports whether the output is a table.
func (p *Printer) Tabular() bool { return p.Format == FormatTable || p.Format == FormatWide }

// Table prints a table.
func (p *Printer) Table(t *Table) error { return t.write(p.Out, p.Color) }

// Linef prints a line of text.
func (p *Printer) Linef(format string, args ...any) error {
	if _, err := fmt.Fprintln(p.Out, Clean(fmt.Sprintf(format, args...))); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

// Document prints an object as one of several documents, with a comment that says where it belongs.
func (p *Printer) Document(where string, o runtime.Object) error {
	if p.Format == FormatYAML {
		if _, err := fmt.Fprintf(p.Out, "---\n# %s\n", Clean(where)); err != nil {
			return fmt.Errorf("writing the output: %w", err)
		}
	}
	return p.Objects(o)
}

// Blank prints an empty line.
func (p *Printer) Blank() error { return p.Linef("") }

// Objects prints API objects, as kubectl get does. A list is printed as one, or as KIND/NAME of each object.
func (p *Printer) Objects(o runtime.Object) error {
	var printer printers.ResourcePrinter
	switch p.Format {
	case FormatJSON:
		printer = &printers.OmitManagedFieldsPrinter{Delegate: &printers.JSONPrinter{}}
	case FormatYAML:
		printer = &printers.OmitManagedFieldsPrinter{Delegate: &printers.YAMLPrinter{}}
	default:
		if meta.IsListType(o) {
			return meta.EachListItem(o, p.Objects)
		}
		printer = &printers.NamePrinter{}
	}
	if err := printer.PrintObj(o, p.Out); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}
