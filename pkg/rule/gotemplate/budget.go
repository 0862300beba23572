package gotemplate

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"regexp"
	"strings"
	"text/template"
	"time"

	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

// Limits for rendering one text, and for rendering all texts of an object.
// A typical text takes about ten steps and some hundred bytes.
const (
	maxSteps      = 5_000
	maxBytes      = 1 << 20
	maxTotalSteps = 100_000
	maxTotalBytes = 16 << 20
)

// errBudget stops the rendering of a text that uses too many resources.
var errBudget = errors.New("it takes too long to render, or its output is too large; use shorter loops and fewer repetitions")

// errTotal stops the rendering of texts that together use too many resources.
var errTotal = errors.New("the templates of this object together take too long to render; use fewer or simpler ones")

// Budget counts the resources that the rendering of texts uses. text/template has no limits of its
// own: it runs loops of any length, and can double a string any number of times.
type Budget struct {
	steps, bytes           int // left for the present text
	totalSteps, totalBytes int // left for all of them
	pos                    int // of the present step
	exhausted              bool
}

// NewBudget returns the budget for the texts of one object.
func NewBudget() *Budget {
	return &Budget{steps: maxSteps, bytes: maxBytes, totalSteps: maxTotalSteps, totalBytes: maxTotalBytes}
}

// next starts the rendering of a text with the given number of nodes, which take a step each to parse.
func (b *Budget) next(nodes int) error {
	b.steps, b.bytes, b.pos = maxSteps, maxBytes, 0
	return b.spend(nodes, 0)
}

func (b *Budget) spend(steps, bytes int) error {
	if steps > b.steps || bytes > b.bytes {
		return errBudget
	}
	if steps > b.totalSteps || bytes > b.totalBytes {
		b.exhausted = true
		return errTotal
	}
	b.steps -= steps
	b.bytes -= bytes
	b.totalSteps -= steps
	b.totalBytes -= bytes
	return nil
}

// funcs returns the functions that count, and replacements for functions of Prometheus whose time or
// result is not proportional to their arguments.
func (b *Budget) funcs() template.FuncMap {
	return template.FuncMap{
		stepFunc: func(pos, bytes int) (string, error) {
			b.pos = pos
			return "", b.spend(1, bytes)
		},
		passFunc: func(v reflect.Value) (reflect.Value, error) {
			return v, b.spend(1, sizeOf(v, b.bytes+1, 0))
		},
		"printf": func(format string, args ...any) (string, error) {
			if printfBound(format, args) > rule.MaxObject {
				return "", errBudget
			}
			return fmt.Sprintf(format, args...), nil
		},
		"match": func(pattern, text string) (bool, error) {
			re, err := b.compile(pattern, text)
			return err == nil && re.MatchString(text), err
		},
		"reReplaceAll": func(pattern, replacement, text string) (string, error) {
			// In the worst case, there is an empty match between all characters, with a capture per $.
			if 2*(len(text)+1)*(len(replacement)+1) > maxBytes {
				return "", errBudget
			}
			if err := b.spend(1, 32*len(text)); err != nil {
				return "", err
			}
			re, err := b.compile(pattern, text)
			if err != nil {
				return "", err
			}
			return re.ReplaceAllString(text, replacement), nil
		},
	}
}

// compile compiles a pattern that will be matched with a text.
func (b *Budget) compile(pattern, text string) (*regexp.Regexp, error) {
	if len(pattern) > rule.MaxText {
		return nil, errBudget
	}
	cost := promql.RegexCost(pattern)
	if cost > promql.MaxCost {
		return nil, errBudget
	}
	if err := b.spend(1, 16*len(pattern)+16*cost+cost*(len(text)+1)/4); err != nil {
		return nil, err
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("compiling a regular expression: %w", err)
	}
	return re, nil
}

// printfBound returns an approximate upper limit for the length of a printf result.
func printfBound(format string, args []any) int {
	const limit = 1 << 30
	widest, largest := 0, 0
	for number, i := 0, 0; i < len(format); i++ {
		if c := format[i]; c >= '0' && c <= '9' {
			number = min(number*10+int(c-'0'), limit)
			widest = max(widest, number)
		} else {
			number = 0
		}
	}
	for _, arg := range args {
		v := reflect.ValueOf(arg)
		largest = max(largest, sizeOf(v, maxBytes, 0))
		if v.CanInt() && strings.Contains(format, "*") {
			widest = int(max(int64(widest), min(max(v.Int(), -v.Int()), limit)))
		}
	}
	if widest > rule.MaxObject {
		return limit
	}
	// A byte becomes up to 8 (\U0010ffff, 0x00), and a float up to 400.
	return len(format) + strings.Count(format, "%")*(8*largest+400+widest)
}

// The size of a value without a size of its own, and the maximum depth of nested values.
const (
	wordSize     = 32
	deepestValue = 100
)

// sizeOf returns the approximate number of bytes that a value takes when it is printed. Anything above
// the limit is irrelevant. A value that occurs twice in another value counts twice.
func sizeOf(v reflect.Value, limit, depth int) int {
	if limit <= 0 || depth > deepestValue {
		return wordSize + max(limit, maxBytes)
	}
	size := wordSize
	switch v.Kind() {
	case reflect.String:
		return size + v.Len()
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return size + v.Len()
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return 2 * wordSize // without its time zone
		}
	}
	for part := range partsOf(v) {
		if size += sizeOf(part, limit-size, depth+1); size > limit {
			break
		}
	}
	return size
}

// partsOf returns the values in a value.
func partsOf(v reflect.Value) iter.Seq[reflect.Value] {
	return func(yield func(reflect.Value) bool) {
		switch v.Kind() {
		case reflect.Slice, reflect.Array:
			for i := 0; i < v.Len() && yield(v.Index(i)); i++ {
				continue
			}
		case reflect.Map:
			for entries := v.MapRange(); entries.Next() && yield(entries.Key()) && yield(entries.Value()); {
				continue
			}
		case reflect.Struct:
			for i := 0; i < v.NumField() && yield(v.Field(i)); i++ {
				continue
			}
		case reflect.Pointer, reflect.Interface:
			if !v.IsNil() && v.Type() != reflect.TypeFor[*time.Location]() {
				yield(v.Elem())
			}
		}
	}
}
