// SPDX-License-Identifier: Apache-2.0

package statedir_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var check = testproc.Check

func open(t *testing.T, dir string) *statedir.Disabled {
	t.Helper()
	return testproc.Try(statedir.OpenDisabled(dir)).Or(t)
}

// TestReasonsBySource: each source takes back only its own, and a node is enabled when the last
// reason is gone.
func TestReasonsBySource(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	s := open(t, dir)
	wants := func(node, text string) {
		t.Helper()
		for _, s := range []*statedir.Disabled{s, open(t, dir)} { // in memory, and what a restart finds
			if got, is := s.Reason(node); got != text || is != (text != "") {
				t.Errorf("%s: %q, %t, want %q", node, got, is, text)
			}
		}
	}
	wants("cn1", "")
	check(t, s.Disable(statedir.Reason{Source: statedir.Operator, Reason: "new memory", By: "root"}))
	check(t, s.Disable(statedir.Reason{Source: "plugin", Node: "cn1", Reason: "the driver is gone"}))
	wants("cn1", "new memory; plugin: the driver is gone")
	wants("cn2", "new memory")
	testproc.Try(s.Enable(statedir.Operator, "cn1")).ErrorIs(t, statedir.ErrWhole, "one of all was enabled: %v")
	since := s.Reasons("cn2")[0].Since
	check(t, s.Disable(statedir.Reason{Source: statedir.Operator, Reason: "new memory", By: "another user"}))
	if again := s.Reasons("cn2")[0]; !again.Since.Equal(since) || again.By != "root" {
		t.Errorf("the same reason again changed %+v", again)
	}
	left := testproc.Try(s.Enable(statedir.Operator, "")).Or(t)
	if len(left) != 1 || left[0].Source != "plugin" {
		t.Errorf("left: %+v", left)
	}
	wants("cn1", "plugin: the driver is gone")
	wants("cn2", "")
	if !open(t, dir).Enabling("cn2") {
		t.Error("that the trait is to be taken away is forgotten")
	}
	check(t, s.Enabled())
	if open(t, dir).EnablingAny() {
		t.Error("the trait would be removed at every start")
	}
	testproc.Try(s.Enable("plugin", "cn1")).Or(t)
	wants("cn1", "")
	check(t, s.Disable(statedir.Reason{Source: statedir.Operator, Node: "cn1", Reason: "again"}))
	if s.EnablingAny() {
		t.Error("a node that is disabled again would lose the trait")
	}
}

func TestTexts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for text, good := range map[string]bool{
		"a fan is broken, see ticket 4711": true, "Lüfter defekt": true, strings.Repeat("ü", 500): true,
		"": false, "  ": false, strings.Repeat("x", 501): false, "two\nlines": false,
		"\x1b[31mred": false, "tab\there": false,
		"not \xff UTF-8": false, "turned \u202e around": false, "line\u2028separator": false, "null\x00": false,
	} {
		if err := statedir.CheckReason(text); (err == nil) != good ||
			(err != nil && !errors.Is(err, statedir.ErrText)) {
			t.Errorf("CheckReason(%q): got %v", text, err)
		}
		if err := open(t, t.TempDir()).
			Disable(statedir.Reason{Source: statedir.Operator, Reason: text}); (err == nil) != good {
			t.Errorf("%q is kept: %v", text, err)
		}
	}
}

// TestDamagedFile: a file that cannot be understood is an error that names it, and stays as it is.
func TestDamagedFile(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, content := range map[string]string{
		"empty": "", "cut short": `{"version": 1, "rea`, "a newer version": `{"version": 2, "reasons": []}`,
		"a text that was never kept": `{"version": 1, "reasons": [{"source": "operator", "reason": "a\nb"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), statedir.DisabledFile)
			check(t, os.WriteFile(path, []byte(content), 0o600))
			testproc.Try(statedir.OpenDisabled(filepath.Dir(path))).ErrorHas(t, path, "Open: %v")
			if after, _ := os.ReadFile(path); string(after) != content {
				t.Errorf("it was changed to %q", after)
			}
		})
	}
}

// TestRenamedNode: what is recorded of a node is there under its new name, and of others as it was.
func TestRenamedNode(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	s := open(t, dir)
	for _, node := range []string{"cn1", "cn2", ""} {
		testproc.Check(t,
			s.Disable(statedir.Reason{Source: statedir.Operator, Node: node, Reason: "new memory " + node + "."}))
	}
	testproc.Try(s.Enable("agent", "cn3")).Or(t)
	testproc.Check(t, s.RenameNode("cn1", "cn9"))
	testproc.Check(t, s.RenameNode("cn3", "cn8"))
	s = open(t, dir)
	testproc.Equal(t, len(s.Reasons("cn9")), 2, "reasons of the new name")
	testproc.Equal(t, len(s.Reasons("cn1")), 1, "reasons of the former name")
	testproc.Equal(t, len(s.Reasons("cn2")), 2, "reasons of another node")
	testproc.Equal(t, s.Enabling("cn8"), true, "a node that is enabled")
}
