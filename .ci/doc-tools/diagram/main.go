// Command diagram draws boxes on a grid, and arrows between them, as SVG.
//
//	diagram SOURCE >OUTPUT
//
// A line of SOURCE is one of these; a # begins a comment, and a \ at the end continues a line:
//
//	title TEXT                                     what screen readers say
//	desc TEXT
//	columns WIDTH...                               of all columns, in pixels
//	rows HEIGHT...
//	gap HEIGHT                                     between rows
//	group COLUMNS ROWS NAME | TITLE                a frame behind boxes; COLUMNS and ROWS are N or N-M
//	box COLUMNS ROWS NAME | TITLE | SMALL...
//	arrow FROM -> TO | TITLE | SMALL...            between boxes that share a row or a column
//
// The picture has colours for light and dark screens, and a background of its own in both.
package main

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"strconv"
	"strings"
)

const (
	exitFailed = 1
	exitUsage  = 64
)

const (
	margin  = 12 // around the picture
	padding = 16 // between a group and its boxes
	head    = 34 // of a group, with its title
	line    = 17 // between two lines of text
	tip     = 9  // length of an arrow's tip
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: diagram SOURCE >OUTPUT")
		os.Exit(exitUsage)
	}
	source, err := os.ReadFile(os.Args[1])
	if err == nil {
		var out []byte
		if out, err = draw(string(source)); err == nil {
			_, err = os.Stdout.Write(out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "diagram:", err)
		os.Exit(exitFailed)
	}
}

// span is a range of columns or rows, from 0.
type span struct{ from, to int }

type box struct {
	columns, rows span
	texts         []string
}

type arrow struct {
	from, to string
	texts    []string
}

type picture struct {
	title, desc   string
	columns, rows []int
	gap           int
	groups, boxes []string // their names in order
	byName        map[string]box
	arrows        []arrow
}

func draw(source string) ([]byte, error) {
	p := picture{byName: map[string]box{}}
	for i, l := range strings.Split(strings.ReplaceAll(source, "\\\n", " "), "\n") {
		l = strings.TrimSpace(l)
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		if err := p.add(l); err != nil {
			return nil, fmt.Errorf("entry %d, %q: %w", i+1, l, err)
		}
	}
	return p.svg()
}

func (p *picture) add(l string) error {
	texts := strings.Split(l, "|")
	for i := range texts {
		texts[i] = strings.TrimSpace(texts[i])
	}
	words, texts := strings.Fields(texts[0]), texts[1:]
	kind, words := words[0], words[1:]
	var err error
	switch kind {
	case "title":
		p.title = strings.Join(words, " ")
	case "desc":
		p.desc = strings.Join(words, " ")
	case "columns":
		p.columns, err = numbers(words)
	case "rows":
		p.rows, err = numbers(words)
	case "gap":
		var n []int
		if n, err = numbers(words); err == nil && len(n) == 1 {
			p.gap = n[0]
		}
	case "group", "box":
		return p.addBox(kind, words, texts)
	case "arrow":
		if len(words) != 3 || words[1] != "->" {
			return fmt.Errorf("an arrow is FROM -> TO")
		}
		p.arrows = append(p.arrows, arrow{from: words[0], to: words[2], texts: texts})
	default:
		return fmt.Errorf("unknown kind %s", kind)
	}
	return err
}

func (p *picture) addBox(kind string, words, texts []string) error {
	if len(words) != 3 || len(texts) == 0 {
		return fmt.Errorf("a %s is COLUMNS ROWS NAME | TITLE", kind)
	}
	columns, err := parseSpan(words[0], len(p.columns))
	if err != nil {
		return fmt.Errorf("columns: %w", err)
	}
	rows, err := parseSpan(words[1], len(p.rows))
	if err != nil {
		return fmt.Errorf("rows: %w", err)
	}
	if _, taken := p.byName[words[2]]; taken {
		return fmt.Errorf("there are two of the name %s", words[2])
	}
	p.byName[words[2]] = box{columns, rows, texts}
	if kind == "group" {
		p.groups = append(p.groups, words[2])
	} else {
		p.boxes = append(p.boxes, words[2])
	}
	return nil
}

func numbers(words []string) ([]int, error) {
	var out []int
	for _, w := range words {
		n, err := strconv.Atoi(w)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%s is not a size", w)
		}
		out = append(out, n)
	}
	return out, nil
}

func parseSpan(s string, size int) (span, error) {
	a, b, isRange := strings.Cut(s, "-")
	if !isRange {
		b = a
	}
	from, errA := strconv.Atoi(a)
	to, errB := strconv.Atoi(b)
	if errA != nil || errB != nil || from < 1 || to < from || to > size {
		return span{}, fmt.Errorf("%s is not within 1-%d", s, size)
	}
	return span{from - 1, to - 1}, nil
}

// rect is a place in the picture.
type rect struct{ x, y, w, h int }

// of returns the place of a box.
func (p *picture) of(b box) rect {
	r := rect{x: margin + padding, y: margin + head}
	for i, w := range p.columns {
		switch {
		case i < b.columns.from:
			r.x += w
		case i <= b.columns.to:
			r.w += w
		}
	}
	for i, h := range p.rows {
		switch {
		case i < b.rows.from:
			r.y += h + p.gap
		case i <= b.rows.to:
			r.h += h
		}
	}
	r.h += (b.rows.to - b.rows.from) * p.gap
	return r
}

const style = `
    svg { font-family: system-ui, -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; }
    .back { fill: #ffffff; }
    .group { fill: #f3f5f9; stroke: #c5ccd8; }
    .box { fill: #ffffff; stroke: #3d63c9; stroke-width: 1.5; }
    .arrow { fill: none; stroke: #4b5565; stroke-width: 1.75; }
    .tip { fill: #4b5565; }
    text { fill: #1b2230; font-size: 15px; font-weight: 600; text-anchor: middle; }
    text.group-title { fill: #4b5565; text-anchor: start; }
    text.small { fill: #4b5565; font-size: 13px; font-weight: 400; }
    @media (prefers-color-scheme: dark) {
      .back { fill: #0f141c; }
      .group { fill: #18202c; stroke: #3a4557; }
      .box { fill: #0f141c; stroke: #7d9bf0; }
      .arrow { stroke: #a9b4c6; }
      .tip { fill: #a9b4c6; }
      text { fill: #e8ecf4; }
      text.group-title, text.small { fill: #a9b4c6; }
    }`

func (p *picture) svg() ([]byte, error) {
	all := p.of(box{columns: span{0, len(p.columns) - 1}, rows: span{0, len(p.rows) - 1}})
	w, h := all.x+all.w+padding+margin, all.y+all.h+padding+margin
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title desc">`+"\n", w, h, w, h)
	fmt.Fprintf(&b, "  <title id=\"title\">%s</title>\n  <desc id=\"desc\">%s</desc>\n  <style>%s\n  </style>\n", html.EscapeString(p.title), html.EscapeString(p.desc), style)
	fmt.Fprintf(&b, "  <rect class=\"back\" width=\"%d\" height=\"%d\" rx=\"12\"/>\n", w, h)
	for _, name := range p.groups {
		g := p.byName[name]
		r := p.of(g)
		r = rect{r.x - padding, r.y - head, r.w + 2*padding, r.h + head + padding}
		fmt.Fprintf(&b, "  <rect class=\"group\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"10\"/>\n", r.x, r.y, r.w, r.h)
		fmt.Fprintf(&b, "  <text class=\"group-title\" x=\"%d\" y=\"%d\">%s</text>\n", r.x+padding, r.y+23, html.EscapeString(g.texts[0]))
	}
	for _, name := range p.boxes {
		g := p.byName[name]
		r := p.of(g)
		fmt.Fprintf(&b, "  <rect class=\"box\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n", r.x, r.y, r.w, r.h)
		texts(&b, r.x+r.w/2, r.y+r.h/2-(len(g.texts)-1)*line/2+5, g.texts)
	}
	for _, a := range p.arrows {
		if err := p.drawArrow(&b, a); err != nil {
			return nil, err
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes(), nil
}

// texts writes lines, of which the first is larger.
func texts(b *bytes.Buffer, x, y int, lines []string) {
	for i, s := range lines {
		class := ""
		if i > 0 {
			class = ` class="small"`
		}
		if s != "" {
			fmt.Fprintf(b, "  <text%s x=\"%d\" y=\"%d\">%s</text>\n", class, x, y+i*line, html.EscapeString(s))
		}
	}
}

// drawArrow draws a straight arrow at the middle of what two boxes share. The first text is above it, the others below.
func (p *picture) drawArrow(b *bytes.Buffer, a arrow) error {
	from, okFrom := p.byName[a.from]
	to, okTo := p.byName[a.to]
	if !okFrom || !okTo {
		return fmt.Errorf("the arrow %s -> %s has no box at an end", a.from, a.to)
	}
	f, t := p.of(from), p.of(to)
	if top, bottom := max(f.y, t.y), min(f.y+f.h, t.y+t.h); top < bottom {
		y, x1, x2, sign := (top+bottom)/2, f.x+f.w, t.x, 1
		if t.x < f.x {
			x1, x2, sign = f.x, t.x+t.w, -1
		}
		fmt.Fprintf(b, "  <path class=\"arrow\" d=\"M%d %dH%d\"/>\n", x1, y, x2-sign*tip)
		fmt.Fprintf(b, "  <path class=\"tip\" d=\"M%d %dl%d -5v10z\"/>\n", x2, y, -sign*tip)
		if len(a.texts) > 0 && a.texts[0] != "" {
			middle := p.labelAt(from, to)
			texts(b, middle, y-7, a.texts[:1])
			texts(b, middle, y, append([]string{""}, a.texts[1:]...))
		}
		return nil
	}
	if left, right := max(f.x, t.x), min(f.x+f.w, t.x+t.w); left < right {
		x, y1, y2, sign := (left+right)/2, f.y+f.h, t.y, 1
		if t.y < f.y {
			y1, y2, sign = f.y, t.y+t.h, -1
		}
		fmt.Fprintf(b, "  <path class=\"arrow\" d=\"M%d %dV%d\"/>\n", x, y1, y2-sign*tip)
		fmt.Fprintf(b, "  <path class=\"tip\" d=\"M%d %dl-5 %dh10z\"/>\n", x, y2, -sign*tip)
		return nil
	}
	return fmt.Errorf("%s and %s share no row and no column", a.from, a.to)
}

// labelAt returns the middle of the widest column between two boxes, where an arrow's texts have room.
func (p *picture) labelAt(a, b box) int {
	if a.columns.from > b.columns.from {
		a, b = b, a
	}
	widest := a.columns.to + 1
	for i := widest; i < b.columns.from; i++ {
		if p.groupless(i) && !p.groupless(widest) {
			widest = i
		}
	}
	r := p.of(box{columns: span{widest, widest}})
	return r.x + r.w/2
}

// groupless tells whether a column is between groups.
func (p *picture) groupless(column int) bool {
	for _, name := range p.groups {
		if c := p.byName[name].columns; c.from <= column && column <= c.to {
			return false
		}
	}
	return true
}
