// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/worker"
	"github.com/compute-agent/compute-agent/drivers/fake"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// movingCell is a cell over HTTP with two hosts, whose workers and fake drivers are real.
type movingCell struct {
	*testing.T
	client    *cellclient.Client
	placement *fakePlacement
	drivers   map[string]*fake.Driver
	trees     map[string]*providertree.Tree
	stops     map[string]func()
	moves     int
}

func newMovingCell(t *testing.T, storage string) *movingCell {
	t.Helper()
	store := testproc.Try(celldb.Open(t.Context(), template.Fresh(t), "cell1", celldb.Options{})).Or(t)
	c, err := cell.New(cell.Config{Name: "cell1", Store: store, Auth: cell.NoAuth(), Logger: zerolog.Nop()})
	testproc.Check(t, err)
	web := httptest.NewServer(c)
	client := testproc.Try(cellclient.New(cellclient.Config{URL: web.URL, Cell: "cell1"})).Or(t)
	r := &movingCell{
		T: t, client: client, placement: newPlacement(),
		drivers: map[string]*fake.Driver{}, trees: map[string]*providertree.Tree{}, stops: map[string]func(){},
	}
	t.Cleanup(func() {
		for _, host := range moveHosts {
			r.end(host)
		}
		client.CloseIdle()
		c.CloseStreams()
		web.Close()
		testproc.NoError(t, store.Close())
	})
	for _, host := range moveHosts {
		d, tree := fake.New(), &providertree.Tree{}
		config := fmt.Sprintf(
			`{"nodes": [{"name": %q, "inventories": {"VCPU": {"total": 8}}}], "instances": {"storage": %q}}`, host,
			storage)
		testproc.Check(t,
			d.Configure(t.Context(), json.RawMessage(config), plugins.HostInfo{Name: host, StateDir: t.TempDir()}))
		testproc.Check(t, tree.AddRoot(nodeOn(host), host))
		testproc.Try(d.UpdateProviderTree(t.Context(), tree, host, nil)).Or(t)
		r.drivers[host], r.trees[host] = d, tree
		r.start(host)
	}
	return r
}

func (mc *movingCell) start(host string) {
	ctx, cancel := context.WithCancel(context.Background())
	w := worker.New(worker.Config{
		Host: host, Version: "1", Cell: mc.client, Allocations: mc.placement, Logger: zerolog.Nop(),
		Guests: oneGuestNode{
			UUID: nodeOn(host), Name: host, Manager: mc.drivers[host], Abilities: []string{plugins.AbilityMigrate},
			Tree: func() *providertree.Tree { return mc.trees[host] },
		},
	})
	ended := make(chan struct{})
	go func() { defer close(ended); w.Run(ctx) }()
	mc.stops[host] = func() { cancel(); <-ended }
}

func (mc *movingCell) end(host string) {
	if stop := mc.stops[host]; stop != nil {
		stop()
		delete(mc.stops, host)
	}
}

// check ends the test at an error of the cell.
func check[T any](r *movingCell) func(T, error) T {
	return func(answer T, err error) T {
		r.Helper()
		testproc.Check(r, err)
		return answer
	}
}

func (mc *movingCell) server() cellwire.Server {
	mc.Helper()
	return check[cellwire.Server](mc)(mc.client.Server(mc.Context(), serverUUID(1)))
}

// eventually waits for a state of the server, and for the powers of the guests on both hosts.
func (mc *movingCell) eventually(what string, is func(s cellwire.Server) bool, first, second plugins.PowerState) {
	mc.Helper()
	defer func() {
		if mc.Failed() {
			mc.Logf("%+v", mc.server())
		}
	}()
	testproc.Eventually(mc, testproc.Patience, what, testproc.True(func() bool {
		return is(mc.server()) && mc.power("cn1") == first && mc.power("cn2") == second
	}))
}

func (mc *movingCell) power(host string) plugins.PowerState {
	list := testproc.Try(mc.drivers[host].Instances(mc.Context(), host)).Or(mc)
	for _, i := range list {
		return i.Power
	}
	return gone
}

// move begins one to the other host, as the compute API does.
func (mc *movingCell) move(kind cellwire.MigrationType) string {
	mc.Helper()
	from := mc.server().Host
	to := otherHost(from)
	mc.moves++
	m := check[cellwire.Migration](
		mc)(mc.client.Migrate(mc.Context(), serverUUID(1),
		cellwire.MigrateRequest{UUID: serverUUID(1000 + mc.moves), Type: kind}))
	mc.placement.grantOf(1000+mc.moves, nodeOn(from))
	mc.placement.grantOf(1, nodeOn(to))
	mc.step(m.UUID, cellwire.MigrationStep{Destination: &cellwire.MigrationDestination{Host: to,
		Node: to, NodeUUID: nodeOn(to)}})
	return m.UUID
}

func (mc *movingCell) step(migration string, step cellwire.MigrationStep) {
	mc.Helper()
	check[cellwire.Migration](mc)(mc.client.Step(mc.Context(), migration, step))
}

func (mc *movingCell) disk(host string) string {
	mc.Helper()
	text := ""
	err := mc.drivers[host].ReadFile(mc.Context(), host, serverUUID(1), "disk", 0,
		func(_ int64, data []byte) error { text += string(data); return nil })
	testproc.Check(mc, err)
	return text
}

// TestServersMoveThroughARealCell: with a database, HTTP and the streams of a cell, workers and
// fake drivers, a server is migrated and confirmed, migrated and reverted, and evacuated.
func TestServersMoveThroughARealCell(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("shared ", shared), func(t *testing.T) {
			testproc.Parallel(t, testproc.Light)
			storage := ""
			if shared {
				storage = t.TempDir()
			}
			r := newMovingCell(t, storage)
			ctx := t.Context()
			testproc.Eventually(t, testproc.Patience, "both hosts", testproc.True(func() bool {
				for _, host := range moveHosts {
					work, err := r.client.Work(ctx, host, 0, "", 0)
					if err != nil || !work.Service.Up {
						return false
					}
				}
				return true
			}))
			r.placement.grantOf(1, nodeOn("cn1"))
			check[cellwire.Server](r)(r.client.Insert(ctx, cellwire.Server{
				UUID: serverUUID(1), ProjectID: "p", UserID: "u", Name: "web",
				Flavor: cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{Name: "small", VCPUs: 1, MemoryMB: 64}},
				Host:   "cn1", Node: "cn1", NodeUUID: nodeOn("cn1"), VMState: cellwire.VMBuilding,
				TaskState: cellwire.TaskSpawning, CreatedAt: time.Now(),
			}))
			check[cellwire.Server](r)(r.client.Release(ctx, serverUUID(1)))
			on := func(host, state string) func(cellwire.Server) bool {
				return func(s cellwire.Server) bool { return s.Host == host && s.VMState == state && s.TaskState == "" }
			}
			r.eventually("the guest", on("cn1", cellwire.VMActive), plugins.PowerRunning, gone)

			m := r.move(cellwire.MigrationCold)
			r.eventually("the migration", on("cn2", cellwire.VMResized), plugins.PowerShutdown, plugins.PowerRunning)
			made := r.disk("cn1") // which is off, as the cell wants it
			r.step(m, cellwire.MigrationStep{Confirm: true})
			r.eventually("the confirmation", on("cn2", cellwire.VMActive), gone, plugins.PowerRunning)
			testproc.Eventually(t, testproc.Patience, "the end of what was kept on the source",
				testproc.True(func() bool { return !r.placement.holds(1001) }))

			m = r.move(cellwire.MigrationCold)
			r.eventually("the migration back", on("cn1", cellwire.VMResized),
				plugins.PowerRunning, plugins.PowerShutdown)
			r.step(m, cellwire.MigrationStep{Revert: true})
			testproc.Eventually(t, testproc.Patience,
				"the destination's guest to leave", testproc.True(func() bool { return r.power("cn1") == gone }))
			testproc.Eventually(t, testproc.Patience, "the revert to be due", testproc.True(func() bool {
				due, err := r.client.MigrationsDue(ctx)
				return err == nil && len(due) == 1
			}))
			r.placement.grantOf(1, nodeOn("cn2"))
			r.placement.drop(m)
			r.step(m, cellwire.MigrationStep{GivenBack: true})
			r.eventually("the way back", on("cn2", cellwire.VMActive), gone, plugins.PowerRunning)

			check[plugins.Instance](
				r)(r.drivers["cn2"].SetPower(ctx, "cn2", serverUUID(1), plugins.PowerShutdown, true))
			if got := r.disk("cn2"); got != made {
				t.Errorf("its disk is %q, and was %q", got, made)
			}
			r.end("cn2") // its host is lost; the worker's last report, that it stops, may be as well
			testproc.Eventually(t, testproc.Patience, "the lost host to be down", testproc.True(func() bool {
				work, err := r.client.Work(ctx, "cn2", 0, "", 0)
				return err == nil && !work.Service.Up
			}))
			r.move(cellwire.MigrationEvacuation)
			testproc.Eventually(t, testproc.Patience,
				"the evacuation",
				testproc.True(func() bool { s := r.server(); return s.Host == "cn1" && s.TaskState == "" }))
			r.start("cn2")
			testproc.Eventually(t, testproc.Patience, "the lost host to leave", testproc.True(func() bool {
				return r.power("cn2") == gone && !r.placement.holds(1000+r.moves) && r.placement.holds(1)
			}))
			if shared {
				if text, err := os.ReadFile(filepath.Join(storage, serverUUID(1)+".disk")); err != nil ||
					string(text) != made {
					t.Errorf("the shared disk is %q: %v", text, err)
				}
			}
		})
	}
}
