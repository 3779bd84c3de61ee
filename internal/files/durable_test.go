// SPDX-License-Identifier: Apache-2.0

package files_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestReplacePlantedLink: a link or a file that others left where the new content is written first
// is neither followed nor used.
func TestReplacePlantedLink(t *testing.T) {
	dir := t.TempDir()
	target, path := filepath.Join(dir, "target"), filepath.Join(dir, "file")
	testproc.Check(t, os.WriteFile(target, []byte("theirs"), 0o600))
	for name, plant := range map[string]func(string, string) error{"symbolic": os.Symlink, "hard": os.Link} {
		testproc.Check(t, plant(target, filepath.Join(dir, ".tmp-file")))
		testproc.Check(t, files.ReplaceMode(path, []byte("new"), 0o644))
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
	testproc.Check(t, os.WriteFile(target, []byte("theirs"), 0o600))
	link := filepath.Join(dir, "link")
	testproc.Check(t, os.Symlink(target, link))
	testproc.ErrorIs(t, (files.OS{}).WriteFile(link, []byte("new")), syscall.ELOOP, "a symbolic link was followed: %v")
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
	testproc.Check(t, os.Chown(dir, user, user))
	for name, write := range map[string]func(string) error{
		"replaced": func(path string) error { return files.Replace(path, []byte("new")) },
		"created":  func(path string) error { return files.Create(path, []byte("new"), 0o600) },
		"written":  func(path string) error { return files.OS{}.WriteFile(path, []byte("new")) },
	} {
		path := filepath.Join(dir, name)
		testproc.Check(t, write(path))
		info := testproc.Try(os.Stat(path)).Or(t)
		if owner, ok := info.Sys().(*syscall.Stat_t); !ok || owner.Uid != user ||
			owner.Gid != user || info.Mode() != 0o600 {
			t.Errorf("%s: %+v", name, info.Sys())
		}
	}
	f := testproc.Try(os.Create(filepath.Join(dir, "linked"))).Or(t)
	defer func() { _ = f.Close() }()
	testproc.Check(t, os.Link(f.Name(), f.Name()+"-elsewhere"))
	files.GiveToOwner(f, dir)
	info := testproc.Try(f.Stat()).Or(t)
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || owner.Uid != 0 {
		t.Errorf("a file with two names was given away: %+v", info.Sys())
	}
}
