package parameter

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
)

const (
	// maxLength limits a value as it is written, as in the API.
	maxLength = 32
	// largest and smallest limit the size of a number, because it is written without an exponent. They are within
	// the range of quantities.
	largest, smallest = 9e18, 1e-18
)

// The forms of numbers and quantities. They limit exponents, because parsing a quantity takes time that grows with
// its exponent.
var (
	numberForm   = regexp.MustCompile(`^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?$`)
	quantityForm = regexp.MustCompile(`^[-+]?(\d+\.?\d*|\.\d+)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][-+]?\d{1,2})?$`)
)

// Value is a valid value of a parameter.
type Value struct {
	kind    v1alpha1.ParameterType
	written string
	// number is the value as a number. A duration is in seconds.
	number float64
}

// Parse parses a value of a type.
func Parse(kind v1alpha1.ParameterType, text string) (Value, error) {
	if len(text) > maxLength {
		return Value{}, fmt.Errorf("%q is longer than %d characters; shorten it", clip.Excerpt(text), maxLength)
	}
	v := Value{kind: kind, written: text}
	var err error
	switch kind {
	case v1alpha1.NumberParameter:
		v.number, err = number(text)
	case v1alpha1.DurationParameter:
		v.number, err = duration(text)
	case v1alpha1.QuantityParameter:
		v.number, err = quantity(text)
	default:
		return v, fmt.Errorf("unknown type %q; use number, duration or quantity", clip.Excerpt(string(kind)))
	}
	if err != nil {
		return v, err
	}
	switch size := math.Abs(v.number); {
	case size > largest:
		return v, fmt.Errorf("%s is too large; use a value from -9e18 to 9e18", text)
	case size != 0 && size < smallest:
		return v, fmt.Errorf("%s is too small; use 0, or at least 1e-18", text)
	}
	return v, nil
}

func number(text string) (float64, error) {
	if !numberForm.MatchString(text) {
		return 0, fmt.Errorf("%q is not a number; use a form such as 0.99 or -5", text)
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // an infinite number is too large
		return 0, fmt.Errorf("%q is not a number: %w", text, err)
	}
	if mantissa, _, _ := strings.Cut(strings.ToLower(text), "e"); n == 0 && strings.ContainsAny(mantissa, "123456789") {
		return math.SmallestNonzeroFloat64, nil
	}
	return n, nil
}

func duration(text string) (float64, error) {
	d, err := model.ParseDuration(text)
	switch {
	case err != nil && strings.Contains(err.Error(), "out of range"):
		return 0, fmt.Errorf("%q is out of range; Prometheus accepts up to 292y", text)
	case err != nil:
		return 0, fmt.Errorf("%q is not a Prometheus duration; use a form such as 30s, 5m or 1h30m", text)
	case d == 0:
		return 0, fmt.Errorf("%q is zero; use a longer duration, because a range of zero selects nothing", text)
	}
	return time.Duration(d).Seconds(), nil
}

func quantity(text string) (float64, error) {
	form := fmt.Errorf("%q is not a quantity; use a form such as 500m or 2Gi", text)
	if !quantityForm.MatchString(text) {
		return 0, form
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, form
	}
	n, err := strconv.ParseFloat(q.AsDec().String(), 64)
	if err != nil {
		return 0, form
	}
	return n, nil
}

// IsDuration reports whether the value is a duration.
func (v Value) IsDuration() bool { return v.kind == v1alpha1.DurationParameter }

// Text returns the value for a label or an annotation: as it is written.
func (v Value) Text() string { return v.written }

// Quoted returns the value for a string literal of an expression. A quantity becomes a number there.
func (v Value) Quoted() string {
	if v.kind == v1alpha1.QuantityParameter {
		return decimal(v.number)
	}
	return v.written
}

// Number returns the value as a number of PromQL. A duration becomes a number of seconds. A negative number is in
// parentheses, because in -5^2, the power is computed first.
func (v Value) Number() string {
	if v.number < 0 {
		return "(" + decimal(v.number) + ")"
	}
	return decimal(v.number)
}

// Duration returns a duration in the form that Prometheus itself uses.
func (v Value) Duration() string {
	d, err := model.ParseDuration(v.written)
	if err != nil { // impossible, because Parse accepted it
		return v.Number()
	}
	return d.String()
}

// decimal writes a number without an exponent.
func decimal(n float64) string {
	if n == 0 {
		return "0" // also for -0
	}
	return strconv.FormatFloat(n, 'f', -1, 64)
}
