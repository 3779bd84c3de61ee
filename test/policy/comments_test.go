// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// unclearComments are phrases that a comment of the product does not use, and what to write
// instead. A phrase may go over the end of a line.
var unclearComments = []struct {
	phrase *regexp.Regexp
	better string
}{
	{regexp.MustCompile(`\btold\b`), "reported, logged, returned"},
	{regexp.MustCompile(`\bof before\b`), "older, earlier, former"},
	{regexp.MustCompile(`\blast word\b`), "final, the final report"},
	{regexp.MustCompile(`\blook(?:s|ed)? (?:at )?(?:once more|upon)\b`), "check again"},
	{regexp.MustCompile(`\bjudg(?:es?|ed|ing)\b`), "check, evaluate, decide"},
	{pronounComment, `"X is the x of …", "X returns the x of …"`},
}

// pronounComment is a sentence that says of something only "X is that of …" or "X are those …".
var pronounComment = regexp.MustCompile(`(?:^|[.:;] )\w+ (?:is|are) (?:that|those)\b`)

// packageComment is the name of a package, and the word before it. "This package has" and "each
// package that" name none.
var packageComment = regexp.MustCompile(`(?:\b([\w']+) )?\bpackage ([a-z]\w*)`)

// externalPackages are the packages of other modules and of the standard library that comments of
// the product name by their last element.
var externalPackages = []string{"libvirtxml", "net", "os", "ssh", "testing", "time"}

// notBeforeName are words before "package" after which no name of one follows.
var notBeforeName = []string{"a", "an", "another", "any", "each", "every", "no", "one", "our", "that", "the", "their",
	"these", "this", "those", "which", "whose", "own"}

// TestComments: a comment of the product says what a thing is or what a function returns, in words
// that need no second reading.
func TestComments(t *testing.T) {
	for _, name := range goFiles(t) {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "test/") || generated(name) {
			continue
		}
		set := token.NewFileSet()
		file := testproc.Try(parser.ParseFile(set, filepath.Join(root, name), nil,
			parser.ParseComments|parser.SkipObjectResolution)).Or(t)
		for _, group := range file.Comments {
			for _, found := range unclearIn(group) {
				t.Errorf("%s:%d: %s", name, set.Position(group.Pos()).Line, found)
			}
		}
	}
}

// TestCommentsNameExistingPackages: "package x" in a comment of the product is a package of the
// repository, or one of externalPackages.
func TestCommentsNameExistingPackages(t *testing.T) {
	known := map[string]bool{}
	for _, name := range externalPackages {
		known[name] = true
	}
	var files []*ast.File
	set := token.NewFileSet()
	for _, name := range goFiles(t) {
		file := testproc.Try(parser.ParseFile(set, filepath.Join(root, name), nil,
			parser.ParseComments|parser.SkipObjectResolution)).Or(t)
		known[strings.TrimSuffix(file.Name.Name, "_test")] = true
		if !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "test/") && !generated(name) {
			files = append(files, file)
		}
	}
	for _, file := range files {
		for _, group := range file.Comments {
			for _, name := range packagesIn(group.Text()) {
				if !known[name] {
					t.Errorf("%s: there is no package %s; name the one that is meant", set.Position(group.Pos()), name)
				}
			}
		}
	}
}

// packagesIn returns the packages that a text names.
func packagesIn(text string) (names []string) {
	for _, found := range packageComment.FindAllStringSubmatch(strings.Join(strings.Fields(text), " "), -1) {
		if !slices.Contains(notBeforeName, strings.ToLower(found[1])) {
			names = append(names, found[2])
		}
	}
	return names
}

// TestPackagesIn: the rule of TestCommentsNameExistingPackages, by examples.
func TestPackagesIn(t *testing.T) {
	for text, want := range map[string]string{
		"The rules are those of package\nhostpolicy.":             "hostpolicy",
		"A kind of encryption (package selection), of package x.": "selection x",
		"This package has no clock. The package comment says so.": "",
		"Cores are numbered within their package or their die.":   "",
		"Package wire is the beginning of a package's comment.":   "",
		"The packages share what package net understands.":        "net",
	} {
		testproc.Equal(t, strings.Join(packagesIn(text), " "), want, text+": %q")
	}
}

// unclearIn describes the unclear phrases of a comment.
func unclearIn(group *ast.CommentGroup) (all []string) {
	text := strings.Join(strings.Fields(group.Text()), " ")
	for _, unclear := range unclearComments {
		if found := unclear.phrase.FindString(text); found != "" {
			all = append(all, "a comment with "+found+": write "+unclear.better)
		}
	}
	return all
}

// TestUnclearIn: the rule of TestComments, by examples.
func TestUnclearIn(t *testing.T) {
	for text, unclear := range map[string]bool{
		"// Index is that of the agent.":                     true,
		"// index is that of the agent.":                     true,
		"// Jobs are those to run. at is that\n// of a job.": true,
		"// Index says which agent is that of the\n// host.": false,
		"// Index returns the position of the agent.":        false,
		"// A driver that\n// told of a node.":               true,
		"// The nodes of\n// before are kept.":               true,
		"// The nodes of beforehand are kept.":               false,
		"// It is the agent's last word.":                    true,
		"// It is the last one of its words.":                false,
		"// Each is looked at once\n// more before a write.": true,
		"// It judges a write.":                              true,
		"// It looks for more.":                              false,
	} {
		group := &ast.CommentGroup{}
		for line := range strings.Lines(text) {
			group.List = append(group.List, &ast.Comment{Text: strings.TrimSuffix(line, "\n")})
		}
		testproc.Equal(t, len(unclearIn(group)) > 0, unclear, text+": %t")
	}
}
