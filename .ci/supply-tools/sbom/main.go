// Command sbom lists the modules that are linked into a Go program, with their licences.
//
//	sbom check ALLOWED PROGRAM    checks that every licence is in the file ALLOWED, one SPDX id on a line
//	sbom write VERSION PROGRAM    writes a CycloneDX document to stdout
//
// It needs no network: the texts of the licences are in the module cache, where the build of the program took the
// modules from.
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"golang.org/x/mod/module"
)

func main() {
	if len(os.Args) != 4 || (os.Args[1] != "check" && os.Args[1] != "write") {
		fmt.Fprintln(os.Stderr, "usage: sbom check ALLOWED PROGRAM | sbom write VERSION PROGRAM")
		os.Exit(64)
	}

	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(command, argument, program string, out io.Writer) error {
	parts, err := linked(program)
	if err != nil {
		return err
	}

	if command == "write" {
		return write(out, filepath.Base(program), argument, parts)
	}

	text, err := os.ReadFile(argument)
	if err != nil {
		return fmt.Errorf("reading the allowed licences: %w", err)
	}

	return check(out, ids(string(text)), parts)
}

// ids returns the lines of a list, without comments.
func ids(text string) []string {
	var out []string

	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if id := strings.TrimSpace(line); id != "" {
			out = append(out, id)
		}
	}

	return out
}

// part is a module that is linked into a program, or Go's standard library.
type part struct {
	path, version, sum string
	licences           []string
}

func linked(program string) ([]part, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("reading the modules of %s: %w", program, err)
	}

	answer, err := exec.Command("go", "env", "GOMODCACHE", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("finding the module cache: %w", err)
	}

	cache, goroot, _ := strings.Cut(strings.TrimSpace(string(answer)), "\n")

	licences, err := licencesIn(goroot)
	if err != nil {
		return nil, fmt.Errorf("the standard library: %w", err)
	}

	out := []part{{path: "std", version: strings.TrimPrefix(info.GoVersion, "go"), licences: licences}}

	for _, m := range info.Deps {
		p, err := partOf(cache, m)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", m.Path, m.Version, err)
		}

		out = append(out, p)
	}

	return out, nil
}

func partOf(cache string, m *debug.Module) (part, error) {
	if m.Replace != nil {
		m = m.Replace
	}

	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return part{}, err
	}

	version, err := module.EscapeVersion(m.Version)
	if err != nil {
		return part{}, err
	}

	licences, err := licencesIn(filepath.Join(cache, escaped+"@"+version))

	return part{path: m.Path, version: m.Version, sum: m.Sum, licences: licences}, err
}

// licencesIn returns the licences of the files in a folder that have the name of one.
func licencesIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("looking for a licence: %w", err)
	}

	var out []string

	for _, e := range entries {
		if e.IsDir() || !named(e.Name()) {
			continue
		}

		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading a licence: %w", err)
		}

		found := recognize(string(text))
		if len(found) == 0 {
			return nil, fmt.Errorf("the licence in %s is not known to this tool", filepath.Join(dir, e.Name()))
		}

		out = append(out, found...)
	}

	if len(out) == 0 {
		return nil, fmt.Errorf("no licence found in %s", dir)
	}

	slices.Sort(out)

	return slices.Compact(out), nil
}

func check(out io.Writer, allowed []string, parts []part) error {
	counts := map[string]int{}

	var errs []error

	for _, p := range parts {
		counts[strings.Join(p.licences, " AND ")]++

		for _, id := range p.licences {
			if !slices.Contains(allowed, id) {
				errs = append(errs, fmt.Errorf("%s %s has the licence %s, which is not allowed", p.path, p.version, id))
			}
		}
	}

	if len(errs) > 0 {
		return errors.Join(errs...)
	}

	fmt.Fprintf(out, "licences of %d modules:", len(parts))

	for i, id := range slices.SortedFunc(keys(counts), func(a, b string) int { return counts[b] - counts[a] }) {
		fmt.Fprintf(out, "%s %d %s", map[bool]string{true: "", false: ","}[i == 0], counts[id], id)
	}

	fmt.Fprintln(out)

	return nil
}

func write(out io.Writer, name, version string, parts []part) error {
	root := cyclonedx.Component{
		BOMRef: "program", Type: cyclonedx.ComponentTypeApplication, Name: name, Version: version,
		Licenses: choices([]string{"Apache-2.0"}),
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &root}

	var (
		components []cyclonedx.Component
		refs       []string
	)

	for _, p := range parts {
		c, err := p.component()
		if err != nil {
			return err
		}

		components, refs = append(components, c), append(refs, c.BOMRef)
	}

	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: root.BOMRef, Dependencies: &refs}}

	if err := cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cyclonedx.SpecVersion1_6); err != nil {
		return fmt.Errorf("writing the document: %w", err)
	}

	return nil
}

func (p part) component() (cyclonedx.Component, error) {
	segments := strings.Split(p.path, "/")
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}

	purl := "pkg:golang/" + path.Join(segments...) + "@" + url.QueryEscape(p.version)
	out := cyclonedx.Component{
		BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: p.path, Version: p.version, PackageURL: purl,
		Scope: cyclonedx.ScopeRequired, Licenses: choices(p.licences),
	}

	if p.sum != "" {
		sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(p.sum, "h1:"))
		if err != nil {
			return out, fmt.Errorf("the sum of %s: %w", p.path, err)
		}

		out.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	}

	return out, nil
}

func choices(ids []string) *cyclonedx.Licenses {
	var out cyclonedx.Licenses
	for _, id := range ids {
		out = append(out, cyclonedx.LicenseChoice{License: &cyclonedx.License{ID: id}})
	}

	return &out
}
