// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// Host is a host with one node that this process plays: it does for its cell what an agent does, at
// once. Its guests are entries of a map.
type Host struct {
	Name, Cell string
	Node       string // the uuid

	client  *cellclient.Client
	placing *placementcalls.Client
	// detailed: its cell takes details of nodes; one of an older version does not.
	detailed bool

	mu     sync.Mutex
	guests map[string]bool // by the server's uuid: whether it runs
	spawns map[string]int  // how often a guest was made
	wrong  []string        // what must not happen
}

// reports is how often hosts that have nothing to do show life, and how soon they try again.
const (
	reports = time.Second
	again   = 50 * time.Millisecond
)

// AddHost plays a host with space for a hundred servers and so much memory, in MiB, until the test
// ends, and returns when its cell knows it. The compute API knows it after [World.Discover].
func (w *World) AddHost(cell, name string, memory int64) *Host {
	w.T.Helper()
	h := &Host{Name: name, Cell: cell, Node: uuid.NewString(), guests: map[string]bool{}, spawns: map[string]int{}}
	var err error
	h.client, err = cellclient.New(cellclient.Config{URL: w.Cells[cell].URL})
	testproc.Check(w.T, err)
	h.placing, err = placementcalls.New(placementclient.Config{
		Endpoint:  func(context.Context) (string, error) { return w.PlacementURL, nil },
		Authorize: func(_ context.Context, h http.Header) error { h.Set("X-Auth-Token", "admin"); return nil },
	})
	testproc.Check(w.T, err)
	w.AskPlacement("POST", "/resource_providers", Record{"uuid": h.Node, "name": name}, nil)
	inventory := func(total int64) Record { return Record{"total": total, "max_unit": total} }
	w.AskPlacement("PUT", "/resource_providers/"+h.Node+"/inventories",
		Record{"resource_provider_generation": 0, "inventories": Record{
			"VCPU": inventory(100), "MEMORY_MB": inventory(memory), "DISK_GB": inventory(100),
		}}, nil)
	state, err := h.client.Report(w.T.Context(), name, h.report())
	testproc.Check(w.T, err)
	h.detailed = state.Details
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { h.run(ctx) })
	w.T.Cleanup(func() {
		stop()
		running.Wait()
		h.client.CloseIdle()
		h.placing.CloseIdle()
		h.judge(w)
	})
	w.Hosts[name] = h
	return h
}

func (h *Host) report() cellwire.HostReport {
	node := cellwire.ReportedNode{UUID: h.Node,
		Name: h.Name, Abilities: []string{plugins.AbilityConsoleLog, plugins.AbilityRebuild}}
	if h.detailed {
		node.Details = &cellwire.NodeDetails{HypervisorType: "QEMU", HypervisorVersion: 7002001, HostIP: "192.0.2.7"}
	}
	return cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{node}}
}

// run is the life of the host. Errors are those of a cell that was killed: it goes on, as an agent
// does.
func (h *Host) run(ctx context.Context) {
	tick := time.NewTicker(again)
	defer tick.Stop()
	after, epoch := int64(0), ""
	for ctx.Err() == nil {
		state, err := h.client.Report(ctx, h.Name, h.report())
		// its cell may be another version now
		if refused := (*cellwire.Error)(nil); err == nil || errors.As(err, &refused) {
			h.detailed = err == nil && state.Details
		}
		var work cellwire.Work
		if err == nil {
			work, err = h.client.Work(ctx, h.Name, after, epoch, reports)
		}
		if err == nil {
			err = h.do(ctx, work.Items)
		}
		for _, offer := range work.Streams {
			h.show(ctx, offer)
		}
		if err != nil {
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
			continue
		}
		after, epoch = work.Revision, work.Epoch
	}
}

func (h *Host) do(ctx context.Context, items []cellwire.WorkItem) error {
	var settled []cellwire.Report
	for _, item := range items {
		report, err := h.settle(ctx, item)
		if err != nil {
			return err
		}
		if report.Kind != "" {
			settled = append(settled, report)
		}
	}
	if len(settled) == 0 {
		return nil
	}
	_, err := h.client.Reports(ctx, h.Name, settled)
	return err
}

// settle makes the desired state of one server exist, and reports it.
func (h *Host) settle(ctx context.Context, item cellwire.WorkItem) (cellwire.Report, error) {
	server := item.Server.UUID
	report := cellwire.Report{UUID: server, Revision: item.Server.Revision}
	switch item.Want {
	case cellwire.WantPresent:
		if item.Server.VMState != cellwire.VMBuilding {
			return report, nil
		}
		held, err := h.placing.Allocations(ctx, server)
		if err != nil {
			return report, err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if _, ours := held.Allocations[h.Node]; !ours {
			h.wrong = append(h.wrong, fmt.Sprintf("server %s is to be made on %s and holds %v",
				server, h.Name, held.Allocations))
			report.Kind, report.Fault = cellwire.ReportFailed,
				&cellwire.Fault{Code: 500, Message: "it has no allocations"}
			return report, nil
		}
		if _, there := h.guests[server]; !there {
			h.guests[server] = true
			h.spawns[server]++
		}
		report.Kind, report.PowerState = cellwire.ReportSpawned, plugins.PowerRunning
	case cellwire.WantRunning, cellwire.WantRebuilt, cellwire.WantShutdown:
		report.Kind, report.PowerState = cellwire.ReportSettled, plugins.PowerRunning
		if item.Want == cellwire.WantShutdown {
			report.PowerState = plugins.PowerShutdown
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.guests[server] = report.PowerState == plugins.PowerRunning
	case cellwire.WantCleared:
		report.Kind = cellwire.ReportSettled
	case cellwire.WantGone:
		if err := h.placing.Release(ctx, server); err != nil {
			return report, err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.guests, server)
		report.Kind = cellwire.ReportGone
	}
	return report, nil
}

// show sends a console log. A stream that is offered again, or whose other end is gone, is left.
func (h *Host) show(ctx context.Context, offer cellwire.StreamOffer) {
	end, err := h.client.AcceptStream(ctx, h.Name, offer.ID)
	if err != nil {
		return
	}
	defer func() { _ = end.Close() }()
	_, _ = fmt.Fprintf(end, "guest %s boots\r\nlogin: ", offer.UUID)
	_ = end.CloseWrite()
	_, _ = io.Copy(io.Discard, end)
}

// Guests are those that there are, by server: whether they run.
func (h *Host) Guests() map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.guests)
}

// judge says what the host was asked for that must not be: each guest is made once, for a server
// that holds something here.
func (h *Host) judge(w *World) {
	for _, wrong := range h.wrong {
		w.T.Error(wrong)
	}
	for server, n := range h.spawns {
		if n > 1 {
			w.T.Errorf("the guest of %s was made %d times on %s", w.NameOf(server), n, h.Name)
		}
	}
}
