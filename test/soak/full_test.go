// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
	"golang.org/x/sys/unix"
)

// grow writes until a write is refused, and returns that answer's status, headers and body.
func grow(t *testing.T, c *client, name string) (int, http.Header, string) {
	t.Helper()
	for n := range 3000 {
		status, header, text, err := c.raw(t.Context(), http.MethodPost, "/resource_providers", map[string]any{"name": fmt.Sprintf("%s-%d", name, n)})
		check(t, err)
		if status != http.StatusOK {
			return status, header, string(text)
		}
	}
	t.Fatal("the disk does not become full")
	return 0, nil, ""
}

// TestFullDisk: a disk becomes full while clients write. Reads go on, writes are refused with 503
// and a sentence that says why, and are taken again as soon as there is space, without a restart.
func TestFullDisk(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.AboutFiles(t)
	dir := place(t)
	server := start(t, testproc.OnSmallDisk(t, dir, "8m", ""), onStateDir(dir)...)
	c := server.client(t)
	inside := server.Inside(dir)
	from := plantAll(t, c, 1)
	s := newStorm()
	chance := seed(t)
	for n := range uint64(2) {
		s.blow(t.Context(), chance+n, from, 4, 30, c)
		testproc.Fill(t, filepath.Join(inside, "filler"))
		status, header, text := grow(t, c, fmt.Sprint("full", n))
		if status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" || !strings.Contains(text, "disk") || !strings.Contains(text, "full") {
			t.Errorf("a write on the full disk: %d, Retry-After %q, %s", status, header.Get("Retry-After"), text)
		}
		if status, _, text, err := c.raw(t.Context(), http.MethodGet, "/readyz", nil); err != nil || status != http.StatusServiceUnavailable || !strings.Contains(string(text), "no space is left") {
			t.Errorf("/readyz on the full disk: %d, %s, %v", status, text, err)
		}
		// Reads and refused writes are part of the history: nothing of a refused write may show.
		s.blow(t.Context(), chance+n, from, 4, 30, c)
		s.readAll(t, c, 1)
		check(t, os.Remove(filepath.Join(inside, "filler")))
		c.ready(t)
		s.blow(t.Context(), chance+n, from, 4, 30, c)
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

// ready waits until a server says that it is ready.
func (c *client) ready(t *testing.T) {
	t.Helper()
	testproc.Eventually(t, 4*testproc.Patience, "the server is ready", func() error {
		status, _, text, err := c.raw(t.Context(), http.MethodGet, "/readyz", nil)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%d: %s", status, text)
		}
		return err
	})
}

// TestFailedWrites: files may not grow (a limit on their size, which is for SQLite what a failing
// disk is). The answer says that the outcome is unknown, no write is partial, and when the limit is
// lifted writes succeed.
func TestFailedWrites(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.AboutFiles(t)
	dir := place(t)
	server := start(t, nil, onStateDir(dir)...)
	c := server.quietly(t)
	from := plantAll(t, c, 1)
	s := newStorm()
	chance := seed(t)
	limit := func(bytes uint64) {
		t.Helper()
		check(t, unix.Prlimit(server.Pid(), unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil))
	}
	for n := range uint64(3) {
		s.blow(t.Context(), chance+n, from, 4, 30, c)
		info := testproc.Try(os.Stat(filepath.Join(dir, "placement.db-wal"))).Or(t)
		limit(uint64(info.Size()) + 10000)
		status, _, text := grow(t, c, fmt.Sprint("limited", n))
		if status != http.StatusInternalServerError || !strings.Contains(text, "Read before you repeat the request") {
			t.Errorf("a write beyond the limit: %d, %s", status, text)
		}
		s.blow(t.Context(), chance+n, from, 4, 30, c)
		s.readAll(t, c, 1)
		if n == 2 { // killed as it is
			server.Kill()
			server = start(t, nil, onStateDir(dir)...)
			c = server.quietly(t)
			s.readAll(t, c, 1)
		} else {
			limit(unix.RLIM_INFINITY)
		}
		s.blow(t.Context(), chance+n, from, 4, 30, c)
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
			server := start(t, nil, onStateDir(kept)...)
			c := server.quietly(t)
			state := plantAll(t, c, 1)
			if name == killed {
				server.Kill()
			} else {
				server.Stop(t)
			}
			if name == never {
				check(t, os.RemoveAll(kept))
				check(t, os.Mkdir(kept, 0o700))
			}
			full := start(t, testproc.OnSmallDisk(t, dir, "8m", fmt.Sprintf(`cp -r %s/. "$0" && { cat /dev/zero >"$0/filler" 2>/dev/null; } ;`, kept)), onStateDir(dir)...)
			if url, serves := full.serves(t); serves {
				c := newClient(url)
				s := newStorm()
				if is := s.readAll(t, c, 1); !is.equal(state[1]) {
					t.Errorf("it has %+v, want %+v", is, state[1])
				}
				return
			}
			said := strings.Join(full.Lines(), "\n")
			if code := full.Exit(t); code != 1 || !strings.Contains(said, "the disk is full") || !strings.Contains(said, "make space in "+dir) {
				t.Errorf("it ended with %d and printed %s", code, said)
			}
		})
	}
}
