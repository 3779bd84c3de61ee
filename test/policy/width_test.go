// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestLineWidth: a line of Go fits in 120 columns, of which a tab is four. A raw string of several
// lines has those that it needs.
func TestLineWidth(t *testing.T) {
	const most = 120
	for _, name := range slices.Concat(goFiles(t), goTemplates(t)) {
		if generated(name) {
			continue
		}
		content := testproc.Try(os.ReadFile(filepath.Join(root, name))).Or(t)
		raw := inRawStrings(content)
		number := 0
		for line := range strings.Lines(string(content)) {
			number++
			width := utf8.RuneCountInString(strings.TrimRight(line, "\n")) + 3*strings.Count(line, "\t")
			if width > most && !raw[number] {
				t.Errorf("%s:%d: a line of %d columns; break it at %d", name, number, width, most)
			}
		}
	}
}

// inRawStrings are the numbers of the lines that a raw string of several lines is on.
func inRawStrings(content []byte) map[int]bool {
	lines := map[int]bool{}
	file := token.NewFileSet().AddFile("", -1, len(content))
	var s scanner.Scanner
	s.Init(file, content, nil, 0)
	for {
		at, kind, text := s.Scan()
		if kind == token.EOF {
			return lines
		}
		if further := strings.Count(text, "\n"); kind == token.STRING && further > 0 {
			for n := range further + 1 {
				lines[file.Line(at)+n] = true
			}
		}
	}
}

// goTemplates are the templates of Go files, which authors of drivers get and read.
func goTemplates(t *testing.T) []string {
	t.Helper()
	files := slices.DeleteFunc(textFiles(t), func(name string) bool { return !strings.HasSuffix(name, ".go.tmpl") })
	if len(files) == 0 {
		t.Fatal("there are no templates of Go files")
	}
	return files
}
