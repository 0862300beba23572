package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const phrases = `
# a comment
as yet = "so far"
(put|puts) right = "correct"
`

// Each kind of file has its prose checked, and its code left alone.
func TestRun(t *testing.T) {
	const goFile = "package p\n\n// Not yet: as yet in a comment.\nvar a = b\n\n"
	for name, c := range map[string]struct {
		file, content string
		want          []string
	}{
		"clean":                 {"a.md", "All is well.\n", nil},
		"Markdown":              {"a.md", "# Title\n\nIt has none as yet.\n", []string{`:3: "as yet": write "so far"`}},
		"any case":              {"a.md", "As yet, it puts\nright what it can.\n", []string{`:1: "As yet"`, `:1: "puts right"`}},
		"whole words":           {"a.md", "It has yeti. He was yet to come.\n", nil},
		"a quotation":           {"a.md", "> none as\n> yet\n", []string{`:1: "as yet"`}},
		"a fence":               {"a.md", "x\n```sh\n# as yet\n```\nas yet\n", []string{`:5: "as yet"`}},
		"inline code":           {"a.md", "It says `as yet`, and `x` as yet.\n", []string{`:1: "as yet"`}},
		"a comment in YAML":     {"a.yaml", "a: 1\n  # there is none as\n  # yet\n", []string{`:2: "as yet"`}},
		"a description":         {"crd.yaml", "description: |-\n  drift is put\n  right\n", []string{`:2: "put right"`}},
		"any other file":        {"NOTES.txt", "as yet\n", []string{`:1: "as yet"`}},
		"a message":             {"a.go", goFile + `var m = "none as yet"` + "\n", []string{`:6: "as yet"`}},
		"a message in parts":    {"a.go", goFile + "var m = \"none as \" +\n\t\"yet\" + a\n", []string{`:6: "as yet"`}},
		"an argument":           {"a.go", goFile + "var m = f(a+b, g(`x`)+\"as yet\")\n", []string{`:6: "as yet"`}},
		"parts that are apart":  {"a.go", goFile + "var m = \"as \" + a + \"yet \"\n", nil},
		"a message with a code": {"a.go", goFile + "var m = \"write `as yet` there\"\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			list, file := filepath.Join(dir, "phrases.txt"), filepath.Join(dir, c.file)
			write(t, list, phrases)
			write(t, file, c.content)
			var out bytes.Buffer
			found, err := run(&out, list, []string{file})
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			if found > 0 {
				lines = strings.Split(strings.TrimSpace(out.String()), "\n")
			}
			if len(lines) != len(c.want) || found != len(c.want) {
				t.Fatalf("got %d: %s; want %q", found, out.String(), c.want)
			}
			for i, want := range c.want {
				if !strings.HasPrefix(lines[i], file+want) {
					t.Errorf("got %s, want %s", lines[i], want)
				}
			}
		})
	}
}

// The list that the project uses can be parsed, and refuses each of these.
func TestPhrases(t *testing.T) {
	data, err := os.ReadFile("../../prose.txt")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := parseRules(string(data))
	if err != nil {
		t.Fatal(err)
	}
	bad := []string{
		"there is none as yet", "this hardly matters", "none but the leader", "whoever writes it", "how far a rule got", "is it in force?",
		"of its own accord", "drift is put right", "the row tells of it", "it tells how", "the leader is told", "so said the spoke",
		"a name is no label's", "what stands of a row", "the work goes on",
	}
	for _, s := range bad {
		if got := check(rules, []text{{line: 1, text: s}}); len(got) != 1 {
			t.Errorf("%q: %d phrases are refused, want 1", s, len(got))
		}
	}
	if len(bad) != len(rules) {
		t.Errorf("%d phrases are tested of %d", len(bad), len(rules))
	}
	good := "The manager corrects drift. It is no longer active. Each row shows the phase that the rule reached. Tell us of errors: it is right."
	if got := check(rules, []text{{line: 1, text: good}}); len(got) != 0 {
		t.Errorf("%+v is refused in a good text", got)
	}
}

func TestBadList(t *testing.T) {
	for _, list := range []string{"", "# nothing\n", "no advice\n", "( = x\n"} {
		if rules, err := parseRules(list); err == nil {
			t.Errorf("%q has %d rules", list, len(rules))
		}
	}
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
