// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// recorder is a test whose failure is only recorded.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }

func TestFilesAreComparedOrRewritten(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	file := filepath.Join(t.TempDir(), "page.md")
	testproc.Check(t, os.WriteFile(file, []byte("a\n<!-- b -->\nold\n<!-- e -->\nz\n"), 0o600))
	section := func(got string) bool {
		r := &recorder{TB: t}
		Section(r, file, "<!-- b -->", "<!-- e -->", got)
		return !r.failed
	}
	defer func(was bool) { *update = was }(*update)
	*update = false
	if !section("old\n") || section("new\n") {
		t.Error("the section is compared with something else")
	}
	*update = true
	section("new\n")
	*update = false
	if got, err := os.ReadFile(file); err != nil || string(got) != "a\n<!-- b -->\nnew\n<!-- e -->\nz\n" {
		t.Errorf("rewritten as %q, %v", got, err)
	}
	if !section("new\n") {
		t.Error("the section differs from what was written")
	}
}

func TestTheMessageNamesTheCommand(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	testproc.Equal(t, here(), "./test/golden", "the directory of this test is %s")
}
