// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// tell makes a request to Placement beside the agent.
func (e *env) tell(method, path, body string) {
	e.t.Helper()
	testproc.Send(e.t, nil, method, e.url+path, "placement 1.37", body).Good(e.t)
}

// used has Placement hold a node whose VGPUs a guest uses.
func (e *env) used() {
	e.tell(http.MethodPost, "/resource_providers", fmt.Sprintf(`{"name": "cn1", "uuid": %q}`, uuidA))
	e.tell(http.MethodPut, "/resource_providers/"+uuidA+"/inventories",
		`{"resource_provider_generation": 0, "inventories": {"VGPU": {"total": 8}}}`)
	e.tell(http.MethodPut, "/allocations/99999999-0000-4000-8000-000000000001", fmt.Sprintf(
		`{"allocations": {%q: {"resources": {"VGPU": 2}}}, "project_id": "p", "user_id": "u", `+
			`"consumer_generation": null}`, uuidA))
}

// gpus is a driver that wants them on children.
func (e *env) gpus(more string) string {
	return fmt.Sprintf("[drivers.fake]\npath = %q\n[drivers.fake.config]\nlayout = \"vgpu-children\"\n%s\nnodes = "+
		"[{name = \"cn1\", uuid = %q, inventories = {VGPU = {total = 8}}}]\n",
		e.driver, more, uuidA)
}

// TestHeldNodeIsTriedAgainByAReload: what a reload fixes, a reload releases.
func TestHeldNodeIsTriedAgainByAReload(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	h.used()
	h.configure(h.gpus(`faults.reshape = "invent"`))
	h.start()
	<-h.ready
	h.await(0, "the node is held", `"offenders"`, "would be added")
	mark := h.mark()
	h.configure(h.gpus(""))
	h.reload <- syscall.SIGHUP
	h.await(mark, `"operation":"`, "with the allocations of 1 consumer")
	h.await(mark, "The node is reported again")
	entries, err := journal.Read(filepath.Join(h.dir, "state"))
	if err != nil || len(entries) != 1 || entries[0].Outcome != "happened" {
		t.Errorf("the journal: got %+v, %v, want one reshape that happened", entries, err)
	}
}

// TestHoldIsTakenOverByAReload: on_failure itself needs no restart.
func TestHoldIsTakenOverByAReload(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	h.used()
	h.configure(h.gpus(`faults.reshape = "invent"`))
	h.start()
	<-h.ready
	h.await(0, "the node is held")
	h.configure(h.gpus(`faults.reshape = "invent"`), "[reshape]\non_failure = \"exit\"\n")
	h.reload <- syscall.SIGHUP
	testproc.ErrorHas(t, <-h.ended, "would be added", "the end of the agent: %v")
}

// TestOneNodeDoesNotEndTheAgent: a driver that names its node with another uuid at each start, and
// one whose reshape is refused, have their node held. The node of the other driver is reported, and
// systemd gets to know that the agent is ready.
func TestOneNodeDoesNotEndTheAgent(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		before, after func(h *env) string
		says          string
		condition     health.Code
	}{
		"another uuid": {
			func(h *env) string { return h.node("second", "cn2", uuidB, "") },
			func(h *env) string { return h.node("second", "cn2", "aaaaaaaa-0000-4000-8000-000000000003", "") },
			uuidB, health.IdentityRefused,
		},
		"a reshape": {
			func(h *env) string { return h.node("second", "cn2", uuidB, "") },
			func(h *env) string {
				h.tell(http.MethodPut, "/resource_providers/"+uuidB+"/inventories",
					`{"resource_provider_generation": 2, "inventories": {"VGPU": {"total": 8}}}`)
				h.tell(http.MethodPut, "/allocations/99999999-0000-4000-8000-000000000001", fmt.Sprintf(
					`{"allocations": {%q: {"resources": {"VGPU": 2}}}, "project_id": "p", "user_id": "u", `+
						`"consumer_generation": null}`, uuidB))
				return fmt.Sprintf(
					"[drivers.second]\n"+
						"path = %q\n"+
						"[drivers.second.config]\n"+
						"layout = \"vgpu-children\"\n"+
						"faults.reshape = \"invent\"\n"+
						"nodes = [{name = \"cn2\", uuid = %q, inventories = {VGPU = {total = 8}}}]\n", h.driver, uuidB)
			},
			"would be added", health.ReshapeHeld,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newEnv(t)
			h.configure(h.node("fake", "cn1", uuidA, ""), c.before(h))
			h.start()
			<-h.ready
			h.stop()
			h.configure(h.node("fake", "cn1", uuidA, ""), c.after(h))
			h.start()
			select {
			case <-h.ready:
			case err := <-h.ended:
				t.Fatalf("the agent ended: %v", err)
			}
			s := h.status()
			nodes := map[string]resourcetracker.NodeStatus{}
			for _, d := range s.Drivers {
				for _, n := range d.Report.Nodes {
					if n.State != resourcetracker.Orphaned {
						nodes[n.Name] = n
					}
				}
			}
			if n := nodes["cn2"]; !n.Held || !strings.Contains(n.Error+strings.Join(n.Violations, ""), c.says) {
				t.Errorf("cn2: %+v", n)
			}
			if n := nodes["cn1"]; n.State != resourcetracker.Reporting {
				t.Errorf("cn1: %+v", n)
			}
			if s.State != resourcetracker.Degraded || !slices.ContainsFunc(s.Conditions, func(f health.Condition) bool {
				return f.Code == c.condition && f.Subject == health.OfNode("cn2")
			}) {
				t.Errorf("%s: %+v", s.State, s.Conditions)
			}
		})
	}
}

// TestDamagedJournalDoesNotStopTheAgent: a finished entry that cannot be read is only logged.
func TestDamagedJournalDoesNotStopTheAgent(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	dir := filepath.Join(h.dir, "state", journal.DirName)
	check(t, os.MkdirAll(dir, 0o700))
	check(t, os.WriteFile(filepath.Join(dir, "000001-"+uuidA+".json"), []byte("{"), 0o600))
	// it is not the first start
	check(t, os.WriteFile(filepath.Join(h.dir, "state", resourcetracker.IdentityFile), []byte(uuidA+"\n"), 0o600))
	h.configure(h.node("fake", "cn1", uuidA, ""))
	h.start()
	<-h.ready
	h.await(0, "An entry of the journal of reshapes is damaged", "000001-"+uuidA)
	h.await(0, `"operation":"`, "VCPU")
}
