package apiconventions

import (
	"go/ast"
	"strings"
)

// markers are the lines of a doc comment that start with a plus sign, without it.
type markers []string

func markersOf(docs ...*ast.CommentGroup) markers {
	var found markers

	for _, doc := range docs {
		if doc == nil {
			continue
		}

		for _, comment := range doc.List {
			line := strings.TrimSpace(strings.TrimPrefix(comment.Text, "//"))
			if marker, ok := strings.CutPrefix(line, "+"); ok {
				found = append(found, marker)
			}
		}
	}

	return found
}

// values returns what follows the name in every marker of that name: the part
// after "=" or ":", or "" for a bare one.
func (m markers) values(name string) []string {
	var found []string

	for _, marker := range m {
		rest, ok := strings.CutPrefix(marker, name)
		if !ok {
			continue
		}

		switch {
		case rest == "":
			found = append(found, "")
		case rest[0] == '=' || rest[0] == ':':
			found = append(found, rest[1:])
		}
	}

	return found
}

func (m markers) has(names ...string) bool {
	for _, name := range names {
		if len(m.values(name)) > 0 {
			return true
		}
	}

	return false
}

// hasValidation says whether one of the validations is there, in either spelling:
// kubebuilder:validation:MaxLength or k8s:maxLength.
func (m markers) hasValidation(names ...string) bool {
	for _, name := range names {
		if m.has("kubebuilder:validation:"+name, "k8s:"+strings.ToLower(name[:1])+name[1:]) {
			return true
		}
	}

	return false
}
