package hub

import (
	"strconv"
	"testing"
)

func TestLives(t *testing.T) {
	t.Parallel()
	var l Lives
	l.Gone("never seen")
	if l.Count() != 0 || l.ChangedSince("a", 0) {
		t.Error("something has changed, and nothing was seen")
	}
	for _, name := range []string{"a", "a", "b"} {
		if l.Saw(name, "1") || l.Count() != 0 {
			t.Errorf("%s is another", name)
		}
	}
	if !l.Saw("a", "3") || !l.ChangedSince("a", 0) || l.ChangedSince("b", 0) {
		t.Error("another one was not noticed")
	}
	before := l.Count()
	l.Gone("b")
	if !l.ChangedSince("b", before) || l.ChangedSince("a", before) {
		t.Error("one that is gone was not noticed")
	}
	if l.Saw("b", "4") {
		t.Error("what was gone has changed twice")
	}
	if !l.ChangedSince("b", before) || l.ChangedSince("b", l.Count()) {
		t.Error("the next one is taken for the former")
	}
}

// The number of remembered names is bounded. A forgotten name counts as changed.
func TestLivesAreBounded(t *testing.T) {
	t.Parallel()
	var l Lives
	l.Saw("first", "1")
	l.Saw("kept", "1")
	before := l.Count()
	for i := range maxLives {
		l.Saw(strconv.Itoa(i), "1")
		if l.ChangedSince("kept", before) {
			t.Fatal("one that is asked for has changed")
		}
	}
	if n := l.names.Len(); n != maxLives {
		t.Errorf("%d names are remembered", n)
	}
	after := l.Count()
	if !l.ChangedSince("first", before) || l.ChangedSince("first", after) {
		t.Error("one that was forgotten did not change by then, or changed after it")
	}
	if !l.Saw("first", "2") || !l.ChangedSince("first", after) {
		t.Error("one that may have been forgotten is taken for a new one")
	}
}
