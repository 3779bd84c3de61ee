// SPDX-License-Identifier: Apache-2.0

package textutil_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestSnippet(t *testing.T) {
	for _, c := range []struct {
		name          string
		number        int
		text          string
		column, width int
		want          string
	}{
		{"without a place", 3, "a = 1", 0, 2, "    3| a = 1"},
		{"the beginning", 3, "a = 1", 1, 1, "    3| a = 1\n     | ~"},
		{"the end", 12345, "a = 12", 5, 2, "12345| a = 12\n     |     ~~"},
		{"more than the line has", 3, "a = 12", 5, 99, "    3| a = 12\n     |     ~~"},
		{"no width", 3, "a = 12", 5, 0, "    3| a = 12\n     |     ~"},
		{"behind the line", 3, "a = 12", 7, 1, "    3| a = 12"},
		{"a negative column", 3, "a = 12", -1, 1, "    3| a = 12"},
		{"an empty line", 3, "", 1, 1, "    3| "},
		{"tabs", 3, "\ta\t= 1", 2, 1, "    3|  a = 1\n     |  ~"},
		{"characters, and not bytes", 3, "näme = grün", 8, 4, "    3| näme = grün\n     |        ~~~~"},
		{"a long line", 3, strings.Repeat("x", 161), 160,
			9, "    3| " + strings.Repeat("x", 160) + "…\n     | " + strings.Repeat(" ", 159) + "~~"},
		{"a long line, behind what is shown", 3, strings.Repeat("x", 300), 162, 9, "    3| " +
			strings.Repeat("x", 160) + "…"},
		{"a character that is cut", 3, strings.Repeat("x", 159) + "é", 0, 0, "    3| " +
			strings.Repeat("x", 159) + "…"},
	} {
		testproc.Samef(t, cmp.Diff(c.want, textutil.Snippet(c.number, c.text, c.column, c.width)), "%s", c.name)
	}
}

// problem is an error of a type of its own, as those of who uses this are.
type problem struct {
	what string
	kind error
}

func (p *problem) Error() string { return p.what }
func (p *problem) Unwrap() error { return p.kind }

func TestList(t *testing.T) {
	var problems []*problem
	for i := range 5 {
		problems = append(problems, &problem{what: fmt.Sprintf("problem %d", i)})
	}
	for most, want := range map[int]string{
		5: "problem 0\nproblem 1\nproblem 2\nproblem 3\nproblem 4",
		6: "problem 0\nproblem 1\nproblem 2\nproblem 3\nproblem 4",
		4: "problem 0\nproblem 1\nproblem 2\nproblem 3\nand 1 more", 1: "problem 0\nand 4 more",
	} {
		testproc.Samef(t, cmp.Diff(want, textutil.List(problems, most)), "%d", most)
	}
	testproc.Equal(t, textutil.List[*problem](nil, 3), "", "none: %q")
}

func TestErrors(t *testing.T) {
	last := &problem{"b", fs.ErrNotExist}
	all := errors.Join(textutil.Errors([]*problem{{"a", nil}, last})...)
	var found *problem
	if !errors.Is(all, fs.ErrNotExist) || !errors.Is(all, last) || !errors.As(all, &found) || found.what != "a" {
		t.Errorf("the joined errors: got %v, want each to be found", all)
	}
}
