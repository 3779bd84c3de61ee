// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"os"
	"path/filepath"
	"testing"
)

// TestBinariesThatAreMade: a command in the directory TEST_BINARIES is taken from there, one that
// is not there is built.
func TestBinariesThatAreMade(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(made, dir)
	Check(t, WriteExecutable(filepath.Join(dir, "compute-agent"), []byte("#!/bin/sh\necho made\n")))
	b := Of("cmd/compute-agent", "test/testproc/nothing")
	b.dir = t.TempDir()
	err := b.Build()
	if content, taken := os.ReadFile(filepath.Join(b.Dir(), "compute-agent")); taken != nil ||
		string(content) != "#!/bin/sh\necho made\n" {
		t.Errorf("taken: %q, %v", content, taken)
	}
	if err == nil {
		t.Error("what is not there is not built")
	}
}
