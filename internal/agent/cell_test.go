// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/worker"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// cellEnv is an environment that belongs to a real cell.
type cellEnv struct {
	*env
	cell *cellclient.Client
	url  string
	away atomic.Bool // the cell answers 503
	next int
}

func newCellEnv(t *testing.T) *cellEnv {
	t.Helper()
	h := &cellEnv{env: newEnv(t)}
	store := testproc.Try(celldb.Open(t.Context(), filepath.Join(h.dir, "cell.db"), "cell1", celldb.Options{})).Or(t)
	service, err := cell.New(cell.Config{Store: store, Auth: cell.NoAuth(), ReportInterval: time.Second,
		ServiceDownTime: time.Minute, Logger: zerolog.Nop()})
	check(t, err)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.away.Load() && strings.HasPrefix(r.URL.Path, "/v1/hosts/") {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		service.ServeHTTP(w, r)
	}))
	h.url = web.URL
	h.cell = testproc.Try(cellclient.New(cellclient.Config{URL: web.URL})).Or(t)
	t.Cleanup(func() { h.cell.CloseIdle(); web.Close(); check(t, store.Close()) })
	return h
}

// configureWith is configure with the cell, and a driver that makes guests.
func (c *cellEnv) configureWith(url string) {
	c.t.Helper()
	if url != "" {
		url = fmt.Sprintf("[cell_client]\nurl = %q\n", url)
	}
	c.configure(c.node("fake", "cn1", uuidA, "")+"instances = {images = [\"cirros\"]}\n", url)
}

// placement sends a request to Placement, and returns the answer if it is of JSON.
func (c *cellEnv) placement(method, path string, body any) map[string]any {
	c.t.Helper()
	var out map[string]any
	_ = json.Unmarshal(testproc.Send(c.t, nil, method, c.env.url+path, "placement 1.37", body).Good(c.t).Body, &out)
	return out
}

// held says whether a consumer holds anything.
func (c *cellEnv) held(uuid string) bool {
	c.t.Helper()
	all, _ := c.placement(http.MethodGet, "/allocations/"+uuid, nil)["allocations"].(map[string]any)
	return len(all) > 0
}

// boot claims and places a server, as the compute API does.
func (c *cellEnv) boot(image string) string {
	c.t.Helper()
	c.next++
	uuid := fmt.Sprintf("dddddddd-0000-4000-8000-%012d", c.next)
	c.placement(http.MethodPut, "/allocations/"+uuid, map[string]any{
		"allocations": map[string]any{uuidA: map[string]any{"resources": map[string]int{"VCPU": 1}}}, "project_id": "p",
		"user_id": "u", "consumer_generation": nil,
	})
	testproc.Try(c.cell.Insert(c.t.Context(), cellwire.Server{
		UUID: uuid, ProjectID: "p", UserID: "u", Name: "web", ImageRef: image, Host: "cn1", Node: "cn1",
		NodeUUID: uuidA, VMState: cellwire.VMBuilding, TaskState: cellwire.TaskSpawning,
		Flavor:    cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{Name: "m1", VCPUs: 1, MemoryMB: 64}},
		CreatedAt: time.Now(),
	})).Or(c.t)
	testproc.Try(c.cell.Release(c.t.Context(), uuid)).Or(c.t)
	return uuid
}

// until waits until something is so.
func (e *env) until(what string, is func() bool) {
	e.t.Helper()
	testproc.Eventually(e.t, testproc.Patience, what, func() error {
		if is() {
			return nil
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		return fmt.Errorf("the log is\n%s", e.log.String())
	})
}

// state is the vm_state of a server with its task and power state.
func (c *cellEnv) state(uuid string) string {
	c.t.Helper()
	s := testproc.Try(c.cell.Server(c.t.Context(), uuid)).Or(c.t)
	return fmt.Sprintf("%s %s %d", s.VMState, s.TaskState, s.PowerState)
}

// guests are those that the driver has, by the names of their files.
func (c *cellEnv) guests() int {
	c.t.Helper()
	n := 0
	check(c.t, filepath.WalkDir(filepath.Join(c.dir, "state", "drivers", "fake"),
		func(path string, d os.DirEntry, err error) error {
			if err == nil && strings.HasPrefix(d.Name(), "dddddddd-") {
				n++
			}
			return err
		}))
	return n
}

// TestCell: an agent with a cell makes, reports and removes guests by way of its driver, survives
// outages of the cell, the driver and itself, and touches nothing when it stops.
func TestCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newCellEnv(t)
	h.configureWith(h.url)
	testproc.Check(t, os.Mkdir(filepath.Join(h.dir, "conf.d"), 0o700))
	testproc.Check(t, os.WriteFile(filepath.Join(h.dir, "conf.d", "address.toml"),
		[]byte("[agent]\nmy_ip = \"192.0.2.77\"\n"), 0o600))
	h.start()
	<-h.ready
	details := cellwire.NodeDetails{HypervisorType: "fake", HypervisorVersion: 1000, HostIP: "192.0.2.77"}
	h.until("the cell knows the node", func() bool {
		nodes, err := h.cell.ComputeNodes(t.Context(), false)
		return err == nil && len(nodes) == 1 && nodes[0].UUID == uuidA &&
			nodes[0].Host == "cn1" && nodes[0].Details == details
	})
	first := h.boot("cirros")
	h.until("it is active", func() bool { return h.state(first) == "active  1" })
	if h.guests() != 1 || !h.held(first) {
		t.Errorf("%d guests, allocations: %t", h.guests(), h.held(first))
	}
	bad := h.boot("windows")
	h.until("it has failed", func() bool { return h.state(bad) == "error  0" })
	if s, err := h.cell.Server(t.Context(), bad); err != nil || s.Fault == nil ||
		s.Fault.Message != "Build of instance "+bad+` aborted: there is no image "windows"` || h.held(bad) {
		t.Errorf("%+v, %v, allocations: %t", s.Fault, err, h.held(bad))
	}
	c := h.status().Cell
	if c == nil || !c.Up || len(c.Nodes) != 1 ||
		c.Spawns != (worker.Outcomes{Succeeded: 1, Failed: 1}) || c.Servers == 0 {
		t.Errorf("the status of the cell: got %+v, want it up, with one node and two builds", c)
	}

	// The cell is unavailable: the agent is as well as before, and the guest runs. What comes
	// meanwhile is done when it is back.
	mark := h.mark()
	h.away.Store(true)
	h.await(mark, "The cell is unavailable")
	check(t, syscall.Kill(h.pid("fake"), syscall.SIGKILL))
	second := h.boot("cirros")
	h.until("the status says so", func() bool { c := h.status().Cell; return !c.Up && c.Error != "" })
	testproc.Equal(t, h.guests(), 1, "%d guests")
	h.away.Store(false)
	h.until("the second is active", func() bool { return h.state(second) == "active  1" })

	// The agent stops: the cell knows at once, and guests are as they were.
	h.stop()
	services, err := h.cell.Services(t.Context())
	if err != nil || len(services) != 1 || services[0].Up {
		t.Errorf("the services after the agent stopped: got %+v, %v, want one that is down", services, err)
	}
	testproc.Equal(t, h.guests(), 2, "%d guests")
	if answer, err := h.cell.Delete(t.Context(), first, cellwire.DeleteNormal); err != nil || !answer.Local {
		t.Fatalf("Delete while the agent is down: got %+v, %v, want it local", answer, err)
	}
	h.start()
	<-h.ready
	h.until("the first is cleaned up", func() bool { return h.guests() == 1 && !h.held(first) })
	testproc.Try(h.cell.Delete(t.Context(), second, cellwire.DeleteNormal)).Or(t)
	h.until("the second is deleted", func() bool {
		s,
			err := h.cell.Server(t.Context(), second)
		return err == nil && s.Deleted
	})
	if h.guests() != 0 || h.held(second) {
		t.Errorf("%d guests, allocations: %t", h.guests(), h.held(second))
	}
}

// TestTwoAgentsOfOneHost: two machines with one name and identity. Both say so, neither gets new
// servers, and it ends when one of them stops.
func TestTwoAgentsOfOneHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h, copied := newCellEnv(t), newEnv(t)
	copied.url = h.env.url
	h.configureWith(h.url)
	copied.configure(copied.node("fake", "cn1", uuidA, "")+"instances = {images = [\"cirros\"]}\n",
		fmt.Sprintf("[cell_client]\nurl = %q\n", h.url))
	h.start()
	<-h.ready
	several := func(of *env) string {
		for _, c := range of.status().Conditions {
			if c.Code == health.SeveralAgents {
				return c.Text
			}
		}
		return ""
	}
	service := func() cellwire.Service { return testproc.Try(h.cell.Services(t.Context())).Or(t)[0] }
	h.until("the cell has the node", func() bool {
		s,
			err := h.cell.Services(t.Context())
		return err == nil && len(s) == 1 && s[0].Up
	})
	if s := service(); s.SeveralAgents || several(h.env) != "" {
		t.Fatalf("one agent: %+v, %q", s, several(h.env))
	}
	copied.start()
	<-copied.ready
	for _, of := range []*env{h.env, copied} {
		h.until("both say it",
			func() bool { return strings.Contains(several(of), "2 agents report as host cn1: one that started at ") })
	}
	if s := service(); !s.SeveralAgents || len(s.Agents) != 2 || len(s.Contested) != 1 {
		t.Errorf("the service of two agents: got %+v, want both, and one contested node", s)
	}
	copied.stop()
	h.until("one is left", func() bool { return several(h.env) == "" })
	if s := service(); s.SeveralAgents || !s.Up || len(s.Contested) != 0 {
		t.Errorf("the service after the copy stopped: got %+v, want it up, with one agent", s)
	}
}

// TestTwoAgentsInPlacement: two machines without a cell, with the state directory of one host. Both
// say so, and a Placement that knows no tokens changes nothing.
func TestTwoAgentsInPlacement(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h, copied := newEnv(t), newEnv(t)
	copied.url = h.url
	for _, of := range []*env{h, copied} {
		of.refresh = "1s"
		of.configure(of.node("fake", "cn1", uuidA, ""))
	}
	several := func(of *env) string {
		for _, c := range of.status().Conditions {
			if c.Code == health.SeveralAgents {
				return c.Text
			}
		}
		return ""
	}
	h.start()
	<-h.ready
	h.stop()
	check(t, os.CopyFS(filepath.Join(copied.dir, "state"), os.DirFS(filepath.Join(h.dir, "state"))))
	h.start()
	<-h.ready
	testproc.Equal(t, several(h), "", "a restart: %q")
	copied.start()
	<-copied.ready
	for _, of := range []*env{h, copied} {
		h.until("both say it",
			func() bool { return strings.Contains(several(of), "2 agents report as host cn1: one that started at ") })
	}
}

// TestDisabledByTheCell: the service is disabled by way of the compute API, and the trait comes and
// goes; what an operator said here stays, and what a cell said goes with the cell.
func TestDisabledByTheCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newCellEnv(t)
	h.configureWith(h.url)
	h.start()
	<-h.ready
	var service string
	h.until("the cell has the service",
		func() bool { c := h.status().Cell; service = c.Service; return c.Up && service != "" })
	disable := func(is bool, reason string) {
		t.Helper()
		_, err := h.cell.PatchService(t.Context(), service,
			cellwire.ServicePatch{Disabled: &is, DisabledReason: &reason})
		check(t, err)
	}
	disable(true, "new\nmemory")
	h.until("it has the trait", func() bool { return h.isDisabled(uuidA) })
	if r := h.reasons(); len(r) != 1 || r[0].Source != "cell" || r[0].Reason != "new memory" {
		t.Errorf("the reasons: got %+v, want that of the cell in one line", r)
	}
	_, err := control.NewClient(filepath.Join(h.dir, "run", "agent.sock")).
		Disable(t.Context(), control.DisableRequest{Reason: "a fan"})
	check(t, err)
	disable(false, "")
	h.until("only the operator's reason is left",
		func() bool { r := h.reasons(); return len(r) == 1 && r[0].Source == "operator" })
	if !h.isDisabled(uuidA) {
		t.Error("the operator's word does not count any more")
	}
	disable(true, "again")
	h.until("both", func() bool { return len(h.reasons()) == 2 })
	h.stop()
	h.configureWith("")
	h.start()
	<-h.ready
	h.until("the cell's is forgotten without a cell",
		func() bool { r := h.reasons(); return len(r) == 1 && r[0].Source == "operator" })
}
