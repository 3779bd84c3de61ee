// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

var (
	// namedTest is a test as docs/specifications.md names it: directory.Test.
	namedTest = regexp.MustCompile(`(?:^|[ (])([a-z0-9][a-z0-9_/-]*)\.(Test\w+)`)
	testFunc  = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	// sentence is a row of its tables about a sentence of a specification, with its number.
	sentence = regexp.MustCompile(`^\| ([RDNFC]\d+) \|`)
)

// TestSpecificationsNameTests: each sentence of a specification has a verdict and, unless it is not
// applicable, a test that exists; its numbers have no gaps; and each that differs is in the list of
// all differences.
func TestSpecificationsNameTests(t *testing.T) {
	const page = "docs/specifications.md"
	content := testproc.Try(os.ReadFile(filepath.Join(root, page))).Or(t)
	funcs := map[string]map[string]bool{}
	exists := func(dir, name string) bool {
		if funcs[dir] == nil {
			funcs[dir] = map[string]bool{}
			files := testproc.Try(filepath.Glob(filepath.Join(root, dir, "*_test.go"))).Or(t)
			for _, file := range files {
				text := testproc.Try(os.ReadFile(file)).Or(t)
				for _, m := range testFunc.FindAllSubmatch(text, -1) {
					funcs[dir][string(m[1])] = true
				}
			}
		}
		return funcs[dir][name]
	}
	differences, body, found := strings.Cut(string(content), "\n## Handling Reshaped Provider Trees\n")
	if !found {
		t.Fatalf("%s has no list of differences before its first specification", page)
	}
	last := map[byte]int{}
	for line := range strings.Lines(body) {
		tests := namedTest.FindAllStringSubmatch(line, -1)
		for _, m := range tests {
			if !exists(m[1], m[2]) {
				t.Errorf("%s: there is no %s in %s", page, m[2], m[1])
			}
		}
		m := sentence.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		id := m[1]
		last[id[0]]++
		if want := id[:1] + strconv.Itoa(last[id[0]]); id != want {
			t.Errorf("%s: %s is where %s must be", page, id, want)
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 5 {
			t.Errorf("%s: %s has %d cells, want 5", page, id, len(cells))
			continue
		}
		verdict := strings.TrimSpace(cells[2])
		applies := !strings.HasPrefix(verdict, "not applicable")
		if applies && !strings.HasPrefix(verdict, "built") && !strings.HasPrefix(verdict, "differs") {
			t.Errorf("%s: %s is neither built nor different nor not applicable: %s", page, id, verdict)
		}
		if applies && len(tests) == 0 {
			t.Errorf("%s: no test shows %s", page, id)
		}
		differs := strings.Contains(strings.ToLower(verdict), "differs")
		if listed := strings.Contains(differences, "["+id+"]("); applies && listed != differs {
			t.Errorf("%s: %s: %s; in the list of differences: %t", page, id, verdict, listed)
		}
	}
	testproc.Equal(t, len(last), 5, "%s is about %d specifications", page)
}
