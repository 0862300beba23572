package gotemplate

import (
	"strings"
	"testing"
	"text/template/parse"

	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

// InAction has to agree with text/template: a word at the end of a text is text, or it
// is not.
func TestInActionAgreesWithGoTemplates(t *testing.T) {
	t.Parallel()
	rnd := ruletest.Random()
	tokens := []string{
		"{{", "}}", "{{", "}}", "{{-", "-}}", "{{- ", " -}}", "{", "}", " ", "\n", `"`, `"`, "`", "`", "'", `\`, `"x"`, "`x`", "'x'", "{{/*", "*/}}", "{{- /*", "*/ -}}", "/*", "*/", ".", "1", "x",
	}
	agreed := map[bool]int{}
	for range 3000 {
		var text strings.Builder
		for range 1 + rnd.IntN(7) {
			text.WriteString(tokens[rnd.IntN(len(tokens))])
		}
		tree := parse.New("text")
		tree.Mode = parse.SkipFuncCheck
		for _, end := range []string{"", "}}", "`}}", `"}}`, "'}}", "*/}}"} { // what an open action may need to be whole
			_, err := tree.Parse(text.String()+"MARK"+end, "", "", map[string]*parse.Tree{})
			if err != nil {
				continue
			}
			inText := false
			for _, node := range tree.Root.Nodes {
				if n, ok := node.(*parse.TextNode); ok {
					inText = inText || strings.Contains(string(n.Text), "MARK")
				}
			}
			if InAction(text.String()) == inText {
				t.Fatalf("inAction(%q) = %v, and in %q the word is text: %v", text.String(), !inText, text.String()+"MARK"+end, inText)
			}
			agreed[inText]++
			break
		}
	}
	if agreed[true] < 100 || agreed[false] < 100 {
		t.Errorf("too few texts were templates: %v", agreed)
	}
}
