// SPDX-License-Identifier: Apache-2.0

package hypervisor

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func next(t *testing.T, w *Watcher) Changes {
	t.Helper()
	return testproc.Try(w.Next(t.Context())).Or(t)
}

func TestBurstOfEventsIsDeliveredOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		n := NewEventLog()
		w := n.Watch(time.Second, 0)
		defer w.Close()
		go func() {
			for i := range 100 { // over three seconds: longer than one piece of eventLog waits
				n.add(Event{Domain: fmt.Sprintf("d%d", i%2)})
				n.add(Event{Device: "pci_0000_00_00_0"})
				time.Sleep(30 * time.Millisecond)
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var received []Changes
		for {
			c, err := w.Next(ctx)
			if err != nil {
				testproc.ErrorIs(t, err, context.DeadlineExceeded, "%v")
				break
			}
			received = append(received, c)
		}
		want := Changes{Devices: true, Domains: []string{"d0", "d1"}}
		if diff := cmp.Diff([]Changes{want, want, want}, received); diff != "" {
			t.Errorf("200 events over three seconds, received within one (-want +got):\n%s", diff)
		}
	})
}

func TestTooManyEventsBecomeAll(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	n := NewEventLog()
	w := n.Watch(0, 0)
	for i := range 3 * maxPending {
		n.add(Event{Domain: fmt.Sprint(i)})
	}
	if len(w.domains) > maxPending {
		t.Errorf("%d domains are remembered", len(w.domains))
	}
	testproc.Same(t, cmp.Diff(Changes{All: true}, next(t, w)))
	n.add(Event{Domain: "one"})
	testproc.Samef(t, cmp.Diff(Changes{Domains: []string{"one"}}, next(t, w)), "after that")
	n.recordLoss()
	n.add(Event{Domain: "two"})
	testproc.Samef(t, cmp.Diff(Changes{All: true}, next(t, w)), "a connection was made")
	w.Close()
	if n.add(Event{Domain: "x"}); len(n.watchers) != 0 || len(w.domains) != 0 {
		t.Error("it still watches")
	}
}

func TestAllWatchersReceiveEvents(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	n := NewEventLog()
	a, b := n.Watch(0, 0), n.Watch(0, 0)
	n.add(Event{Device: "d"})
	for _, w := range []*Watcher{a, b} {
		testproc.Same(t, cmp.Diff(Changes{Devices: true}, next(t, w)))
	}
}

func TestWatcherResyncsWithoutEvents(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		w := NewEventLog().Watch(time.Second, time.Hour)
		defer w.Close()
		for range 3 {
			began := time.Now()
			testproc.Same(t, cmp.Diff(Changes{All: true}, next(t, w)))
			testproc.Equal(t, time.Since(began), time.Hour, "after %s")
		}
	})
}

func TestRevisions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	n := NewEventLog()
	n.recordLoss()
	n.add(Event{Domain: "a"})
	a, b := n.revision("a"), n.revision("b")
	n.add(Event{Device: "d"})
	if n.revision("a") != a || n.revision("b") != b {
		t.Error("a device's event is one of a domain")
	}
	n.add(Event{Domain: "a"})
	if n.revision("a") <= a || n.revision("b") != b {
		t.Errorf("%d after %d, %d after %d", n.revision("a"), a, n.revision("b"), b)
	}
	a = n.revision("a")
	n.recordLoss()
	if n.revision("a") <= a || n.revision("b") <= b {
		t.Error("events were lost, yet nothing may have changed")
	}
	a = n.revision("a")
	for i := range 2 * maxRevisions {
		n.add(Event{Domain: fmt.Sprint(i)})
	}
	if len(n.last) > maxRevisions || n.revision("a") <= a {
		t.Errorf("%d revisions are remembered; %d after %d", len(n.last), n.revision("a"), a)
	}
	var none *EventLog
	none.add(Event{Domain: "a"})
	none.recordLoss()
	if none.revision("a") != 0 {
		t.Error("a nil EventLog has a revision")
	}
}

func BenchmarkEventLog(b *testing.B) {
	n := NewEventLog()
	w := n.Watch(0, 0)
	defer w.Close()
	uuids := make([]string, 200)
	for i := range uuids {
		uuids[i] = fmt.Sprintf("00000000-0000-4000-8000-%012x", i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		n.add(Event{Domain: uuids[i%len(uuids)]})
	}
}

func TestEventsAboutDevicesAreCounted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	n := NewEventLog()
	n.add(Event{Device: "pci_0000_00_00_0"})
	n.add(Event{Domain: "d"})
	n.recordLoss()
	n.add(Event{Device: "pci_0000_00_00_0"})
	testproc.Equal(t, n.Devices(), 2, "%d")
}
