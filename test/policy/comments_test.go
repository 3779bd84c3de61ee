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
var unclearComments = map[*regexp.Regexp]string{
	regexp.MustCompile(`\btold\b`):                      "reported, logged, returned",
	regexp.MustCompile(`\bof before\b`):                 "older, earlier, former",
	regexp.MustCompile(`\bthe last word\b`):             "final, the final report",
	regexp.MustCompile(`\blooks? (?:once more|upon)\b`): "checks again",
}

// pronounComment is the beginning of a comment that names what it describes by a pronoun.
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
	for phrase, better := range unclearComments {
		if found := phrase.FindString(text); found != "" {
			all = append(all, "a comment with "+found+": write "+better)
		}
	}
	return all
}
