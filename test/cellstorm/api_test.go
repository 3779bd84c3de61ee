// SPDX-License-Identifier: Apache-2.0

package cellstorm

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

// api is a process of the compute API.
type api struct {
	*process
	address string
}

type record = world.Record

// caller is the identity of a client: a member of a project, or an administrator in it.
type caller struct {
	project string
	admin   bool
}

// admin has no servers, unless it makes some.
var admin = caller{"operators", true}

// flavor is one, with what a server of it holds in Placement.
type flavor struct {
	id    string
	vcpus int
	specs map[string]string
	holds map[string]int64
}

func (f flavor) body() record {
	return record{"id": f.id, "name": f.id, "vcpus": f.vcpus, "ram": memoryMB, "disk": 1}
}

const memoryMB = 64

// flavors are small: nothing runs in the guests. That with a GPU is for hosts that have one.
var flavors = []flavor{
	{"shared", 1, nil, map[string]int64{"VCPU": 1, "MEMORY_MB": memoryMB, "DISK_GB": 1}},
	{"pinned", 1, map[string]string{"hw:cpu_policy": "dedicated"}, map[string]int64{"PCPU": 1, "MEMORY_MB": memoryMB, "DISK_GB": 1}},
	{"gpu", 1, map[string]string{"resources:VGPU": "1"}, map[string]int64{"VCPU": 1, "MEMORY_MB": memoryMB, "DISK_GB": 1, "VGPU": 1}},
	{"huge", 4096, nil, nil}, // no host has so many
}

// image is what servers are made from: an empty one.
const image = world.Image

// web does not reuse connections to processes that come and go.
var web = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// ask sends a request below /v2.1; an error says that no answer came.
func (a *api) ask(ctx context.Context, who caller, method, path string, body any) (*world.Answer, error) {
	as, version := world.Of(who.project), "2.69"
	if who.admin {
		as = world.AdminOf(who.project)
	}
	if path == "/flavors" {
		version = "2.55"
	}
	return world.Exchange(ctx, web, method, "http://"+a.address+"/v2.1"+path, as.Header(version), body)
}

// must is ask, and wants an answer with a status.
func (a *api) must(t *testing.T, who caller, method, path string, body any, status int, out any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := testproc.Try(a.ask(ctx, who, method, path, body)).Or(t)
	if got.Is(t, status); out != nil {
		got.Into(t, out)
	}
}

// bootBody asks for a server. extra are more keys, or others.
func bootBody(name, flavor string, extra record) record {
	server := record{"name": name, "flavorRef": flavor, "imageRef": image, "networks": "none"}
	maps.Copy(server, extra)
	return record{"server": server}
}

// boot makes a server and returns its uuid.
func (a *api) boot(t *testing.T, who caller, name, flavor string, extra record) string {
	t.Helper()
	var made struct{ Server struct{ ID string } }
	a.must(t, who, "POST", "/servers", bootBody(name, flavor, extra), 202, &made)
	return made.Server.ID
}

// shown is a server of a list.
type shown struct {
	ID, Status string
	Host       string `json:"OS-EXT-SRV-ATTR:host"`
	Task       string `json:"OS-EXT-STS:task_state"`
	Fault      struct{ Message, Details string }
}

// list lists the servers of a project, or of all as an administrator.
func (a *api) list(t *testing.T, who caller, query string) map[string]shown {
	t.Helper()
	var body struct{ Servers []shown }
	a.must(t, who, "GET", "/servers/detail"+query, nil, 200, &body)
	out := map[string]shown{}
	for _, s := range body.Servers {
		out[s.ID] = s
	}
	return out
}

// used are the servers that count for a project.
func (a *api) used(t *testing.T, project string) (instances, cores, ram int) {
	t.Helper()
	var body struct {
		Limits struct {
			Absolute struct{ TotalInstancesUsed, TotalCoresUsed, TotalRAMUsed int }
		}
	}
	a.must(t, caller{project, true}, "GET", "/limits", nil, 200, &body)
	u := body.Limits.Absolute
	return u.TotalInstancesUsed, u.TotalCoresUsed, u.TotalRAMUsed
}

// askPlacement reads something of Placement's.
func (w *deployment) askPlacement(ctx context.Context, path string, out any) error {
	header := http.Header{"X-Auth-Token": {"admin"}, "Openstack-Api-Version": {"placement 1.38"}}
	got, err := world.Exchange(ctx, placementWeb, http.MethodGet, "http://"+w.placementAddress+path, header, nil)
	if err != nil {
		return err
	}
	if got.Code != http.StatusOK {
		return errors.New(got.String())
	}
	return json.Unmarshal(got.Raw, out)
}

// placementWeb gives up a request to a Placement that is stopped.
var placementWeb = &http.Client{Timeout: patience, Transport: web.Transport}
