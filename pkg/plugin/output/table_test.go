package output

import (
	"bytes"
	"strings"
	"testing"
)

// TestTable has columns aligned by what is visible, in color and without.
func TestTable(t *testing.T) {
	table := func() *Table {
		out := &Table{Columns: []string{"NAME", "READY", "MESSAGE"}}
		out.Add(Text("eu-1"), Cell{"False", Bad}, Text("überall"))
		out.Add(Text("größer-2"), Cell{"True", Good}, Text(""))
		return out
	}
	for _, tc := range []struct {
		name, want string
		color      bool
	}{
		{"plain", "NAME       READY   MESSAGE\neu-1       False   überall\ngrößer-2   True\n", false},
		{"color", "NAME       READY   MESSAGE\neu-1       \x1b[31mFalse\x1b[0m   überall\ngrößer-2   \x1b[32mTrue\x1b[0m\n", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := table().write(&b, tc.color); err != nil {
				t.Fatal(err)
			}
			if got := b.String(); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// TestSpokesCantControlTheTerminal prints a message of a hostile spoke.
func TestSpokesCantControlTheTerminal(t *testing.T) {
	table := &Table{Columns: []string{"MESSAGE"}}
	table.Add(Text("\x1b]0;owned\x07\x1b[2J\u202eevil\nsecond line\u009b31m"))
	var b bytes.Buffer
	if err := table.write(&b, true); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); strings.ContainsAny(got, "\x1b\x07\u202e\u009b") || strings.Count(got, "\n") != 2 {
		t.Errorf("printed %q", got)
	}
	if got := CleanLines("one\r\x1b[2J\ntwo"); got != "one \ufffd[2J\ntwo" {
		t.Errorf("several lines are %q", got)
	}
}
