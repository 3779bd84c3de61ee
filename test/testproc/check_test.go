// SPDX-License-Identifier: Apache-2.0

package testproc_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// said is a test that keeps its messages.
type said struct{ text string }

func (*said) Helper()             {}
func (s *said) Fatal(args ...any) { s.text += "fatal: " + fmt.Sprintln(args...) }
func (s *said) Error(args ...any) { s.text += "error: " + fmt.Sprintln(args...) }

// TestChecks: what each check says of what is wrong, and that it says nothing of what is right.
func TestChecks(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		wrong, right func(s *said)
		want         string
	}{
		"Check": {
			func(s *said) { testproc.Check(s, nil, broken) },
			func(s *said) { testproc.Check(s, nil, nil) }, "fatal: broken",
		},
		"Checkf": {
			func(s *said) { testproc.Checkf(s, broken, "file %d", 1) },
			func(s *said) { testproc.Checkf(s, nil, "file %d", 1) },
			"fatal: file 1: broken",
		},
		"Try": {
			func(s *said) { testproc.Try(1, broken).Or(s) },
			func(s *said) { s.text += strings.Repeat("wrong", 1-testproc.Try(1, nil).Or(s)) }, "fatal: broken",
		},
		"Try and ErrorIs": {
			func(s *said) { testproc.Try(1, broken).ErrorIs(s, io.EOF, "%v") },
			func(s *said) { testproc.Try(1, broken).ErrorIs(s, broken, "%v") }, "error: broken, want EOF",
		},
		"Try and ErrorHas": {
			func(s *said) { testproc.Try(1, broken).ErrorHas(s, "x", "%v") },
			func(s *said) { testproc.Try(1, broken).ErrorHas(s, "bro", "%v") }, `error: broken, want one with "x"`,
		},
		"NoError": {
			func(s *said) { testproc.NoError(s, broken) }, func(s *said) { testproc.NoError(s, nil) }, "error: broken",
		},
		"NoErrorf": {
			func(s *said) { testproc.NoErrorf(s, broken, "file %d", 1) },
			func(s *said) { testproc.NoErrorf(s, nil, "file %d", 1) },
			"error: file 1: broken",
		},
		"Same": {
			func(s *said) { testproc.Same(s, "-a +b") },
			func(s *said) { testproc.Same(s, "") }, "error: (-want +got):\n-a +b",
		},
		"Samef": {
			func(s *said) { testproc.Samef(s, "-a +b", "list %d", 1) },
			func(s *said) { testproc.Samef(s, "", "list %d", 1) },
			"error: list 1:\n-a +b",
		},
		"Equal": {
			func(s *said) { testproc.Equal(s, 3, 2, "%s has %d", "it") },
			func(s *said) { testproc.Equal(s, 2, 2, "%s has %d", "it") },
			"error: it has 3, want 2",
		},
		"EqualList": {
			func(s *said) { testproc.EqualList(s, []int{1}, nil, "%v") },
			func(s *said) { testproc.EqualList(s, []int{}, nil, "%v") },
			"error: [1], want []",
		},
		"Contains": {
			func(s *said) { testproc.Contains(s, "abc", "x", "it says %s") },
			func(s *said) { testproc.Contains(s, "abc", "b", "it says %s") }, `error: it says abc, without "x"`,
		},
		"ErrorIs": {
			func(s *said) { testproc.ErrorIs(s, broken, io.EOF, "%v") },
			func(s *said) { testproc.ErrorIs(s, fmt.Errorf("a: %w", broken), broken, "%v") }, "error: broken, want EOF",
		},
		"ErrorIs of none": {
			func(s *said) { testproc.ErrorIs(s, nil, io.EOF, "got %v") },
			func(s *said) { testproc.ErrorIs(s, fs.ErrNotExist, fs.ErrNotExist, "%v") }, "error: got <nil>, want EOF",
		},
		"ErrorHas": {
			func(s *said) { testproc.ErrorHas(s, broken, "x", "%v") },
			func(s *said) { testproc.ErrorHas(s, broken, "oke", "%v") },
			`error: broken, want one with "x"`,
		},
		"ErrorHas of none": {
			func(s *said) { testproc.ErrorHas(s, nil, "x", "got %v") },
			func(s *said) { testproc.ErrorHas(s, broken, "", "%v") },
			`error: got <nil>, want one with "x"`,
		},
	} {
		var wrong, right said
		c.wrong(&wrong)
		c.right(&right)
		if strings.TrimSpace(wrong.text) != c.want || right.text != "" {
			t.Errorf("%s: %q, want %q; of what is right %q", name, wrong.text, c.want, right.text)
		}
	}
}
