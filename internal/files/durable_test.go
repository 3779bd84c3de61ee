// SPDX-License-Identifier: Apache-2.0

package files_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/compute-agent/compute-agent/internal/files"
)

// TestReplacePlantedLink: a link or a file that others left where the new content is written first
// is neither followed nor used.
func TestReplacePlantedLink(t *testing.T) {
	dir := t.TempDir()
	target, path := filepath.Join(dir, "target"), filepath.Join(dir, "file")
	if err := os.WriteFile(target, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, plant := range map[string]func(string, string) error{"symbolic": os.Symlink, "hard": os.Link} {
		if err := plant(target, filepath.Join(dir, ".tmp-file")); err != nil {
			t.Fatal(err)
		}
		if err := files.ReplaceMode(path, []byte("new"), 0o644); err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(path)
		if err != nil || info.Mode() != 0o644 {
			t.Errorf("%s link: the file is %v, %v", name, info, err)
		}
		content, err := os.ReadFile(target)
		if info, _ := os.Stat(target); err != nil || string(content) != "theirs" || info.Mode() != 0o600 {
			t.Errorf("%s link: the target is %q, %v, %v", name, content, info.Mode(), err)
		}
	}
}
