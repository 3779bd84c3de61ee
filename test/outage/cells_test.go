// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

// TestKilledCells: a cell is killed, and then all that is behind the compute API. What can be done
// is done, and when all is back nothing was lost.
func TestKilledCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := withHosts(t, world.Plan{}, 640<<10, 64<<10)
	p1, p2 := world.Of("p1"), world.Of("p2")
	web1 := w.Begin("p1", "web1", "c1h1")
	w.Begin("p1", "web2", "c2h1")
	w.Bury("p1", "lost")
	w.Begin("p2", "only2", "c2h1")
	w.Settled("ERROR", "lost")
	w.Settled("ACTIVE", "web1", "web2", "only2")
	w.lists(p1, "2.69", "lost", "web2", "web1")

	t.Log("cell1 is killed")
	w.Kill("cell1")
	w.lists(p1, "2.69", "web1?", "lost", "web2")
	w.lists(p1, "2.68", "lost", "web2")
	w.lists(p2, "2.69", "only2")
	w.golden("list", w.Get(p1, "2.69", "/servers"))
	w.golden("detail", w.Get(p1, "2.69", "/servers/detail"))
	w.golden("show", w.Show(p1, "2.69", "web1").Is(t, 200))
	w.golden("services", w.Get(world.Admin, "2.69", "/os-services").Is(t, 200))
	w.Show(p1, "2.68", "web1").Fault(t, "computeFault", 500)
	w.Ask(p1, "2.69", "DELETE", "/servers/"+web1, nil).Fault(t, "computeFault", 500)
	w.golden("boot-blocked", w.Post(p1, "blocked", nil).Is(t, 403))
	w.API.Await(t, 0, `"project":"p1"`, "has servers in a cell that is down", "cell1")
	// Never on the host of the cell that is down, though Placement has it, with more memory.
	w.Accepted(w.Post(world.AdminOf("p1"), "forced", nil), "forced")
	w.Accepted(w.Post(p2, "free", nil), "free")
	w.BuiltOn("forced", "c2h1")
	w.BuiltOn("free", "c2h1")

	t.Log("all others are killed, and Placement")
	w.Kill("cell0", "cell2")
	w.Placement.Kill()
	w.lists(p1, "2.69", "forced?", "lost?", "web2?", "web1?")
	w.lists(p1, "2.68")
	coming, early := w.Accepted(w.Post(world.Of("p3"), "coming", nil), "coming"),
		w.Accepted(w.Post(world.Of("p3"), "early", nil), "early")
	w.lists(world.Of("p3"), "2.69", "early", "coming")
	w.Ask(world.Of("p3"), "2.69", "DELETE", "/servers/"+early, nil).Is(t, 204)
	if s := w.Show(world.Of("p3"), "2.69", "coming").Server(t); s["status"] != "BUILD" {
		t.Errorf("before it is scheduled it is %v", s["status"])
	}

	t.Log("all are back")
	w.Placement.Again(t)
	w.Revive()
	w.BuiltOn("coming", "c1h1")
	w.Show(world.Admin, "2.69", "early").Fault(t, "itemNotFound", 404)
	w.Free(early)
	w.lists(p1, "2.69", "forced", "lost", "web2", "web1")
	w.Accepted(w.Post(p1, "later", nil), "later")
	w.BuiltOn("later", "c1h1")
	for _, id := range []string{web1, coming} {
		w.Ask(world.Admin, "2.69", "DELETE", "/servers/"+id, nil).Is(t, 204)
		w.Gone(w.NameOf(id))
		w.Free(id)
	}
}

// TestHungCell: a cell is stopped, which the compute API finds without a request. No client waits
// for it, and it is used again when it goes on.
func TestHungCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := withHosts(t, world.Plan{API: []string{`compute_api.cell_ping_interval = "500ms"`,
		`compute_api.cell_down_time = "3s"`}}, 64<<10, 64<<10)
	p1 := world.Of("p1")
	w.Begin("p1", "web1", "c1h1")
	w.Begin("p1", "web2", "c2h1")
	w.Settled("ACTIVE", "web1", "web2")
	mark := w.API.Mark()
	w.Cells["cell1"].Freeze(t)
	w.API.Await(t, mark, "A cell is down.", `"cell1"`, "it has answered no request and no ping for ")
	for range 5 {
		w.lists(p1, "2.69", "web1?", "web2")
	}
	mark = w.API.Mark()
	w.Cells["cell1"].Thaw(t)
	w.API.Await(t, mark, "A cell is up again.", `"cell1"`)
	w.eventuallyLists(p1, "web2", "web1")
	w.Boot("p1", "web3", "c1h1")
}

// TestKilledComputeAPI: it is killed while servers are scheduled, and each of them is made once.
func TestKilledComputeAPI(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := withHosts(t, world.Plan{}, 64<<10, 64<<10)
	var names []string
	for i := range 8 {
		names = append(names, fmt.Sprintf("survivor%d", i))
		w.Begin("p1", names[i], "")
	}
	w.API.Kill() // wherever it is with them
	w.StartAPI()
	for _, name := range names {
		w.Settled("ACTIVE", name)
		host, _ := w.Show(world.Admin, "2.69", name).Server(t)["OS-EXT-SRV-ATTR:host"].(string)
		w.BuiltOn(name, host)
	}
}

// TestHostWhoseCellIsKilled: the guests of a host stay as they are while its cell is down, also
// when its agent is killed meanwhile; both go on, also with what they were about to do.
func TestHostWhoseCellIsKilled(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := deploy(t, world.Plan{Cells: []string{"cell1"}})
	agent := w.runAgent(w.AddAgent("cell1", "c1h1"))
	web1 := w.Boot("p1", "web1", "c1h1")
	w.Boot("p1", "web2", "c1h1")
	before := agent.Guests()
	if len(before) != 2 {
		t.Fatalf("the guests are %v", before)
	}
	unchanged := func(when string) {
		t.Helper()
		after := agent.Guests()
		for id, content := range before {
			testproc.Equal(t, after[id], content, "%s: the guest %s was\n%s\nand is\n%s", when, id, content)
		}
	}
	mark := agent.Mark()
	w.Kill("cell1")
	agent.Await(t, mark, `"level":"warn"`, "cell")
	unchanged("the cell is down")
	agent.Kill()
	agent.Await(t, agent.Again(t), `"level":"warn"`, "cell")
	unchanged("the agent was killed meanwhile")
	// As after ten minutes: its service is down when the cell is back, until the agent reports.
	edit(t, w.cellDatabase("cell1"), "UPDATE services SET last_seen_up = last_seen_up - 600000000")
	w.Revive()
	w.Settled("ACTIVE", "web1", "web2")
	unchanged("the cell is back")
	w.Boot("p1", "web3", "c1h1")

	t.Log("both are killed in a rebuild")
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDdYXGbpsTE2fzyfO0JAzbXoEJcLeP3yjG4nCKSAr1uI me"
	held := w.Held(web1)
	w.Ask(world.Of("p1"), "2.2", "POST",
		"/os-keypairs", world.Record{"keypair": world.Record{"name": "mine", "public_key": key}}).Is(t, 201)
	w.Ask(world.Of("p1"), "2.54", "POST", "/servers/"+web1+"/action", world.Record{"rebuild": world.Record{
		"imageRef": "155d900f-4e14-4e4c-a73d-069cbf4541e6", "key_name": "mine",
	}}).Is(t, 202)
	agent.Kill() // whichever half it is in
	w.Kill("cell1")
	agent.Again(t)
	w.Revive()
	w.Settled("ACTIVE", "web1")
	if after := agent.Guests()[web1]; strings.Contains(before[web1], key) || !strings.Contains(after, key) {
		t.Errorf("the guest was\n%s\nand is\n%s", before[web1], after)
	}
	if now := w.Held(web1); !slices.Equal(held, now) || len(held) == 0 {
		t.Errorf("its allocations were %v and are %v", held, now)
	}
	delete(before, web1)
	unchanged("another was rebuilt")
	spawned := agent.Spawned()
	for id, n := range spawned {
		// the driver may end before the agent logs what it says
		if most := map[bool]int{true: 3}[id == web1]; n > max(most, 1) {
			t.Errorf("the guest of %s was made %d times", w.NameOf(id), n)
		}
	}
	if len(spawned) != 3 {
		t.Errorf("the driver made %v", spawned)
	}
	w.Ask(world.Of("p1"), "2.69", "DELETE", "/servers/"+web1, nil).Is(t, 204)
	w.Gone("web1")
	w.Free(web1)
	if after := agent.Guests(); len(after) != 2 || after[web1] != "" {
		t.Errorf("the guests are %v", after)
	}
}

// runAgent starts an agent and waits until servers can go to its host.
func (d deployment) runAgent(a *world.Agent) *world.Agent {
	d.T.Helper()
	d.Ready(a.Run())
	return a
}
