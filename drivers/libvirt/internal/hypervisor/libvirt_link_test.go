// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package hypervisor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// These tests have a link over the real library and a real daemon that goes through what daemons go
// through.

type linked struct {
	*Link
	*testhost.Sim
	watcher *Watcher
	up      chan struct{}
}

func link(t *testing.T, call time.Duration) linked {
	t.Helper()
	s := testhost.SimForTest(t, testhost.Sample(), testhost.SimOptions{})
	eventLog, up := NewEventLog(), make(chan struct{}, 100)
	w := eventLog.Watch(0, 0)
	l := NewLink(Settings{
		URI: s.URI(), ConnectTimeout: 20 * time.Second, CallTimeout: call, Explain: Explain, EventLog: eventLog,
		Open: OpenLibvirt, Connected: func() { up <- struct{}{} },
	})
	t.Cleanup(func() {
		w.Close()
		ctx, cancel := context.WithTimeout(context.Background(), testproc.Patience)
		defer cancel()
		testproc.NoErrorf(t, l.Close(ctx), "a connection leaks")
	})
	await(t, up)
	return linked{l, s, w, up}
}

func (l linked) next(t *testing.T) Changes {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testproc.Patience)
	defer cancel()
	c, err := l.watcher.Next(ctx)
	testproc.Checkf(t, err, "no eventLog")
	return c
}

func devices(ctx context.Context, l linked) ([]NodeDevice, error) {
	return Call(ctx, l.Link, "node devices", func(c Conn) ([]NodeDevice, error) {
		return c.NodeDevices(func(NodeDevice) bool { return true }, PCIDevices)
	})
}

func wantLost(t *testing.T, err error, begun bool) {
	t.Helper()
	var gone *Unavailable
	if !errors.As(err, &gone) || gone.Begun != begun {
		t.Errorf("%v, want Unavailable (begun: %v)", err, begun)
	}
}

func TestRealKilledDaemonIsReconnected(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	l := link(t, time.Minute)
	if c := l.next(t); !c.All {
		t.Errorf("the first connection: %+v", c)
	}
	before := testproc.Try(devices(t.Context(), l)).Or(t)
	testproc.Check(t, l.Kill(t.Context()))
	testproc.Check(t, l.Launch(t.Context()))
	await(t, l.up)
	if c := l.next(t); !c.All {
		t.Errorf("connected again: %+v", c)
	}
	after, err := devices(t.Context(), l)
	if err != nil || len(after) != len(before) {
		t.Errorf("%d devices before, %d after; %v", len(before), len(after), err)
	}
	testproc.Check(t, l.AddMdev(t.Context(), gpu, "nvidia-222", mdevUUID, 77))
	if c := l.next(t); !c.Devices {
		t.Errorf("an event after all that: %+v", c)
	}
}

// TestRealHangingDaemonIsGivenUp: a daemon that hangs blocks no caller beyond the deadline. What
// was begun is accounted for, and given back: closing finds no reference.
func TestRealHangingDaemonIsGivenUp(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	l := link(t, 100*time.Millisecond)
	testproc.Check(t, l.Freeze())
	_, err := devices(t.Context(), l)
	wantLost(t, err, true)
	wantLost(t, l.State(), false)
	if n := l.Counts(); n.Abandoned != 1 {
		t.Errorf("%+v", n)
	}
	// The link leaves the connection to the call after a while: another is made, which has to wait
	// for the daemon.
	testproc.Check(t, l.Thaw())
	for {
		_, err := CallWithin(t.Context(), l.Link, "node devices", time.Minute, func(c Conn) ([]NodeDevice, error) {
			return c.NodeDevices(nil, PCIDevices)
		})
		if err == nil {
			break
		}
		if gone := (*Unavailable)(nil); !errors.As(err, &gone) {
			t.Fatal(err)
		}
		await(t, l.up)
	}
	testproc.NoError(t, l.State())
}

// TestRealRevisionsFollowEvents: the revision of a domain rises with what happens to it, and with
// nothing else.
func TestRealRevisionsFollowEvents(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	eventLog := NewEventLog()
	w := eventLog.Watch(0, 0)
	defer w.Close()
	l := NewLink(Settings{
		URI: nodeFile(t, testhost.SingleNode(), domains(3)...), Write: true, Open: OpenLibvirt,
		ConnectTimeout: 20 * time.Second, CallTimeout: time.Minute, EventLog: eventLog,
	})
	defer func() { testproc.NoError(t, l.Close(context.Background())) }()
	list := func() []Domain {
		domains, err := Domains(t.Context(), l, nil)
		if err != nil || len(domains) != 3 {
			t.Fatal(domains, err)
		}
		return domains
	}
	before := list()
	testproc.Try(w.Next(t.Context())).Or(t)
	testproc.Try(Call(t.Context(), l, "destroy", func(c Conn) (int, error) { return 0, c.DestroyDomain(uuid(1)) })).
		Or(t)
	if c, err := w.Next(t.Context()); err != nil || c.All || len(c.Domains) != 1 || c.Domains[0] != uuid(1) {
		t.Errorf("%+v, %v", c, err)
	}
	after := list()
	for i := range before {
		if same := before[i].Key() == after[i].Key(); same != (i != 1) {
			t.Errorf("domain %d: %+v, then %+v", i, before[i], after[i])
		}
		if i == 1 && after[i].Revision <= before[i].Revision {
			t.Errorf("revision %d after %d", after[i].Revision, before[i].Revision)
		}
	}
}
