// Command terminal draws a part of a command's output as a picture of a terminal, as SVG.
//
//	terminal TITLE TEXT <OUTPUT >PICTURE
//
// The part is the section, from a heading "== …" to the next, in which a line has TEXT in it. Nothing in it is changed.
// The picture has colours for light and dark screens, and a background of its own in both.
package main

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	exitFailed = 1
	exitUsage  = 64
)

const (
	cell   = 7.8 // width of a character
	height = 18  // of a line
	side   = 18
	bar    = 36 // of the window, with its title
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: terminal TITLE TEXT <OUTPUT >PICTURE")
		os.Exit(exitUsage)
	}
	if err := run(os.Stdin, os.Stdout, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "terminal:", err)
		os.Exit(exitFailed)
	}
}

func run(in io.Reader, out io.Writer, title, text string) error {
	data, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	lines, err := section(string(data), text)
	if err != nil {
		return err
	}
	_, err = out.Write(draw(title, lines))
	return err
}

const heading = "== "

// section returns the lines of the one section that has a text in it.
func section(output, text string) ([]string, error) {
	var found, current []string
	matches := 0
	end := func() {
		if slices.ContainsFunc(current, func(l string) bool { return strings.Contains(l, text) }) {
			found = current
			matches++
		}
		current = nil
	}
	for l := range strings.Lines(output) {
		l = strings.TrimRight(l, " \r\n")
		if strings.HasPrefix(l, heading) {
			end()
		}
		current = append(current, l)
	}
	end()
	if matches != 1 {
		return nil, fmt.Errorf("%d sections have %q in them, not one", matches, text)
	}
	for len(found) > 0 && found[len(found)-1] == "" {
		found = found[:len(found)-1]
	}
	return found, nil
}

const style = `
    text { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace; font-size: 13px; fill: #1b2230; }
    .back { fill: #fbfcfe; stroke: #c5ccd8; }
    .bar { fill: #e9edf4; }
    .dot { fill: #b4bdcc; }
    .title { fill: #4b5565; text-anchor: middle; }
    .heading { font-weight: 700; fill: #2a4fb5; }
    .command { font-weight: 700; }
    .ok { fill: #1c6b33; }
    .firing { font-weight: 700; fill: #b3261e; }
    @media (prefers-color-scheme: dark) {
      text { fill: #d9dfea; }
      .back { fill: #0f141c; stroke: #3a4557; }
      .bar { fill: #1d2532; }
      .dot { fill: #4b5a70; }
      .title { fill: #a9b4c6; }
      .heading { fill: #8fabff; }
      .command { fill: #ffffff; }
      .ok { fill: #79d492; }
      .firing { fill: #ff8a80; }
    }`

// class returns the colours of a line.
func class(l string) string {
	switch {
	case strings.HasPrefix(l, heading):
		return "heading"
	case strings.HasPrefix(l, "$ "):
		return "command"
	case strings.HasPrefix(l, "  ok, "):
		return "ok"
	case strings.HasPrefix(l, "firing: "):
		return "firing"
	}
	return ""
}

func draw(title string, lines []string) []byte {
	columns := 80
	for _, l := range lines {
		columns = max(columns, utf8.RuneCountInString(l))
	}
	w, h := int(float64(columns)*cell)+2*side, bar+len(lines)*height+2*side
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title">`+"\n", w, h, w, h)
	fmt.Fprintf(&b, "  <title id=\"title\">%s</title>\n  <style>%s\n  </style>\n", html.EscapeString(title), style)
	fmt.Fprintf(&b, "  <rect class=\"back\" x=\"0.5\" y=\"0.5\" width=\"%d\" height=\"%d\" rx=\"10\"/>\n", w-1, h-1)
	fmt.Fprintf(&b, "  <path class=\"bar\" d=\"M1 %dV11a10 10 0 0 1 10 -10H%da10 10 0 0 1 10 10V%dz\"/>\n", bar, w-11, bar)
	for i := range 3 {
		fmt.Fprintf(&b, "  <circle class=\"dot\" cx=\"%d\" cy=\"%d\" r=\"6\"/>\n", side+6+i*20, bar/2)
	}
	fmt.Fprintf(&b, "  <text class=\"title\" x=\"%d\" y=\"%d\">%s</text>\n", w/2, bar/2+4, html.EscapeString(title))
	for i, l := range lines {
		if l == "" {
			continue
		}
		attribute := ""
		if c := class(l); c != "" {
			attribute = fmt.Sprintf(" class=%q", c)
		}
		// A font of another width is squeezed or stretched, so that columns stay below each other.
		indent := len(l) - len(strings.TrimLeft(l, " "))
		l = l[indent:]
		fmt.Fprintf(&b, "  <text%s x=\"%.1f\" y=\"%d\" textLength=\"%.1f\" xml:space=\"preserve\">%s</text>\n",
			attribute, side+float64(indent)*cell, bar+side+i*height+height/2+4, float64(utf8.RuneCountInString(l))*cell, html.EscapeString(l))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
