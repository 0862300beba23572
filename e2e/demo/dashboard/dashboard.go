// Package dashboard draws panels of a Grafana dashboard as a picture (SVG), from what a Prometheus answers. It
// is no Grafana: it knows the types of panels, the units and the options that the chart's dashboard has.
package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Options describe a picture.
type Options struct {
	// Dashboard is the dashboard's JSON.
	Dashboard []byte

	// Rows are the titles of the rows that are drawn.
	Rows []string

	// Prometheus is the address that is asked.
	Prometheus *url.URL

	// From and To limit the time that is shown.
	From, To time.Time
}

// panel is what is read of a panel.
type panel struct {
	Type, Title string
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct{ Expr, LegendFormat string }
	FieldConfig struct {
		Defaults struct {
			Unit, NoValue string
			Custom        struct{ Stacking struct{ Mode string } }
			Thresholds    struct {
				Steps []struct {
					Color string
					Value *float64
				}
			}
		}
	}
	Options         struct{ TextMode string }
	Transformations []struct {
		ID      string
		Options struct {
			ExcludeByName map[string]bool
			RenameByName  map[string]string
		}
	}
}

// Draw returns the picture. It returns an error when a query fails, and when a row is not there.
func Draw(ctx context.Context, o Options) ([]byte, error) {
	var d struct{ Panels []panel }
	if err := json.Unmarshal(o.Dashboard, &d); err != nil {
		return nil, fmt.Errorf("reading the dashboard: %w", err)
	}
	panels, missing := choose(d.Panels, o.Rows)
	if len(missing) > 0 {
		return nil, fmt.Errorf("the dashboard has no row %q", missing)
	}
	p := &picture{options: o}
	for i := range panels {
		if err := p.panel(ctx, &panels[i]); err != nil {
			return nil, fmt.Errorf("panel %q: %w", panels[i].Title, err)
		}
	}
	return p.finish(), nil
}

// choose returns the rows with these titles and the panels in them, moved up so that nothing is above them, and the
// titles without a row.
func choose(all []panel, rows []string) (chosen []panel, missing []string) {
	missing = slices.Clone(rows)
	y, up, in := 0, 0, false
	for _, p := range all {
		if p.Type == "row" {
			if in = slices.Contains(rows, p.Title); in {
				missing = slices.DeleteFunc(missing, func(title string) bool { return title == p.Title })
				up = p.GridPos.Y - y
			}
		}
		if in {
			p.GridPos.Y -= up
			y = max(y, p.GridPos.Y+p.GridPos.H)
			chosen = append(chosen, p)
		}
	}
	return chosen, missing
}

// series is a series of an answer.
type series struct {
	Metric map[string]string
	Value  sample   // at one time
	Values []sample // over time
}

type sample struct{ at, value float64 }

// UnmarshalJSON reads a sample of Prometheus's API: [time, "value"].
func (s *sample) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &[]any{&s.at, &text}); err != nil {
		return fmt.Errorf("reading a sample: %w", err)
	}
	var err error
	if s.value, err = strconv.ParseFloat(text, 64); err != nil {
		return fmt.Errorf("reading a sample: %w", err)
	}
	return nil
}

// variables are the dashboard's, all at "All", and the rate interval of a scrape every second.
var variables = strings.NewReplacer("$__rate_interval", "15s", "$namespace", ".*", "$job", ".*", "$cluster", ".*")

const maxAnswer = 4 << 20

// ask returns the series that match an expression, in a stable order: now, or over time with steps of this length.
func (o *Options) ask(ctx context.Context, expr string, step time.Duration) ([]series, error) {
	path, query := "api/v1/query", url.Values{"query": {variables.Replace(expr)}, "time": {stamp(o.To)}}
	if step > 0 {
		path = "api/v1/query_range"
		query = url.Values{"query": query["query"], "start": {stamp(o.From)}, "end": {stamp(o.To)}, "step": {strconv.FormatFloat(step.Seconds(), 'f', 3, 64)}}
	}
	u := o.Prometheus.JoinPath(path)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("asking Prometheus: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking Prometheus: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	var answer struct {
		Status, Error string
		Data          struct{ Result []series }
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("reading Prometheus's answer to %s: %w", expr, err)
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("asking Prometheus for %s: %s", expr, answer.Error)
	}
	slices.SortFunc(answer.Data.Result, func(a, b series) int { return strings.Compare(fmt.Sprint(a.Metric), fmt.Sprint(b.Metric)) })
	return answer.Data.Result, nil
}

func stamp(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }

var placeholder = regexp.MustCompile(`{{(\w+)}}`)

// name returns the name of a series in the legend.
func (s *series) name(format string) string {
	return strings.TrimSpace(placeholder.ReplaceAllStringFunc(format, func(m string) string { return s.Metric[m[2:len(m)-2]] }))
}

// Lengths are in pixels.
const (
	column = 50 // of the 24 of the grid
	line   = 30 // of the grid
	gap    = 8
	inner  = 12
	text   = 13
	points = 120 // of a series over time
)

const style = `
    text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1b2230; }
    .back { fill: #f2f4f8; }
    .panel { fill: #ffffff; stroke: #d5dae3; }
    .title, .row { font-weight: 600; }
    .dim { font-size: 11px; fill: #5d6778; }
    .grid { stroke: #e3e7ee; }
    .stat { font-size: 30px; font-weight: 600; text-anchor: middle; }
    .right { text-anchor: end; }
    .area { fill-opacity: 0.25; stroke: none; }
    .line { fill: none; stroke-width: 1.6; }
    .green { fill: #1c7c3a; } .orange { fill: #b25f00; } .red { fill: #b3261e; }
    @media (prefers-color-scheme: dark) {
      text { fill: #d9dfea; }
      .back { fill: #0b0f16; }
      .panel { fill: #141a24; stroke: #2c3646; }
      .dim { fill: #97a3b6; }
      .grid { stroke: #252e3c; }
      .green { fill: #6fd08c; } .orange { fill: #ffb057; } .red { fill: #ff8a80; }
    }`

// colors are those of lines. They can be read on light and on dark.
var colors = []string{"#3fa45b", "#d99a1c", "#4a8fe0", "#e0564a", "#a267d6", "#24a6a6", "#d6609e", "#8a8f2a"}

type picture struct {
	options Options
	bottom  int
	out     bytes.Buffer
}

func (p *picture) printf(format string, args ...any) { fmt.Fprintf(&p.out, format+"\n", args...) }

func (p *picture) text(class string, x, y int, s string) {
	p.printf(`  <text class="%s" x="%d" y="%d">%s</text>`, class, x, y, html.EscapeString(s))
}

func (p *picture) finish() []byte {
	w, h := 24*column+gap, p.bottom+gap
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title">`+"\n", w, h, w, h)
	fmt.Fprintf(&b, "  <title id=\"title\">Dashboard</title>\n  <style>%s\n  </style>\n  <rect class=\"back\" width=\"%d\" height=\"%d\"/>\n", style, w, h)
	b.Write(p.out.Bytes())
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// box is where a panel draws.
type box struct{ x, y, w, h int }

func (p *picture) panel(ctx context.Context, of *panel) error {
	g := of.GridPos
	b := box{x: gap + g.X*column, y: gap + g.Y*line, w: g.W*column - gap, h: g.H*line - gap}
	p.bottom = max(p.bottom, b.y+b.h)
	if of.Type == "row" {
		p.text("row", b.x, b.y+b.h-text/2, of.Title)
		return nil
	}
	p.printf(`  <rect class="panel" x="%d" y="%d" width="%d" height="%d" rx="4"/>`, b.x, b.y, b.w, b.h)
	p.text("title", b.x+inner, b.y+inner+text/2+2, of.Title)
	b = box{b.x + inner, b.y + 2*inner + text/2, b.w - 2*inner, b.h - 3*inner - text/2}
	switch of.Type {
	case "stat":
		return p.stat(ctx, of, b)
	case "timeseries":
		return p.timeseries(ctx, of, b)
	case "table":
		return p.table(ctx, of, b)
	default:
		return fmt.Errorf("panels of type %s can't be drawn", of.Type)
	}
}

func (p *picture) stat(ctx context.Context, of *panel, b box) error {
	answer, err := p.options.ask(ctx, of.Targets[0].Expr, 0)
	if err != nil {
		return err
	}
	shown, class := of.FieldConfig.Defaults.NoValue, "stat"
	if len(answer) > 0 {
		value := answer[0].Value.value
		for _, step := range of.FieldConfig.Defaults.Thresholds.Steps {
			if step.Value == nil || value >= *step.Value {
				class = "stat " + step.Color
			}
		}
		if shown = number(value, of.FieldConfig.Defaults.Unit); of.Options.TextMode == "name" {
			shown, class = answer[0].name(of.Targets[0].LegendFormat), "title "+strings.TrimPrefix(class, "stat ")
			p.text(class, b.x, b.y+b.h/2, shown)
			return nil
		}
	}
	p.text(class, b.x+b.w/2, b.y+b.h/2+inner, shown)
	return nil
}

// number returns a number as Grafana shows it, roughly.
func number(v float64, unit string) string {
	short := func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }
	switch {
	case unit == "s" && v < 1:
		return short(v*1000) + " ms"
	case unit == "s":
		return short(v) + " s"
	case unit == "reqps":
		return short(v) + " req/s"
	default:
		return short(v)
	}
}

// table lists series, a column for each label and one for the value.
func (p *picture) table(ctx context.Context, of *panel, b box) error {
	answer, err := p.options.ask(ctx, of.Targets[0].Expr, 0)
	if err != nil {
		return err
	}
	if len(answer) == 0 {
		p.text("dim", b.x, b.y+text, of.FieldConfig.Defaults.NoValue)
		return nil
	}
	excluded, names := map[string]bool{}, map[string]string{}
	for _, t := range of.Transformations {
		if t.ID == "organize" {
			excluded, names = t.Options.ExcludeByName, t.Options.RenameByName
		}
	}
	const value = "Value"
	columns := append(slices.Sorted(maps.Keys(answer[0].Metric)), value)
	columns = slices.DeleteFunc(columns, func(c string) bool { return excluded[c] })
	for i, c := range columns {
		x, y := b.x+i*b.w/len(columns), b.y+text
		heading := names[c]
		if heading == "" {
			heading = c
		}
		p.text("dim", x, y, heading)
		for _, s := range answer {
			if y += 20; y > b.y+b.h {
				break
			}
			cell := s.Metric[c]
			if c == value {
				cell = number(s.Value.value, of.FieldConfig.Defaults.Unit)
			}
			if room := b.w / len(columns) / 7; len(cell) > room {
				cell = cell[:room-1] + "…"
			}
			p.text("", x, y, cell)
		}
	}
	return nil
}

// curve is a line of a panel, from its lower to its upper values.
type curve struct {
	name         string
	at           []float64
	lower, upper []float64
}

// curves returns what the queries of a panel answer, on top of each other where the panel is stacked.
func (p *picture) curves(ctx context.Context, of *panel) ([]curve, error) {
	var out []curve
	below := map[float64]float64{}
	for _, t := range of.Targets {
		answer, err := p.options.ask(ctx, t.Expr, p.options.To.Sub(p.options.From)/points)
		if err != nil {
			return nil, err
		}
		for i := range answer {
			c := curve{name: answer[i].name(t.LegendFormat)}
			for _, v := range answer[i].Values {
				if v.value != v.value { // NaN
					continue
				}
				low := below[v.at]
				c.at, c.lower, c.upper = append(c.at, v.at), append(c.lower, low), append(c.upper, low+v.value)
				if of.FieldConfig.Defaults.Custom.Stacking.Mode == "normal" {
					below[v.at] += v.value
				}
			}
			if len(c.at) > 0 {
				out = append(out, c)
			}
		}
	}
	return out, nil
}

func (p *picture) timeseries(ctx context.Context, of *panel, b box) error {
	curves, err := p.curves(ctx, of)
	if err != nil {
		return err
	}
	if len(curves) == 0 {
		p.text("dim", b.x, b.y+text, "No data")
		return nil
	}
	most := 0.0
	for _, c := range curves {
		most = max(most, slices.Max(c.upper))
	}
	if most == 0 {
		most = 1
	}
	most *= 1.1
	legend := p.legend(curves, b)
	plot := box{b.x + 52, b.y, b.w - 52, b.h - legend - 20}
	x := func(at float64) float64 {
		from, to := float64(p.options.From.UnixMilli())/1000, float64(p.options.To.UnixMilli())/1000
		return float64(plot.x) + (at-from)/(to-from)*float64(plot.w)
	}
	y := func(v float64) float64 { return float64(plot.y) + (1-v/most)*float64(plot.h) }
	for i := range 3 {
		v := most / 1.1 * float64(i) / 2
		p.printf(`  <line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, plot.x, plot.x+plot.w, y(v), y(v))
		p.text("dim right", plot.x-6, int(y(v))+4, number(v, of.FieldConfig.Defaults.Unit))
	}
	for i := range 3 {
		at := p.options.From.Add(p.options.To.Sub(p.options.From) * time.Duration(i) / 2)
		class := []string{"dim", "dim", "dim right"}[i]
		p.text(class, plot.x+i*plot.w/2, plot.y+plot.h+15, at.UTC().Format(time.TimeOnly))
	}
	stacked := of.FieldConfig.Defaults.Custom.Stacking.Mode == "normal"
	for i, c := range curves {
		color := colors[i%len(colors)]
		var upper, lower []string
		for j, at := range c.at {
			upper = append(upper, fmt.Sprintf("%.1f,%.1f", x(at), y(c.upper[j])))
			lower = append(lower, fmt.Sprintf("%.1f,%.1f", x(at), y(c.lower[j])))
		}
		if stacked {
			slices.Reverse(lower)
			p.printf(`  <polygon class="area" fill="%s" points="%s"/>`, color, strings.Join(append(slices.Clone(upper), lower...), " "))
		}
		p.printf(`  <polyline class="line" stroke="%s" points="%s"/>`, color, strings.Join(upper, " "))
	}
	return nil
}

// legend draws the names of curves at the bottom of a box, and returns the height that it takes.
func (p *picture) legend(curves []curve, b box) int {
	const lineHeight, perCharacter = 18, 7
	type entry struct{ index, x, row int }
	var entries []entry
	x, row := 0, 0
	for i, c := range curves {
		w := 18 + len(c.name)*perCharacter + inner
		if x > 0 && x+w > b.w {
			x, row = 0, row+1
		}
		entries = append(entries, entry{i, x, row})
		x += w
	}
	height := (row + 1) * lineHeight
	for _, e := range entries {
		at := b.y + b.h - height + e.row*lineHeight + text
		p.printf(`  <rect x="%d" y="%d" width="12" height="3" fill="%s"/>`, b.x+e.x, at-5, colors[e.index%len(colors)])
		p.text("dim", b.x+e.x+16, at, curves[e.index].name)
	}
	return height
}
