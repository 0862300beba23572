package advice

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/pkg/reasons"
)

// TestRemedy has a remedy for every reason of a spoke and of a rule, whose links are files in the repository.
func TestRemedy(t *testing.T) {
	file := regexp.MustCompile(`\(` + regexp.QuoteMeta(Docs) + `([^)#]*)`)
	commands := regexp.MustCompile(`kubectl (rulefleet join|\w+ spoke)\b[^.]*`)
	files, named := 0, 0
	for _, table := range reasons.Tables() {
		if table.Heading != OfRule && table.Heading != OfSpoke {
			continue
		}
		for _, r := range table.Reasons {
			remedy := Remedy(table.Heading, r.Name, "eu-1")
			if remedy == "" || strings.Contains(remedy, "](") || strings.Contains(remedy, "`") || strings.Contains(remedy, "))") {
				t.Errorf("%s: %q", r.Name, remedy)
			}
			for _, command := range commands.FindAllString(remedy, -1) {
				named++
				if !strings.Contains(command, " eu-1 ") {
					t.Errorf("%s: %q does not name the spoke", r.Name, command)
				}
			}
			if strings.ContainsAny(strings.NewReplacer("{}", "", `{"`, "").Replace(remedy), "{") || strings.Contains(remedy, "NAME") {
				t.Errorf("%s: %q has a placeholder", r.Name, remedy)
			}
			for _, m := range file.FindAllStringSubmatch(remedy, -1) {
				files++
				if _, err := os.Stat(filepath.Join("..", "..", "..", m[1])); err != nil {
					t.Errorf("%s: %q: %v", r.Name, remedy, err)
				}
			}
		}
	}
	if files == 0 || named < 8 {
		t.Errorf("the remedies have %d links, and %d commands about a spoke", files, named)
	}
}
