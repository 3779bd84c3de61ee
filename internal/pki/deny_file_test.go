// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func revoke(t *testing.T, path, host string) {
	t.Helper()
	testproc.Check(t, pki.EditDenyFile(path, func(l *pki.DenyList) (*pki.DenyList, error) {
		return l.With(pki.Denial{Host: host, Before: time.Now(), Reason: "stolen"})
	}))
}

// running runs a file's Run until the function that it returns is called.
func running(t *testing.T, f *pki.DenyFile) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { f.Run(ctx) })
	return func() { cancel(); run.Wait() }
}

// TestEditDenyFilePlantedLinks: links in the directory of the list lead root nowhere.
func TestEditDenyFilePlantedLinks(t *testing.T) {
	dir := t.TempDir()
	path, victim, made := filepath.Join(dir, "denied"), filepath.Join(dir, "victim"), filepath.Join(dir, "made")
	testproc.Check(t, os.WriteFile(victim, []byte("victim"), 0o600))
	testproc.Check(t, os.Symlink(victim, filepath.Join(dir, ".tmp-denied")))
	revoke(t, path, "h417")
	content, err := os.ReadFile(victim)
	if info, _ := os.Stat(victim); err != nil || string(content) != "victim" || info.Mode() != 0o600 {
		t.Errorf("the file that a link led to: %q, %v, %v", content, info.Mode(), err)
	}
	lock := filepath.Join(dir, ".denied.lock")
	testproc.Check(t, os.Remove(lock))
	testproc.Check(t, os.Symlink(made, lock))
	err = pki.EditDenyFile(path, func(l *pki.DenyList) (*pki.DenyList, error) { return l, nil })
	if _, at := os.Lstat(made); err == nil || !errors.Is(at, os.ErrNotExist) {
		t.Errorf("the lock is a link: %v, and the file it led to: %v", err, at)
	}
}

func TestDenyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "denied")
	testproc.Try(pki.OpenDenyFile(path, zerolog.Nop())).ErrorIs(t, os.ErrNotExist, "OpenDenyFile: %v")
	revoke(t, path, "h417")
	file := testproc.Try(pki.OpenDenyFile(path, zerolog.Nop())).Or(t)
	if file.Get().Check("h417", time.Time{}) == nil {
		t.Error("h417 is let in")
	}
	if _, followed := file.Age(); followed {
		t.Error("it is not fetched")
	}
	var none *pki.DenyFile
	none.Run(t.Context())
	if none.Get().Check("h417", time.Time{}) != nil {
		t.Error("no file refuses a host")
	}
}

func TestEditedDenyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "denied")
	var all sync.WaitGroup
	for _, host := range []string{"h1", "h2", "h3", "h4", "h5", "h6"} {
		all.Go(func() { revoke(t, path, host) })
	}
	all.Wait()
	file, err := pki.OpenDenyFile(path, zerolog.Nop())
	if err != nil || len(file.Get().Denials()) != 6 {
		t.Fatalf("the deny list: got %v, %v, want 6 hosts", file.Get().Denials(), err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("it is for more than owner and group, or for less: %v, %v", info.Mode(), err)
	}
	before := testproc.Try(os.ReadFile(path)).Or(t)
	failed := errors.New("no")
	if err := pki.EditDenyFile(path,
		func(*pki.DenyList) (*pki.DenyList, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("it has changed: %v", err)
	}
	testproc.Check(t, os.WriteFile(path, []byte("h1 yesterday\n"), 0o600))
	if err := pki.EditDenyFile(path, func(l *pki.DenyList) (*pki.DenyList, error) { return l, nil }); err == nil ||
		!strings.Contains(err.Error(), "line 1") {
		t.Errorf("a file that is broken is written over: %v", err)
	}
}

// service is an enrolment service.
type service struct {
	mu     sync.Mutex
	status int
	text   string
	err    error
	asked  int
	hangs  bool
}

func (s *service) set(status int, text string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.text, s.err = status, text, err
}

func (s *service) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// RoundTrip implements http.RoundTripper.
func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if r.URL.String() != "https://api.example:8775/v1/denied" {
		return nil, errors.New(r.URL.String())
	}
	if s.hangs { // the lock is held on: there is one request at a time
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if s.err != nil {
		return nil, s.err
	}
	return &http.Response{StatusCode: s.status, Body: io.NopCloser(strings.NewReader(s.text))}, nil
}

// pass lets time pass in a bubble, and all that is due then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestFollowedDenyList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "denied")
		list, err := (*pki.DenyList)(nil).With(pki.Denial{Host: "h417", Before: time.Now(), Reason: "stolen"})
		testproc.Check(t, err)
		var log bytes.Buffer
		api := &service{err: errors.New("connection refused")}
		follow := func() *pki.DenyFile {
			t.Helper()
			file, err := pki.FollowDenyFile(path, pki.Source{URL: "https://api.example:8775/", Transport: api},
				zerolog.New(zerolog.SyncWriter(&log)))
			testproc.Check(t, err)
			return file
		}
		file := follow()
		stop := running(t, file)
		pass(time.Minute)
		if age, followed := file.Age(); !followed || age != time.Minute {
			t.Errorf("never fetched: %v, %v", age, followed)
		}
		testproc.ErrorIs(t, file.Get().Check("h1", time.Time{}), pki.ErrNoDenyList, "never fetched: %v")
		for name, bad := range map[string]struct {
			status int
			text   string
		}{
			"nothing": {200, ""}, "half a list": {200, string(list.Text()[:100])}, "another service": {200, "<html>"},
			"not found": {404, string(list.Text())}, "moved": {301, string(list.Text())},
			"a broken list": {200, string(list.Text()) + "h1 yesterday\n"},
			"too long":      {200, string(list.Text()) + strings.Repeat("#\n", 1<<20)},
		} {
			api.set(bad.status, bad.text, nil)
			pass(time.Minute)
			if file.Get().Err() == nil {
				t.Errorf("%s: %v", name, file.Get().Denials())
			}
		}
		if n := strings.Count(log.String(), "cannot be fetched"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, &log)
		}
		api.set(200, string(list.Text()), nil)
		pass(2 * time.Second) // no host is let in meanwhile
		testproc.ErrorIs(t, file.Get().Check("h417", time.Time{}), pki.ErrDenied, "after 2 s: %v")
		if strings.Count(log.String(), "fetched again") != 1 {
			t.Errorf("%s", &log)
		}
		// It stays while the service is down, and is there after a restart.
		api.set(0, "", errors.New("connection refused"))
		stop()
		file = follow()
		stop = running(t, file)
		before := api.count()
		pass(time.Hour)
		if n := api.count() - before; n < 240 || n > 301 {
			t.Errorf("asked %d times in an hour", n)
		}
		if file.Get().Check("h417", time.Time{}) == nil {
			t.Error("h417 is let in")
		}
		if age, _ := file.Age(); age != time.Hour { // the list has no date
			t.Errorf("the age is %v", age)
		}
		// Servers do not edit it, and say where to.
		err = pki.EditDenyFile(path, func(l *pki.DenyList) (*pki.DenyList, error) { return l, nil })
		if !errors.Is(err, pki.ErrFollowed) || !strings.Contains(err.Error(), "https://api.example:8775") {
			t.Error(err)
		}
		// A list without hosts is one.
		api.set(200, string(new(pki.DenyList).Text()), nil)
		pass(time.Minute)
		testproc.NoError(t, file.Get().Check("h417", time.Time{}))
		api.mu.Lock()
		api.hangs = true
		api.mu.Unlock()
		pass(time.Minute)
		stop()
	})
}

// slow is a service that answers after a time.
type slow struct {
	*service
	after time.Duration
}

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	working, stop := context.WithTimeout(r.Context(), s.after)
	defer stop()
	<-working.Done()
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return s.service.RoundTrip(r)
}

// TestServiceAwaitsItsDenyList: a service that systemd starts for the first request of a host does
// not refuse it because the list is not fetched yet, or because the copy is too old. One whose list
// does not come serves all the same, and so does one with a recent copy, at once.
func TestServiceAwaitsItsDenyList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, api := filepath.Join(t.TempDir(), "denied"), &service{}
		api.set(200, published(t, "h2"), nil)
		for _, c := range []struct {
			name         string
			after, waits time.Duration
			want         error
		}{
			{"no answer", time.Hour, 2 * time.Second, pki.ErrNoDenyList},
			{"an answer", time.Second, time.Second, nil},
			{"a copy, and no answer", time.Hour, 0, nil},
			{"a copy that is too old, and an answer", time.Second, time.Second, nil},
			{"a copy that is too old, and no answer", time.Hour, 2 * time.Second, pki.ErrNoDenyList},
		} {
			if strings.Contains(c.name, "too old") {
				pass(25 * time.Hour)
				api.set(200, published(t, "h2"), nil)
			}
			from := pki.Source{URL: "https://api.example:8775/", Transport: slow{api, c.after}}
			file := testproc.Try(pki.FollowDenyFile(path, from, zerolog.Nop())).Or(t).RefuseAfter(24 * time.Hour)
			begun := time.Now()
			serve := file.KeepCurrent(func(context.Context, net.Listener) error {
				testproc.Equal(t, time.Since(begun), c.waits, c.name+": it serves after %s")
				return file.Get().Check("h1", time.Time{})
			})
			testproc.ErrorIs(t, serve(t.Context(), nil), c.want, c.name+": %v")
		}
	})
}

func TestFollowedFileIsNoOperators(t *testing.T) {
	path := filepath.Join(t.TempDir(), "denied")
	revoke(t, path, "h417")
	_, err := pki.FollowDenyFile(path, pki.Source{URL: "https://api.example:8775", Transport: &service{}},
		zerolog.Nop())
	testproc.ErrorHas(t, err, "1 hosts that were denied there", "%v")
}

// published is a list as a service publishes it now.
func published(t *testing.T, hosts ...string) string {
	t.Helper()
	list := &pki.DenyList{}
	for _, host := range hosts {
		list = testproc.Try(list.With(pki.Denial{Host: host, Before: time.Unix(1e9, 0)})).Or(t)
	}
	return string(list.Dated(time.Now().Unix(), time.Now()).Published())
}

// TestFollowedListFailsClosed: a list of before is not taken, hosts that disappear are logged, the
// age counts across restarts, and a list that is too old refuses all hosts until it is fetched.
func TestFollowedListFailsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "denied")
		var log bytes.Buffer
		api := &service{}
		open := func() *pki.DenyFile {
			t.Helper()
			from := pki.Source{URL: "https://api.example:8775/", Transport: api}
			file, err := pki.FollowDenyFile(path, from, zerolog.New(zerolog.SyncWriter(&log)))
			testproc.Check(t, err)
			return file.RefuseAfter(24 * time.Hour)
		}
		follow := func() (*pki.DenyFile, func()) {
			t.Helper()
			file := open()
			return file, running(t, file)
		}
		logged := func(what string) {
			t.Helper()
			if !strings.Contains(log.String(), what) {
				t.Errorf("%q is not logged:\n%s", what, &log)
			}
			log.Reset()
		}
		old := published(t, "h1")
		pass(time.Hour)
		api.set(200, published(t, "h1", "h2"), nil)
		file, stop := follow()
		pass(time.Minute)
		testproc.ErrorIs(t, file.Get().Check("h2", time.Time{}), pki.ErrDenied, "h2: %v")
		testproc.NoError(t, file.Get().Check("h3", time.Time{}))
		for name, bad := range map[string]string{
			"of before": old, "without a header": string(new(pki.DenyList).Text()),
			"of a clock ahead": string(new(pki.DenyList).Dated(1<<40, time.Now().Add(time.Hour)).Published()),
		} {
			api.set(200, bad, nil)
			pass(time.Minute)
			if file.Get().Check("h2", time.Time{}) == nil {
				t.Errorf("%s: it is taken", name)
			}
		}
		api.set(200, published(t, "h2"), nil)
		pass(time.Minute)
		testproc.NoError(t, file.Get().Check("h1", time.Time{}))
		logged(`"hosts":["h1"]`)

		// The service is down, and this server starts again meanwhile.
		api.set(0, "", errors.New("connection refused"))
		pass(23 * time.Hour)
		stop()
		file, stop = follow()
		testproc.NoError(t, file.Get().Check("h1", time.Time{}))
		pass(time.Hour)
		testproc.ErrorIs(t, file.Get().Check("h1", time.Time{}), pki.ErrNoDenyList, "after a day: %v")
		logged("older than deny_list.max_age")
		api.set(200, published(t, "h2"), nil)
		pass(time.Minute)
		testproc.NoError(t, file.Get().Check("h1", time.Time{}))
		logged("recent again")
		stop()

		// The disk is full: what is fetched is in effect all the same.
		testproc.Check(t, os.Remove(path))
		testproc.Check(t, os.Mkdir(path, 0o700))
		testproc.Check(t, os.WriteFile(filepath.Join(path, "x"), nil, 0o600))
		_, err := pki.FollowDenyFile(path, pki.Source{URL: "https://api.example:8775/", Transport: api}, zerolog.Nop())
		testproc.ErrorIs(t, err, files.ErrUnreadable, "a directory: %v")
		testproc.Check(t, os.RemoveAll(path))
		file = open()
		testproc.Check(t, os.Mkdir(path, 0o700)) // before the first attempt to fetch the list, which writes it
		stop = running(t, file)
		pass(time.Minute)
		testproc.ErrorIs(t, file.Get().Check("h2", time.Time{}), pki.ErrDenied, "h2: %v")
		logged("cannot be written")
		stop()

		// A copy that is cut refuses all hosts until the list is fetched.
		testproc.Check(t, os.Remove(path))
		testproc.Check(t, os.WriteFile(path, []byte("# Copied now and then from https://api.example:8775/\n"), 0o600))
		api.set(0, "", errors.New("connection refused"))
		file, stop = follow()
		testproc.ErrorIs(t, file.Get().Check("h3", time.Time{}), pki.ErrNoDenyList, "cut: %v")
		api.set(200, published(t), nil)
		pass(time.Minute)
		testproc.NoError(t, file.Get().Check("h3", time.Time{}))
		stop()
	})
}

// TestDamagedDenyFile: a list that is damaged while a server runs leaves the last one in effect,
// and refuses all hosts when a server starts with it, until it is repaired.
func TestDamagedDenyFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "denied")
		var log bytes.Buffer
		open := func() *pki.DenyFile {
			t.Helper()
			return testproc.Try(pki.OpenDenyFile(path, zerolog.New(&log))).Or(t)
		}
		write := func(text []byte) {
			t.Helper()
			testproc.Check(t, os.WriteFile(path, text, 0o600))
			pass(2 * time.Second)
		}
		revoke(t, path, "h1")
		first := testproc.Try(os.ReadFile(path)).Or(t)
		revoke(t, path, "h2")
		second := testproc.Try(os.ReadFile(path)).Or(t)
		file := open()
		denied := func(what string, f *pki.DenyFile, want error) {
			t.Helper()
			testproc.ErrorIs(t, f.Get().Check("h2", time.Time{}), want, what+": %v")
			if err := f.Get().Check("h3", time.Time{}); (err == nil) != errors.Is(want, pki.ErrDenied) {
				t.Errorf("%s: another host: %v", what, err)
			}
		}
		denied("whole", file, pki.ErrDenied)
		for name, bad := range map[string][]byte{
			"empty": {}, "cut": second[:len(second)-10],
			"of before": first, "no header": []byte("h1 2026-01-31T12:00:00Z\n"),
		} {
			write(bad)
			denied(name, file, pki.ErrDenied)
		}
		write(append(second, "h4 2026-01-31T12:00:00Z\n"...))
		denied("edited by hand", file, pki.ErrDenied)
		again := open()
		denied("edited by hand, at the start", again, pki.ErrNoDenyList)
		err := pki.EditDenyFile(path, func(l *pki.DenyList) (*pki.DenyList, error) { return l, nil })
		testproc.ErrorIs(t, err, pki.ErrDamaged, "edited: %v")
		testproc.Check(t, pki.AcceptDenyFile(path))
		pass(2 * time.Second)
		denied("accepted", again, pki.ErrDenied)
		denied("accepted", file, pki.ErrDenied)
		log.Reset()
		testproc.Check(t, pki.EditDenyFile(path, func(l *pki.DenyList) (*pki.DenyList, error) {
			without, _ := l.Without("h2")
			return without, nil
		}))
		pass(2 * time.Second)
		testproc.NoError(t, file.Get().Check("h2", time.Time{}))
		testproc.Contains(t, log.String(), `"hosts":["h2"]`, "the log does not name the host: %s")
		write(nil)
		if err := pki.AcceptDenyFile(path); err == nil {
			t.Error("an empty file is accepted")
		}
	})
}

// TestOldDenyFile: an operator's list is too old by its date, until it is renewed.
func TestOldDenyFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "denied")
		testproc.Check(t, pki.CreateDenyFile(path))
		file := testproc.Try(pki.OpenDenyFile(path, zerolog.Nop())).Or(t).RefuseAfter(time.Hour)
		pass(time.Hour)
		testproc.NoError(t, file.Get().Check("h1", time.Time{}))
		pass(time.Minute)
		testproc.ErrorIs(t, file.Get().Check("h1", time.Time{}), pki.ErrNoDenyList, "after an hour: %v")
		testproc.Check(t, pki.EditDenyFile(path, func(l *pki.DenyList) (*pki.DenyList, error) { return l, nil }))
		pass(2 * time.Second)
		testproc.NoError(t, file.Get().Check("h1", time.Time{}))
		ahead := new(pki.DenyList).Dated(1<<40, time.Now().Add(time.Hour))
		testproc.Check(t, os.WriteFile(path, ahead.Text(), 0o600))
		pass(2 * time.Second)
		testproc.ErrorIs(t, file.Get().Check("h1", time.Time{}), pki.ErrNoDenyList, "dated ahead: %v")
	})
}

// TestEditedFileStaysReadable: servers that run as other users read the file that was edited as
// they did before, and no others do.
func TestEditedFileStaysReadable(t *testing.T) {
	for name, c := range map[string]struct{ dir, had, want os.FileMode }{
		"by a group":                        {0o755, 0o640, 0o640},
		"by its owner":                      {0o755, 0o600, 0o600},
		"by all, of before":                 {0o755, 0o644, 0o644},
		"by all, in a directory of its own": {0o750, 0o644, 0o640},
	} {
		dir := filepath.Join(t.TempDir(), "dir")
		testproc.Check(t, os.Mkdir(dir, c.dir))
		path := filepath.Join(dir, "denied")
		testproc.Check(t, pki.CreateDenyFile(path))
		testproc.Check(t, os.Chmod(path, c.had))
		group := os.Getegid()
		if os.Geteuid() == 0 {
			group = 12345
			testproc.Check(t, os.Chown(path, 0, group))
		}
		revoke(t, path, "h1")
		info := testproc.Try(os.Stat(path)).Or(t)
		if of := int(info.Sys().(*syscall.Stat_t).Gid); info.Mode().Perm() != c.want || of != group {
			t.Errorf("%s: mode %v, group %d, want %v and %d", name, info.Mode(), of, c.want, group)
		}
	}
}
