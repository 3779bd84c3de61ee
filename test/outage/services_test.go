// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"fmt"
	"slices"
	"testing"
)

// TestServices: an administrator disables the service of a host and forces it down. The agent of
// c1h1 is a real one; c2h1 has less memory, so that servers go there only when c1h1 takes none.
func TestServices(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plan{memory: map[string]int64{"c2h1": 8 << 10}, bare: []string{"cell1"}})
	defer func() { w.close(t, t.Failed()) }()
	w.addAgent(t, "c1h1", "cell_client.url = "+quoted(w.cells["cell1"].url)).run(t, w)
	w.discovered(t, 2)
	w.boot(t, "p1", "before", "")
	w.isOn(t, "before", "c1h1")

	service := func(host string) record {
		t.Helper()
		found := w.api.get(t, admin, "2.69", "/os-services?host="+host).services(t)
		if len(found) != 1 {
			t.Fatalf("the services of %s are %v", host, found)
		}
		return found[0]
	}
	change := func(host string, body record) record {
		t.Helper()
		var answer struct{ Service record }
		w.api.ask(t, admin, "2.69", "PUT", fmt.Sprintf("/os-services/%v", service(host)["id"]), body).status(t, 200).decode(t, &answer)
		return answer.Service
	}
	node := text(t, w.backup(t), "SELECT n.uuid FROM node_mappings n JOIN host_mappings h ON h.id = n.host_id WHERE h.host = 'c1h1'")
	disabledTrait := func(want bool) {
		t.Helper()
		eventually(t, fmt.Sprintf("COMPUTE_STATUS_DISABLED is %v", want), func() error {
			var answer struct{ Traits []string }
			w.placementAsk(t, "GET", "/resource_providers/"+node+"/traits", nil, &answer)
			if slices.Contains(answer.Traits, "COMPUTE_STATUS_DISABLED") != want {
				return fmt.Errorf("the traits are %v", answer.Traits)
			}
			return nil
		})
	}

	t.Log("disabled: nothing new comes there, what is there stays, and the agent writes it to Placement")
	if s := change("c1h1", record{"status": "disabled", "disabled_reason": "new fans"}); s["status"] != "disabled" || s["disabled_reason"] != "new fans" || s["state"] != "up" {
		t.Errorf("the service is %v", s)
	}
	w.boot(t, "p1", "during", "")
	w.isOn(t, "during", "c2h1")
	disabledTrait(true)
	w.settled(t, "ACTIVE", "before")
	if s := change("c1h1", record{"status": "enabled"}); s["status"] != "enabled" || s["disabled_reason"] != nil {
		t.Errorf("the service is %v", s)
	}
	disabledTrait(false)

	t.Log("forced down: nothing new comes there, and what is deleted is deleted without it")
	if s := change("c1h1", record{"forced_down": true}); s["state"] != "down" || s["forced_down"] != true {
		t.Errorf("the service is %v", s)
	}
	w.boot(t, "p1", "elsewhere", "")
	w.isOn(t, "elsewhere", "c2h1")
	w.api.ask(t, of("p1"), "2.69", "DELETE", "/servers/"+w.id(t, "before"), nil).status(t, 204)
	w.show(t, of("p1"), "2.69", "before").fault(t, "itemNotFound", 404)
	w.free(t, w.id(t, "before"))
	change("c1h1", record{"forced_down": false})
	eventually(t, "the guest is removed", func() error {
		if guests := w.agents["c1h1"].guests(t); len(guests) > 0 {
			return fmt.Errorf("there are %v", guests)
		}
		return nil
	})
	w.boot(t, "p1", "after", "")
	w.isOn(t, "after", "c1h1")
}

// isOn checks on which host a server is.
func (w *world) isOn(t *testing.T, name, host string) {
	t.Helper()
	if s := w.show(t, admin, "2.69", name).server(t); s["OS-EXT-SRV-ATTR:host"] != host {
		t.Errorf("%s is on %v, not on %s", name, s["OS-EXT-SRV-ATTR:host"], host)
	}
}
