package manifest

import (
	"strings"
	"testing"
)

func TestObjects(t *testing.T) {
	for name, tc := range map[string]struct {
		file, names, err string
	}{
		"none":            {},
		"several":         {file: "kind: A\n---\nkind: B\n", names: "A B"},
		"without content": {file: "---\n# a comment\n---\nkind: A\n---\n", names: "A"},
		"not YAML":        {file: "kind: A\n---\n\tkind: B\n", err: "document 2: "},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := Objects([]byte(tc.file))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v, want %q", err, tc.err)
				}
				return
			}
			var kinds []string
			for _, o := range objects {
				kinds = append(kinds, o.GetKind())
			}
			if is := strings.Join(kinds, " "); err != nil || is != tc.names {
				t.Errorf("got %q, %v", is, err)
			}
		})
	}
}
