// Command links checks the documentation without network access: relative links and anchors
// in Markdown files resolve, the tests that they name exist, other files name only pages that
// exist, and no page is too long.
//
//	links ROOT
//
// It checks the files that git knows in the folder ROOT, and new ones that git does not ignore.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// maxLines are the limits of pages in docs, and of single pages. 0 is no limit.
var maxLines = map[string]int{
	"docs":      400,
	"README.md": 150,
}

// generated marks a page that is made from code, which may be as long as it has to be.
const generated = "<!-- Made by `make generate`"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: links ROOT")
		os.Exit(64)
	}

	found, err := run(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "links:", err)
		os.Exit(1)
	}

	for _, problem := range found {
		fmt.Fprintln(os.Stderr, problem)
	}

	if len(found) > 0 {
		os.Exit(1)
	}
}

func run(root string) ([]string, error) {
	out, err := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the files: %w", err)
	}

	names := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")

	return check(os.DirFS(root), names)
}

// check returns the problems in the named files of a tree, in order.
func check(tree fs.FS, names []string) ([]string, error) {
	c := &checker{tree: tree, anchors: map[string]map[string]bool{}, tests: map[string]bool{}}

	slices.Sort(names)

	// Pages name tests, so the tests are read first.
	for _, name := range names {
		data, err := fs.ReadFile(tree, name)
		if strings.HasSuffix(name, "_test.go") && err == nil {
			for _, found := range test.FindAllStringSubmatch(string(data), -1) {
				c.tests[found[1]] = true
			}
		}
	}

	for _, name := range names {
		data, err := fs.ReadFile(tree, name)
		if errors.Is(err, fs.ErrNotExist) { // deleted, and not committed yet
			continue
		}

		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}

		if path.Ext(name) == ".md" {
			c.page(name, string(data))
		} else if !slices.Contains(strings.Split(name, "/"), "testdata") && !strings.HasPrefix(name, ".ci/doc-tools/links/") {
			c.mentions(name, string(data))
		}
	}

	if c.links == 0 {
		return nil, errors.New("there is no link to check")
	}

	return c.problems, nil
}

type checker struct {
	tree     fs.FS
	anchors  map[string]map[string]bool // by page
	tests    map[string]bool
	links    int
	problems []string
}

func (c *checker) report(file, format string, args ...any) {
	c.problems = append(c.problems, file+": "+fmt.Sprintf(format, args...))
}

var (
	fence      = regexp.MustCompile("(?ms)^[ \t]*(```+|~~~+).*?(^[ \t]*(```+|~~~+)[ \t]*$|\\z)")
	comment    = regexp.MustCompile(`(?s)<!--.*?-->`)
	codeSpan   = regexp.MustCompile("``.+?``|`[^`]+`")
	inlineLink = regexp.MustCompile(`\]\(\s*<?([^)\s>]*)>?(?:\s+"[^"]*")?\s*\)`)
	definition = regexp.MustCompile(`(?m)^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)`)
	testName   = regexp.MustCompile("`(Test[A-Z]\\w*)(?:/[^`]*)?`")
	test       = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
	scheme     = regexp.MustCompile(`^([a-zA-Z][a-zA-Z0-9+.-]*:|//)`)
)

// page checks the links of a Markdown file, the tests that it names, and its length.
func (c *checker) page(name, text string) {
	c.length(name, text)

	text = comment.ReplaceAllString(fence.ReplaceAllString(text, ""), "")
	for _, found := range testName.FindAllStringSubmatch(text, -1) {
		if !c.tests[found[1]] {
			c.report(name, "there is no test %s", found[1])
		}
	}

	prose := codeSpan.ReplaceAllString(text, "code")
	for _, expression := range []*regexp.Regexp{inlineLink, definition} {
		for _, found := range expression.FindAllStringSubmatch(prose, -1) {
			if !scheme.MatchString(found[1]) {
				c.follow(name, path.Dir(name), found[1])
			}
		}
	}
}

func (c *checker) length(name, text string) {
	limit, own := maxLines[name]
	if !own && strings.HasPrefix(name, "docs/") {
		limit = maxLines["docs"]
	}

	if lines := strings.Count(text, "\n"); limit > 0 && lines > limit && !strings.Contains(text, generated) {
		c.report(name, "the page has %d lines; split or shorten it, %d are allowed", lines, limit)
	}
}

// mention is a page or a picture that a comment, a message or an URL in another file names.
var mention = regexp.MustCompile(`\bdocs/[\w./-]+\.(?:md|svg|png)(?:#[\w-]+)?`)

// onGitHub is a page of a repository. Other repositories have folders docs, too.
var onGitHub = regexp.MustCompile(`https://github\.com/\S+`)

const ownRepository = "https://github.com/rulefleet/rulefleet/"

func (c *checker) mentions(name, text string) {
	text = onGitHub.ReplaceAllStringFunc(text, func(url string) string {
		if strings.HasPrefix(url, ownRepository) {
			return url
		}

		return ""
	})

	for _, target := range mention.FindAllString(text, -1) {
		c.follow(name, ".", target)
	}
}

// follow checks that a link in a file leads somewhere, from a folder on.
func (c *checker) follow(file, dir, link string) {
	c.links++

	target, anchor, hasAnchor := strings.Cut(link, "#")
	where := path.Join(dir, target)

	if target == "" {
		where = file
	}

	info, err := fs.Stat(c.tree, where)
	if err != nil {
		c.report(file, "%s: there is no file %s", link, where)

		return
	}

	if hasAnchor && !info.IsDir() && path.Ext(where) == ".md" && !c.anchorsOf(where)[anchor] {
		c.report(file, "%s: %s has no heading #%s", link, where, anchor)
	}
}

var (
	heading  = regexp.MustCompile(`(?m)^#{1,6}[ \t]+(.*?)[ \t]*#*[ \t]*$`)
	linkText = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	explicit = regexp.MustCompile(`<a\s+(?:id|name)="([^"]+)"`)
)

// anchorsOf returns the anchors of a page, as GitHub makes them of its headings.
func (c *checker) anchorsOf(name string) map[string]bool {
	if known, ok := c.anchors[name]; ok {
		return known
	}

	anchors := map[string]bool{}
	c.anchors[name] = anchors

	data, err := fs.ReadFile(c.tree, name)
	if err != nil {
		return anchors
	}

	text := fence.ReplaceAllString(string(data), "")
	for _, found := range explicit.FindAllStringSubmatch(text, -1) {
		anchors[found[1]] = true
	}

	for _, found := range heading.FindAllStringSubmatch(text, -1) {
		base := slug(found[1])
		anchor := base

		for n := 1; anchors[anchor]; n++ {
			anchor = fmt.Sprintf("%s-%d", base, n)
		}

		anchors[anchor] = true
	}

	return anchors
}

func slug(text string) string {
	text = linkText.ReplaceAllString(text, "$1")

	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}

		return -1
	}, text)
}
