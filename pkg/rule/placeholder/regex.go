package placeholder

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/util/strutil"

	"github.com/rulefleet/rulefleet/pkg/rule"
)

// quotedSpan finds \Q, after any number of escaped backslashes.
var quotedSpan = regexp.MustCompile(`(?:^|[^\\])(?:\\\\)*\\Q`)

// checkRegex refuses placeholders in a regular expression whose value would be part of its syntax: in
// a character class, after a backslash, in the name of a group and the like. It reports which of the
// others have to be put in a group.
func checkRegex(quote byte, pieces []piece) ([]bool, *rule.Fault) {
	first := slices.IndexFunc(pieces, func(p piece) bool { return p.placeholder != nil })
	if first < 0 {
		return nil, nil
	}
	if err := plainInRegex(quote, pieces); err != nil {
		return nil, &rule.Fault{Pos: pieces[first].pos + 1, Message: err.Error()}
	}
	group := make([]bool, len(pieces))
	for i := range pieces[:len(pieces)-1] {
		// A quantifier has to repeat the whole value, not its last character.
		group[i] = strings.IndexAny(pieces[i+1].literal, "*+?{") == 0
	}
	return group, nil
}

// plainInRegex tries words in the place of the placeholders. All have to parse: a
// number above 1000 does not between the braces of a quantifier, and characters of no
// meaning don't after a backslash. Where two words make different character
// classes, they stand in one.
func plainInRegex(quote byte, pieces []piece) error {
	var classes [][]rune
	for _, word := range []string{"\ue000\ue001", "\ue002\ue003", "9999"} {
		pattern, err := withWord(quote, pieces, word)
		if err != nil {
			return err
		}
		if quotedSpan.MatchString(pattern) {
			return errors.New(`a placeholder can't be used together with \Q, because its value is already quoted; remove \Q and \E`)
		}
		tree, err := syntax.Parse(pattern, syntax.Perl|syntax.DotNL)
		if err != nil {
			return fmt.Errorf("the regular expression is not valid after the placeholder is replaced, for example by x: %w", err)
		}
		classes = append(classes, classesOf(tree, nil))
	}
	if !slices.Equal(classes[0], classes[1]) {
		return errors.New("a placeholder is not allowed in a character class […] of a regular expression")
	}
	return nil
}

// withWord returns the value of a literal with a word in place of each placeholder.
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
