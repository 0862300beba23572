// Package apiconventions is a linter for the types of a CustomResourceDefinition.
// It holds them to the Kubernetes API conventions as far as the types and their
// markers show it: documented under their JSON names, optional or required,
// bounded, mergeable by server-side apply, and of types that can grow.
package apiconventions

import (
	"go/ast"
	"go/token"
	"go/types"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Analyzer is the linter.
var Analyzer = &analysis.Analyzer{
	Name: "apiconventions",
	Doc:  "holds API types to the Kubernetes API conventions",
	Run:  run,
}

var jsonName = regexp.MustCompile(`^[a-z][a-z0-9]*([A-Z][a-z0-9]*)*$`)

// checker is one run over one package.
type checker struct {
	pass *analysis.Pass
	// declared are the markers of the package's own types, which hold for every
	// field of such a type.
	declared map[types.Object]markers
}

func run(pass *analysis.Pass) (any, error) {
	c := &checker{pass: pass, declared: map[types.Object]markers{}}

	for _, spec := range c.collect() {
		c.messages(spec.Pos(), c.declared[pass.TypesInfo.Defs[spec.Name]])

		structType, ok := spec.Type.(*ast.StructType)
		if !ok || !spec.Name.IsExported() || strings.HasSuffix(spec.Name.Name, "List") {
			continue // a List is fixed by the conventions: metadata and items
		}

		for _, field := range structType.Fields.List {
			c.field(field)
		}
	}

	return nil, nil
}

// collect records the markers of every type that the package declares, and
// returns the types in order.
func (c *checker) collect() []*ast.TypeSpec {
	var specs []*ast.TypeSpec

	for _, file := range c.pass.Files {
		if ast.IsGenerated(file) || strings.HasSuffix(c.pass.Fset.File(file.Pos()).Name(), "_test.go") {
			continue
		}

		for _, decl := range file.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.TYPE {
				continue
			}

			for _, spec := range gen.Specs {
				typeSpec := spec.(*ast.TypeSpec)
				c.declared[c.pass.TypesInfo.Defs[typeSpec.Name]] = markersOf(gen.Doc, typeSpec.Doc)
				specs = append(specs, typeSpec)
			}
		}
	}

	return specs
}

func (c *checker) field(field *ast.Field) {
	tag := parseTag(field)
	if tag == nil {
		if len(field.Names) == 0 || field.Names[0].IsExported() {
			c.report(field, "has no json tag")
		}

		return
	}

	if tag.has("inline") || tag.name == "-" {
		return
	}

	if !jsonName.MatchString(tag.name) {
		c.report(field, "json name %q is not in camelCase", tag.name)
	}

	if text := field.Doc.Text(); !strings.HasPrefix(text, tag.name+" ") {
		c.report(field, "doc comment does not start with the json name %q", tag.name)
	}

	own := markersOf(field.Doc)
	typ := c.pass.TypesInfo.TypeOf(field.Type)

	c.messages(field.Pos(), own)
	c.presence(field, tag, own, typ)
	c.value(field, own, typ)
}

// presence checks that a field says whether it can be left out, and that its
// zero value then is.
func (c *checker) presence(field *ast.Field, tag *jsonTag, own markers, typ types.Type) {
	if own.has("nullable") {
		c.report(field, "is nullable: null and absent are told apart by no client")
	}

	if own.has("kubebuilder:validation:Optional", "k8s:optional", "kubebuilder:validation:Required", "k8s:required") {
		c.report(field, "say +optional or +required, in this spelling")
	}

	optional, required := own.has("optional"), own.has("required")
	if optional == required {
		c.report(field, "needs exactly one of +optional and +required")
	}

	if required && own.has("default", "kubebuilder:default") {
		c.report(field, "is required and has a default: a field with a default is optional")
	}

	if !optional {
		return
	}

	if !tag.has("omitempty") && !tag.has("omitzero") {
		c.report(field, "is optional: its json tag needs omitempty, or omitzero")
	}

	if _, isStruct := typ.Underlying().(*types.Struct); isStruct && !tag.has("omitzero") {
		c.report(field, "is an optional struct: its json tag needs omitzero, as omitempty has no effect")
	}
}

// value checks the type of a field, and that it is bounded.
func (c *checker) value(field *ast.Field, own markers, typ types.Type) {
	if pointer, ok := typ.(*types.Pointer); ok {
		typ = pointer.Elem()
	}

	all := slices.Concat(c.markersOfType(typ), own)

	switch underlying := typ.Underlying().(type) {
	case *types.Basic:
		c.basic(field, all, typ, underlying)
	case *types.Slice:
		c.list(field, all, underlying)
	case *types.Map:
		c.dictionary(field, all, underlying)
	case *types.Struct:
		switch typ.String() {
		case "time.Time", "k8s.io/apimachinery/pkg/apis/meta/v1.Duration":
			c.report(field, "is a %s: use metav1.Time, or a string with a pattern", typ)
		}
	}
}

func (c *checker) basic(field *ast.Field, all markers, typ types.Type, basic *types.Basic) {
	switch {
	case typ.String() == "time.Duration":
		c.report(field, "is a time.Duration: use a string with a pattern")
	case basic.Info()&types.IsBoolean != 0:
		c.report(field, "is a bool, which can't grow: use an enum")
	case basic.Info()&types.IsFloat != 0:
		c.report(field, "is a float, which does not survive a round trip: use an integer or a string")
	case basic.Info()&types.IsInteger != 0:
		if basic.Kind() != types.Int32 && basic.Kind() != types.Int64 {
			c.report(field, "is a %s: use int32 or int64", basic)
		}

		if !all.hasValidation("Minimum", "Enum") {
			c.report(field, "has no lower bound: add +kubebuilder:validation:Minimum")
		}
	case basic.Info()&types.IsString != 0:
		if !all.hasValidation("MaxLength", "Enum", "Format") {
			c.report(field, "has no upper bound: add +kubebuilder:validation:MaxLength, to it or to its type")
		}
	}
}

func (c *checker) list(field *ast.Field, all markers, list *types.Slice) {
	if basic, ok := list.Elem().(*types.Basic); ok && basic.Kind() == types.Byte {
		if !all.hasValidation("MaxLength") {
			c.report(field, "has no upper bound: add +kubebuilder:validation:MaxLength")
		}

		return
	}

	if !all.hasValidation("MaxItems") {
		c.report(field, "has no upper bound: add +kubebuilder:validation:MaxItems")
	}

	c.listType(field, all, list)
	c.element(field, all, "items", list.Elem())
}

// listType checks that server-side apply can merge a list.
func (c *checker) listType(field *ast.Field, all markers, list *types.Slice) {
	_, ofStructs := list.Elem().Underlying().(*types.Struct)
	keys := all.values("listMapKey")

	for _, kind := range all.values("listType") {
		switch {
		case kind == "map" && len(keys) == 0:
			c.report(field, "is +listType=map and has no +listMapKey")
		case kind == "set" && ofStructs:
			c.report(field, "is a +listType=set of structs: use map or atomic")
		case kind == "atomic" && isCondition(list.Elem()):
			c.report(field, "holds conditions: use +listType=map and +listMapKey=type")
		}
	}

	if !all.has("listType") {
		c.report(field, "has no +listType: set, map or atomic")
	}
}

func (c *checker) dictionary(field *ast.Field, all markers, dict *types.Map) {
	if !isString(dict.Key()) || !isString(dict.Elem()) {
		c.report(field, "is a %s: use a list of named things (+listType=map); maps are of strings to strings alone", dict)

		return
	}

	if !all.hasValidation("MaxProperties") {
		c.report(field, "has no upper bound: add +kubebuilder:validation:MaxProperties")
	}

	c.element(field, all, "additionalProperties", dict.Elem())
}

// element checks that the strings in a list or map are bounded, by their own type
// or by a marker of the field.
func (c *checker) element(field *ast.Field, all markers, where string, typ types.Type) {
	if !isString(typ) || c.markersOfType(typ).hasValidation("MaxLength", "Enum", "Format") {
		return
	}

	if all.hasValidation(where+":MaxLength", where+":Enum", where+":Format") {
		return
	}

	c.report(field, "its %s have no upper bound: give them a type of their own, with +kubebuilder:validation:MaxLength", where)
}

// messages checks that every CEL rule says what is wrong.
func (c *checker) messages(at token.Pos, found markers) {
	for _, rule := range found.values("kubebuilder:validation:XValidation") {
		if !strings.Contains(rule, "message=") && !strings.Contains(rule, "messageExpression=") {
			c.pass.Reportf(at, "CEL rule without a message: %s", rule)
		}
	}
}

// markersOfType returns the markers of a type of this package.
func (c *checker) markersOfType(typ types.Type) markers {
	if named, ok := types.Unalias(typ).(*types.Named); ok {
		return c.declared[named.Obj()]
	}

	return nil
}

func (c *checker) report(field *ast.Field, format string, args ...any) {
	name := types.ExprString(field.Type)
	if len(field.Names) > 0 {
		name = field.Names[0].Name
	}

	c.pass.Reportf(field.Pos(), "field "+name+": "+format, args...)
}

func isString(typ types.Type) bool {
	basic, ok := typ.Underlying().(*types.Basic)

	return ok && basic.Info()&types.IsString != 0
}

func isCondition(typ types.Type) bool {
	return typ.String() == "k8s.io/apimachinery/pkg/apis/meta/v1.Condition"
}

// jsonTag is a field's json tag.
type jsonTag struct {
	name    string
	options []string
}

func parseTag(field *ast.Field) *jsonTag {
	if field.Tag == nil {
		return nil
	}

	value, ok := reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Lookup("json")
	if !ok {
		return nil
	}

	parts := strings.Split(value, ",")

	return &jsonTag{name: parts[0], options: parts[1:]}
}

func (t *jsonTag) has(option string) bool { return slices.Contains(t.options, option) }
