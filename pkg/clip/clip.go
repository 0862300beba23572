package clip

import (
	"strings"
	"unicode/utf8"
)

// JSON limits a text to limit bytes as JSON, in which the text of a spoke can take six times as
// much.
func JSON(s string, limit int) string {
	room, end := limit-len("…"), 0
	size := 0
	for i, r := range s {
		size += jsonSize(r)
		if size <= room {
			end = i + utf8.RuneLen(r)
		}
		if size > limit {
			return s[:end] + "…"
		}
	}
	return s
}

func jsonSize(r rune) int {
	switch {
	case r == '"', r == '\\', r == '\n', r == '\r', r == '\t':
		return 2
	case r < ' ', r == '<', r == '>', r == '&', r == '\u2028', r == '\u2029':
		return 6
	}
	return utf8.RuneLen(r)
}

// Excerpt shortens a quoted text for a message.
func Excerpt(s string) string {
	const limit = 80
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	return Bytes(s, limit) + "…"
}

// Bytes shortens s to at most limit bytes, on a rune boundary.
func Bytes(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// Marked is Bytes with a mark for the missing part.
func Marked(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	return Bytes(s, limit-len("…")) + "…"
}
