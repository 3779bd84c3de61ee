// SPDX-License-Identifier: Apache-2.0

package providerconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func entry(by, trait string) string {
	return meta + "providers:\n  - identification: " + by + "\n    traits: {additional: [" + trait + "]}\n"
}

func TestWhichFiles(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := write(t, map[string]string{
		"20-b.yaml": entry("{name: b}", "CUSTOM_B"), "10-a.yaml": entry("{name: a}", "CUSTOM_A"),
		"30.yml": "not: read\n", ".hidden.yaml": "not: read\n",
		"a.yaml.rpmsave": "no\n", "README": "no\n",
	})
	target := filepath.Join(t.TempDir(), "elsewhere")
	testproc.Check(t, os.WriteFile(target, []byte(entry("{name: c}", "CUSTOM_C")), 0o600))
	testproc.Check(t, os.Symlink(target, filepath.Join(dir, "25-link.yaml")))
	c, warnings, err := Load(dir)
	testproc.Check(t, err)
	var names []string
	for _, e := range c.Entries() {
		names = append(names, e.ID())
	}
	testproc.Samef(t, cmp.Diff([]string{"a", "b", "c"}, names), "entries")
	if got, want := fmt.Sprint(warnings), "["+dir+"/30.yml: the file is not read: only files *.yaml are, "+
		"as with Nova; rename it to 30.yaml, or move it away]"; got != want {
		t.Errorf("warnings:\n%s\nwant:\n%s", got, want)
	}
	testproc.Equal(t, len(c.Files()), 3, "%d files")
}

func TestNoDirectory(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c, warnings, err := Load(filepath.Join(t.TempDir(), "absent"))
	if err != nil || c.Len() != 0 || len(warnings) != 0 {
		t.Errorf("Load: %v, %v, %v", c, warnings, err)
	}
	var none *Config
	if none.Len() != 0 || none.Files() != nil || none.Entries() != nil || none.Location("a", "b", "c") != "" ||
		!none.Same(nil) || !none.Same(c) {
		t.Error("a nil Config is not an empty one")
	}
}

// TestUnreadableFiles: what cannot be read is named, every file of it, and nothing waits for a
// pipe.
func TestUnreadableFiles(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	check := func(err error) {
		t.Helper()
		testproc.Check(t, err)
	}
	check(os.Mkdir(filepath.Join(dir, "dir.yaml"), 0o700))
	check(syscall.Mkfifo(filepath.Join(dir, "fifo.yaml"), 0o600))
	check(os.Symlink("nowhere", filepath.Join(dir, "dangling.yaml")))
	check(os.Symlink("loop.yaml", filepath.Join(dir, "loop.yaml")))
	put(t, dir, "big.yaml", meta+strings.Repeat("# a comment\n", maxFileSize/12+1))
	put(t, dir, "wrong.yaml", "meta: 1\n")
	_, _, err := Load(dir)
	if !errors.Is(err, ErrInvalid) || !errors.Is(err, errNotRegular) || !errors.Is(err, errTooBig) ||
		!errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("Load: %v", err)
	}
	want := `big.yaml: the file is larger than 1048576 bytes
  hint: split it: every file *.yaml of the directory is read
dangling.yaml: cannot be read: no such file or directory
  hint: this is a dangling symbolic link: fix or remove it
dir.yaml: this is not a regular file
  hint: put a file there, or move it away
fifo.yaml: this is not a regular file
  hint: put a file there, or move it away
loop.yaml: cannot be read: too many levels of symbolic links
  hint: this is a symbolic link that leads to itself: fix or remove it
wrong.yaml:1:7: meta: meta must be a mapping, not the number 1
    1| meta: 1
     |       ~
  hint: write schema_version: '1.0'`
	testproc.Samef(t, cmp.Diff(want, strings.ReplaceAll(err.Error(), dir+"/", "")), "message")
	denied := fileProblem(dir+"/wrong.yaml",
		&fs.PathError{Op: "open", Path: dir + "/wrong.yaml", Err: fs.ErrPermission})
	testproc.ErrorHas(t, denied, "wrong.yaml: cannot be read: permission denied: it belongs to ",
		"without permission: %v")
	testproc.ErrorHas(t, denied, "\n  hint: run: chgrp ", "without permission: %v")
	_, _, err = Load(filepath.Join(dir, "wrong.yaml"))
	testproc.ErrorHas(t, err, "make it a directory", "a file for a directory: %v")
}

func TestTooManyFiles(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	for i := range maxFiles + 1 {
		put(t, dir, fmt.Sprintf("%d.yaml", i), meta)
	}
	if _, _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "holds 1001 files") {
		t.Errorf("Load: %v", err)
	}
	testproc.Check(t, os.Remove(filepath.Join(dir, "0.yaml")))
	if _, _, err := Load(dir); err != nil {
		t.Errorf("1000 files: %v", err)
	}
}

// TestTwoEntries: one provider has one entry, over all files; Nova compares uuids as texts, and we
// by what they are.
func TestTwoEntries(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const id = "6c9f7d5e-8a0b-4c1d-9e2f-3a4b5c6d7e8f"
	for name, tc := range map[string]struct{ a, b, at string }{
		"$COMPUTE_NODE":   {"{uuid: $COMPUTE_NODE}", "{uuid: $COMPUTE_NODE}", `"$COMPUTE_NODE"`},
		"by name":         {"{name: cn1}", "{name: cn1}", `"cn1"`},
		"by uuid":         {"{uuid: " + id + "}", "{uuid: " + strings.ToUpper(id) + "}", `"` + id + `"`},
		"name of a uuid":  {"{uuid: " + id + "}", "{name: " + id + "}", ""},
		"by name and not": {"{name: cn1}", "{name: CN1}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, map[string]string{"a.yaml": entry(tc.a, "CUSTOM_A"), "b.yaml": entry(tc.b, "CUSTOM_A")})
			_, _, err := Load(dir)
			if tc.at == "" {
				testproc.Check(t, err)
				return
			}
			want := dir + "/b.yaml:3:21: providers[0].identification: " + tc.at +
				" already has an entry, at " + dir + "/a.yaml:3\n"
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("Load: %v\nwant %s", err, want)
			}
		})
	}
	// An entry that adds nothing does not count.
	dir := write(t, map[string]string{"a.yaml": entry("{name: cn1}", ""), "b.yaml": entry("{name: cn1}", "CUSTOM_A")})
	if c, warnings, err := Load(dir); err != nil || c.Len() != 1 || len(warnings) != 1 {
		t.Errorf("Load: %v, %v, %v", c, warnings, err)
	}
}

// TestManyProblems: what an operator is shown of a file of something else has an end.
func TestManyProblems(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := write(t, map[string]string{"a.yaml": meta + "providers: [" + strings.Repeat("1, ", 50_000) + "1]\n"})
	_, _, err := Load(dir)
	var all Problems
	if !errors.As(err, &all) || len(all) != maxKept {
		t.Fatalf("%d problems", len(all))
	}
	if text := err.Error(); !strings.HasSuffix(text, "\nand 900 more") || len(text) > 100_000 {
		t.Errorf("%d bytes: …%s", len(text), text[max(0, len(text)-100):])
	}
}
