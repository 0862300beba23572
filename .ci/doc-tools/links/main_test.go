package main

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestCheck(t *testing.T) {
	const good = "# One\n\n## Of `two` words!\n\n## Twice\n\n## Twice\n\n<a id=\"own\"></a>\n"

	long := strings.Repeat("line\n", 401)

	for _, tc := range []struct {
		name  string
		files map[string]string
		want  []string // beginnings of problems
	}{
		{"links that resolve", map[string]string{
			"README.md":           "[a](docs/page.md) [b](docs/page.md#of-two-words) [c](docs) ![d\ne](docs/p.svg) [x](https://example.com/none) [y](mailto:a@example.com)",
			"docs/page.md":        good + "[up](../README.md) [here](#twice-1) [own](#own) [def][d]\n\n[d]: other/page.md#one\n",
			"docs/other/page.md":  "# One\n[up](../page.md#twice \"title\")",
			"docs/p.svg":          "",
			"values.yaml":         "# see docs/page.md#one, and docs/other/page.md.",
			"testdata/values.txt": "docs/gone.md",
		}, nil},
		{"links that do not", map[string]string{
			"README.md":    "[a](docs/gone.md) [b](docs/page.md#gone) ![c](gone.svg) [d](#gone) [e](../README.md)\n\n[f]: gone.md\n",
			"docs/page.md": good,
		}, []string{
			"README.md: docs/gone.md: there is no file",
			"README.md: docs/page.md#gone: docs/page.md has no heading",
			"README.md: gone.svg: there is no file",
			"README.md: #gone: README.md has no heading",
			"README.md: ../README.md: there is no file",
			"README.md: gone.md: there is no file",
		}},
		{"code and comments", map[string]string{
			"README.md":    "[a](docs/page.md)\n\n```sh\n# Heading\n[a](gone.md)\n```\n\n  ```\n  [a](gone.md)\n  ```\n\n`[a](gone.md)` <!-- [a](gone.md) --> [b](#heading)\n",
			"docs/page.md": good,
		}, []string{"README.md: #heading: README.md has no heading"}},
		{"other files", map[string]string{
			"README.md":    "[a](docs/page.md)",
			"docs/page.md": good,
			"main.go":      "// docs/gone.md, docs/page.md#gone",
			"other.yaml":   "see https://github.com/thanos-io/thanos/blob/main/docs/gone.md#x",
			"own.yaml":     "see https://github.com/rulefleet/rulefleet/blob/main/docs/gone.md",
			"alerts.yaml":  "runbook_url: docs/page.md#twice",
		}, []string{"main.go: docs/gone.md: there is no file", "main.go: docs/page.md#gone: docs/page.md has no heading", "own.yaml: docs/gone.md: there is no file"}},
		{"tests", map[string]string{
			"README.md": "[a](README.md) `TestThere` `TestThere/row` `TestGone` `TestGone2/row` `Testing`\n\n```\n`TestFenced`\n```\n",
			"a_test.go": "package a\n\nfunc TestThere(t *testing.T) {}\n// func TestGone2(\n",
			"b.go":      "func TestGone(t *testing.T) {}\n",
		}, []string{"README.md: there is no test TestGone", "README.md: there is no test TestGone2"}},
		{"long pages", map[string]string{
			"README.md":         "[a](docs/page.md)\n" + strings.Repeat("line\n", 150),
			"CONTRIBUTING.md":   long,
			"docs/page.md":      long,
			"docs/generated.md": generated + " from code. -->\n" + long,
		}, []string{
			"README.md: the page has 151 lines",
			"docs/page.md: the page has 401 lines",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tree := fstest.MapFS{}
			names := make([]string, 0, len(tc.files))

			for name, text := range tc.files {
				tree[name] = &fstest.MapFile{Data: []byte(text)}
				names = append(names, name)
			}

			got, err := check(tree, names)
			if err != nil {
				t.Fatal(err)
			}

			for _, want := range tc.want {
				if !slices.ContainsFunc(got, func(problem string) bool { return strings.HasPrefix(problem, want) }) {
					t.Errorf("there is no %q in %q", want, got)
				}
			}

			if len(got) != len(tc.want) {
				t.Errorf("there are %d problems, want %d: %q", len(got), len(tc.want), got)
			}
		})
	}
}

// A tree without links is not the one that was meant.
func TestCheckNothing(t *testing.T) {
	if _, err := check(fstest.MapFS{"README.md": {Data: []byte("text")}}, []string{"README.md"}); err == nil {
		t.Error("no error")
	}
}

func TestRun(t *testing.T) {
	if found, err := run(t.TempDir()); err == nil {
		t.Errorf("no error outside of a repository, but %q", found)
	}
}
