package memory

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

type key struct {
	spoke string
	types.NamespacedName
}

type inner struct{ waiting map[int]sets.Set[key] }

type outer struct {
	byName  map[string]int
	pointer *inner
	list    []any
	self    *outer
	foreign types.NamespacedName
}

func TestOf(t *testing.T) {
	o := &outer{
		byName:  map[string]int{"s": 1, "t": 1},
		pointer: &inner{waiting: map[int]sets.Set[key]{7: sets.New(key{spoke: "s"}, key{spoke: "t"})}},
		list:    []any{map[any]bool{key{spoke: "s"}: true}, nil},
		foreign: types.NamespacedName{Name: "s"},
	}
	o.self = o
	got := Of(o, "s")
	slices.Sort(got)
	if want := []string{".byName[s]", ".list[0][{s { }}]", ".pointer.waiting[7][{s { }}]"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Beside(o, "s", "pointer", "byNam"); len(got) != 2 {
		t.Errorf("got %q", got)
	}
	if got := Of(o, "u"); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}
