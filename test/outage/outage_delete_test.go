// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"fmt"
	"testing"
)

// deleteLane are deletions.
var deleteLane = lane{build: deleteWorld, cases: []aCase{
	{53, "host_down", func(t *testing.T, w *world) {
		web1, h := w.id(t, "web1"), w.hosts["c1h1"]
		h.leave(t)
		w.api.ask(t, of("p1"), "2.69", "DELETE", "/servers/"+web1, nil).status(t, 204)
		w.show(t, of("p1"), "2.69", "web1").fault(t, "itemNotFound", 404)
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers"), "web3", "web2")
		if q := w.queued(t, web1); q != "true" {
			t.Errorf("queued_for_delete is %s", q)
		}
		w.free(t, web1)
		if guests, _ := h.made(); !guests[web1] {
			t.Error("the guest is gone, though its host was down")
		}
		h.appear(t)
		eventually(t, "the host cleans up", func() error {
			if guests, _ := h.made(); guests[web1] {
				return fmt.Errorf("the guest is there")
			}
			return nil
		})
	}},
	{54, "before_it_is_built", func(t *testing.T, w *world) {
		w.placement.Kill()
		id := w.accepted(t, w.api.post(t, of("p1"), "early", nil), "early")
		if s := w.show(t, of("p1"), "2.69", "early").server(t); s["status"] != "BUILD" {
			t.Errorf("it is %v", s["status"])
		}
		w.api.ask(t, of("p1"), "2.69", "DELETE", "/servers/"+id, nil).status(t, 204)
		w.show(t, of("p1"), "2.69", "early").fault(t, "itemNotFound", 404)
		if q := w.queued(t, id); q != "true" {
			t.Errorf("queued_for_delete is %s", q)
		}
		w.startPlacement(t)
		w.placement.Await(t, 0, "Serving the Placement API.")
		w.boot(t, "p1", "after", "c2h1") // whatever was to be scheduled is, by now
		w.show(t, of("p1"), "2.69", "early").fault(t, "itemNotFound", 404)
		w.free(t, id)
	}},
	{55, "twice_and_by_others", func(t *testing.T, w *world) {
		web2, web3 := w.id(t, "web2"), w.id(t, "web3")
		w.api.ask(t, of("p1"), "2.69", "DELETE", "/servers/"+web2, nil).status(t, 204)
		w.gone(t, "web2")
		w.golden(t, "55-delete-again", w.api.ask(t, of("p1"), "2.69", "DELETE", "/servers/"+web2, nil).status(t, 404))
		w.api.ask(t, of("p2"), "2.69", "DELETE", "/servers/"+web3, nil).fault(t, "itemNotFound", 404)
		w.golden(t, "55-delete-reader", w.api.ask(t, readerOf("p1"), "2.69", "DELETE", "/servers/"+web3, nil).status(t, 403))
		if q := w.queued(t, web3); q != "false" {
			t.Errorf("queued_for_delete is %s", q)
		}
		w.free(t, web2)
	}},
}}

func deleteWorld(t *testing.T) *world {
	w := newWorld(t, plan{})
	w.begin(t, "p1", "web1", "c1h1")
	w.begin(t, "p1", "web2", "c2h1")
	w.begin(t, "p1", "web3", "c2h1")
	w.settled(t, "ACTIVE", "web1", "web2", "web3")
	return w
}
