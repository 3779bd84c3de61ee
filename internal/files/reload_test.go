// SPDX-License-Identifier: Apache-2.0

package files_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func write(t testing.TB, path, text string) {
	t.Helper()
	testproc.Check(t, os.WriteFile(path, []byte(text), 0o600))
}

// clock stands still until it is moved.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time       { return time.Unix(0, c.at.Load()) }
func (c *clock) move(d time.Duration) { c.at.Add(int64(d)) }

var errBroken = errors.New("broken")

// words makes a value of a file, counting how often it does; the text "broken" cannot be used.
func words(count *atomic.Int64) func([]files.Content) (string, error) {
	return func(contents []files.Content) (string, error) {
		count.Add(1)
		var all []string
		for _, c := range contents {
			if string(c.Data) == "broken" {
				return "", errBroken
			}
			all = append(all, string(c.Data))
		}
		return strings.Join(all, "+"), nil
	}
}

func TestAChangedFileIsReadAgain(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	write(t, a, "one")
	write(t, b, "two")
	var log bytes.Buffer
	var made atomic.Int64
	var c clock
	v := testproc.Try(files.NewReloaded([]string{a, b}, zerolog.New(&log), c.now, words(&made))).Or(t)
	step := func(want string, wantMade int64, wantLines int) {
		t.Helper()
		testproc.Equal(t, v.Get(), want, "the value is %q")
		if made.Load() != wantMade {
			t.Errorf("made %d times, want %d", made.Load(), wantMade)
		}
		if lines := strings.Count(log.String(), "\n"); lines != wantLines {
			t.Errorf("%d lines in the log, want %d:\n%s", lines, wantLines, log.String())
		}
	}
	step("one+two", 1, 0)
	write(t, a, "three")
	step("one+two", 1, 0) // within the second
	c.move(time.Second)
	step("three+two", 2, 1)
	c.move(time.Hour)
	step("three+two", 2, 1) // unchanged: not read
	past := time.Unix(1, 0)
	testproc.Check(t, os.Chtimes(a, past, past))
	c.move(time.Second)
	step("three+two", 2, 1) // touched: read, and the same

	// A broken file keeps what was, and is reported once.
	write(t, b, "broken")
	c.move(time.Second)
	step("three+two", 3, 2)
	c.move(time.Second)
	step("three+two", 3, 2)
	testproc.Contains(t, log.String(), `"level":"error","error":"broken"`, "the log does not say what is wrong: %s")
	testproc.Check(t, os.Remove(b))
	c.move(time.Second)
	step("three+two", 3, 3)

	// Another file of the same name is a change as well.
	write(t, b+".new", "four")
	testproc.Check(t, os.Rename(b+".new", b))
	c.move(time.Second)
	step("three+four", 4, 4)
}

func TestFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	huge := filepath.Join(dir, "huge")
	write(t, huge, strings.Repeat("x", 1<<20+1))
	open := filepath.Join(dir, "open")
	write(t, open, "text")
	testproc.Check(t, os.Chmod(open, 0o666))
	for _, path := range []string{filepath.Join(dir, "missing"), dir, huge, "/dev/zero", open} {
		_, err := files.NewReloaded([]string{path}, zerolog.Nop(), nil, words(new(atomic.Int64)))
		if !errors.Is(err, files.ErrUnreadable) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	broken := filepath.Join(dir, "broken")
	write(t, broken, "broken")
	if _, err := files.NewReloaded([]string{broken},
		zerolog.Nop(), nil, words(new(atomic.Int64))); !errors.Is(err, errBroken) {
		t.Errorf("broken: %v", err)
	}
}

// TestAFileThatIsBeingWritten: what is found a moment after a write may be a part of what will be
// there, and counts only when the file was left alone for a while.
func TestAFileThatIsBeingWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "all of it")
	var c clock
	v := testproc.Try(files.NewReloaded([]string{path}, zerolog.Nop(), c.now, words(new(atomic.Int64)))).Or(t)
	write(t, path, "all")
	info := testproc.Try(os.Stat(path)).Or(t)
	c.at.Store(info.ModTime().Add(time.Millisecond).UnixNano())
	testproc.Equal(t, v.Get(), "all of it", "just written: the value is %q")
	c.move(time.Second)
	testproc.Equal(t, v.Get(), "all", "left alone: the value is %q")
}

func TestManyAskAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "old")
	var made atomic.Int64
	var c clock
	v := testproc.Try(files.NewReloaded([]string{path}, zerolog.Nop(), c.now, words(&made))).Or(t)
	write(t, path, "newer")
	c.move(time.Second)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got := v.Get(); got != "old" && got != "newer" {
				t.Errorf("the value is %q", got)
			}
		})
	}
	wg.Wait()
	if v.Get() != "newer" || made.Load() != 2 {
		t.Errorf("the value is %q after it was made %d times", v.Get(), made.Load())
	}
}

func BenchmarkGet(b *testing.B) {
	path := filepath.Join(b.TempDir(), "f")
	write(b, path, "text")
	v := testproc.Try(files.NewReloaded([]string{path}, zerolog.Nop(), nil, words(new(atomic.Int64)))).Or(b)
	for b.Loop() {
		v.Get()
	}
}
