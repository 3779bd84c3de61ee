// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
)

// operations are the writes to a cell's database.
var operations = []string{"insert", "release", "discard", "delete", "restore", "freed", "service", "mapped", "heartbeat", "reports"}

// Timed is the store, with its writes measured. Reads are as they were.
func (m *Cell) Timed(s celldb.Store) celldb.Store { return timed{s, m} }

// timed measures writes.
type timed struct {
	celldb.Store
	m *Cell
}

// begin measures a write until what it returns is called, deferred, with where the write's error is going to be.
func (t timed) begin(operation string) (end func(*error)) {
	began := t.m.now()
	return func(err *error) {
		t.m.writes.WithLabelValues(operation).Observe(t.m.now().Sub(began).Seconds())
		if errors.Is(*err, celldb.ErrUnavailable) {
			t.m.failures.Inc()
		}
	}
}

func (t timed) Insert(ctx context.Context, server cellwire.Server, m celldb.Moment) (_ cellwire.Server, err error) {
	defer t.begin("insert")(&err)
	return t.Store.Insert(ctx, server, m)
}

func (t timed) Release(ctx context.Context, uuid string, m celldb.Moment) (_ cellwire.Server, err error) {
	defer t.begin("release")(&err)
	return t.Store.Release(ctx, uuid, m)
}

func (t timed) Discard(ctx context.Context, uuid string) (err error) {
	defer t.begin("discard")(&err)
	return t.Store.Discard(ctx, uuid)
}

func (t timed) Delete(ctx context.Context, uuid string, kind cellwire.DeleteKind, m celldb.Moment) (_ cellwire.DeleteAnswer, err error) {
	defer t.begin("delete")(&err)
	return t.Store.Delete(ctx, uuid, kind, m)
}

func (t timed) Restore(ctx context.Context, uuid string, m celldb.Moment) (_ cellwire.Server, err error) {
	defer t.begin("restore")(&err)
	return t.Store.Restore(ctx, uuid, m)
}

func (t timed) Freed(ctx context.Context, uuid string) (err error) {
	defer t.begin("freed")(&err)
	return t.Store.Freed(ctx, uuid)
}

func (t timed) PatchService(ctx context.Context, uuid string, p cellwire.ServicePatch, m celldb.Moment) (_ cellwire.Service, err error) {
	defer t.begin("service")(&err)
	return t.Store.PatchService(ctx, uuid, p, m)
}

func (t timed) DeleteService(ctx context.Context, uuid string, m celldb.Moment) (_ cellwire.Service, err error) {
	defer t.begin("service")(&err)
	return t.Store.DeleteService(ctx, uuid, m)
}

func (t timed) Mapped(ctx context.Context, uuids []string) (err error) {
	defer t.begin("mapped")(&err)
	return t.Store.Mapped(ctx, uuids)
}

func (t timed) Report(ctx context.Context, host string, r cellwire.HostReport, m celldb.Moment) (_ cellwire.Service, _ []string, err error) {
	defer t.begin("heartbeat")(&err)
	return t.Store.Report(ctx, host, r, m)
}

func (t timed) Apply(ctx context.Context, host string, reports []cellwire.Report, m celldb.Moment) (_ []string, err error) {
	defer t.begin("reports")(&err)
	return t.Store.Apply(ctx, host, reports, m)
}
