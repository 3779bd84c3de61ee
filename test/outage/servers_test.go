// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"fmt"
	"testing"
)

// image is what servers boot from.
const image = "70a599e0-31e7-49b7-b260-868f441e862b"

// post asks for a server, with more keys or with others.
func (a *api) post(t *testing.T, who caller, name string, more record) *answer {
	t.Helper()
	server := record{"name": name, "flavorRef": "1", "imageRef": image, "networks": "none"}
	for key, value := range more {
		server[key] = value
	}
	return a.ask(t, who, "2.69", "POST", "/servers", record{"server": server})
}

// accepted is the uuid of the server that a post made.
func (w *world) accepted(t *testing.T, a *answer, name string) string {
	t.Helper()
	a.status(t, 202)
	var body struct{ Server struct{ ID string } }
	a.decode(t, &body)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[body.Server.ID] = name
	return body.Server.ID
}

// begin asks for a server of a project on a host ("": on any), and does not wait for it. Servers
// that are begun one after the other are created in that order.
func (w *world) begin(t *testing.T, project, name, host string) string {
	t.Helper()
	more := record{}
	if host != "" {
		more["availability_zone"] = ":" + host
	}
	return w.accepted(t, w.api.post(t, adminOf(project), name, more), name)
}

// bury asks for a server that no host can take: it ends in cell0.
func (w *world) bury(t *testing.T, project, name string) string {
	t.Helper()
	return w.accepted(t, w.api.post(t, of(project), name, record{"flavorRef": "huge"}), name)
}

// settled waits until the named servers are in their desired state.
func (w *world) settled(t *testing.T, status string, names ...string) {
	t.Helper()
	for _, name := range names {
		eventually(t, name+" is "+status, func() error {
			a := w.api.get(t, admin, "2.69", "/servers/"+w.id(t, name))
			if a.code != 200 {
				return fmt.Errorf("status %d: %s", a.code, a.raw)
			}
			if s := a.server(t); s["status"] != status || s["OS-EXT-STS:task_state"] != nil {
				return fmt.Errorf("it is %v, task %v", s["status"], s["OS-EXT-STS:task_state"])
			}
			return nil
		})
	}
}

// boot is begin and settled.
func (w *world) boot(t *testing.T, project, name, host string) string {
	t.Helper()
	id := w.begin(t, project, name, host)
	w.settled(t, "ACTIVE", name)
	return id
}

// act does an action on a server.
func (a *api) act(t *testing.T, who caller, server, action string) *answer {
	t.Helper()
	return a.ask(t, who, "2.69", "POST", "/servers/"+server+"/action", record{action: nil})
}

// gone waits until the API no longer has a server.
func (w *world) gone(t *testing.T, name string) {
	t.Helper()
	eventually(t, name+" is gone", func() error {
		if a := w.api.get(t, admin, "2.69", "/servers/"+w.id(t, name)); a.code != 404 {
			return fmt.Errorf("status %d: %s", a.code, a.raw)
		}
		return nil
	})
}
