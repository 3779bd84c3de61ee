// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// Post asks for a server, with more keys or with others.
func (w *World) Post(who Caller, name string, more Record) *Answer {
	w.T.Helper()
	return w.Ask(who, "2.69", "POST", "/servers", ServerBody(name, more))
}

// ServerBody is the body of a request for a server, with more keys or with others.
func ServerBody(name string, more Record) Record {
	server := Record{"name": name, "flavorRef": "1", "imageRef": Image, "networks": "none"}
	maps.Copy(server, more)
	return Record{"server": server}
}

// Accepted is the uuid of the server that a post made.
func (w *World) Accepted(a *Answer, name string) string {
	w.T.Helper()
	var body struct{ Server struct{ ID string } }
	a.Is(w.T, http.StatusAccepted).Into(w.T, &body)
	w.Names[body.Server.ID] = name
	return body.Server.ID
}

// Begin asks for a server of a project on a host ("": on any), and does not wait for it. Servers
// that are begun one after the other are created in that order.
func (w *World) Begin(project, name, host string) string {
	w.T.Helper()
	more := Record{}
	if host != "" {
		more["availability_zone"] = "nova:" + host
	}
	return w.Accepted(w.Post(AdminOf(project), name, more), name)
}

// AddFlavor makes a flavor with so many processors.
func (w *World) AddFlavor(id, name string, vcpus int) {
	w.T.Helper()
	w.Ask(Admin, "2.55", "POST",
		"/flavors", Record{"flavor": Record{"id": id, "name": name, "vcpus": vcpus, "ram": 512, "disk": 1}}).
		Is(w.T, http.StatusOK)
}

// Bury asks for a server of a flavor that no host can take: it ends in cell0.
func (w *World) Bury(project, name string) string {
	w.T.Helper()
	w.AddFlavor("huge", "m1.huge", 4096)
	return w.Accepted(w.Post(Of(project), name, Record{"flavorRef": "huge"}), name)
}

// Boot begins a server and waits until it is active.
func (w *World) Boot(project, name, host string) string {
	w.T.Helper()
	id := w.Begin(project, name, host)
	w.Settled("ACTIVE", name)
	return id
}

// Settled waits until the named servers have a status and nothing to do.
func (w *World) Settled(status string, names ...string) {
	w.T.Helper()
	for _, name := range names {
		w.Eventually(name+" is "+status, func() error {
			a := w.Show(Admin, "2.69", name)
			if a.Code != http.StatusOK {
				return fmt.Errorf("%s", a)
			}
			if s := a.Server(w.T); s["status"] != status || s["OS-EXT-STS:task_state"] != nil {
				return fmt.Errorf("it is %v, task %v", s["status"], s["OS-EXT-STS:task_state"])
			}
			return nil
		})
	}
}

// Gone waits until the compute API no longer has a server.
func (w *World) Gone(name string) {
	w.T.Helper()
	w.Eventually(name+" is gone", func() error {
		if a := w.Show(Admin, "2.69", name); a.Code != http.StatusNotFound {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
}

// Free waits until a server has no allocations.
func (w *World) Free(id string) {
	w.T.Helper()
	w.Eventually(w.NameOf(id)+" has no allocations", func() error {
		if held := w.Held(id); len(held) > 0 {
			return fmt.Errorf("it has some on %v", held)
		}
		return nil
	})
}

// BuiltOn waits until a server is there, and checks that it is on a played host, and on no other.
func (w *World) BuiltOn(name, host string) {
	w.T.Helper()
	w.Settled("ACTIVE", name)
	if s := w.Show(Admin, "2.69", name).Server(w.T); s["OS-EXT-SRV-ATTR:host"] != host {
		w.T.Errorf("%s is on %v, not on %s", name, s["OS-EXT-SRV-ATTR:host"], host)
	}
	id := w.ID(name)
	if held := w.Held(id); !slices.Equal(held, []string{host}) {
		w.T.Errorf("%s has allocations on %v, not on %s", name, held, host)
	}
	for _, h := range w.Hosts {
		testproc.Equal(w.T, h.Guests()[id], h.Name == host, "%s runs on %s: %v", name, h.Name)
	}
}

// Held are the hosts that Placement has allocations of a server on; those that are agents are there
// by the uuids of their nodes.
func (w *World) Held(server string) []string {
	w.T.Helper()
	var answer struct{ Allocations map[string]any }
	w.AskPlacement("GET", "/allocations/"+server, nil, &answer)
	hosts := []string{}
	for node := range answer.Allocations {
		name := node
		for _, h := range w.Hosts {
			if h.Node == node {
				name = h.Name
			}
		}
		hosts = append(hosts, name)
	}
	return hosts
}

// Show shows a server by its name.
func (w *World) Show(who Caller, version, name string) *Answer {
	w.T.Helper()
	return w.Get(who, version, "/servers/"+w.ID(name))
}

// Listed are the servers of a list by name, in its order: "web1" for a full record, "web1?" for one
// of a cell that is down.
func (w *World) Listed(a *Answer) []string {
	w.T.Helper()
	out := []string{}
	for _, s := range a.List(w.T, "servers") {
		name := w.NameOf(s["id"])
		if s["status"] == "UNKNOWN" {
			name += "?"
		} else if s["name"] != name {
			w.T.Errorf("the server %s is named %v", name, s["name"])
		}
		out = append(out, name)
	}
	return out
}

// NameOf is the name of a server by its uuid.
func (w *World) NameOf(id any) string {
	if name := w.Names[fmt.Sprint(id)]; name != "" {
		return name
	}
	return fmt.Sprintf("<%v>", id)
}

// ID is the uuid of a server by its name.
func (w *World) ID(name string) string {
	w.T.Helper()
	for id, n := range w.Names {
		if n == name {
			return id
		}
	}
	w.T.Fatalf("there is no server %q", name)
	return ""
}
