// SPDX-License-Identifier: Apache-2.0

package files_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
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

// TestWriteFilePlantedLink: what a service's user has put in its directory does not have root write
// or give away another file.
func TestWriteFilePlantedLink(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	if err := os.WriteFile(target, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := (files.OS{}).WriteFile(link, []byte("new")); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a symbolic link was followed: %v", err)
	}
	if content, err := os.ReadFile(target); err != nil || string(content) != "theirs" {
		t.Errorf("the target is %q, %v", content, err)
	}
}

// TestGiveToOwner: root's new file belongs to the owner of the directory, and one that has another
// name elsewhere does not.
func TestGiveToOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	const service = 64999
	dir := t.TempDir()
	if err := os.Chown(dir, service, service); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		linked bool
		owner  uint32
	}{"new": {false, service}, "linked": {true, 0}} {
		path := filepath.Join(dir, name)
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if c.linked {
			if err := os.Link(path, path+"-elsewhere"); err != nil {
				t.Fatal(err)
			}
		}
		files.GiveToOwner(f, dir)
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if owner := info.Sys().(*syscall.Stat_t).Uid; owner != c.owner { //nolint:forcetypeassert // Linux
			t.Errorf("%s: the owner is %d, want %d", name, owner, c.owner)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
