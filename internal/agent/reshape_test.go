// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// tell makes a request to Placement beside the agent.
func (h *env) tell(method, path, body string) {
	h.t.Helper()
	testproc.Send(h.t, nil, method, h.url+path, "placement 1.37", body).Good(h.t)
}

// used has Placement hold a node whose VGPUs a guest uses.
func (h *env) used() {
	h.tell(http.MethodPost, "/resource_providers", fmt.Sprintf(`{"name": "cn1", "uuid": %q}`, uuidA))
	h.tell(http.MethodPut, "/resource_providers/"+uuidA+"/inventories", `{"resource_provider_generation": 0, "inventories": {"VGPU": {"total": 8}}}`)
	h.tell(http.MethodPut, "/allocations/99999999-0000-4000-8000-000000000001", fmt.Sprintf(
		`{"allocations": {%q: {"resources": {"VGPU": 2}}}, "project_id": "p", "user_id": "u", "consumer_generation": null}`, uuidA))
}

// gpus is a driver that wants them on children.
func (h *env) gpus(more string) string {
	return fmt.Sprintf("[drivers.fake]\npath = %q\n[drivers.fake.config]\nshape = \"vgpu-children\"\n%s\nnodes = [{name = \"cn1\", uuid = %q, inventories = {VGPU = {total = 8}}}]\n",
		h.driver, more, uuidA)
}

// TestHeldNodeIsTriedAgainByAReload: what a reload fixes, a reload releases.
func TestHeldNodeIsTriedAgainByAReload(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	h.used()
	hold := "[reshape]\non_failure = \"hold\"\n"
	h.configure(h.gpus(`faults.reshape = "invent"`), hold)
	h.start()
	<-h.ready
	h.await(0, "the node is held", `"offenders"`, "would be added")
	mark := h.mark()
	h.configure(h.gpus(""), hold)
	h.reload <- syscall.SIGHUP
	h.await(mark, `"operation":"`, "with the allocations of 1 consumer")
	h.await(mark, "The node is reported again")
	entries, err := journal.Read(filepath.Join(h.dir, "state"))
	if err != nil || len(entries) != 1 || entries[0].Outcome != "happened" {
		t.Errorf("%+v, %v", entries, err)
	}
}

// TestHoldIsTakenOverByAReload: on_failure itself needs no restart.
func TestHoldIsTakenOverByAReload(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	h.used()
	h.configure(h.gpus(`faults.reshape = "invent"`), "[reshape]\non_failure = \"hold\"\n")
	h.start()
	<-h.ready
	h.await(0, "the node is held")
	h.configure(h.gpus(`faults.reshape = "invent"`))
	h.reload <- syscall.SIGHUP
	testproc.ErrorHas(t, <-h.ended, "would be added", "%v")
}

// TestDamagedJournalDoesNotStopTheAgent: a finished entry that cannot be read is only logged.
func TestDamagedJournalDoesNotStopTheAgent(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	dir := filepath.Join(h.dir, "state", journal.DirName)
	check(t, os.MkdirAll(dir, 0o700))
	check(t, os.WriteFile(filepath.Join(dir, "000001-"+uuidA+".json"), []byte("{"), 0o600))
	check(t, os.WriteFile(filepath.Join(h.dir, "state", resourcetracker.IdentityFile), []byte(uuidA+"\n"), 0o600)) // it is not the first start
	h.configure(h.node("fake", "cn1", uuidA, ""))
	h.start()
	<-h.ready
	h.await(0, "An entry of the journal of reshapes is damaged", "000001-"+uuidA)
	h.await(0, `"operation":"`, "VCPU")
}
