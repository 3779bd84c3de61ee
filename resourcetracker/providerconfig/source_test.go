// SPDX-License-Identifier: Apache-2.0

package providerconfig

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// clock is the time that a Source believes; the files have real times, so it begins there.
type clock struct{ now time.Time }

func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }

// watched is a Source over one file whose changes are old.
func watched(t *testing.T) (*Source, *clock, string) {
	t.Helper()
	dir := write(t, map[string]string{"a.yaml": entry("{name: cn1}", "CUSTOM_A")})
	c := &clock{now: time.Now().Add(time.Hour)}
	s := testproc.Try(open(dir, func() time.Time { return c.now })).Or(t)
	return s, c, dir
}

func (s *Source) trait() string {
	if entries := s.Config().Entries(); len(entries) == 1 {
		return entries[0].Traits[0]
	}
	return ""
}

func poll(t *testing.T, s *Source, want bool) {
	t.Helper()
	if got, err := s.Poll(); err != nil || got != want {
		t.Errorf("Poll: %v, %v, want %v", got, err, want)
	}
}

func TestSourceNoticesChanges(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s, c, dir := watched(t)
	if s.Changed() || s.trait() != "CUSTOM_A" || s.Dir() != dir {
		t.Fatalf("at first: %v, %v", s.Changed(), s.trait())
	}
	poll(t, s, false)

	put(t, dir, "a.yaml", entry("{name: cn1}", "CUSTOM_BB"))
	if !s.Changed() {
		t.Error("another size is not noticed")
	}
	poll(t, s, true)
	if s.Changed() || s.trait() != "CUSTOM_BB" {
		t.Errorf("after the change: %v, %v", s.Changed(), s.trait())
	}

	// The same size and time, put in the place of the former file.
	info := testproc.Try(os.Stat(filepath.Join(dir, "a.yaml"))).Or(t)
	put(t, dir, ".new", entry("{name: cn1}", "CUSTOM_CC"))
	testproc.Check(t, errors.Join(os.Chtimes(filepath.Join(dir, ".new"), info.ModTime(), info.ModTime()),
		os.Rename(filepath.Join(dir, ".new"), filepath.Join(dir, "a.yaml"))))
	poll(t, s, true)
	testproc.Equal(t, s.trait(), "CUSTOM_CC", "trait: %v")

	// Touched, not changed: read, and nothing is new.
	testproc.Check(t, os.Chtimes(filepath.Join(dir, "a.yaml"), time.Time{}, time.Now().Add(-time.Minute)))
	if !s.Changed() {
		t.Error("another time is not noticed")
	}
	poll(t, s, false)
	if s.Changed() {
		t.Error("still changed after it was read")
	}

	// A file that comes, and goes.
	put(t, dir, "b.yml", "")
	poll(t, s, false)
	if len(s.Warnings()) != 1 {
		t.Errorf("warnings: %v", s.Warnings())
	}
	put(t, dir, "b.yaml", entry("{name: cn2}", "CUSTOM_A"))
	poll(t, s, true)
	if s.Config().Len() != 2 {
		t.Error(s.Config().Files())
	}
	testproc.Check(t, os.Remove(filepath.Join(dir, "a.yaml")))
	poll(t, s, true)

	// The directory is removed: there is no file with an age, so this counts when it was seen for a
	// while.
	c.pass(time.Hour)
	testproc.Check(t, os.RemoveAll(dir))
	poll(t, s, false)
	c.pass(stableTime)
	poll(t, s, true)
	if s.Config().Len() != 0 {
		t.Error("something is left")
	}
	poll(t, s, false)
}

// TestSourceLetsFilesSettle: a file that is being written is left alone until its writer has been
// silent for a while.
func TestSourceLetsFilesSettle(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s, c, dir := watched(t)
	put(t, dir, "a.yaml", entry("{name: cn1}", "CUSTOM_BB"))
	info := testproc.Try(os.Stat(filepath.Join(dir, "a.yaml"))).Or(t)
	c.now = info.ModTime().Add(stableTime / 2)
	poll(t, s, false)
	_, newest := fingerprint(dir)
	c.now = newest.Add(stableTime - 1)
	poll(t, s, false)
	c.now = newest.Add(stableTime)
	poll(t, s, true)

	// A clock that is wrong, or files from the future: what looks the same for as long counts as
	// well.
	put(t, dir, "a.yaml", entry("{name: cn1}", "CUSTOM_CCC"))
	c.now = info.ModTime().Add(-time.Hour)
	poll(t, s, false)
	c.pass(stableTime / 2)
	poll(t, s, false)
	put(t, dir, "a.yaml", entry("{name: cn1}", "CUSTOM_DDDD"))
	c.pass(stableTime / 2) // another look: the wait begins again
	poll(t, s, false)
	c.pass(stableTime)
	poll(t, s, true)
	testproc.Equal(t, s.trait(), "CUSTOM_DDDD", "trait: %v")
}

// TestSourceKeepsTheFormer: an invalid file changes nothing, and is reported once by Poll and
// whenever asked by Reload.
func TestSourceKeepsTheFormer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s, _, dir := watched(t)
	former := s.Config()
	put(t, dir, "a.yaml", "meta: {schema_ver")
	testproc.Try(s.Poll()).ErrorIs(t, ErrInvalid, "Poll: %v")
	poll(t, s, false)
	testproc.ErrorIs(t, s.Reload(), ErrInvalid, "Reload: %v")
	if s.Changed() || s.Config() != former || !errors.Is(s.Err(), ErrInvalid) {
		t.Error("the former does not stay in force, or the reason is not reported")
	}
	put(t, dir, "a.yaml", entry("{name: cn1}", "CUSTOM_B"))
	poll(t, s, true)
	if s.Err() != nil {
		t.Error(s.Err())
	}

	// Announced, a change need not settle.
	put(t, dir, "a.yaml", entry("{name: cn1}", "CUSTOM_CC"))
	s.now = time.Now
	if err := s.Reload(); err != nil || s.trait() != "CUSTOM_CC" {
		t.Errorf("Reload: %v, %v", err, s.trait())
	}
	poll(t, s, false)
}

func TestSourceMoves(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s, _, dir := watched(t)
	bad := write(t, map[string]string{"a.yaml": "a"})
	if err := s.ReloadFrom(bad); !errors.Is(err, ErrInvalid) || s.Dir() != dir || s.trait() != "CUSTOM_A" {
		t.Errorf("Use of an invalid directory: %v, now %s", err, s.Dir())
	}
	poll(t, s, false)
	good := write(t, map[string]string{"a.yaml": entry("{name: cn1}", "CUSTOM_B")})
	if err := s.ReloadFrom(good); err != nil || s.Dir() != good || s.trait() != "CUSTOM_B" {
		t.Errorf("Use: %v, now %s", err, s.Dir())
	}
	poll(t, s, false)
	testproc.Try(Open(bad)).ErrorIs(t, ErrInvalid, "Open of an invalid directory: %v")
	if s, err := Open(good); err != nil || s.Config().Len() != 1 {
		t.Errorf("Open: %v", err)
	}
}

// BenchmarkPoll is what a steady pass pays.
func BenchmarkPoll(b *testing.B) {
	dir := write(b, map[string]string{"a.yaml": meta, "b.yaml": meta, "c.yaml": meta})
	s := testproc.Try(Open(dir)).Or(b)
	for b.Loop() {
		if reloaded, err := s.Poll(); reloaded || err != nil {
			b.Fatal(reloaded, err)
		}
	}
}

// TestSourceSaysWhatIsNotInForce: as long as it is so, also when the files become what they were.
func TestSourceSaysWhatIsNotInForce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s, c, dir := watched(t)
	testproc.Check(t, s.Err())
	put(t, dir, "a.yaml", "nonsense: [")
	if _, err := s.Poll(); err == nil {
		c.pass(stableTime)
		_, _ = s.Poll()
	}
	if err := s.Err(); err == nil || s.trait() != "CUSTOM_A" {
		t.Errorf("invalid files: %v, %s", err, s.trait())
	}
	put(t, dir, "a.yaml", entry("{name: cn1}", "CUSTOM_A"))
	if reloaded, _ := s.Poll(); reloaded {
		t.Error("what is in force already was reloaded")
	}
	testproc.NoErrorf(t, s.Err(), "valid again")
}
