package rule

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/util/strutil"
)

// checkRegex tells which placeholders of a regular expression have to be put in a
// group, and refuses those whose value would not be read as plain text: in a
// character class, after a backslash, in the name of a group and the like.
func checkRegex(quote byte, pieces []piece) ([]bool, *fault) {
	first := slices.IndexFunc(pieces, func(p piece) bool { return p.placeholder != nil })
	if first < 0 {
		return nil, nil
	}
	if err := plainInRegex(quote, pieces); err != nil {
		return nil, &fault{pieces[first].pos + 1, err.Error()}
	}
	// Digits between braces would be a quantifier, as in a{$(…)}.
	braces := slices.ContainsFunc(pieces, func(p piece) bool { return strings.Contains(p.literal, "{") })
	group := make([]bool, len(pieces))
	for i := range pieces {
		// A quantifier has to repeat the whole value, not its last character.
		quantified := i+1 < len(pieces) && strings.IndexAny(pieces[i+1].literal, "*+?") == 0
		group[i] = braces || quantified
	}
	return group, nil
}

// plainInRegex puts two different words in the place of the placeholders. Both
// have to parse, and if they change a character class, a placeholder stands in one.
func plainInRegex(quote byte, pieces []piece) error {
	var classes [2][]rune
	for n, word := range [2]string{"\ue000\ue001", "\ue002\ue003"} {
		pattern, err := withWord(quote, pieces, word)
		if err != nil {
			return err
		}
		if strings.Contains(pattern, `\Q`) {
			return fmt.Errorf(`a placeholder's value is quoted already, and can't be used together with \Q`)
		}
		tree, err := syntax.Parse(pattern, syntax.Perl|syntax.DotNL)
		if err != nil {
			return fmt.Errorf("with a plain word in place of the placeholder, the regular expression is not valid: %w", err)
		}
		classes[n] = classesOf(tree, nil)
	}
	if !slices.Equal(classes[0], classes[1]) {
		return fmt.Errorf("a placeholder can't stand in a character class […] of a regular expression")
	}
	return nil
}

// withWord returns what a literal says with a word in place of each placeholder.
func withWord(quote byte, pieces []piece, word string) (string, error) {
	var b strings.Builder
	b.WriteByte(quote)
	for _, p := range pieces {
		if p.placeholder != nil {
			b.WriteString(word)
		}
		b.WriteString(p.literal)
	}
	b.WriteByte(quote)
	return strutil.Unquote(b.String())
}

func classesOf(tree *syntax.Regexp, classes []rune) []rune {
	if tree.Op == syntax.OpCharClass {
		classes = append(append(classes, tree.Rune...), -1)
	}
	for _, sub := range tree.Sub {
		classes = classesOf(sub, classes)
	}
	return classes
}
