// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
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
}

// pronounComment is the beginning of a comment on an exported name that describes it by a pronoun.
var pronounComment = regexp.MustCompile(`^// [A-Z]\w+ (?:is|are) (?:that|those) of\b`)

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

// unclearIn describes the unclear phrases of a comment.
func unclearIn(group *ast.CommentGroup) (all []string) {
	for _, line := range group.List {
		if found := pronounComment.FindString(line.Text); found != "" {
			all = append(all, found+` …: name it: "X is the x of …", "X returns the x of …"`)
		}
	}
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
		"// Index returns the position of the agent.":        false,
		"// A driver that\n// told of a node.":               true,
		"// The nodes of\n// before are kept.":               true,
		"// The nodes of beforehand are kept.":               false,
		"// It is the agent's last word.":                    true,
		"// It is the last one of its words.":                false,
		"// Each is looked at once\n// more before a write.": true,
		"// It looks for more.":                              false,
	} {
		group := &ast.CommentGroup{}
		for line := range strings.Lines(text) {
			group.List = append(group.List, &ast.Comment{Text: strings.TrimSuffix(line, "\n")})
		}
		testproc.Equal(t, len(unclearIn(group)) > 0, unclear, text+": %t")
	}
}
