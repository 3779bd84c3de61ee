// SPDX-License-Identifier: Apache-2.0

package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/internal/libvirtd"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// fakeConn is a connection that a test holds in its hand.
type fakeConn struct {
	Conn
	dead   atomic.Bool
	closed atomic.Int32
	leak   error
	fails  error         // what Hostname returns
	wait   chan struct{} // if not nil, Hostname waits for it
	lost   func(string)
	event  func(Event)
	write  bool

	domains []Domain
}

func (f *fakeConn) Domains(want func(Domain) bool) ([]Domain, error) {
	list := slices.Clone(f.domains)
	for _, d := range list {
		want(d)
	}
	return list, nil
}

func (f *fakeConn) Alive() bool { return !f.dead.Load() }
func (f *fakeConn) Close() error {
	f.closed.Add(1)
	return f.leak
}

func (f *fakeConn) Hostname() (string, error) {
	if f.wait != nil {
		<-f.wait
	}
	if f.dead.Load() {
		return "", errors.New("client socket is closed")
	}
	return "cn1", f.fails
}

// fakeDaemon hands out connections, or errors.
type fakeDaemon struct {
	conns []*fakeConn
	away  atomic.Pointer[error] // why connections fail
	wait  chan struct{}
	ups   atomic.Int32
}

func (d *fakeDaemon) open(r Request) (Conn, error) {
	if d.wait != nil {
		<-d.wait
	}
	if err := d.away.Load(); err != nil {
		return nil, *err
	}
	c := &fakeConn{lost: r.Closed, event: r.Event, write: r.Write}
	d.conns = append(d.conns, c)
	return c, nil
}

func (d *fakeDaemon) link() *Link {
	return NewLink(Settings{URI: "fake:///", Open: d.open,
		ConnectTimeout: 10 * time.Second, CallTimeout: 30 * time.Second, Connected: func() { d.ups.Add(1) }})
}

func hostname(ctx context.Context, l *Link) (string, error) {
	return Call(ctx, l, "hostname", func(c Conn) (string, error) { return c.Hostname() })
}

func wantUnavailable(t *testing.T, err error, says string) {
	t.Helper()
	var u *Unavailable
	if !errors.As(err, &u) || !strings.Contains(err.Error(), says) {
		t.Errorf("error %v, want Unavailable with %q", err, says)
	}
}

func shut(t *testing.T, l *Link) {
	t.Helper()
	testproc.NoError(t, l.Close(t.Context()))
}

func TestLinkServesCalls(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{}
		l := d.link()
		if name, err := hostname(t.Context(), l); name != "cn1" || err != nil {
			t.Errorf("%q %v", name, err)
		}
		testproc.NoError(t, l.State())
		shut(t, l)
		testproc.Equal(t, d.conns[0].closed.Load(), 1, "closed %d times")
		_, err := hostname(t.Context(), l)
		wantUnavailable(t, err, "the connection is closed")
	})
}

func TestLinkBacksOffAndComesBack(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{}
		refused := errors.New("connection refused")
		d.away.Store(&refused)
		l := d.link()
		defer shut(t, l)
		synctest.Wait()
		_, err := hostname(t.Context(), l)
		wantUnavailable(t, err, "connection refused")
		wantUnavailable(t, l.State(), "connection refused")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		// 0, 1, 3, 7, 15, 31 s, then every 30 s.
		testproc.Equal(t, l.Counts().Attempts, 6+(600-31)/30, "%d attempts in ten minutes")
		testproc.Equal(t, d.ups.Load(), 0, "Up was called %d times without a connection")
		d.away.Store(nil)
		time.Sleep(longestPause)
		synctest.Wait()
		if name, err := hostname(t.Context(), l); name != "cn1" || err != nil {
			t.Errorf("%q %v", name, err)
		}
		testproc.Equal(t, d.ups.Load(), 1, "Up was called %d times")
	})
}

// TestWatchersKnowWhenLibvirtStops: a daemon that does not come back at once is a change, which
// shows in the status without waiting for the next periodic pass. It is one change.
func TestWatchersKnowWhenLibvirtStops(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{}
		log := NewEventLog()
		w := log.Watch(0, 0)
		defer w.Close()
		l := NewLink(Settings{URI: "fake:///", Open: d.open, ConnectTimeout: 10 * time.Second,
			CallTimeout: 30 * time.Second, EventLog: log})
		defer shut(t, l)
		next := func(what string, within time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			if c, err := w.Next(ctx); err != nil || !c.All {
				t.Errorf("%s: %+v, %v", what, c, err)
			}
		}
		next("the first connection", time.Second)
		refused := errors.New("connection refused")
		d.away.Store(&refused)
		d.conns[0].dead.Store(true)
		d.conns[0].lost("end of file")
		next("the daemon stops", 2*firstPause)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if c, err := w.Next(ctx); err == nil {
			t.Errorf("while it stays away: %+v", c)
		}
		d.away.Store(nil)
		next("it comes back", longestPause+time.Second)
	})
}

func TestLinkReconnects(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, tc := range []struct {
		name string
		kill func(*fakeConn)
	}{
		{"after the eventLog", func(c *fakeConn) { c.dead.Store(true); c.lost("end of file") }},
		{"without any eventLog", func(c *fakeConn) { c.dead.Store(true) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &fakeDaemon{}
				l := d.link()
				defer shut(t, l)
				synctest.Wait()
				tc.kill(d.conns[0])
				synctest.Wait()
				_, err := hostname(t.Context(), l)
				wantUnavailable(t, err, "broke")
				time.Sleep(firstPause)
				synctest.Wait()
				if name, err := hostname(t.Context(), l); name != "cn1" || err != nil {
					t.Errorf("%q %v", name, err)
				}
				d.conns[0].lost("late eventLog of the first connection")
				synctest.Wait()
				if err := l.State(); err != nil || len(d.conns) != 2 || d.conns[0].closed.Load() != 1 ||
					d.conns[1].closed.Load() != 0 {
					t.Errorf("%v, %d connections", err, len(d.conns))
				}
			})
		})
	}
}

func TestLinkGivesUpAHangingCall(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{}
		l := d.link()
		synctest.Wait()
		hang := make(chan struct{})
		d.conns[0].wait = hang
		began := time.Now()
		_, err := hostname(t.Context(), l)
		wantUnavailable(t, err, "since 00:00:00Z (hostname)")
		testproc.Equal(t, time.Since(began), 30*time.Second, "gave up after %s")
		wantUnavailable(t, l.State(), "since 00:00:00Z (hostname)")
		_, err = hostname(t.Context(), l) // the next call waits as long as for a connection
		wantUnavailable(t, err, "since 00:00:00Z (hostname)")
		// the same words, however long it lasts: one line in the log
		wantUnavailable(t, l.State(), "since 00:00:00Z (hostname): the daemon hangs")
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = hostname(short, l)
		wantUnavailable(t, err, "since 00:00:00Z (hostname)")
		d.conns[0].dead.Store(true) // keep-alive breaks the connection, the call returns
		close(hang)
		time.Sleep(firstPause)
		synctest.Wait()
		if name, err := hostname(t.Context(), l); name != "cn1" || err != nil || d.conns[0].closed.Load() != 1 {
			t.Errorf("%q %v", name, err)
		}
		shut(t, l)
	})
}

func TestLinkMakesOneAttemptAtATime(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		d := &fakeDaemon{wait: hang}
		l := d.link()
		_, err := hostname(t.Context(), l)
		wantUnavailable(t, err, "since 00:00:00Z (connecting)")
		time.Sleep(time.Hour)
		wantUnavailable(t, l.State(), "connecting")
		testproc.Equal(t, l.Counts().Attempts, 1, "%d attempts while the first hangs")
		close(hang)
		synctest.Wait()
		if name, err := hostname(t.Context(), l); name != "cn1" || err != nil {
			t.Errorf("%q %v", name, err)
		}
		shut(t, l)
	})
}

func TestLinkReportsALeak(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{}
		l := d.link()
		synctest.Wait()
		d.conns[0].leak = errors.New("1 reference is left")
		testproc.ErrorHas(t, l.Close(t.Context()), "1 reference", "Close: %v")
	})
}

func TestCallDoesNotOutliveItsContext(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{}
		l := d.link()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		testproc.Check(t, l.Close(t.Context()))
		_, err := hostname(ctx, l)
		wantUnavailable(t, err, "")
	})
}

func TestDaemonErrorsDoNotMeanUnavailable(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{}
		l := d.link()
		defer shut(t, l)
		wrong := errors.New("internal error")
		_, err := Call(t.Context(), l, "something", func(Conn) (int, error) { return 0, wrong })
		var u *Unavailable
		if !errors.Is(err, wrong) || errors.As(err, &u) {
			t.Errorf("%v", err)
		}
		if err := l.State(); err != nil || len(d.conns) != 1 {
			t.Errorf("%v, %d connections", err, len(d.conns))
		}
	})
}

// TestLinkReconnectsWhenAConnectionBehindHasEnded: virtqemud lives and says that its own connection
// to another daemon has ended.
func TestLinkReconnectsWhenAConnectionBehindHasEnded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{}
		l := d.link()
		defer shut(t, l)
		synctest.Wait()
		d.conns[0].fails = fmt.Errorf("listing: %w", ErrBroken)
		_, err := hostname(t.Context(), l)
		wantUnavailable(t, err, ErrBroken.Error())
		time.Sleep(firstPause)
		synctest.Wait()
		if name, err := hostname(t.Context(), l); name != "cn1" || err != nil || d.conns[0].closed.Load() != 1 {
			t.Errorf("%q %v, closed %d times", name, err, d.conns[0].closed.Load())
		}
	})
}

func TestSocketsOfAURI(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/7")
	for uri, want := range map[string]string{
		"qemu:///system":                    "/run/libvirt/virtqemud-sock-ro /run/libvirt/libvirt-sock-ro",
		"qemu+unix:///system":               "/run/libvirt/virtqemud-sock-ro /run/libvirt/libvirt-sock-ro",
		"qemu:///session":                   "/run/user/7/libvirt/virtqemud-sock /run/user/7/libvirt/libvirt-sock",
		"qemu+unix:///system?socket=/a/b":   "/a/b",
		"qemu:///system?mode=direct":        "/run/libvirt/virtqemud-sock-ro",
		"qemu:///system?mode=legacy":        "/run/libvirt/libvirt-sock-ro",
		"qemu+ssh://root@elsewhere/system":  "",
		"qemu+tcp://127.0.0.1/system":       "",
		"test:///default":                   "",
		"test:///a.xml?socket=/x":           "",
		"qemu+ssh:///system?socket=/remote": "",
		"%":                                 "",
	} {
		testproc.Equal(t, strings.Join(libvirtd.Sockets(uri, false), " "), want, "sockets(%q) = %q", uri)
	}
}

func TestSocketsForWriteAccess(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if got, want := strings.Join(libvirtd.Sockets("qemu:///system", true), " "),
		"/run/libvirt/virtqemud-sock /run/libvirt/libvirt-sock"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestExplainNamesCauseAndHint(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	wrong := errors.New("virError(38)")
	for _, tc := range []struct {
		uri  string
		err  error
		says []string
	}{
		{"qemu+unix:///system?socket=/nonexistent/sock",
			wrong, []string{"/nonexistent/sock does not exist", "start the daemon", "correct uri"}},
		{"qemu:///system", ErrNoLibrary, []string{"libvirt.so.0", "apt-get install libvirt0"}},
		{"qemu+tcp://192.0.2.1/system", wrong, []string{"virError(38)"}},
	} {
		got := Explain(t.Context(), tc.uri, false, tc.err)
		for _, s := range tc.says {
			if got == nil || !strings.Contains(got.Error(), s) {
				t.Errorf("Explain(%q): %v, want %q in it", tc.uri, got, s)
			}
		}
	}
}

func TestStartHint(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, uri := range []string{"qemu:///system", "qemu:///session"} {
		for _, says := range []string{"systemctl start libvirtd ", "virtqemud",
			"apt-get install libvirt-daemon-system"} {
			if got := startHint(uri); !strings.Contains(got, says) {
				t.Errorf("%s: %q, want %q in it", uri, got, says)
			}
		}
	}
}
