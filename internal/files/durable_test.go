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

// TestReplaceAsRoot: what root writes in the directory of a service belongs to the service, but not
// a file that has another name elsewhere.
func TestReplaceAsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	const user = 64999
	dir := t.TempDir()
	if err := os.Chown(dir, user, user); err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func(string) error{
		"replaced": func(path string) error { return files.Replace(path, []byte("new")) },
		"created":  func(path string) error { return files.Create(path, []byte("new"), 0o600) },
		"written":  func(path string) error { return files.OS{}.WriteFile(path, []byte("new")) },
	} {
		path := filepath.Join(dir, name)
		if err := write(path); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if owner, ok := info.Sys().(*syscall.Stat_t); !ok || owner.Uid != user || owner.Gid != user || info.Mode() != 0o600 {
			t.Errorf("%s: %+v", name, info.Sys())
		}
	}
	f, err := os.Create(filepath.Join(dir, "linked"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := os.Link(f.Name(), f.Name()+"-elsewhere"); err != nil {
		t.Fatal(err)
	}
	files.GiveToOwner(f, dir)
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || owner.Uid != 0 {
		t.Errorf("a file with two names was given away: %+v", info.Sys())
	}
}
