package gotemplate

import (
	"regexp"
	"strconv"
	"text/template/parse"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

// function is what is known of a function: the number of its arguments, and a factor by which its result
// can be larger than all arguments together. Each result also has a constant part.
type function struct {
	min, max int
	growth   int
	kind     kind
}

const many = 1 << 20 // arguments

// functions are those of text/template and of Prometheus. A test compares the names with Prometheus' own.
var functions = map[string]function{
	"and": {1, many, 1, other}, "or": {1, many, 1, other}, "not": {1, 1, 0, other},
	"eq": {2, many, 0, other}, "ne": {2, 2, 0, other}, "lt": {2, 2, 0, other}, "le": {2, 2, 0, other}, "gt": {2, 2, 0, other}, "ge": {2, 2, 0, other},
	"call": {1, many, 1, other}, "index": {1, many, 1, other}, "slice": {1, 4, 1, other}, "len": {1, 1, 0, other},
	"print": {0, many, 1, other}, "println": {0, many, 1, other}, "printf": {1, many, 1, other},
	"html": {0, many, 5, other}, "js": {0, many, 6, other}, "urlquery": {0, many, 3, other},

	"query": {1, 1, 0, result}, "first": {1, 1, 1, other}, "label": {2, 2, 0, text}, "value": {1, 1, 0, other}, "strvalue": {1, 1, 0, text},
	"args": {0, many, 1, other}, "sortByLabel": {2, 2, 0, result}, "match": {2, 2, 0, other}, "reReplaceAll": {3, 3, 1, other},
	"safeHtml": {1, 1, 1, other}, "title": {1, 1, 3, other}, "toUpper": {1, 1, 3, other}, "toLower": {1, 1, 3, other},
	"graphLink": {1, 1, 3, other}, "tableLink": {1, 1, 3, other}, "urlQueryEscape": {1, 1, 3, other},
	"stripPort": {1, 1, 1, other}, "stripDomain": {1, 1, 1, other}, "pathPrefix": {0, 0, 0, other}, "externalURL": {0, 0, 0, other},
	"humanize": {1, 1, 0, other}, "humanize1024": {1, 1, 0, other}, "humanizeDuration": {1, 1, 0, other},
	"humanizePercentage": {1, 1, 0, other}, "humanizeTimestamp": {1, 1, 0, other},
	"parseDuration": {1, 1, 0, other}, "toTime": {1, 1, 0, other}, "toDuration": {1, 1, 0, other}, "now": {0, 0, 0, other},
}

// names has the functions in the form that the parser of text/template wants.
var names = func() map[string]any {
	out := map[string]any{}
	for name := range functions {
		out[name] = true
	}
	return out
}()

// fields are the fields and methods that a text can use: those of query results, of times, of durations
// and of native histograms that are short when they are printed and that change nothing.
var fields = sets.New[string](
	"Labels", "Value", "ExternalLabels", "ExternalURL",
	"Year", "Month", "Day", "YearDay", "Weekday", "Hour", "Minute", "Second", "Nanosecond", "Unix", "UnixMilli", "UnixNano", "UTC", "Format", "String",
	"Add", "AddDate", "Sub", "After", "Before", "Equal", "IsZero", "Truncate", "Round",
	"Hours", "Minutes", "Seconds", "Milliseconds", "Microseconds", "Nanoseconds", "Abs",
	"Count", "Sum", "ZeroCount", "ZeroThreshold", "Schema",
)

func sizes(values []value) int {
	n := 0
	for _, v := range values {
		n += v.size + 32 // with separators, and the name that args gives it
	}
	return n
}

// call returns the result of a function.
func (a *analysis) call(n *parse.IdentifierNode, args []value) value {
	f := functions[n.Ident]
	a.uses[n.Ident] = true
	if len(args) < f.min || len(args) > f.max {
		want := strconv.Itoa(f.min)
		if f.max > f.min {
			want = "at least " + want
		}
		a.fail(n, "wrong number of args for %s: want %s got %d", n.Ident, want, len(args))
		return value{}
	}
	size := valueSize + f.growth*a.spend(sizes(args))
	switch n.Ident {
	case "printf":
		size += a.printf(n, args[0].literal, args)
	case "match", "reReplaceAll":
		size += a.regex(n, args)
	case "query", "sortByLabel":
		size = labelsSize
	}
	return value{kind: f.kind, size: a.spend(size)}
}

// A verb of printf with its flags, its width and its precision, and possibly more text. The width is applied
// to every element of a list or a map.
var (
	wide   = regexp.MustCompile(`%[^a-zA-Z%]*?(\*|\d{3})`)
	verb   = regexp.MustCompile(`%[^a-zA-Z%]*[a-zA-Z]?`)
	plain  = regexp.MustCompile(`^%[-0-9.\[\]]*[sv]$`)
	digits = regexp.MustCompile(`\d+`)
)

// printf returns the maximum size of what verbs print.
func (a *analysis) printf(n parse.Node, format *parse.StringNode, args []value) int {
	if format == nil {
		a.fail(n, "the format has to be a text in quotes, because the size of the result depends on it")
		return 0
	}
	largest, size := 0, 0
	for _, v := range args[1:] {
		largest = max(largest, v.size)
	}
	if v := wide.FindString(format.Text); v != "" {
		a.fail(n, "a width and a precision have to be numbers of at most 99, in %s", v)
	}
	for _, v := range verb.FindAllString(format.Text, -1) {
		width := 0
		for _, number := range digits.FindAllString(v, -1) {
			w, _ := strconv.Atoi(number)
			width += w
		}
		// A byte becomes at most 11 (0b11111111 and a space), and a float 320. A complex number has two.
		growth, most := 12, 800
		if plain.MatchString(v) {
			growth, most = 1, 64
		}
		size += (largest+1)*(growth+width) + most
	}
	return size
}

// regex returns the maximum growth of a text in which matches are replaced.
func (a *analysis) regex(n *parse.IdentifierNode, args []value) int {
	pattern, subject := args[0].literal, args[len(args)-1].size
	if pattern == nil || len(args) > 2 && args[1].literal == nil {
		a.fail(n, "the pattern and the replacement have to be texts in quotes, because the cost depends on them")
		return 0
	}
	size := len(pattern.Text)
	// The memory for groups and alternatives grows with the square.
	a.spend(64*size + size*size/4)
	if a.err != nil {
		return 0
	}
	cost := promql.RegexCost(pattern.Text)
	if n.Ident == "reReplaceAll" {
		a.spend(cost * (subject + 1) * (subject + 1) / 16) // each match may read all that follows
	}
	a.spend(16*cost + cost*(subject+1)/4)
	if a.err != nil {
		return 0
	}
	if _, err := regexp.Compile(pattern.Text); err != nil {
		a.fail(n, "%v", err)
		return 0
	}
	if len(args) == 2 {
		return 0
	}
	a.spend(32 * subject)
	// In the worst case, there is an empty match between all characters, or the whole text for each $.
	return (subject + 1) * (len(args[1].literal.Text) + 1)
}
