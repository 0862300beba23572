package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

const grid = "columns 10 20 10\nrows 10 10\ngap 4\n"

func TestDraw(t *testing.T) {
	source, err := os.ReadFile("../../../docs/images/flow.txt")
	if err != nil {
		t.Fatal(err)
	}
	out, err := draw(string(source))
	if err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(strings.NewReader(string(out)))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("it is not XML: %v", err)
		}
	}
	for _, want := range []string{"prefers-color-scheme: dark", ">AlertRule<", ">1 connect<", "<title"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("it has no %s", want)
		}
	}
}

// A text is escaped, and an arrow goes from edge to edge.
func TestDrawSmall(t *testing.T) {
	out, err := draw(grid + "box 1 1 a | A & <B>\nbox 3 1-2 b | B\narrow b -> a | go\n")
	if err != nil {
		t.Fatal(err)
	}
	// The left edge of b is at 28+30, the right edge of a at 28+10, and the tip is 9 long.
	for _, want := range []string{">A &amp; &lt;B&gt;<", `d="M58 51H47"`, `d="M38 51l9 -5v10z"`, ">go<"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("it has no %s: %s", want, out)
		}
	}
}

func TestMistakes(t *testing.T) {
	for name, source := range map[string]string{
		"no such kind":         "circle 1 1 a | A",
		"no such column":       "box 4 1 a | A",
		"no such row":          "box 1 0 a | A",
		"a span from the end":  "box 3-1 1 a | A",
		"no title":             "box 1 1 a",
		"two of a name":        "box 1 1 a | A\nbox 2 1 a | B",
		"an arrow to nowhere":  "box 1 1 a | A\narrow a -> b |",
		"an arrow without to":  "box 1 1 a | A\narrow a b |",
		"an arrow at an angle": "box 1 1 a | A\nbox 2 2 b | B\narrow a -> b |",
		"a size in words":      "gap wide",
	} {
		t.Run(name, func(t *testing.T) {
			if out, err := draw(grid + source + "\n"); err == nil {
				t.Errorf("it is drawn: %s", out)
			}
		})
	}
}
