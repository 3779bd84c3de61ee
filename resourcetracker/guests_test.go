// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const seenRoot = "aaaaaaaa-0000-4000-8000-000000000001"

func named(uuids ...string) []plugins.Guest {
	out := []plugins.Guest{}
	for _, u := range uuids {
		out = append(out, plugins.Guest{UUID: u})
	}
	return out
}

// TestSeenGuests is the life of two guests, with a restart between any two looks.
func TestSeenGuests(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hour := func(n int) time.Time { return start.Add(time.Duration(n) * time.Hour) }
	for _, step := range []struct {
		hour   int
		listed []string
		want   map[string]resourcetracker.Sighting
		writes bool
	}{
		{0, nil, nil, false},
		{1, []string{"a"}, map[string]resourcetracker.Sighting{"a": {First: hour(1)}}, true},
		{2, []string{"a"}, map[string]resourcetracker.Sighting{"a": {First: hour(1)}}, false},
		{3, []string{"b"}, map[string]resourcetracker.Sighting{"a": {First: hour(1), Gone: hour(3)},
			"b": {First: hour(3)}}, true},
		{4, []string{"b"}, map[string]resourcetracker.Sighting{"a": {First: hour(1), Gone: hour(3)},
			"b": {First: hour(3)}}, false},
		{5, []string{"a"},
			map[string]resourcetracker.Sighting{"a": {First: hour(1)}, "b": {First: hour(3), Gone: hour(5)}}, true},
		{5 + 30*24, []string{"a"},
			map[string]resourcetracker.Sighting{"a": {First: hour(1)}, "b": {First: hour(3), Gone: hour(5)}}, false},
		{6 + 30*24, []string{"a"}, map[string]resourcetracker.Sighting{"a": {First: hour(1)}}, true},
	} {
		path := filepath.Join(dir, resourcetracker.GuestsDir, seenRoot+".json")
		before, _ := os.Stat(path)
		testproc.Check(t, resourcetracker.OpenSeenGuests(dir).Record(seenRoot, named(step.listed...), hour(step.hour)))
		after, _ := os.Stat(path)
		testproc.Equal(t, !os.SameFile(before, after) && after != nil, step.writes, "hour %d: written %v", step.hour)
		got := testproc.Try(resourcetracker.OpenSeenGuests(dir).GuestsOf(seenRoot)).Or(t)
		testproc.Samef(t, cmp.Diff(step.want, got), "hour %d", step.hour)
	}
	left, err := filepath.Glob(filepath.Join(dir, resourcetracker.GuestsDir, "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("the files of guests: got %v, %v, want one", left, err)
	}
}

// TestSeenGuestsAreNotForgotten: whatever comes and goes, who was listed within the last 30 days is
// remembered as listed or gone, and memory and disk say the same.
func TestSeenGuestsAreNotForgotten(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		dir := testproc.Try(os.MkdirTemp("", "seen")).Or(t)
		defer func() { _ = os.RemoveAll(dir) }()
		s, now := resourcetracker.OpenSeenGuests(dir), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		lastListed := map[string]time.Time{}
		for range rapid.IntRange(1, 12).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(1, 400).Draw(t, "hours")) * time.Hour)
			listed := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 0, 4, rapid.ID).
				Draw(t, "guests")
			testproc.Check(t, s.Record(seenRoot, named(listed...), now))
			for _, g := range listed {
				lastListed[g] = now
			}
			got := testproc.Try(s.GuestsOf(seenRoot)).Or(t)
			again, err := resourcetracker.OpenSeenGuests(dir).GuestsOf(seenRoot)
			if err != nil || cmp.Diff(got, again) != "" {
				t.Fatalf("the guests after a restart: error %v, difference %s", err, cmp.Diff(got, again))
			}
			for g, last := range lastListed {
				sighting, remembered := got[g]
				if now.Sub(last) <= 30*24*time.Hour && !remembered {
					t.Fatalf("%s, listed at %v, is forgotten at %v", g, last, now)
				}
				if remembered && sighting.Gone.IsZero() != last.Equal(now) {
					t.Fatalf("%s, listed at %v, at %v: %+v", g, last, now, sighting)
				}
			}
		}
	})
}

// TestSeenGuestsOfAWrongClock: since when a guest is gone is never what a clock that was wrong
// said.
func TestSeenGuestsOfAWrongClock(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	year := func(n int) time.Time { return time.Date(n, 1, 1, 0, 0, 0, 0, time.UTC) }
	for name, times := range map[string][3]time.Time{ // listed, first found gone, found gone again
		"it was behind when the guest went":    {year(2026), year(2020), year(2026).Add(time.Hour)},
		"it was ahead when the guest went":     {year(2026), year(2030), year(2026).Add(time.Hour)},
		"it was ahead when the guest was seen": {year(2030), year(2026), year(2026).Add(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := resourcetracker.OpenSeenGuests(dir)
			for i, listed := range [][]plugins.Guest{named("a"), nil, nil} {
				testproc.Check(t, s.Record(seenRoot, listed, times[i]))
			}
			got := testproc.Try(s.GuestsOf(seenRoot)).Or(t)
			a := got["a"]
			if a.Gone.After(times[2]) || times[2].Sub(a.Gone) > time.Hour {
				t.Errorf("%+v at %v", a, times[2])
			}
		})
	}
}

// TestSeenGuestsRefusesWhatItCannotRead: the file is named and left alone.
func TestSeenGuestsRefusesWhatItCannotRead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, content := range map[string]string{
		"nothing": "", "no JSON": "{", "of the future": fmt.Sprintf(`{"version": 2, "root_provider_uuid": %q}`,
			seenRoot), "another node's": `{"version": 1, "root_provider_uuid": "x"}`, "no version": "{}",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, resourcetracker.GuestsDir, seenRoot+".json")
			testproc.Check(t, os.MkdirAll(filepath.Dir(path), 0o700))
			testproc.Check(t, os.WriteFile(path, []byte(content), 0o600))
			s := resourcetracker.OpenSeenGuests(dir)
			testproc.Try(s.GuestsOf(seenRoot)).ErrorHas(t, path, "reading: %v")
			testproc.Try(s.Uncompared(seenRoot)).ErrorHas(t, path, "reading whether it was compared: %v")
			for did, err := range map[string]error{
				"noting a guest": s.Record(seenRoot, named("a"), time.Now()),
				"compared":       s.SetUncompared(seenRoot, false),
				"uncompared":     s.SetUncompared(seenRoot, true),
			} {
				if err == nil {
					t.Errorf("%s has no error", did)
				}
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != content {
				t.Errorf("the unreadable file: got %q, %v, want it unchanged", got, err)
			}
		})
	}
	if _, err := resourcetracker.OpenSeenGuests(t.TempDir()).GuestsOf("../x"); err == nil {
		t.Error("a path is no uuid")
	}
}

// TestSeenGuestsThatCannotBeWritten: the error says so, and what is not in the file is not
// remembered either.
func TestSeenGuestsThatCannotBeWritten(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	inTheWay := filepath.Join(dir, resourcetracker.GuestsDir)
	s := resourcetracker.OpenSeenGuests(dir)
	for did, try := range map[string]func() error{
		"noting a guest": func() error { return s.Record(seenRoot, named("a"), time.Now()) },
		"uncompared":     func() error { return s.SetUncompared(seenRoot, true) },
	} {
		testproc.Check(t, os.Symlink("absent", inTheWay))
		if err := try(); err == nil || !strings.Contains(err.Error(), seenRoot) {
			t.Errorf("%s: got error %v, want one that names the node", did, err)
		}
		testproc.Check(t, os.Remove(inTheWay))
		guests := testproc.Try(s.GuestsOf(seenRoot)).Or(t)
		uncompared := testproc.Try(s.Uncompared(seenRoot)).Or(t)
		if len(guests) > 0 || uncompared {
			t.Errorf("%s: remembered without a file: guests %v, uncompared %v", did, guests, uncompared)
		}
	}
}
