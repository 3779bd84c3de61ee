// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"errors"
	"maps"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// agent is a host with one node, and its guests: what a real one does for its cell, one step at a
// time. It reaches Placement always, and its cell past the link of the compute API.
type agent struct {
	w      *world
	host   string
	node   string
	cell   *cellclient.Client
	guests map[string]bool // true: it runs
	spawns map[string]int  // how often a guest was made
	off    bool
	// fails are the wants about migrations that it cannot bring about.
	fails map[cellwire.Want]bool
}

// slots is how many small servers fit on a host.
const slots = 4

func newAgent(w *world, s *site, host string) *agent {
	w.t.Helper()
	a := &agent{w: w, host: host, node: uuid.NewString(), guests: map[string]bool{}, spawns: map[string]int{}}
	var err error
	a.cell, err = cellclient.New(
		cellclient.Config{URL: s.cell.URL, Transport: &link{to: s.server, counts: map[string]int{}}})
	w.must(err)
	w.ask("POST", "/resource_providers", map[string]any{"uuid": a.node, "name": host}, nil)
	inventory := func(total int) map[string]any { return map[string]any{"total": total, "max_unit": total} }
	w.ask("PUT", "/resource_providers/"+a.node+"/inventories",
		map[string]any{"resource_provider_generation": 0, "inventories": map[string]any{
			"VCPU": inventory(slots), "MEMORY_MB": inventory(512 * slots), "DISK_GB": inventory(100),
		}}, nil)
	return a
}

func (a *agent) beat() {
	a.w.t.Helper()
	if a.off {
		return
	}
	_, err := a.cell.Report(ctx, a.host,
		cellwire.HostReport{Version: "1",
			Nodes: []cellwire.ReportedNode{{UUID: a.node, Name: a.host, Abilities: []string{plugins.AbilityMigrate}}}})
	a.w.must(err)
}

// work brings about all that is to be so, and reports it.
func (a *agent) work() {
	a.w.t.Helper()
	if a.off {
		return
	}
	a.beat()
	work := testproc.Try(a.cell.Work(ctx, a.host, 0, "", 0)).Or(a.w.t)
	client, err := placementcalls.New(placementclient.Config{Endpoint: a.w.endpoint, Authorize: asAdmin,
		Transport: &link{to: a.w.asked, counts: map[string]int{}}})
	a.w.must(err)
	var reports []cellwire.Report
	for _, item := range work.Items {
		report := cellwire.Report{UUID: item.Server.UUID, Revision: item.Server.Revision}
		_, there := a.guests[report.UUID]
		switch item.Want {
		case cellwire.WantPresent:
			if there || item.Server.VMState != cellwire.VMBuilding {
				continue
			}
			held := testproc.Try(client.Allocations(ctx, report.UUID)).Or(a.w.t)
			if _, ours := held.Allocations[a.node]; !ours {
				a.w.t.Errorf("server %s is to be made on %s (%s), and holds %v",
					report.UUID, a.host, a.node, held.Allocations)
				report.Kind, report.Fault = cellwire.ReportFailed,
					&cellwire.Fault{Code: 500, Message: "it has no allocations"}
				break
			}
			if a.fails[item.Want] { // nothing is left of it
				a.w.must(client.Release(ctx, report.UUID))
				report.Kind, report.Fault = cellwire.ReportFailed, &cellwire.Fault{
					Code: 500, Message: a.host + " cannot build it",
				}
				break
			}
			a.guests[report.UUID] = true
			a.spawns[report.UUID]++
			report.Kind, report.PowerState = cellwire.ReportSpawned, plugins.PowerRunning
		case cellwire.WantRunning, cellwire.WantShutdown:
			if !there {
				a.w.t.Errorf("server %s is to be %s on %s, which does not have it", report.UUID, item.Want, a.host)
			}
			running := item.Want == cellwire.WantRunning
			a.guests[report.UUID] = running
			report.Kind, report.PowerState = cellwire.ReportSettled,
				map[bool]plugins.PowerState{true: plugins.PowerRunning, false: plugins.PowerShutdown}[running]
		case cellwire.WantGone:
			delete(a.guests, report.UUID)
			if err := client.Release(ctx, report.UUID); err != nil {
				if !errors.Is(err, placementcalls.ErrConsumerConflict) {
					a.w.t.Fatal(err)
				}
				continue
			}
			report.Kind = cellwire.ReportGone
			if item.Migration != nil {
				a.w.must(client.Release(ctx, item.Migration.UUID))
			}
		case cellwire.WantDeparting, cellwire.WantArriving, cellwire.WantLeft, cellwire.WantLeaving:
			a.move(client, item, &report)
		case cellwire.WantCleared, cellwire.WantRebuilt:
			a.w.t.Errorf("server %s is to be %s on %s, and no client asked for that", report.UUID, item.Want, a.host)
			continue
		default:
			continue
		}
		reports = append(reports, report)
	}
	if len(reports) > 0 {
		testproc.Try(a.cell.Reports(ctx, a.host, reports)).Or(a.w.t)
	}
}

// move does what a migration asks for.
func (a *agent) move(client *placementcalls.Client, item cellwire.WorkItem, report *cellwire.Report) {
	a.w.t.Helper()
	m := item.Migration
	report.Migration = m.UUID
	if a.fails[item.Want] {
		report.Fault = &cellwire.Fault{Code: 500, Message: a.host + " cannot do that"}
	}
	running := m.OldVMState == cellwire.VMActive
	power := map[bool]plugins.PowerState{true: plugins.PowerRunning, false: plugins.PowerShutdown}[running]
	switch item.Want {
	case cellwire.WantDeparting:
		report.Kind, report.PowerState, report.Offer = cellwire.ReportDeparted, plugins.PowerShutdown, "from "+a.host
		if report.Fault == nil {
			a.guests[report.UUID] = false
		} else {
			report.PowerState = power
		}
	case cellwire.WantArriving:
		report.Kind = cellwire.ReportArrived
		held := testproc.Try(client.Allocations(ctx, report.UUID)).Or(a.w.t)
		if _, ours := held.Allocations[a.node]; !ours {
			a.w.t.Errorf("server %s is to arrive on %s (%s), and holds %v",
				report.UUID, a.host, a.node, held.Allocations)
		}
		if m.Type == cellwire.MigrationCold && m.Offer != "from "+m.SourceHost {
			a.w.t.Errorf("server %s is to arrive on %s with the offer %q", report.UUID, a.host, m.Offer)
		}
		if report.Fault == nil {
			a.guests[report.UUID] = running
			report.PowerState = power
		}
	case cellwire.WantLeft, cellwire.WantLeaving:
		delete(a.guests, report.UUID)
		report.Kind = cellwire.ReportLeft
		if item.Want == cellwire.WantLeft {
			a.w.must(client.Release(ctx, m.UUID))
		}
	}
}

// all are all agents.
func (w *world) all() []*agent {
	var all []*agent
	for _, s := range w.sites {
		all = append(all, s.agents...)
	}
	return all
}

func (w *world) work() {
	for _, a := range w.all() {
		a.work()
	}
}

// guests are all guests, with how many hosts have them.
func (w *world) guests() map[string]int {
	count := map[string]int{}
	for _, a := range w.all() {
		for uuid := range maps.Keys(a.guests) {
			count[uuid]++
		}
	}
	return count
}
