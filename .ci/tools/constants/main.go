// Command constants prints the exported constants of Go files as Markdown: a section
// for each file, and in it a table for each group. It is what crd-ref-docs leaves out
// of docs/reference/api.md: conditions, reasons, labels and annotations.
//
//	constants FOLDER FILE=TITLE...
//
// The comment of a constant has to begin with "NAME is" or "NAME means that", which is left out of the
// table.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: constants FOLDER FILE=TITLE...")
		os.Exit(64)
	}

	if err := run(os.Stdout, os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "constants:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, dir string, sections []string) error {
	set := token.NewFileSet()

	files, err := parse(set, dir)
	if err != nil {
		return err
	}

	p := &printer{values: values(set, files)}

	for _, section := range sections {
		name, title, _ := strings.Cut(section, "=")

		file := files[name]
		if file == nil {
			return fmt.Errorf("there is no file %s in %s", name, dir)
		}

		fmt.Fprintf(&p.out, "\n## %s\n", title)
		p.file(file)
	}

	if len(p.unclear) > 0 {
		return fmt.Errorf("begin the comment of a constant with \"NAME is\" or \"NAME means that\": %s", strings.Join(p.unclear, ", "))
	}

	_, err = out.Write(p.out.Bytes())

	return err
}

func parse(set *token.FileSet, dir string) (map[string]*ast.File, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}

	files := map[string]*ast.File{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") { // its package may be another one
			continue
		}

		if files[filepath.Base(path)], err = parser.ParseFile(set, path, nil, parser.ParseComments); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
	}

	return files, nil
}

// values returns the package's constants that are strings. They need no import, so
// that other errors of the type checker do not matter.
func values(set *token.FileSet, files map[string]*ast.File) map[string]string {
	config := types.Config{Error: func(error) {}}
	all := make([]*ast.File, 0, len(files))

	for _, file := range files {
		all = append(all, file)
	}

	pkg, _ := config.Check("api", set, all, nil)
	out := map[string]string{}

	for _, name := range pkg.Scope().Names() {
		if c, ok := pkg.Scope().Lookup(name).(*types.Const); ok && c.Val().Kind() == constant.String {
			out[name] = constant.StringVal(c.Val())
		}
	}

	return out
}

type printer struct {
	out    bytes.Buffer
	values map[string]string
	// unclear are the constants whose comments are no sentence without their names.
	unclear []string
}

// file prints the constants that stand alone first, and each group after them.
func (p *printer) file(file *ast.File) {
	var groups []*ast.GenDecl

	started := false

	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		switch {
		case !ok || gen.Tok != token.CONST:
		case gen.Lparen.IsValid():
			groups = append(groups, gen)
		default:
			if !started {
				p.header()
			}

			started = true
			p.row(gen.Specs[0].(*ast.ValueSpec), gen.Doc.Text())
		}
	}

	for _, group := range groups {
		p.group(group)
	}
}

// group prints a group. The first sentence of its comment is the heading.
func (p *printer) group(gen *ast.GenDecl) {
	title, rest := gen.Doc.Text(), ""
	if end := regexp.MustCompile(`\.\s`).FindStringIndex(title); end != nil {
		title, rest = title[:end[0]], title[end[1]:]
	}

	fmt.Fprintf(&p.out, "\n### %s\n", oneLine(p.prose(title)))

	if rest = oneLine(rest); rest != "" {
		fmt.Fprintf(&p.out, "\n%s\n", p.prose(rest))
	}

	p.header()

	for _, spec := range gen.Specs {
		spec := spec.(*ast.ValueSpec)
		p.row(spec, spec.Doc.Text())
	}
}

func (p *printer) header() { p.out.WriteString("\n| Value | Description |\n| --- | --- |\n") }

func (p *printer) row(spec *ast.ValueSpec, doc string) {
	name := spec.Names[0].Name
	text, isSentence := strings.CutPrefix(oneLine(doc), name+" is ")

	if !isSentence {
		text, isSentence = strings.CutPrefix(oneLine(doc), name+" means that ")
	}

	if !isSentence {
		p.unclear = append(p.unclear, name)
	}

	text = strings.ReplaceAll(p.prose(text), "|", `\|`)
	fmt.Fprintf(&p.out, "| `%s` | %s |\n", p.values[name], upperFirst(text))
}

var identifier = regexp.MustCompile(`\b[A-Z][a-z]+[A-Z]\w*\b`)

// prose writes the names of constants as their values.
func (p *printer) prose(text string) string {
	return identifier.ReplaceAllStringFunc(text, func(name string) string {
		if value, ok := p.values[name]; ok {
			return "`" + value + "`"
		}

		return name
	})
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// upperFirst begins a sentence, unless it begins with a name that holds dots.
func upperFirst(text string) string {
	first, _, _ := strings.Cut(text, " ")
	if text == "" || strings.Contains(strings.TrimRight(first, "."), ".") {
		return text
	}

	runes := []rune(text)
	runes[0] = unicode.ToUpper(runes[0])

	return string(runes)
}
