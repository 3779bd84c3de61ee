// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// process starts a process of a cell, and returns its URL and how it stops.
func process(t *testing.T, database string) (url string, stop func()) {
	t.Helper()
	c, err := NewCell(t.Context(),
		CellConfig{Name: "cell1", Database: database, Auth: cell.NoAuth(), Logger: zerolog.Nop()})
	testproc.Check(t, err)
	// a port may be another program's after the process stopped
	url = "unix://" + filepath.Join(t.TempDir(), "cell.sock")
	l := testproc.Try(osapi.Listen(t.Context(), url)).Or(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Serve(ctx, l) }()
	if where, shared := c.db.Address(), c.db.Shared(); !shared || !strings.Contains(where, "://") {
		t.Errorf("its database is %s, shared: %v", where, shared)
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			testproc.Check(t, <-ended)
			testproc.Check(t, c.Close())
		}
	}
	t.Cleanup(stop)
	return url, stop
}

// TestTwoProcessesOfACell: the compute API and an agent use different processes of one cell, and
// the agent, which waits, gets its work. One process stops; both go on with the other, and the
// database is the same for them.
func TestTwoProcessesOfACell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.AboutServers(t)
	database := dbservers.Fresh(t)
	ctx, cancel := context.WithTimeout(t.Context(), testproc.Patience)
	defer cancel()
	first, stopFirst := process(t, database)
	second, _ := process(t, database)
	client := func(urls ...string) *cellclient.Client {
		t.Helper()
		c := testproc.Try(cellclient.New(cellclient.Config{URL: strings.Join(urls, ","), Cell: "cell1"})).Or(t)
		t.Cleanup(c.CloseIdle)
		return c
	}
	api, agent := client(first, second), client(second, first)
	report := cellwire.HostReport{Version: "1",
		Nodes: []cellwire.ReportedNode{{UUID: "90de0000-0000-4000-8000-000000000001", Name: "n1"}}}
	testproc.Try(agent.Report(ctx, "h1", report)).Or(t)
	work := testproc.Try(agent.Work(ctx, "h1", 0, "", 0)).Or(t)
	before := testproc.Try(api.Cell(ctx)).Or(t)
	build := func(id string) {
		t.Helper()
		server := cellwire.Server{
			UUID: id, ProjectID: "p", Name: "one", Host: "h1", Node: "n1", VMState: cellwire.VMBuilding,
			TaskState: cellwire.TaskSpawning, CreatedAt: time.Now(),
		}
		testproc.Try(api.Insert(ctx, server)).Or(t)
		testproc.Try(api.Release(ctx, id)).Or(t)
	}
	await := func(id string) error {
		for {
			got, err := agent.Work(ctx, "h1", work.Revision, work.Epoch, time.Minute)
			switch {
			case err != nil:
				return err
			case len(got.Items) > 0 && got.Items[0].Server.UUID != id:
				return fmt.Errorf("the work is %+v", got.Items)
			}
			if work = got; len(got.Items) > 0 {
				return nil
			}
		}
	}
	waiting := make(chan error, 1)
	go func() { waiting <- await("5e000000-0000-4000-8000-000000000001") }()
	build("5e000000-0000-4000-8000-000000000001")
	testproc.Check(t, <-waiting)
	stopFirst()
	build("5e000000-0000-4000-8000-000000000002")
	testproc.Check(t, await("5e000000-0000-4000-8000-000000000002"))
	after := testproc.Try(api.Cell(ctx)).Or(t)
	if after.Epoch != before.Epoch || after.Revision != before.Revision+4 {
		t.Errorf("it was %+v and is %+v", before, after)
	}
	if _, err := client(first).Cell(ctx); !cellclient.NotSent(err) {
		t.Errorf("a process that stopped: %v", err)
	}
}

// TestAgentSwitchesBetweenProcesses: an agent and the compute API ask either process of a cell with
// each request, in the middle of boots and deletions, and some reports come once more, late. Each
// server is built once, and removed if it was deleted; both processes say so.
func TestAgentSwitchesBetweenProcesses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.AboutServers(t)
	database, r := dbservers.Fresh(t), rand.New(rand.NewPCG(1, 2))
	ctx, cancel := context.WithTimeout(t.Context(), 2*testproc.Patience)
	defer cancel()
	var clients []*cellclient.Client
	for range 2 {
		url, _ := process(t, database)
		c := testproc.Try(cellclient.New(cellclient.Config{URL: url, Cell: "cell1"})).Or(t)
		t.Cleanup(c.CloseIdle)
		clients = append(clients, c)
	}
	either := func() *cellclient.Client { return clients[r.IntN(2)] }
	var (
		work   cellwire.Work
		late   [][]cellwire.Report
		spawns = map[string]int{}
		guests = map[string]bool{}
		lives  = map[string]bool{}
		uuids  []string
	)
	report := func(reports []cellwire.Report) {
		t.Helper()
		if len(reports) == 0 {
			return
		}
		testproc.Try(either().Reports(ctx, "h1", reports)).Or(t)
	}
	beat := func() {
		t.Helper()
		nodes := []cellwire.ReportedNode{{UUID: "90de0000-0000-4000-8000-000000000001", Name: "n1"}}
		testproc.Try(either().Report(ctx, "h1", cellwire.HostReport{Version: "1", Nodes: nodes})).Or(t)
	}
	// act does what is new for the host, and says whether there was anything.
	act := func() bool {
		t.Helper()
		beat()
		var err error
		work, err = either().Work(ctx, "h1", work.Revision, work.Epoch, 0)
		testproc.Check(t, err)
		var reports []cellwire.Report
		for _, item := range work.Items {
			one := cellwire.Report{UUID: item.Server.UUID,
				Revision: item.Server.Revision, PowerState: plugins.PowerRunning}
			switch {
			case item.Want == cellwire.WantGone:
				delete(guests, one.UUID)
				one.Kind, one.PowerState = cellwire.ReportGone, plugins.PowerNoState
			case item.Server.VMState == cellwire.VMBuilding && !guests[one.UUID]:
				spawns[one.UUID]++
				guests[one.UUID] = true
				one.Kind = cellwire.ReportSpawned
			default:
				continue
			}
			reports = append(reports, one)
		}
		report(reports)
		if r.IntN(2) == 0 {
			late = append(late, reports)
		}
		return len(reports) > 0
	}
	beat()
	for n := range 60 {
		switch r.IntN(4) {
		case 0:
			s := cellwire.Server{
				UUID: fmt.Sprintf("5e000000-0000-4000-8000-%012x", n), ProjectID: "p",
				Name: "one", Host: "h1", Node: "n1",
				VMState: cellwire.VMBuilding, TaskState: cellwire.TaskSpawning, CreatedAt: time.Now(),
			}
			for range 1 + r.IntN(2) { // once more, as after a lost answer
				testproc.Try(either().Insert(ctx, s)).Or(t)
			}
			testproc.Try(either().Release(ctx, s.UUID)).Or(t)
			uuids, lives[s.UUID] = append(uuids, s.UUID), true
		case 1:
			if len(uuids) > 0 {
				uuid := uuids[r.IntN(len(uuids))]
				testproc.Try(either().Delete(ctx, uuid, cellwire.DeleteNormal)).Or(t)
				lives[uuid] = false
			}
		case 2:
			if len(late) > 0 {
				report(late[0])
				late = late[1:]
			}
		default:
			act()
		}
	}
	for act() {
	}
	for _, reports := range late {
		report(reports)
	}
	if act() {
		t.Error("late reports made work for the host")
	}
	for _, uuid := range uuids {
		for _, c := range clients {
			s := testproc.Try(c.Server(ctx, uuid)).Or(t)
			if s.Deleted == lives[uuid] || lives[uuid] && s.VMState != cellwire.VMActive {
				t.Errorf("server %s lives: %v, and is %s (%s), deleted: %v",
					uuid, lives[uuid], s.VMState, s.TaskState, s.Deleted)
			}
		}
		if guests[uuid] != lives[uuid] || spawns[uuid] > 1 || lives[uuid] && spawns[uuid] == 0 {
			t.Errorf("server %s lives: %v; there is a guest: %v, and it was made %d times",
				uuid, lives[uuid], guests[uuid], spawns[uuid])
		}
	}
	if len(spawns) == 0 {
		t.Error("nothing was built")
	}
}
