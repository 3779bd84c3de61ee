// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// below2 is a provider below the child of h2 that has the uuid of h1's spare node.
const below2 = "20000000-0000-4000-8000-000000000002"

// withTakenNode is hostsWorld in which a child of h2, with a child of its own and with a guest, has
// the uuid of h1's spare node.
func withTakenNode(t testing.TB, change ...func(*api.Config)) (*api.API, *transactor.Ledger) {
	t.Helper()
	h, l := hostsWorld(t, change...)
	path := "/resource_providers/" + spare1
	for _, c := range []call{
		{method: "POST", path: "/resource_providers",
			body: `{"name":"h2_x","uuid":"` + spare1 + `","parent_provider_uuid":"` + root2 + `"}`, status: 200},
		{method: "POST", path: "/resource_providers",
			body: `{"name":"h2_y","uuid":"` + below2 + `","parent_provider_uuid":"` + spare1 + `"}`, status: 200},
		{method: "PUT", path: path + "/inventories",
			body: `{"resource_provider_generation":0,"inventories":{"VCPU":{"total":8}}}`, status: 200},
		{method: "PUT", path: path + "/traits",
			body: `{"resource_provider_generation":1,"traits":["HW_NUMA_ROOT"]}`, status: 200},
	} {
		c.as("h2").do(t, h)
	}
	call{method: "PUT", path: "/allocations/" + onNone,
		version: "1.39", body: holding(allocated(spare1, "VCPU", 3), "null"), status: 204}.do(t, h)
	call{method: "PUT", path: path + "/aggregates", version: "1.39",
		body: `{"resource_provider_generation":3,"aggregates":["` + agg2 + `"]}`, status: 200}.do(t, h)
	return h, l
}

// renamed is a dump in which the provider with a uuid has another one.
func renamed(d placementtest.Dump, was, is string) placementtest.Dump {
	swap := func(list []string) []string {
		list = slices.Clone(list)
		for i, uuid := range list {
			if uuid == was {
				list[i] = is
			}
		}
		slices.Sort(list)
		return list
	}
	swapAll := func(lists map[string][]string) map[string][]string {
		out := map[string][]string{}
		for key, list := range lists {
			out[key] = swap(list)
		}
		return out
	}
	out := placementtest.Dump{
		Providers: map[string]placementtest.ProviderDump{}, Consumers: map[string]placementtest.ConsumerDump{},
		Members: swapAll(d.Members), Traited: swapAll(d.Traited), Offering: swapAll(d.Offering),
		Classes: d.Classes, Traits: d.Traits,
		Hosts: d.Hosts,
	}
	for uuid, p := range d.Providers {
		if p.Parent == was {
			p.Parent = is
		}
		p.Children = swap(p.Children)
		if uuid == was {
			uuid = is
		}
		out.Providers[uuid] = p
	}
	for uuid, c := range d.Consumers {
		c.Allocations = maps.Clone(c.Allocations)
		if held, on := c.Allocations[was]; on {
			delete(c.Allocations, was)
			c.Allocations[is] = held
		}
		out.Consumers[uuid] = c
	}
	return out
}

// uuidOf is the uuid of a provider by its name.
func uuidOf(d placementtest.Dump, name string) string {
	for uuid, p := range d.Providers {
		if p.Name == name {
			return uuid
		}
	}
	return ""
}

// TestTheNodeOfAHostIsFreed: a child of another host's tree has the uuid of a node that the
// certificate of this host names. When this host comes, with whatever call, it finds no such
// provider and can make its node; the child has another uuid and all else as before, and the log
// and the audit log say so.
func TestTheNodeOfAHostIsFreed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	node := `{"name":"h1.new","uuid":"` + spare1 + `"}`
	for name, first := range map[string]call{
		"list the tree":    {method: "GET", path: "/resource_providers?in_tree=" + spare1, status: 200},
		"list by the uuid": {method: "GET", path: "/resource_providers?uuid=" + spare1, status: 200},
		"show it":          {method: "GET", path: "/resource_providers/" + spare1, status: 404},
		"show its traits":  {method: "GET", path: "/resource_providers/" + spare1 + "/traits", status: 404},
		"make it":          {method: "POST", path: "/resource_providers", body: node, status: 200},
		"look at a guest":  {method: "GET", path: "/allocations/" + onHost1, status: 200},
		"make a child": {method: "POST", path: "/resource_providers",
			body: `{"name":"h1_z","parent_provider_uuid":"` + root1 + `"}`, status: 200},
	} {
		dbservers.Case(t, name, func(t *testing.T) {
			var log bytes.Buffer
			file := filepath.Join(t.TempDir(), "audit.log")
			audit := testproc.Try(auditlog.Open(auditlog.Options{File: file, Logger: zerolog.Nop()})).Or(t)
			t.Cleanup(func() { testproc.NoError(t, audit.Close()) })
			h, l := withTakenNode(t,
				func(c *api.Config) { c.Logger, c.Audit = zerolog.New(&log), audit.ForService("placement") })
			before := dumpOf(t, l)
			if w := first.as("h1").do(t, h); first.method == "GET" && strings.Contains(w.Body.String(), "h2") {
				t.Errorf("it shows the other host: %s", w.Body)
			}
			after := dumpOf(t, l)
			other := uuidOf(after, "h2_x")
			want := renamed(before, spare1, other)
			for _, d := range []placementtest.Dump{want, after} { // what h1 made
				for _, name := range []string{"h1.new", "h1_z"} {
					delete(d.Providers, uuidOf(d, name))
				}
				delete(d.Hosts, "h1") // and what it reports with them
				if p, ok := d.Providers[root1]; ok {
					p.Children = nil
					d.Providers[root1] = p
				}
			}
			if diff := cmp.Diff(want, after, cmpopts.EquateEmpty()); diff != "" || other == spare1 {
				t.Errorf("it is %s, and\n%s", other, diff)
			}
			if !strings.Contains(log.String(), `"node":"`+spare1+`","provider":"h2_x"`) {
				t.Errorf("the log has %s", &log)
			}
			if records := string(testproc.Try(os.ReadFile(file)).Or(t)); !strings.Contains(records, `"uuid":"`+spare1+
				`"`) || !strings.Contains(records, `"uuid":"`+other+`"`) {
				t.Errorf("the audit log has %s", records)
			}
			if first.body != node {
				call{method: "POST", path: "/resource_providers", body: node, status: 200}.as("h1").do(t, h)
			}
			// The other host finds its child by its name, and goes on with it.
			call{method: "GET", path: "/resource_providers/" + spare1, status: 403}.as("h2").do(t, h)
			call{method: "PUT", path: "/resource_providers/" + other + "/inventories", status: 200,
				body: `{"resource_provider_generation":4,"inventories":{"VCPU":{"total":9}}}`}.as("h2").do(t, h)
			call{method: "PUT", path: "/allocations/" + onNone, body: holding(allocated(other, "VCPU", 2), "1"),
				status: 204}.as("h2").do(t, h)
		})
	}
}

// TestARefusedNodeFreesNothing: what a host may not do changes nothing, its node is not freed
// either.
func TestARefusedNodeFreesNothing(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h, l := withTakenNode(t)
	before := dumpOf(t, l)
	call{method: "POST", path: "/resource_providers", body: `{"name":"h7","uuid":"` + spare1 + `"}`,
		status: 403}.as("h1").do(t, h)
	testproc.Same(t, cmp.Diff(before, dumpOf(t, l)))
}

// TestANodeThatAnOperatorMoved: the root of a host that was put below another provider keeps its
// uuid. The host is refused, as before.
func TestANodeThatAnOperatorMoved(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h, l := hostsWorld(t)
	call{method: "PUT", path: "/resource_providers/" + root1, version: "1.39", status: 200,
		body: `{"name":"h1.example.com","parent_provider_uuid":"` + share1 + `"}`}.do(t, h)
	before := dumpOf(t, l)
	call{method: "GET", path: "/resource_providers?in_tree=" + root1, status: 403}.as("h1").do(t, h)
	call{method: "POST", path: "/resource_providers", body: `{"name":"h1","uuid":"` + root1 + `"}`,
		status: 403}.as("h1").do(t, h)
	testproc.Same(t, cmp.Diff(before, dumpOf(t, l)))
}

// TestUUIDsOfNodesAreReserved: a host makes no child with the uuid of a node that the certificate
// of another host names, from when that host was seen until its certificate expires. Users can.
func TestUUIDsOfNodesAreReserved(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	now := clock
	h, _ := hostsWorld(t, func(c *api.Config) { c.Now = func() time.Time { return now } })
	child := func(as, name, parent string, status int) {
		t.Helper()
		body := fmt.Sprintf(`{"name":%q,"uuid":%q,"parent_provider_uuid":%q}`, name, nowhere, parent)
		c := call{method: "POST", path: "/resource_providers", version: "1.39", body: body, status: status}
		if as != "" {
			c = c.as(as)
		}
		c.do(t, h)
		if status == 200 {
			call{method: "DELETE", path: "/resource_providers/" + nowhere, version: "1.39", status: 204}.do(t, h)
		}
	}
	child("h2", "h2_x", root2, 200) // h4 has not come yet
	call{method: "GET", path: "/resource_providers?in_tree=" + nowhere, status: 200}.as("h4").do(t, h)
	child("h2", "h2_x", root2, 403)
	child("h1", "h1_x", root1, 403)
	child("", "anything", root2, 200)
	now = clock.Add(time.Hour)
	child("h2", "h2_x", root2, 200)
}
