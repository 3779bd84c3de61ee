// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/plugins"
)

// host is a host with one node, and an agent in this process that does for its cell what a real one
// does, at once. Its guests are entries of a map.
type host struct {
	name, cell string
	node       string // the uuid
	client     *cellclient.Client
	placing    *scheduler.PlacementClient

	mu     sync.Mutex
	guests map[string]bool // by the server's uuid: whether it runs
	spawns map[string]int  // how often a guest was made
	wrong  []string        // what must not happen

	stop context.CancelFunc // nil while the agent does not run
	all  sync.WaitGroup
}

// addHost makes a host with so much memory that registers with a cell, and starts its agent. It is
// not mapped yet.
func (w *world) addHost(t *testing.T, cell, name string, memory int64) *host {
	t.Helper()
	h := &host{name: name, cell: cell, node: uuid.NewString(), guests: map[string]bool{}, spawns: map[string]int{}}
	var err error
	h.client, err = cellclient.New(cellclient.Config{URL: w.cells[cell].url})
	check(t, err)
	h.placing, err = scheduler.NewPlacementClient(placementclient.Config{
		Endpoint: func(context.Context) (string, error) { return "http://" + w.placementAddress, nil },
		Authorize: func(_ context.Context, h http.Header) error {
			h.Set("X-Auth-Token", "admin")
			return nil
		},
	})
	check(t, err)
	w.placementAsk(t, "POST", "/resource_providers", map[string]any{"uuid": h.node, "name": name}, nil)
	inventory := func(total int64) map[string]any { return map[string]any{"total": total, "max_unit": total} }
	w.placementAsk(t, "PUT", "/resource_providers/"+h.node+"/inventories", map[string]any{"resource_provider_generation": 0, "inventories": map[string]any{
		"VCPU": inventory(1000), "MEMORY_MB": inventory(memory), "DISK_GB": inventory(10000),
	}}, nil)
	h.appear(t)
	w.hosts[name] = h
	return h
}

func (h *host) report(stopping bool) cellwire.HostReport {
	return cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{{UUID: h.node, Name: h.name}}, Stopping: stopping}
}

// appear starts the agent, and returns when its cell knows of it.
func (h *host) appear(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	_, err := h.client.Report(ctx, h.name, h.report(false))
	check(t, err)
	h.all.Go(func() { h.beat(ctx) })
	h.all.Go(func() { h.work(ctx) })
}

// leave ends the agent as systemd does: it says goodbye, and its service is down at once.
func (h *host) leave(t *testing.T) {
	t.Helper()
	h.vanish()
	_, err := h.client.Report(t.Context(), h.name, h.report(true))
	check(t, err)
}

// vanish ends the agent without a word.
func (h *host) vanish() {
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
	h.all.Wait()
	h.client.CloseIdle()
	h.placing.CloseIdle()
}

// beat shows life.
func (h *host) beat(ctx context.Context) {
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			limited, cancel := context.WithTimeout(ctx, 3*time.Second)
			_, _ = h.client.Report(limited, h.name, h.report(false)) // its cell may be down
			cancel()
		}
	}
}

// work does what the cell wants.
func (h *host) work(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond) // between tries, when the cell is down
	defer tick.Stop()
	after, epoch := int64(0), ""
	for ctx.Err() == nil {
		work, err := h.client.Work(ctx, h.name, after, epoch, 5*time.Second)
		if err == nil {
			err = h.do(ctx, work.Items)
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

func (h *host) do(ctx context.Context, items []cellwire.WorkItem) error {
	var reports []cellwire.Report
	for _, item := range items {
		report, err := h.settle(ctx, item)
		if err != nil {
			return err
		}
		if report.Kind != "" {
			reports = append(reports, report)
		}
	}
	if len(reports) == 0 {
		return nil
	}
	_, err := h.client.Reports(ctx, h.name, reports)
	return err
}

// settle makes the desired state of one server exist, and reports it.
func (h *host) settle(ctx context.Context, item cellwire.WorkItem) (cellwire.Report, error) {
	s := item.Server
	report := cellwire.Report{UUID: s.UUID, Revision: s.Revision}
	h.mu.Lock()
	_, there := h.guests[s.UUID]
	h.mu.Unlock()
	switch item.Want {
	case cellwire.WantPresent:
		if s.VMState != cellwire.VMBuilding {
			return report, nil
		}
		held, err := h.placing.Allocations(ctx, s.UUID)
		if err != nil {
			return report, err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if _, ours := held.Allocations[h.node]; !ours {
			h.wrong = append(h.wrong, fmt.Sprintf("server %s is to be made on %s and holds %v", s.UUID, h.name, held.Allocations))
			report.Kind, report.Fault = cellwire.ReportFailed, &cellwire.Fault{Code: 500, Message: "it has no allocations"}
			return report, nil
		}
		if !there {
			h.guests[s.UUID] = true
			h.spawns[s.UUID]++
		}
		report.Kind, report.PowerState = cellwire.ReportSpawned, plugins.PowerRunning
	case cellwire.WantRunning, cellwire.WantShutdown:
		h.mu.Lock()
		defer h.mu.Unlock()
		h.guests[s.UUID] = item.Want == cellwire.WantRunning
		report.Kind, report.PowerState = cellwire.ReportSettled, plugins.PowerShutdown
		if item.Want == cellwire.WantRunning {
			report.PowerState = plugins.PowerRunning
		}
	case cellwire.WantGone:
		h.mu.Lock()
		delete(h.guests, s.UUID)
		h.mu.Unlock()
		if err := h.placing.Release(ctx, s.UUID); err != nil {
			return report, err
		}
		report.Kind = cellwire.ReportGone
	}
	return report, nil
}

// made are the guests that there are, and how often each was made.
func (h *host) made() (guests map[string]bool, spawns map[string]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.guests), maps.Clone(h.spawns)
}

// soundly checks that no host was asked for something that must not be.
func (w *world) soundly(t *testing.T) {
	t.Helper()
	for _, h := range w.hosts {
		h.mu.Lock()
		for _, wrong := range h.wrong {
			t.Error(wrong)
		}
		for server, n := range h.spawns {
			if n > 1 {
				t.Errorf("the guest of %s was made %d times on %s", server, n, h.name)
			}
		}
		h.mu.Unlock()
	}
}

// held are the nodes' hosts that Placement has allocations of a server on.
func (w *world) held(t *testing.T, server string) []string {
	t.Helper()
	var answer struct{ Allocations map[string]any }
	w.placementAsk(t, "GET", "/allocations/"+server, nil, &answer)
	hosts := []string{}
	for node := range answer.Allocations {
		name := node
		for _, h := range w.hosts {
			if h.node == node {
				name = h.name
			}
		}
		hosts = append(hosts, name)
	}
	return hosts
}

// placementAsk asks Placement; anything but success ends the test.
func (w *world) placementAsk(t *testing.T, method, path string, body, out any) {
	t.Helper()
	answer := exchange(t, method, "http://"+w.placementAddress+path, http.Header{"X-Auth-Token": {"admin"}, "Openstack-Api-Version": {"placement 1.38"}}, body)
	if answer.code/100 != 2 {
		t.Fatalf("%s %s: %d %s", method, path, answer.code, strings.TrimSpace(string(answer.raw)))
	}
	if out != nil {
		answer.decode(t, out)
	}
}
