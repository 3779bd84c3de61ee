// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/worker"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// template is what databases of the cell of the tests begin as.
var template = dbservers.NewTemplate(func(dsn string) (*celldb.DB, error) {
	return celldb.Open(context.Background(), dsn, "cell1", celldb.Options{})
})

// realCell is a scene whose cell is a real one, behind HTTP.
type realCell struct {
	*scene
	client *cellclient.Client
}

func newRealCell(t *testing.T) *realCell {
	t.Helper()
	check := func(err error) {
		t.Helper()
		testproc.Check(t, err)
	}
	s := newScene(t)
	store, err := celldb.Open(t.Context(), template.Fresh(t), "cell1", celldb.Options{})
	check(err)
	service, err := cell.New(cell.Config{Store: store, Auth: cell.NoAuth(), Logger: zerolog.Nop()})
	check(err)
	web := httptest.NewServer(service)
	client, err := cellclient.New(cellclient.Config{URL: web.URL})
	check(err)
	ctx, cancel := context.WithCancel(context.Background())
	s.w = worker.New(worker.Config{Host: host, Version: "1", Cell: client, Guests: s, Allocations: s.placement,
		Logger: zerolog.New(&s.log)})
	ended := make(chan struct{})
	go func() { defer close(ended); s.w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		client.CloseIdle()
		web.Close()
		check(store.Close())
	})
	return &realCell{s, client}
}

// boot places a server as the compute API does.
func (c *realCell) boot(n int) {
	c.Helper()
	c.placement.grant(n)
	server := cellwire.Server{
		UUID: serverUUID(n), ProjectID: "p", UserID: "u", Name: "s", Host: host, Node: host, NodeUUID: nodeUUID,
		VMState: cellwire.VMBuilding, TaskState: cellwire.TaskSpawning,
		Flavor:    cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{Name: "m1", VCPUs: 1, MemoryMB: 512}},
		CreatedAt: time.Now(),
	}
	testproc.Try(c.client.Insert(c.Context(), server)).Or(c)
	testproc.Try(c.client.Release(c.Context(), server.UUID)).Or(c)
}

// await waits until the cell says so of a server.
func (c *realCell) await(n int, what string, is func(cellwire.Server) bool) cellwire.Server {
	c.Helper()
	var s cellwire.Server
	testproc.Eventually(c, testproc.Patience, fmt.Sprintf("server %d is %s", n, what), func() (err error) {
		if s, err = c.client.Server(c.Context(), serverUUID(n)); err == nil && !is(s) {
			err = fmt.Errorf("it is %+v\n%s", s, c.log.String())
		}
		return err
	})
	return s
}

func inState(vm string) func(cellwire.Server) bool {
	return func(s cellwire.Server) bool { return s.VMState == vm && s.TaskState == "" }
}

// TestLifeInACell is the life of servers between a worker and the real service: made, stopped by
// another process, softly deleted, restored, deleted, and one that fails.
func TestLifeInACell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newRealCell(t)
	testproc.Eventually(t, testproc.Patience,
		"its node", testproc.True(func() bool { return c.w.Status().Up && len(c.w.Status().Nodes) > 0 }))
	c.driver.set(func() { c.driver.faults[serverUUID(2)] = "no such image" })
	c.boot(1)
	c.boot(2)
	c.await(1, "active", func(s cellwire.Server) bool {
		return inState(cellwire.VMActive)(s) && s.PowerState == plugins.PowerRunning && s.HostUp
	})
	if s := c.await(2, "error", inState(cellwire.VMError)); s.Fault == nil ||
		s.Fault.Code != 500 || c.placement.holds(2) {
		t.Errorf("the server that cannot be built: got the fault %+v, want code 500, and no allocations", s.Fault)
	}
	c.driver.set(func() { c.driver.guests[serverUUID(1)] = plugins.PowerShutdown })
	c.w.Changed(host, serverUUID(1))
	c.await(1, "stopped", func(s cellwire.Server) bool {
		return inState(cellwire.VMStopped)(s) && s.PowerState == plugins.PowerShutdown
	})
	c.driver.set(func() { c.driver.guests[serverUUID(1)] = plugins.PowerRunning })
	c.w.Changed(host, serverUUID(1))
	c.await(1, "active again", inState(cellwire.VMActive))
	c.driver.set(func() { c.driver.powers = nil })
	for _, power := range []struct {
		action cellwire.PowerAction
		state  string
	}{
		{cellwire.PowerStop, cellwire.VMStopped}, {cellwire.PowerStart, cellwire.VMActive},
		{cellwire.PowerReboot, cellwire.VMActive},
		{cellwire.PowerRebootHard, cellwire.VMActive},
	} {
		if s, err := c.client.Power(t.Context(), serverUUID(1), power.action); err != nil ||
			s.TaskState != power.action.Task() {
			t.Fatalf("%s: task_state %q, %v", power.action, s.TaskState, err)
		}
		c.await(1, string(power.action)+" done", inState(power.state))
	}
	c.driver.set(func() {
		if diff := cmp.Diff([]string{"Shutdown", "Running", "Shutdown", "Running", "Shutdown hard", "Running"},
			c.driver.powers); diff != "" {
			t.Errorf("changes of power (-want +got):\n%s", diff)
		}
	})
	testproc.Try(c.client.Delete(t.Context(), serverUUID(1), cellwire.DeleteSoft)).Or(t)
	c.await(1, "softly deleted", func(s cellwire.Server) bool {
		return inState(cellwire.VMSoftDeleted)(s) && s.PowerState == plugins.PowerShutdown
	})
	if c.driver.power(1) != plugins.PowerShutdown {
		t.Error("its guest runs")
	}
	testproc.Try(c.client.Restore(t.Context(), serverUUID(1))).Or(t)
	c.await(1, "restored", func(s cellwire.Server) bool {
		return inState(cellwire.VMActive)(s) && s.PowerState == plugins.PowerRunning
	})
	for n := 1; n <= 2; n++ {
		if answer, err := c.client.Delete(t.Context(), serverUUID(n), cellwire.DeleteNormal); err != nil ||
			answer.Local {
			t.Fatalf("Delete: got %+v, %v, want the host to do it", answer, err)
		}
		c.await(n, "deleted", func(s cellwire.Server) bool { return s.Deleted })
	}
	if c.driver.power(1) != -1 || c.placement.holds(1) || c.placement.holds(2) {
		t.Error("something is left")
	}
	testproc.Eventually(t, testproc.Patience, "the answers to the last reports", func() error {
		if st := c.w.Status(); st.Servers != 0 || st.Busy != 0 || st.Waiting != 0 {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
}
