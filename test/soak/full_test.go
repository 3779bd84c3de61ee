// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

// grow writes until a write is refused, and returns that answer.
func grow(t *testing.T, c *client, name string) *world.Answer {
	t.Helper()
	for n := range 3000 {
		body := world.Record{"name": fmt.Sprintf("%s-%d", name, n)}
		a := testproc.Try(c.ask(t.Context(), http.MethodPost, "/resource_providers", body)).Or(t)
		if a.Code != http.StatusOK {
			return a
		}
	}
	t.Fatal("the disk does not become full")
	return nil
}

// TestFullDisk: a disk becomes full while clients write. Reads go on, writes are refused with 503
// and a sentence that says why, and are taken again as soon as there is space, without a restart.
func TestFullDisk(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.AboutFiles(t)
	dir := place(t)
	server := start(t, testproc.OnSmallDisk(t, dir, "8m", ""), "--state-dir", dir)
	c := newClient(t, server.Serving(t).URL)
	filler := filepath.Join(server.Inside(dir), "filler")
	from := plantAll(t, c, 1)
	s := newStorm()
	first := testproc.Seed(t)
	for n := range uint64(2) {
		s.blow(t.Context(), first+n, from, 4, 30, c)
		testproc.Fill(t, filler)
		a := grow(t, c, fmt.Sprint("full", n)).Is(t, http.StatusServiceUnavailable)
		testproc.Contains(t, string(a.Raw), "disk", "a write on the full disk: %s")
		testproc.Contains(t, string(a.Raw), "full", "a write on the full disk: %s")
		if a.Header.Get("Retry-After") == "" {
			t.Errorf("a write on the full disk says not to try again: %s", a)
		}
		a = testproc.Try(c.ask(t.Context(), http.MethodGet, "/readyz", nil)).Or(t)
		testproc.Contains(t, string(a.Is(t, http.StatusServiceUnavailable).Raw), "no space is left", "/readyz: %s")
		// Reads and refused writes are part of the history: nothing of a refused write may show.
		s.blow(t.Context(), first+n, from, 4, 30, c)
		s.readAll(t, c, 1)
		check(t, os.Remove(filler))
		c.ready(t)
		s.blow(t.Context(), first+n, from, 4, 30, c)
		s.readAll(t, c, 1)
	}
	s.linearizable(t, from)
	counts := map[string]int{}
	s.tally(counts)
	t.Log(counts)
	if counts["refused for now"] == 0 {
		t.Error("no write of the storm met the full disk")
	}
	server.Stop(t)
}

// TestFailedWrites: files may not grow (a limit on their size, which is for SQLite what a failing
// disk is). The answer says that the outcome is unknown, no write is partial, and when the limit is
// lifted writes succeed.
func TestFailedWrites(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.AboutFiles(t)
	dir := place(t)
	server := start(t, nil, "--state-dir", dir)
	c := server.quietly(t)
	from := plantAll(t, c, 1)
	s := newStorm()
	first := testproc.Seed(t)
	limit := func(bytes uint64) {
		t.Helper()
		most := &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}
		check(t, unix.Prlimit(server.Pid(), unix.RLIMIT_FSIZE, most, nil))
	}
	for n := range uint64(3) {
		s.blow(t.Context(), first+n, from, 4, 30, c)
		info := testproc.Try(os.Stat(filepath.Join(dir, "placement.db-wal"))).Or(t)
		limit(uint64(info.Size()) + 10000)
		a := grow(t, c, fmt.Sprint("limited", n)).Is(t, http.StatusInternalServerError)
		testproc.Contains(t, string(a.Raw), "Read before you repeat the request", "a write beyond the limit: %s")
		s.blow(t.Context(), first+n, from, 4, 30, c)
		s.readAll(t, c, 1)
		if n == 2 { // killed as it is
			server.Kill()
			server = start(t, nil, "--state-dir", dir)
			c = server.quietly(t)
			s.readAll(t, c, 1)
		} else {
			limit(unix.RLIM_INFINITY)
		}
		s.blow(t.Context(), first+n, from, 4, 30, c)
		s.readAll(t, c, 1)
	}
	s.linearizable(t, from)
	counts := map[string]int{}
	s.tally(counts)
	t.Log(counts)
	server.Stop(t)
}

// TestStartOnFullDisk: a server starts on a disk without a free byte, also after it was killed: it
// either answers reads as before, or ends with a sentence that names the cause.
func TestStartOnFullDisk(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.AboutFiles(t)
	const orderly, killed, never = "after an orderly end", "after a kill", "for the first time"
	for _, name := range []string{orderly, killed, never} {
		t.Run(name, func(t *testing.T) {
			kept, dir := place(t), place(t)
			server := start(t, nil, "--state-dir", kept)
			state := plantAll(t, server.quietly(t), 1)
			if name == killed {
				server.Kill()
			} else {
				server.Stop(t)
			}
			if name == never {
				check(t, os.RemoveAll(kept), os.Mkdir(kept, 0o700))
			}
			before := fmt.Sprintf(`cp -r %s/. "$0" && { cat /dev/zero >"$0/filler" 2>/dev/null; } ;`, kept)
			full := start(t, testproc.OnSmallDisk(t, dir, "8m", before), "--state-dir", dir)
			if !full.Serves(t) {
				full.refuses(t, 1, "the disk is full", "make space in "+dir)
			} else if is := newStorm().readAll(t, newClient(t, full.URL), 1); !is.equal(state[1]) {
				t.Errorf("it has %+v, want %+v", is, state[1])
			}
		})
	}
}
