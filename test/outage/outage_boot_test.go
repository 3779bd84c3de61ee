// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// bootLane are boots while cell1 is killed. Project p1 has servers in cell1 and cell2, p2 has none,
// p3 had one in cell1 that is deleted, p5 one in cell1 that is not migrated, and p8 as many as its
// quota allows, in both.
var bootLane = lane{build: bootWorld, cases: []aCase{
	{49, "at_the_quota", func(t *testing.T, w *world) {
		before := w.written(t)
		w.golden(t, "49-over-quota", w.api.post(t, of("p8"), "more", nil).status(t, 403))
		w.unwritten(t, before)
	}},
	{43, "boot_of_a_project_with_servers_in_it", func(t *testing.T, w *world) {
		w.down(t, "cell1")
		before := w.written(t)
		for _, version := range []string{"2.1", "2.69"} { // the block is of no microversion
			body := record{"server": record{"name": "blocked", "flavorRef": "1", "imageRef": image}}
			if version == "2.69" {
				body = record{"server": record{"name": "blocked", "flavorRef": "1", "imageRef": image, "networks": "none"}}
			}
			w.golden(t, "43-boot-blocked", w.api.ask(t, of("p1"), version, "POST", "/servers", body).status(t, 403))
		}
		w.unwritten(t, before)
		w.api.process.Await(t, 0, `"project":"p1"`, "has servers in a cell that is down", "cell1")
	}},
	{44, "the_same_as_administrator", func(t *testing.T, w *world) {
		w.down(t, "cell1")
		a := w.api.post(t, adminOf("p1"), "forced", nil)
		w.golden(t, "44-boot-accepted", a)
		w.builtOn(t, w.accepted(t, a, "forced"), "forced", "c2h1")
	}},
	{45, "boot_of_a_project_without_servers_in_it", func(t *testing.T, w *world) {
		w.down(t, "cell1")
		for i := range 4 { // never on the host of the cell that is down, though Placement has it, with more memory
			name := fmt.Sprintf("free%d", i)
			w.builtOn(t, w.accepted(t, w.api.post(t, of("p2"), name, nil), name), name, "c2h1")
		}
	}},
	{46, "boot_of_a_project_with_a_deleted_server_in_it", func(t *testing.T, w *world) {
		w.down(t, "cell1")
		w.builtOn(t, w.accepted(t, w.api.post(t, of("p3"), "again", nil), "again"), "again", "c2h1")
		before := w.written(t)
		w.api.post(t, of("p5"), "blocked", nil).fault(t, "forbidden", 403) // what is not migrated counts as living
		w.unwritten(t, before)
	}},
	{47, "policy", func(t *testing.T, w *world) {
		w.down(t, "cell1")
		rule := func(name, text string) *api {
			file := filepath.Join(w.dir, name+".yaml")
			check(t, os.WriteFile(file, []byte(fmt.Sprintf("\"os_compute_api:servers:create:cell_down\": %q\n", text)), 0o600))
			return w.another(t, name, "compute_api.policy_file = "+quoted(file))
		}
		w.builtOn(t, w.accepted(t, rule("everybody", "@").post(t, of("p1"), "allowed", nil), "allowed"), "allowed", "c2h1")
		before := w.written(t)
		for _, who := range []caller{of("p1"), adminOf("p1")} {
			w.golden(t, "43-boot-blocked", rule("nobody", "!").post(t, who, "refused", nil).status(t, 403))
		}
		w.unwritten(t, before)
	}},
	{48, "usage_from_placement", func(t *testing.T, w *world) {
		w.down(t, "cell1")
		counting := w.another(t, "counting", "quota.count_usage_from_placement = true")
		before := w.written(t)
		w.golden(t, "49-over-quota", counting.post(t, of("p8"), "more", nil).status(t, 403))
		w.unwritten(t, before)
		w.builtOn(t, w.accepted(t, counting.post(t, of("p1"), "counted", nil), "counted"), "counted", "c2h1") // there is no block
		w.withoutPlacement(t)
	}},
	{49, "usage_in_the_outage", func(t *testing.T, w *world) { // Nova leaves out what is in cell1
		w.down(t, "cell1")
		w.api.post(t, adminOf("p8"), "more", nil).fault(t, "forbidden", 403)
		var body struct {
			Limits struct{ Absolute map[string]int }
		}
		w.api.get(t, of("p8"), "2.69", "/limits").status(t, 200).decode(t, &body)
		used := body.Limits.Absolute
		if used["totalInstancesUsed"] != 2 || used["totalCoresUsed"] != 2 || used["totalRAMUsed"] != 1024 {
			t.Errorf("limits: %v", used)
		}
	}},
	{50, "after_the_recovery", func(t *testing.T, w *world) {
		w.down(t, "cell1")
		w.api.post(t, of("p1"), "blocked", nil).fault(t, "forbidden", 403)
		w.up(t)
		w.builtOn(t, w.accepted(t, w.api.post(t, of("p1"), "later", nil), "later"), "later", "c1h1") // it has most memory
	}},
	{51, "cell_dies_before_the_insertion", func(t *testing.T, w *world) {
		w.up(t)
		p := w.betweenOnce(t, "cell1")
		dies := func(_ http.ResponseWriter, r *http.Request, _ int) bool {
			if r.Method == http.MethodPut {
				w.down(t, "cell1")
				panic(http.ErrAbortHandler)
			}
			return true
		}
		p.fails(dies)
		id := w.accepted(t, w.api.post(t, of("p2"), "moved", nil), "moved")
		w.builtOn(t, id, "moved", "c2h1")
		if p.requests("/v1/servers/"+id) == 0 {
			t.Fatal("cell1 was not asked to take it: the case was not tested")
		}
		w.up(t)
		if out, code := w.manage(t, "disable", "cell2"); code != 0 {
			t.Fatalf("disable ended with %d:\n%s", code, out)
		}
		id = w.accepted(t, w.api.post(t, adminOf("p2"), "nowhere", nil), "nowhere")
		w.settled(t, "ERROR", "nowhere")
		w.free(t, id)
		p.fails(nil)
		w.up(t)
		if out, code := w.manage(t, "enable", "cell2"); code != 0 {
			t.Fatalf("enable ended with %d:\n%s", code, out)
		}
	}},
	{51, "answer_to_the_insertion_lost", func(t *testing.T, w *world) {
		w.up(t)
		p := w.betweenOnce(t, "cell1")
		p.fails(func(_ http.ResponseWriter, r *http.Request, _ int) bool {
			if r.Method == http.MethodPut {
				p.loses(r)
			}
			return true
		})
		defer p.fails(nil)
		id := w.accepted(t, w.api.post(t, of("p2"), "unheard", nil), "unheard")
		w.builtOn(t, id, "unheard", "c2h1") // it is unknown whether cell1 has it: nothing is made there
		if p.requests("/v1/servers/"+id) == 0 {
			t.Fatal("cell1 was not asked to take it: the case was not tested")
		}
		if n := count(t, w.cellBackup(t, "cell1"), "SELECT COUNT(*) FROM instances WHERE uuid = ? AND hidden = 1", id); n != 1 {
			t.Errorf("cell1 has %d hidden rows", n)
		}
	}},
	{51, "answer_to_the_release_lost", func(t *testing.T, w *world) {
		w.up(t)
		p := w.betweenOnce(t, "cell1")
		p.fails(func(_ http.ResponseWriter, r *http.Request, n int) bool {
			if strings.HasSuffix(r.URL.Path, "/release") && n == 1 {
				p.loses(r)
			}
			return true
		})
		defer p.fails(nil)
		id := w.accepted(t, w.api.post(t, of("p2"), "released", nil), "released")
		w.builtOn(t, id, "released", "c1h1")
		eventually(t, "the build request is gone", func() error {
			if n := count(t, w.backup(t), "SELECT COUNT(*) FROM build_requests WHERE instance_uuid = ?", id); n != 0 {
				return errors.New("it is there")
			}
			return nil
		})
		if n := p.requests("/v1/servers/" + id + "/release"); n < 2 {
			t.Errorf("it was released %d times", n)
		}
	}},
	{51, "compute_api_dies", func(t *testing.T, w *world) {
		w.up(t)
		names := []string{}
		for i := range 5 {
			name := fmt.Sprintf("survivor%d", i)
			w.accepted(t, w.api.post(t, of("p2"), name, nil), name)
			names = append(names, name)
		}
		w.api.process.Kill() // wherever it was with them
		w.api = w.serveAPI(t, "api", w.api.config)
		w.settled(t, "ACTIVE", names...)
		for _, name := range names {
			host, _ := w.show(t, admin, "2.69", name).server(t)["OS-EXT-SRV-ATTR:host"].(string)
			w.builtOn(t, w.id(t, name), name, host)
		}
	}},
	{61, "disabled_cell", func(t *testing.T, w *world) {
		w.up(t)
		before := w.named(t, w.api.get(t, of("p1"), "2.69", "/servers").servers(t))
		if out, code := w.manage(t, "disable", "cell1"); code != 0 {
			t.Fatalf("disable ended with %d:\n%s", code, out)
		}
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers"), before...)
		for i := range 3 {
			name := fmt.Sprintf("elsewhere%d", i)
			w.builtOn(t, w.accepted(t, w.api.post(t, of("p2"), name, nil), name), name, "c2h1")
		}
		w.begin(t, "p2", "forbidden", "c1h1")
		w.settled(t, "ERROR", "forbidden")
		w.free(t, w.id(t, "forbidden"))
		if out, code := w.manage(t, "enable", "cell1"); code != 0 {
			t.Fatalf("enable ended with %d:\n%s", code, out)
		}
		w.builtOn(t, w.accepted(t, w.api.post(t, of("p2"), "here", nil), "here"), "here", "c1h1")
	}},
}}

// withoutPlacement asks for all that needs the usage that Placement counts, while nothing listens
// at its address, or something that is no Placement.
func (w *world) withoutPlacement(t *testing.T) {
	t.Helper()
	respond := func(do http.HandlerFunc) string {
		server := httptest.NewServer(do)
		w.after(server.Close)
		return server.URL
	}
	hang := make(chan struct{})
	w.after(func() { close(hang) })
	for name, address := range map[string]string{
		"stopped": "http://" + testproc.FreeAddress(t),
		"500":     respond(func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, "oops", http.StatusInternalServerError) }),
		"401":     respond(func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, "who?", http.StatusUnauthorized) }),
		"rubbish": respond(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("<html>hello</html>")) }),
		"empty":   respond(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("{}")) }),
		"hangs": respond(func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		}),
	} {
		api := w.another(t, "placement-"+name, "quota.count_usage_from_placement = true", "placement_client.url = "+quoted(address), `placement_client.connect_timeout = "1s"`, `placement_client.timeout = "1s"`)
		before := w.written(t)
		for _, c := range []struct {
			method, path string
			body         any
		}{
			{"GET", "/limits", nil},
			{"GET", "/os-quota-sets/p1/detail", nil},
			{"PUT", "/os-quota-sets/p1", record{"quota_set": record{"instances": 10}}},
			{"POST", "/servers", record{"server": record{"name": "n", "flavorRef": "1", "imageRef": image, "networks": "none"}}},
		} {
			a := api.ask(t, adminOf("p1"), "2.69", c.method, c.path, c.body)
			m := a.fault(t, "serviceUnavailable", 503)
			if !strings.Contains(m, "The Placement service cannot be used now") || a.header.Get("Retry-After") == "" {
				t.Errorf("Placement %s: %s %s: %q, Retry-After %q", name, c.method, c.path, m, a.header.Get("Retry-After"))
			}
		}
		w.unwritten(t, before)
		w.lists(t, api.get(t, adminOf("p9"), "2.69", "/servers")) // what does not need it goes on
		api.process.Await(t, 0, `"status":503`, `"cause":`)
	}
}

func bootWorld(t *testing.T) *world {
	w := newWorld(t, plan{memory: map[string]int64{"c1h1": 640 << 10}})
	w.begin(t, "p1", "web1", "c1h1")
	w.begin(t, "p1", "web2", "c2h1")
	w.begin(t, "p3", "dead", "c1h1")
	w.begin(t, "p5", "old", "c1h1")
	w.begin(t, "p8", "eight1", "c1h1")
	w.begin(t, "p8", "eight2", "c2h1")
	w.settled(t, "ACTIVE", "web1", "web2", "dead", "old", "eight1", "eight2")
	w.api.ask(t, of("p3"), "2.69", "DELETE", "/servers/"+w.id(t, "dead"), nil).status(t, 204)
	w.gone(t, "dead")
	w.free(t, w.id(t, "dead"))
	w.edit(t, "UPDATE instance_mappings SET queued_for_delete = NULL WHERE instance_uuid = ?", w.id(t, "old"))
	w.api.ask(t, admin, "2.69", "PUT", "/os-quota-sets/p8", record{"quota_set": record{"instances": 2}}).status(t, 200)
	return w
}

// builtOn waits until a server is there, and checks that it is on a host, and on no other.
func (w *world) builtOn(t *testing.T, id, name, host string) {
	t.Helper()
	w.settled(t, "ACTIVE", name)
	if s := w.show(t, admin, "2.69", name).server(t); s["OS-EXT-SRV-ATTR:host"] != host {
		t.Errorf("%s is on %v, not on %s", name, s["OS-EXT-SRV-ATTR:host"], host)
	}
	if held := w.held(t, id); !slices.Equal(held, []string{host}) {
		t.Errorf("%s has allocations on %v, not on %s", name, held, host)
	}
	for _, h := range w.hosts {
		if guests, _ := h.made(); guests[id] != (h.name == host) {
			t.Errorf("%s on %s: %v", name, h.name, guests[id])
		}
	}
}

// free waits until a server has no allocations.
func (w *world) free(t *testing.T, id string) {
	t.Helper()
	eventually(t, w.name(id)+" has no allocations", func() error {
		if held := w.held(t, id); len(held) > 0 {
			return fmt.Errorf("it has some on %v", held)
		}
		return nil
	})
}

// unwritten checks that nothing was written since.
func (w *world) unwritten(t *testing.T, before map[string]int) {
	t.Helper()
	if after := w.written(t); !maps.Equal(before, after) {
		t.Errorf("something was written (-before +after):\n%s", cmp.Diff(before, after))
	}
}
