package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

const output = `starting
== 1/3 First
nothing to see
== 2/3 Second

$ kubectl get <all>
NAME   READY
a      1/1
  ok, after  915 ms: it fires
firing: Deployment a is down.

== 3/3 Third
the end
`

func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(strings.NewReader(output), &out, "a & b", "firing: "); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(out.Bytes()))
	var texts []string
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("it is not XML: %v", err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "text" {
			var text string
			if err := d.DecodeElement(&text, &e); err != nil {
				t.Fatal(err)
			}
			texts = append(texts, text)
		}
	}
	want := []string{"a & b", "== 2/3 Second", "$ kubectl get <all>", "NAME   READY", "a      1/1", "ok, after  915 ms: it fires", "firing: Deployment a is down."}
	if strings.Join(texts, "\n") != strings.Join(want, "\n") {
		t.Errorf("it shows %q", texts)
	}
	for _, want := range []string{`class="command"`, `class="firing"`, `class="ok"`, `class="heading"`, "prefers-color-scheme: dark"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it has no %s", want)
		}
	}
}

// A picture is never made from output that does not have what it is to show.
func TestSection(t *testing.T) {
	for _, text := range []string{"absent", "t"} { // no section, and several
		if lines, err := section(output, text); err == nil {
			t.Errorf("%q is in %q", text, lines)
		}
	}
}
