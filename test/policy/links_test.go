// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// link is a link of Markdown to a file or an anchor.
var link = regexp.MustCompile(`\]\(([^() ]+)\)`)

// reference is a link whose target is at the end of the page.
var reference = regexp.MustCompile(`^\[[^]]+\]: +([^ :]+)$`)

// TestLinks: what the documentation links to exists, files and headings.
func TestLinks(t *testing.T) {
	pages := map[string]*page{}
	read := func(name string) *page {
		if pages[name] == nil {
			content := testproc.Try(os.ReadFile(filepath.Join(root, name))).Or(t)
			pages[name] = parsePage(string(content))
		}
		return pages[name]
	}
	for _, name := range textFiles(t) {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, to := range read(name).links {
			file, anchor, _ := strings.Cut(to, "#")
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, to)
				continue
			}
			if anchor != "" && path.Ext(target) == ".md" && !read(target).anchors[anchor] {
				t.Errorf("%s links to %s, and %s has no such heading", name, to, target)
			}
		}
	}
}

// mention is a page of the documentation that a text names, with an anchor or without.
var mention = regexp.MustCompile(`\bdocs/[a-z0-9/-]+\.md(#[\w-]+)?`)

// TestMentionedPagesExist: the pages that code, hints, rules and units name exist, with their
// sections. Those of modules that tests write are other pages.
func TestMentionedPagesExist(t *testing.T) {
	pages := map[string]*page{}
	found := 0
	for _, name := range textFiles(t) {
		content := testproc.Try(os.ReadFile(filepath.Join(root, name))).Or(t)
		for _, to := range mention.FindAllString(string(content), -1) {
			found++
			file, anchor, _ := strings.Cut(to, "#")
			if pages[file] == nil {
				text, err := os.ReadFile(filepath.Join(root, file))
				if err != nil {
					t.Errorf("%s names %s, which does not exist", name, to)
					continue
				}
				pages[file] = parsePage(string(text))
			}
			if anchor != "" && !pages[file].anchors[anchor] {
				t.Errorf("%s names %s, and there is no such heading", name, to)
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d pages are named", found)
	}
}

// page is what a file of Markdown links to within the repository, and the anchors of its headings.
type page struct {
	links   []string
	anchors map[string]bool
}

func parsePage(content string) *page {
	p := &page{anchors: map[string]bool{}}
	code, listed := false, false
	for line := range strings.Lines(content) {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			code = !code
			continue
		case code:
			continue
		case strings.HasPrefix(line, "    "): // a block of code, or a paragraph in a list, which has no headings
			if !listed {
				continue
			}
		case strings.TrimSpace(line) != "":
			listed = strings.HasPrefix(line, "- ") ||
				strings.HasPrefix(line, "* ") || listed && strings.HasPrefix(line, " ")
		}
		if reference.MatchString(line) {
			p.links = append(p.links, reference.FindStringSubmatch(line)[1])
			continue
		}
		if strings.HasPrefix(line, "#") {
			slug := slugOf(strings.TrimSpace(strings.TrimLeft(line, "#")))
			anchor := slug
			for n := 1; p.anchors[anchor]; n++ {
				anchor = slug + "-" + strconv.Itoa(n)
			}
			p.anchors[anchor] = true
		}
		for _, m := range link.FindAllStringSubmatch(line, -1) {
			if !strings.Contains(m[1], "://") && !strings.HasPrefix(m[1], "mailto:") {
				p.links = append(p.links, m[1])
			}
		}
	}
	return p
}

// slugOf is the anchor of a heading, as GitHub and most tools make it.
func slugOf(heading string) string {
	heading = link.ReplaceAllString(strings.ReplaceAll(heading, "[", ""), "")
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, heading)
}

// TestSlugs: headings, and their anchors.
func TestSlugs(t *testing.T) {
	for heading, want := range map[string]string{
		"What happens when …":              "what-happens-when-",
		"GET /servers/{id}":                "get-serversid",
		"`root_member_of`":                 "root_member_of",
		"Identity: who [we](a.md) are":     "identity-who-we-are",
		"root_member_of, group_policy":     "root_member_of-group_policy",
		"PUT /allocations/{consumer_uuid}": "put-allocationsconsumer_uuid",
	} {
		testproc.Equal(t, slugOf(heading), want, "%s: %s", heading)
	}
}
