// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestCommandsAndFilesOfADocument(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	file := filepath.Join(t.TempDir(), "page.md")
	err := os.WriteFile(file, []byte("Text\n\n    a# first --flag\n    shown\n\n      more\n    b# second\n\n"+
		"Text with # in it\n\n    not# a prompt\n\n```toml\n# on a, b: /etc/x\nk = 1\n# c\n```\n\n```toml\n# a "+
		"comment\n```\n"), 0o600)
	testproc.Check(t, err)
	wanted := []Command{{3, "a#", "first --flag", "shown\n\n  more\n"}, {7, "b#", "second", "\n"}}
	testproc.EqualList(t, Commands(t, file, "a#", "b#"), wanted, "commands: %+v")
	testproc.EqualList(t, Files(t, file), []File{{14, "a, b", "/etc/x", "k = 1\n# c\n"}}, "files: %+v")
}

// TestDiffers: the comparison that the document is held to finds differences.
func TestDiffers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct {
		shown, came string
		same        bool
	}{
		{"a 1\n", "a  27\n", true},
		{"v1.0.0 x\n", "devel x\n", true},
		{"a\n", "b\n", false},
		{"a\n", "", false},
		{"", "a\n", false},
		{"a\nb\n", "b\na\n", false},
		{"a\n…\nc\n", "a\nb\nb\nc\n", true},
		{"a\n…\n", "a\n", true},
		{"a\n…\nc\n", "a\nb\n", false},
		{"a\nc\n", "a\nb\nc\n", false},
		{"…\nb\n", "a\nb\nc\n", false},
	} {
		if why := Differs(c.shown, c.came); (why == "") != c.same {
			t.Errorf("%q and %q: %s", c.shown, c.came, why)
		}
	}
}
