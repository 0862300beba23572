package rule

import (
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

func TestPointer(t *testing.T) {
	expr := "first\n" + ruletest.Long("a", 100) + " ü" + ruletest.Long("b", 100) + "\nlast"
	pos := strings.Index(expr, "ü") + len("ü")
	got := pointer(expr, pos)
	want := "\n…" + ruletest.Long("a", 57) + " ü" + ruletest.Long("b", 60) + "…\n" + ruletest.Long(" ", 60) + "^"
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	for _, pos := range []int{0, len("up"), 99} {
		pointer("up", pos) // does not panic
	}
	bad := InvalidExpr(ruletest.Long("🚀", 9999), &Fault{Pos: 4 * 9999 / 2, Message: ruletest.Long("m", 9999)})
	if len(bad.Message) > MaxMessage {
		t.Errorf("a message of %d bytes", len(bad.Message))
	}
}
