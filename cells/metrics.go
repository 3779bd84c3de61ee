// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
)

// What the names of metrics begin with.
const (
	prefixAPI  = "compute_agent_api_"
	prefixCell = "compute_agent_cell_"
)

// metricsReadTimeout bounds the database reads of a scrape.
const metricsReadTimeout = 5 * time.Second

// latencies are bounds in seconds: a read of a database takes some hundred microseconds, a durable
// write milliseconds, and what asks a cell that hangs takes its timeout.
var latencies = []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// oneIf is 1 for yes.
func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// emitter gives what was read to Prometheus.
type emitter chan<- prometheus.Metric

func (e emitter) gauge(d *prometheus.Desc, v float64, labels ...string) {
	e <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (e emitter) count(d *prometheus.Desc, v uint64, labels ...string) {
	e <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

// storeWrites are the writes to a cell's database.
var storeWrites = []string{"insert", "release", "discard", "delete", "restore", "freed", "service", "mapped", "nodes",
	"forget", "heartbeat", "reports"}

// measuredStore is the store, with its writes measured. Reads are as they were.
func (m *cellMetrics) measuredStore(s celldb.Store) celldb.Store { return timedStore{s, m} }

// timedStore measures writes.
type timedStore struct {
	celldb.Store
	m *cellMetrics
}

// begin measures a write until what it returns is called, deferred, with where the write's error is
// going to be.
func (t timedStore) begin(operation string) (end func(*error)) {
	began := t.m.now()
	return func(err *error) {
		t.m.writes.WithLabelValues(operation).Observe(t.m.now().Sub(began).Seconds())
		if errors.Is(*err, celldb.ErrUnavailable) {
			t.m.failures.Inc()
		}
	}
}

func (t timedStore) Insert(
	ctx context.Context, server cellwire.Server, m celldb.Moment,
) (_ cellwire.Server, err error) {
	defer t.begin("insert")(&err)
	return t.Store.Insert(ctx, server, m)
}

func (t timedStore) Release(ctx context.Context, uuid string, m celldb.Moment) (_ cellwire.Server, err error) {
	defer t.begin("release")(&err)
	return t.Store.Release(ctx, uuid, m)
}

func (t timedStore) Discard(ctx context.Context, uuid string) (err error) {
	defer t.begin("discard")(&err)
	return t.Store.Discard(ctx, uuid)
}

func (t timedStore) Delete(
	ctx context.Context, uuid string, kind cellwire.DeleteKind, m celldb.Moment,
) (_ cellwire.DeleteAnswer, err error) {
	defer t.begin("delete")(&err)
	return t.Store.Delete(ctx, uuid, kind, m)
}

func (t timedStore) Restore(ctx context.Context, uuid string, m celldb.Moment) (_ cellwire.Server, err error) {
	defer t.begin("restore")(&err)
	return t.Store.Restore(ctx, uuid, m)
}

func (t timedStore) MarkFreed(ctx context.Context, uuid string) (err error) {
	defer t.begin("freed")(&err)
	return t.Store.MarkFreed(ctx, uuid)
}

func (t timedStore) PatchService(
	ctx context.Context, uuid string, p cellwire.ServicePatch, m celldb.Moment,
) (_ cellwire.Service, err error) {
	defer t.begin("service")(&err)
	return t.Store.PatchService(ctx, uuid, p, m)
}

func (t timedStore) DeleteService(ctx context.Context, uuid string, m celldb.Moment) (_ cellwire.Service, err error) {
	defer t.begin("service")(&err)
	return t.Store.DeleteService(ctx, uuid, m)
}

func (t timedStore) RenameHost(
	ctx context.Context, uuid string, r cellwire.RenameRequest, m celldb.Moment,
) (_ cellwire.Service, err error) {
	defer t.begin("service")(&err)
	return t.Store.RenameHost(ctx, uuid, r, m)
}

func (t timedStore) MarkMapped(ctx context.Context, uuids []string) (err error) {
	defer t.begin("mapped")(&err)
	return t.Store.MarkMapped(ctx, uuids)
}

func (t timedStore) NodesState(ctx context.Context, r cellwire.NodesRequest, m celldb.Moment) (err error) {
	defer t.begin("nodes")(&err)
	return t.Store.NodesState(ctx, r, m)
}

func (t timedStore) ForgetNodes(ctx context.Context, m celldb.Moment) (_ int, err error) {
	defer t.begin("forget")(&err)
	return t.Store.ForgetNodes(ctx, m)
}

func (t timedStore) Report(
	ctx context.Context, who serverstate.Reporter, r cellwire.HostReport, m celldb.Moment,
) (_ cellwire.Service, _ []cellwire.NodeProblem, err error) {
	defer t.begin("heartbeat")(&err)
	return t.Store.Report(ctx, who, r, m)
}

func (t timedStore) Apply(
	ctx context.Context, host string, reports []cellwire.Report, m celldb.Moment,
) (_ celldb.Applied, err error) {
	defer t.begin("reports")(&err)
	return t.Store.Apply(ctx, host, reports, m)
}
