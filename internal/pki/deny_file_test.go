// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

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
	testproc.Try(pki.OpenDenyFile(path, zerolog.Nop())).ErrorIs(t, os.ErrNotExist, "%v")
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
		t.Fatalf("%v, %v", file.Get().Denials(), err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("servers of other users cannot read it: %v, %v", info.Mode(), err)
	}
	before := testproc.Try(os.ReadFile(path)).Or(t)
	failed := errors.New("no")
	if err := pki.EditDenyFile(path, func(*pki.DenyList) (*pki.DenyList, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("it has changed: %v", err)
	}
	testproc.Check(t, os.WriteFile(path, []byte("h1 yesterday\n"), 0o600))
	if err := pki.EditDenyFile(path, func(l *pki.DenyList) (*pki.DenyList, error) { return l, nil }); err == nil || !strings.Contains(err.Error(), "line 1") {
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
			file, err := pki.FollowDenyFile(path, pki.Source{URL: "https://api.example:8775/", Transport: api}, zerolog.New(zerolog.SyncWriter(&log)))
			testproc.Check(t, err)
			return file
		}
		file := follow()
		stop := running(t, file)
		pass(time.Minute)
		if age, followed := file.Age(); !followed || age != time.Minute || len(file.Get().Denials()) != 0 {
			t.Errorf("never fetched: %v, %v", age, followed)
		}
		for name, bad := range map[string]struct {
			status int
			text   string
		}{
			"nothing": {200, ""}, "another service": {200, "<html>"}, "not found": {404, string(list.Text())}, "moved": {301, string(list.Text())},
			"a broken list": {200, string(list.Text()) + "h1 yesterday\n"}, "too long": {200, string(list.Text()) + strings.Repeat("#\n", 1<<20)},
		} {
			api.set(bad.status, bad.text, nil)
			pass(time.Minute)
			if len(file.Get().Denials()) != 0 {
				t.Errorf("%s: %v", name, file.Get().Denials())
			}
		}
		if n := strings.Count(log.String(), "cannot be fetched"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, &log)
		}
		api.set(200, string(list.Text()), nil)
		pass(17 * time.Second)
		if file.Get().Check("h417", time.Time{}) == nil {
			t.Error("h417 is let in after 17 s")
		}
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
		if age, _ := file.Age(); age != time.Hour {
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

func TestFollowedFileIsNoOperators(t *testing.T) {
	path := filepath.Join(t.TempDir(), "denied")
	revoke(t, path, "h417")
	_, err := pki.FollowDenyFile(path, pki.Source{URL: "https://api.example:8775", Transport: &service{}}, zerolog.Nop())
	testproc.ErrorHas(t, err, "1 hosts that were denied there", "%v")
}
