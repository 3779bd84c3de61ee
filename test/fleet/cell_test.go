// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/worker"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

// cellHost is an agent's side of a cell: it counts what it asks.
type cellHost struct {
	worker.Cell
	number        int
	reports, asks atomic.Int64
	client        *cellclient.Client
	polling       func() // called before its first long poll
	once          sync.Once
	worker        *worker.Worker
}

func (h *cellHost) Report(ctx context.Context, host string, report cellwire.HostReport) (cellwire.HostState, error) {
	h.reports.Add(1)
	return h.Cell.Report(ctx, host, report)
}

func (h *cellHost) Work(
	ctx context.Context, host string, after int64, epoch string, wait time.Duration,
) (cellwire.Work, error) {
	h.asks.Add(1)
	h.once.Do(h.polling)
	return h.Cell.Work(ctx, host, after, epoch, wait)
}

// Nodes implements worker.Guests: one node, without guests.
func (h *cellHost) Nodes(context.Context) ([]worker.Node, bool) {
	return []worker.Node{{
		UUID: fmt.Sprintf("f1ee7000-0000-4000-8000-%012x", h.number), Name: fmt.Sprintf("host%06d", h.number),
		Manager: noGuests{}, Tree: func() *providertree.Tree { return nil },
	}}, true
}

// noGuests is a driver that has none and is not asked to make any.
type noGuests struct{ plugins.InstanceManager }

// Instances implements plugins.InstanceManager.
func (noGuests) Instances(context.Context, string) ([]plugins.Instance, error) { return nil, nil }

// Granted implements worker.Allocations: there are no servers.
func (h *cellHost) Granted(context.Context, string) (providertree.ProviderResources, error) {
	return nil, nil // a consumer holds nothing
}

// Remove implements worker.Allocations.
func (h *cellHost) Remove(context.Context, string) error { return nil }

// startHosts starts the workers of hosts. stop ends them; all have asked for work when it can be
// called.
func startHosts(t *testing.T, n int, cfg cellclient.Config) (hosts []*cellHost, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var polling, running sync.WaitGroup
	for i := range n {
		client := testproc.Try(cellclient.New(cfg)).Or(t)
		h := &cellHost{Cell: client, client: client, number: i, polling: polling.Done}
		h.worker = worker.New(worker.Config{Host: fmt.Sprintf("host%06d", i), Version: "1", Cell: h, Guests: h,
			Allocations: h, Logger: zerolog.Nop()})
		hosts = append(hosts, h)
		polling.Add(1)
		running.Go(func() { h.worker.Run(ctx) })
	}
	polling.Wait()
	return hosts, func() {
		cancel()
		running.Wait()
		for _, h := range hosts {
			h.client.CloseIdle()
		}
	}
}

// inProcess sends requests to a handler in this process.
type inProcess struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if r.Body == nil {
		r.Body = http.NoBody
	}
	r.RequestURI, r.RemoteAddr = r.URL.RequestURI(), "127.0.0.1:1"
	answer := httptest.NewRecorder()
	p.handler.ServeHTTP(answer, r)
	return answer.Result(), r.Context().Err()
}

// TestCellRequests is ten simulated minutes of hosts without work: a heartbeat every ten seconds,
// one more with the details of nodes as soon as the cell has said that it takes them, and a request
// for work that the cell holds for half a minute; the first one is answered at once.
func TestCellRequests(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "cell.db")
	synctest.Test(t, func(t *testing.T) {
		c := testproc.Try(cells.NewCell(t.Context(), cells.CellConfig{
			Name: "cell1", Database: path, Auth: cell.NoAuth(), Logger: zerolog.Nop(),
		})).Or(t)
		defer func() { check(t, c.Close()) }()
		hosts, stop := startHosts(t, 20,
			cellclient.Config{URL: "http://cell1", Cell: "cell1", Transport: inProcess{c.Handler()}})
		time.Sleep(10*time.Minute - time.Second)
		synctest.Wait()
		for _, h := range hosts {
			if reports, asks := h.reports.Load(), h.asks.Load(); reports != 61 || asks != 21 || !h.worker.Status().Up {
				t.Errorf("host %d: %d heartbeats and %d requests for work, want 61 and 21; %+v",
					h.number, reports, asks, h.worker.Status())
			}
		}
		stop()
	})
}

// TestCell: all hosts of a cell are up in a cell that is a process of its own, and with -fleet.for
// what they cost it in that time. With -fleet.boots servers are built then, and with
// -fleet.database its database is on servers.
func TestCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	check(t, binaries.Build())
	state := filepath.Join(t.TempDir(), "state")
	check(t, os.Mkdir(state, 0o700))
	address := testproc.FreeAddress(t)
	args := []string{"cells", "serve", "--name", "cell1", "--auth", "noauth", "--listen", address, "--state-dir", state}
	if dsn := databaseDSN(t); dsn != "" {
		args = append(args, "--database", dbservers.WithPasswordFile(t, dsn))
	}
	p := world.StartAlone(t, binaries, nil, args...).Serving(t)
	config := cellclient.Config{URL: p.URL, Cell: "cell1"}
	measure := func() (cpu time.Duration, memory testproc.Memory) {
		return testproc.Try(testproc.CPU(p.Pid())).Or(t), testproc.Try(testproc.MemoryOf(p.Pid())).Or(t)
	}
	t.Log(testproc.Machine())
	_, alone := measure()
	hosts, stop := startHosts(t, *hostCount, config)
	sum := func() (reports, asks int64) {
		for _, h := range hosts {
			reports, asks = reports+h.reports.Load(), asks+h.asks.Load()
		}
		return reports, asks
	}
	cpu, _ := measure()
	reports, asks := sum()
	t.Logf("%d hosts are there: %d requests, %.2f s of CPU time in the cell", len(hosts), reports+asks, cpu.Seconds())
	if *cellTime > 0 {
		select {
		case <-time.After(*cellTime): // what is measured happens in it
		case <-p.Done():
			t.Fatalf("the cell ended with %d", p.Code())
		}
		after, memory := measure()
		reports2, asks2 := sum()
		n := reports2 + asks2 - reports - asks
		t.Logf("in %v: %d heartbeats and %d requests for work, %.0f requests/s; %.2f s of CPU time, %.3f s per "+
			"1,000 requests, %.1f ms a second; RSS %d MiB alone, %d now", *cellTime,
			reports2-reports, asks2-asks, float64(n)/cellTime.Seconds(), (after - cpu).Seconds(),
			(after-cpu).Seconds()/float64(max(n, 1))*1000,
			float64((after-cpu).Milliseconds())/cellTime.Seconds(), alone.RSS>>20, memory.RSS>>20)
	}
	for _, h := range hosts {
		if s := h.worker.Status(); !s.Up || len(s.Refused) > 0 {
			t.Errorf("host %d: %+v", h.number, s)
		}
	}
	buildServers(t, config, *bootCount)
	before, _ := sum()
	stop()
	if reports, _ := sum(); reports-before < int64(len(hosts)) {
		t.Errorf("%d of %d hosts said that they stop", reports-before, len(hosts))
	}
	p.Stop(t)
}

// A scheduler builds so many servers at once, and a host that starts again has so many.
const (
	builders = 8
	onAHost  = 20
)

// buildServers builds servers as a scheduler does, and their hosts report that they run. Then all
// of these hosts report at the same time that the power of their servers is off.
func buildServers(t *testing.T, cfg cellclient.Config, n int) {
	t.Helper()
	if n == 0 {
		return
	}
	client := testproc.Try(cellclient.New(cfg)).Or(t)
	defer client.CloseIdle()
	ctx := cellwire.WithTerm(t.Context(), 1)
	host := func(i int) string { return fmt.Sprintf("builds%06d", i/onAHost) }
	server := func(i int) string { return fmt.Sprintf("5e000000-0000-4000-8000-%012x", i) }
	hosts := (n + onAHost - 1) / onAHost
	atOnce := func(what string, workers, count int, do func(i int) error) {
		t.Helper()
		begin, next := time.Now(), atomic.Int64{}
		var all errgroup.Group
		for range workers {
			all.Go(func() error {
				for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
					if err := do(i); err != nil {
						return err
					}
				}
				return nil
			})
		}
		check(t, all.Wait())
		took := time.Since(begin)
		t.Logf("%s: %d in %.1f s, %.0f a second", what, count, took.Seconds(), float64(count)/took.Seconds())
	}
	atOnce("hosts registered", builders, hosts, func(i int) error {
		node := cellwire.ReportedNode{UUID: fmt.Sprintf("b00d0000-0000-4000-8000-%012x", i), Name: host(i * onAHost)}
		_, err := client.Report(ctx, host(i*onAHost),
			cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{node}})
		return err
	})
	report := func(host string, reports ...cellwire.Report) error {
		answer, err := client.Reports(ctx, host, reports)
		for _, why := range answer.Refused {
			if why != "" && err == nil {
				err = fmt.Errorf("the cell refused a report of %s: %s", host, why)
			}
		}
		return err
	}
	atOnce("servers inserted, released and reported as built", builders, n, func(i int) error {
		row := cellwire.Server{
			UUID: server(i), ProjectID: "p", Name: "one", Host: host(i), Node: host(i), VMState: cellwire.VMBuilding,
			TaskState: cellwire.TaskSpawning, CreatedAt: time.Now(),
		}
		if _, err := client.Insert(ctx, row); err != nil {
			return err
		}
		if _, err := client.Release(ctx, row.UUID); err != nil {
			return err
		}
		return report(row.Host,
			cellwire.Report{UUID: row.UUID, Kind: cellwire.ReportSpawned, PowerState: plugins.PowerRunning})
	})
	atOnce("hosts that reported the power of all their servers at the same time", hosts, hosts, func(i int) error {
		var reports []cellwire.Report
		for k := i * onAHost; k < min(n, (i+1)*onAHost); k++ {
			reports = append(reports,
				cellwire.Report{UUID: server(k), Kind: cellwire.ReportPower, PowerState: plugins.PowerShutdown})
		}
		return report(host(i*onAHost), reports...)
	})
}
