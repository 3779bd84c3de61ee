// SPDX-License-Identifier: Apache-2.0

package hypervisor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestHangingCallKeepsItsConnection: a daemon whose keep-alive answers while a call does not come
// back: it is left alone with its connection, and others go on over another.
func TestHangingCallKeepsItsConnection(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{}
		l := d.link()
		synctest.Wait()
		hang := make(chan struct{})
		for i := range maxHanging + 1 {
			d.conns[i].wait = hang
			_, err := hostname(t.Context(), l)
			wantUnavailable(t, err, "(hostname)")
			var u *Unavailable
			if !errors.As(err, &u) || !u.Begun {
				t.Errorf("%v: it has begun", err)
			}
			if i == maxHanging {
				break
			}
			time.Sleep(30*time.Second + firstPause)
			synctest.Wait()
			testproc.NoErrorf(t, l.State(), "after call %d", i)
		}
		want := Counts{Attempts: maxHanging + 1, Abandoned: maxHanging + 1, Hanging: maxHanging}
		testproc.Same(t, cmp.Diff(want, l.Counts()))
		time.Sleep(time.Hour)
		wantUnavailable(t, l.State(), "hangs")
		testproc.Equal(t, len(d.conns), maxHanging+1, "%d connections: no end of them")

		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Close(soon); err == nil {
			t.Error("closed beneath a call")
		}
		close(hang)
		shut(t, l)
		for i, c := range d.conns {
			testproc.Equal(t, c.closed.Load(), 1, "connection %d was closed %d times", i)
		}
		testproc.Equal(t, l.Counts().Hanging, 0, "%d still hang")
	})
}

func TestLeakOfALateCallIsReported(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{}
		l := d.link()
		synctest.Wait()
		hang := make(chan struct{})
		d.conns[0].wait, d.conns[0].leak = hang, errors.New("1 reference is left")
		_, _ = hostname(t.Context(), l)
		time.Sleep(31 * time.Second)
		close(hang)
		testproc.ErrorIs(t, l.Close(t.Context()), d.conns[0].leak, "Close: %v")
	})
}

// TestCallWithin: what takes long by its nature has its own limit, and is no sign that the daemon
// hangs.
func TestCallWithin(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{}
		l := d.link()
		defer shut(t, l)
		synctest.Wait()
		d.conns[0].wait = make(chan struct{})
		time.AfterFunc(50*time.Second, func() { close(d.conns[0].wait) })
		time.AfterFunc(45*time.Second, func() {
			testproc.NoErrorf(t, l.State(), "within its limit")
		})
		name, err := CallWithin(t.Context(), l, "a long one", time.Minute,
			func(c Conn) (string, error) { return c.Hostname() })
		if name != "cn1" || err != nil {
			t.Errorf("%q %v", name, err)
		}
		testproc.Same(t, cmp.Diff(Counts{Attempts: 1}, l.Counts()))
	})
}

// TestUnavailableReportsWhetherTheCallBegan: who changes something must know whether it was begun.
func TestUnavailableReportsWhetherTheCallBegan(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	begun := func(err error) bool {
		var u *Unavailable
		if !errors.As(err, &u) {
			t.Errorf("%v is not Unavailable", err)
			return false
		}
		return u.Begun
	}
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{}
		refused := errors.New("connection refused")
		d.away.Store(&refused)
		l := d.link()
		synctest.Wait()
		if _, err := hostname(t.Context(), l); begun(err) {
			t.Errorf("there is no connection: %v", err)
		}
		d.away.Store(nil)
		time.Sleep(longestPause)
		synctest.Wait()
		d.conns[0].wait = make(chan struct{})
		go func() { _, _ = hostname(t.Context(), l) }()
		synctest.Wait()
		if _, err := hostname(t.Context(), l); begun(err) {
			t.Errorf("a call that only waited has begun: %v", err)
		}
		d.conns[0].dead.Store(true)
		close(d.conns[0].wait)
		synctest.Wait()
		time.Sleep(firstPause)
		synctest.Wait()
		d.conns[1].wait = make(chan struct{})
		time.AfterFunc(time.Second, func() {
			d.conns[1].dead.Store(true)
			close(d.conns[1].wait)
		})
		if _, err := hostname(t.Context(), l); !begun(err) {
			t.Errorf("the connection broke during the call: %v", err)
		}
		time.Sleep(longestPause)
		synctest.Wait()
		d.conns[2].wait = make(chan struct{})
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := hostname(soon, l); !begun(err) {
			t.Errorf("its caller went away during the call: %v", err)
		}
		close(d.conns[2].wait)
		shut(t, l)
		if _, err := hostname(t.Context(), l); begun(err) {
			t.Errorf("the link is closed: %v", err)
		}
	})
}

func TestALinkAsksForTheAccessItNeeds(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, write := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := &fakeDaemon{}
			l := NewLink(Settings{URI: "fake:///",
				Write: write, Open: d.open, ConnectTimeout: time.Second, CallTimeout: time.Second})
			synctest.Wait()
			testproc.Equal(t, d.conns[0].write, write, "write access %v")
			shut(t, l)
		})
	}
}

// TestLinkLogsEvents: each connection makes everything uncertain, and its events go to those who
// watch, those of the connection before last too.
func TestLinkLogsEvents(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{}
		n := NewEventLog()
		w := n.Watch(0, 0)
		l := NewLink(Settings{URI: "fake:///", Open: d.open, ConnectTimeout: time.Second,
			CallTimeout: time.Second, EventLog: n})
		testproc.Same(t, cmp.Diff(Changes{All: true}, next(t, w)))
		d.conns[0].event(Event{Domain: "a"})
		testproc.Same(t, cmp.Diff(Changes{Domains: []string{"a"}}, next(t, w)))
		d.conns[0].dead.Store(true)
		d.conns[0].lost("end of file")
		testproc.Same(t, cmp.Diff(Changes{All: true}, next(t, w)))
		shut(t, l)
	})
}

func TestDomainsCarryTheirRevisions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{}
		n := NewEventLog()
		l := NewLink(Settings{URI: "fake:///", Open: d.open, ConnectTimeout: time.Second,
			CallTimeout: time.Second, EventLog: n})
		defer shut(t, l)
		synctest.Wait()
		d.conns[0].domains = []Domain{{UUID: "a", ID: 1, State: Running}, {UUID: "b", ID: NotRunning, State: ShutOff}}
		d.conns[0].event(Event{Domain: "a"})
		var wanted []Domain
		list, err := Domains(t.Context(), l, func(d Domain) bool {
			wanted = append(wanted, d)
			n.add(Event{Domain: "a"}) // after its revision was read: the next list shows it
			return false
		})
		if err != nil || list[0].Revision != 2 || list[1].Revision != 1 {
			t.Errorf("%+v, %v", list, err)
		}
		testproc.Same(t, cmp.Diff(list, wanted))
		again, err := Domains(t.Context(), l, nil)
		if err != nil || again[0].Key() == list[0].Key() || again[1].Key() != list[1].Key() {
			t.Errorf("%+v, then %+v, %v", list, again, err)
		}
	})
}

// BenchmarkCall: what a call costs beside libvirt itself.
func BenchmarkCall(b *testing.B) {
	d := &fakeDaemon{}
	l := d.link()
	b.ReportAllocs()
	for b.Loop() {
		testproc.Try(hostname(b.Context(), l)).Or(b)
	}
	testproc.NoError(b, l.Close(context.Background()))
}
