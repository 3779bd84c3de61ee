// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// elsewhere is a line of doc.go: an attack, a package and the test in it.
var elsewhere = regexp.MustCompile(`(?m)^//\t\S.*?  +(\S+): (Test\w+)$`)

// TestAttacksElsewhere: the tests that doc.go names are there.
func TestAttacksElsewhere(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	doc := string(testproc.Try(os.ReadFile("doc.go")).Or(t))
	named := elsewhere.FindAllStringSubmatch(doc, -1)
	if lines := strings.Count(doc, ": Test"); len(named) < 10 || len(named) != lines {
		t.Fatalf("doc.go names %d of its %d tests in their form", len(named), lines)
	}
	for _, one := range named {
		found := false
		for _, file := range testproc.Try(filepath.Glob(filepath.Join("../..", one[1], "*_test.go"))).Or(t) {
			found = found ||
				strings.Contains(string(testproc.Try(os.ReadFile(file)).Or(t)), "\nfunc "+one[2]+"(t *testing.T) {\n")
		}
		if !found {
			t.Errorf("%s has no %s", one[1], one[2])
		}
	}
}
