package parameter

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// maxParameters limits the parameters of a template, as in the API.
const maxParameters = 16

const nameForm = "use at most 63 letters, digits, - and _, beginning with a letter"

// namePattern matches the names of parameters.
var namePattern = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]{0,62}$`)

// CheckName returns an error if a text is not the name of a parameter.
func CheckName(name string) error {
	if !namePattern.MatchString(name) {
		return errors.New(nameForm)
	}
	return nil
}

// Within parses a value of a parameter, and returns an error if it is out of the parameter's bounds.
func Within(p v1alpha1.Parameter, text v1alpha1.ParameterValue) (Value, error) {
	v, err := Parse(p.Type, string(text))
	if err != nil {
		return v, err
	}
	if lowest, ok := bound(p, p.Minimum); ok && v.number < lowest.number {
		return v, fmt.Errorf("%s is smaller than the minimum; use at least %s", text, p.Minimum)
	}
	if highest, ok := bound(p, p.Maximum); ok && v.number > highest.number {
		return v, fmt.Errorf("%s is larger than the maximum; use at most %s", text, p.Maximum)
	}
	return v, nil
}

// bound returns a bound of a parameter, if it has one.
func bound(p v1alpha1.Parameter, text v1alpha1.ParameterValue) (Value, bool) {
	if text == "" {
		return Value{}, false
	}
	v, err := Parse(p.Type, string(text))
	return v, err == nil
}

// Check returns the first error in the parameters of a template, or nil.
func Check(parameters []v1alpha1.Parameter) *rule.Invalid {
	const field = "spec.parameters"
	if len(parameters) > maxParameters {
		return rule.NewInvalid(field, "has %d entries; at most %d are allowed; remove some", len(parameters), maxParameters)
	}
	for i, p := range parameters {
		at := fmt.Sprintf("%s[%d]", field, i)
		if err := CheckName(p.Name); err != nil {
			return rule.NewInvalid(at+".name", "%q is not a valid name; %v", clip.Excerpt(p.Name), err)
		}
		if slices.ContainsFunc(parameters[:i], func(other v1alpha1.Parameter) bool { return other.Name == p.Name }) {
			return rule.NewInvalid(at+".name", "duplicate value %q; use another name", p.Name)
		}
		if bad := checkValues(at, p); bad != nil {
			return bad
		}
	}
	return nil
}

// checkValues checks the type, the bounds and the default of a parameter.
func checkValues(at string, p v1alpha1.Parameter) *rule.Invalid {
	switch p.Type {
	case v1alpha1.NumberParameter, v1alpha1.DurationParameter, v1alpha1.QuantityParameter:
	default:
		return rule.NewInvalid(at+".type", "unknown type %q; use number, duration or quantity", clip.Excerpt(string(p.Type)))
	}
	for _, v := range []struct {
		field string
		value v1alpha1.ParameterValue
	}{{".minimum", p.Minimum}, {".maximum", p.Maximum}} {
		if v.value == "" {
			continue
		}
		if _, err := Parse(p.Type, string(v.value)); err != nil {
			return rule.NewInvalid(at+v.field, "%v", err)
		}
	}
	lowest, isMin := bound(p, p.Minimum)
	highest, isMax := bound(p, p.Maximum)
	if isMin && isMax && lowest.number > highest.number {
		return rule.NewInvalid(at+".minimum", "the minimum %s is larger than the maximum %s; correct one of them", p.Minimum, p.Maximum)
	}
	if p.Default == "" {
		return rule.NewInvalid(at+".default", "a default is required")
	}
	if _, err := Within(p, p.Default); err != nil {
		return rule.NewInvalid(at+".default", "%v", err)
	}
	return nil
}

// Values are the values of a template's parameters, by name.
type Values map[string]Value

// Defaults returns the values of parameters that nothing else sets. It leaves out invalid ones, which Check refuses.
func Defaults(parameters []v1alpha1.Parameter) Values {
	out := make(Values, len(parameters))
	for _, p := range parameters {
		if v, err := Within(p, p.Default); err == nil {
			out[p.Name] = v
		}
	}
	return out
}

// Extremes returns the values with which an expression can differ most from that with the defaults: all minimums, and
// all maximums. A number without a minimum can be negative.
func Extremes(parameters []v1alpha1.Parameter) []Values {
	low, high := Defaults(parameters), Defaults(parameters)
	for _, p := range parameters {
		for _, e := range []struct {
			to     Values
			values []v1alpha1.ParameterValue
		}{{low, []v1alpha1.ParameterValue{p.Minimum, "-1"}}, {high, []v1alpha1.ParameterValue{p.Maximum, "1"}}} {
			for _, text := range e.values {
				if v, err := Within(p, text); err == nil {
					e.to[p.Name] = v
					break
				}
			}
		}
	}
	return []Values{low, high}
}

// Set sets values, by name. It leaves out invalid ones, which the validator refuses.
func (v Values) Set(parameters []v1alpha1.Parameter, values map[string]v1alpha1.ParameterValue) {
	for name, text := range values {
		if p, found := Find(parameters, name); found {
			if value, err := Within(p, text); err == nil {
				v[name] = value
			}
		}
	}
}

// Names returns the names of the parameters, sorted.
func (v Values) Names() []string { return slices.Sorted(maps.Keys(v)) }

// Find returns the parameter of a name.
func Find(parameters []v1alpha1.Parameter, name string) (p v1alpha1.Parameter, found bool) {
	i := slices.IndexFunc(parameters, func(p v1alpha1.Parameter) bool { return p.Name == name })
	if i < 0 {
		return p, false
	}
	return parameters[i], true
}
