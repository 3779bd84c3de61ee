// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// meddled is a store that lets another process do something before one of the calls about mappings.
type meddled struct {
	apidb.Store
	calls  int
	before map[int]func() // by the number of the call, from 1 on
}

func (m *meddled) called() {
	m.calls++
	if do := m.before[m.calls]; do != nil {
		do()
	}
}

func (m *meddled) Mapping(ctx context.Context, uuid string) (apidb.Mapping, error) {
	m.called()
	return m.Store.Mapping(ctx, uuid)
}

func (m *meddled) MappingsAfter(ctx context.Context, cell string, id int64, limit int) ([]apidb.Mapping, error) {
	m.called()
	return m.Store.MappingsAfter(ctx, cell, id, limit)
}

func (m *meddled) MappingsOf(ctx context.Context, uuids []string) (map[string]apidb.Mapping, error) {
	m.called()
	return m.Store.MappingsOf(ctx, uuids)
}

func (m *meddled) SetQueued(ctx context.Context, queued map[string]bool) error {
	m.called()
	return m.Store.SetQueued(ctx, queued)
}

// TestCorrectWhileAnotherProcessWrites: a server was deleted, or restored, by another process,
// which notes that in the API database at any moment of the round that would note it for it.
func TestCorrectWhileAnotherProcessWrites(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, queued := range map[string]bool{"deleted": true, "restored": false} {
		for n, more := 1, true; more; n++ {
			t.Run(fmt.Sprint(name, " before call ", n), func(t *testing.T) {
				s := &meddled{}
				w := begin(t, []int{1},
					func(b *scheduler.Options, _ *quota.Options) { s.Store, b.Store = b.Store, s })
				uuid := w.built()
				w.must(w.delete(uuid, true))
				w.work()
				if !queued {
					m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(w.t)
					testproc.Try(w.scheduler.Restore(ctx, m)).Or(w.t)
					w.work()
				}
				w.round() // the database is known
				w.must(w.store.SetQueued(ctx, map[string]bool{uuid: !queued}))
				s.calls, s.before = 0,
					map[int]func(){n: func() { w.must(w.store.SetQueued(ctx, map[string]bool{uuid: queued})) }}
				w.must(w.scheduler.Reconcile(ctx))
				if more = s.calls >= n; !more && n < 4 {
					t.Fatalf("there were %d calls: it was not corrected", s.calls)
				}
				if w.queued(uuid) != queued {
					t.Errorf("the server is %s in its cell, and queued_for_delete is %v", name, !queued)
				}
			})
		}
	}
}

// TestLostRowOfALostDatabase: a server is placed in a cell, and not released, when the cell loses
// its database. It gets no row in the other database: when the known one is back it goes on there.
func TestLostRowOfALostDatabase(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1})
	s := w.sites[1]
	w.built()
	w.round()
	uuid := w.created()
	w.scheduler.SetAfter(func(step string) error {
		if step == "place" {
			return errors.New("killed")
		}
		return nil
	})
	_ = w.scheduler.Schedule(ctx)
	if request, err := w.store.BuildRequest(ctx, uuid); err != nil || request.CellUUID == "" {
		t.Fatalf("the server is not placed: %+v, %v", request, err)
	}
	back := w.copied(t, s)
	w.restart()
	w.again(s, loseDatabase(t))
	w.round()
	if !w.suspect(s) {
		t.Fatal("the cell is not suspect")
	}
	w.pass(scheduler.DefaultGrace)
	w.beat()
	_ = w.scheduler.Schedule(ctx) // it says that it is left
	if _, err := w.store.BuildRequest(ctx, uuid); err != nil {
		t.Errorf("the build request: %v", err)
	}
	if states, err := s.store.States(ctx, []string{uuid}); err != nil || len(states) > 0 {
		t.Errorf("the other database has %v, %v", states, err)
	}
	w.again(s, back)
	for range 3 {
		w.round()
		w.schedule()
		w.work()
	}
	if w.suspect(s) || w.row(uuid).VMState != "active" {
		t.Errorf("the cell is suspect: %v; the row is %+v", w.suspect(s), w.row(uuid))
	}
}
