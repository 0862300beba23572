package main

import (
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// known has phrases of each licence, all of which are in its text, in words without punctuation.
var known = map[string][]string{
	"Apache-2.0": {"apache license version 2 0", "grant of patent license", "submission of contributions"},
	"MIT":        {"permission is hereby granted free of charge to any person obtaining a copy of this software", "the software is provided as is"},
	"ISC":        {"permission to use copy modify and or distribute this software for any purpose with or without fee is hereby granted"},
	"MPL-2.0":    {"mozilla public license version 2 0", "secondary licenses"},
	"CC0-1.0":    {"cc0 1 0 universal"},
	"Unlicense":  {"this is free and unencumbered software released into the public domain"},
	bsd2:         {"redistribution and use in source and binary forms with or without modification are permitted"},

	"GPL-2.0":        {"gnu general public license version 2 june 1991"},
	"GPL-3.0":        {"gnu general public license version 3 29 june 2007"},
	"LGPL-2.1":       {"gnu lesser general public license version 2 1 february 1999"},
	"LGPL-3.0":       {"gnu lesser general public license version 3 29 june 2007"},
	"AGPL-3.0":       {"gnu affero general public license version 3 19 november 2007"},
	"EPL-2.0":        {"eclipse public license v 2 0"},
	"BUSL-1.1":       {"business source license 1 1"},
	"SSPL-1.0":       {"server side public license version 1"},
	"Commons-Clause": {"commons clause"},
	"Elastic-2.0":    {"elastic license 2 0"},
}

const (
	bsd2 = "BSD-2-Clause"
	bsd3 = "BSD-3-Clause"
)

var (
	licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying)([._-].*)?$`)
	notWord     = regexp.MustCompile(`[^a-z0-9]+`)
)

// named reports whether a file has the name of a licence. Documentation, which LICENSE.docs is about, is not linked.
func named(file string) bool {
	return licenceName.MatchString(file) && !strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, ".docs")
}

// recognize returns the licences in a text. A text can have several, for different files.
func recognize(text string) []string {
	words := notWord.ReplaceAllString(strings.ToLower(text), " ")

	var out []string

	for id, phrases := range known {
		if slices.ContainsFunc(phrases, func(p string) bool { return !strings.Contains(words, p) }) {
			continue
		}

		// The third clause is all that distinguishes the two.
		if id == bsd2 && strings.Contains(words, "neither the name") {
			id = bsd3
		}

		out = append(out, id)
	}

	slices.Sort(out)

	return out
}

func keys(m map[string]int) iter.Seq[string] { return maps.Keys(m) }
