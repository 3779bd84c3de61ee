// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
	deployment "github.com/compute-agent/compute-agent/test/world"
)

// movers are a cloud with hosts in one cell, which are agents with the fake driver.
type movers struct {
	*cloud
	o      *openstack
	agents map[string]*deployment.Agent
	names  map[string]string // of servers, by uuid
}

// newMovers starts it, and the agents of hosts, with more of an environment.
func newMovers(t *testing.T, env []string, hosts ...string) *movers {
	t.Helper()
	c := newEmptyCloud(t, env)
	m := &movers{cloud: c, o: newOpenstack(t, c.osc()...),
		agents: map[string]*deployment.Agent{}, names: map[string]string{}}
	for _, name := range hosts {
		m.agents[name] = c.world.AddAgent("cell1", name).Run()
	}
	c.world.Ready(slices.Collect(maps.Values(m.agents))...)
	return m
}

// bootOn makes a server on a host.
func (m *movers) bootOn(host, name string) string {
	m.t.Helper()
	id := m.boot(name, host)
	m.names[id] = name
	return id
}

// look says what there is of servers: for each as what the API shows it, and for each host its
// guests and who holds its resources, by Placement.
func (m *movers) look() string {
	m.t.Helper()
	var out []string
	for id, name := range m.names {
		var shown struct {
			Server struct {
				Status string
				Host   string `json:"OS-EXT-SRV-ATTR:host"`
				Task   string `json:"OS-EXT-STS:task_state"`
				Power  int    `json:"OS-EXT-STS:power_state"`
			}
		}
		m.ask(http.MethodGet, "/servers/"+id, nil, &shown)
		s := shown.Server
		out = append(out,
			strings.TrimSpace(fmt.Sprintf("%s: %s on %s, power %d %s", name, s.Status, s.Host, s.Power, s.Task)))
	}
	for host, agent := range m.agents {
		for id, text := range agent.Guests() {
			var guest struct{ Power plugins.PowerState }
			check(m.t, json.Unmarshal([]byte(text), &guest))
			out = append(out, fmt.Sprintf("%s: guest %s, power %d", host, m.names[id], guest.Power))
		}
		var held struct {
			Allocations map[string]struct{ Resources map[string]int }
		}
		get(m.t, m.placement+"/resource_providers/"+m.agents[host].Node+"/allocations", &held)
		for consumer, a := range held.Allocations {
			out = append(out, fmt.Sprintf("%s: held by %s: VCPU %d, MEMORY_MB %d, DISK_GB %d", host,
				m.consumer(consumer), a.Resources["VCPU"], a.Resources["MEMORY_MB"], a.Resources["DISK_GB"]))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// consumer says what a consumer is: a server, or a migration of one.
func (m *movers) consumer(id string) string {
	m.t.Helper()
	var body struct {
		Type string `json:"consumer_type"`
	}
	m.send(http.MethodGet, m.placement+"/allocations/"+id, "placement 1.38", nil, &body)
	if name := m.names[id]; name != "" {
		return name + " " + body.Type
	}
	var list struct {
		Migrations []struct {
			UUID   string
			Server string `json:"instance_uuid"`
		}
	}
	m.ask(http.MethodGet, "/os-migrations", nil, &list)
	for _, one := range list.Migrations {
		if one.UUID == id {
			return "a migration of " + m.names[one.Server] + " " + body.Type
		}
	}
	return id + " " + body.Type
}

// is waits until all is as it should be. Lines of hosts are "HOST: guest NAME, power N", and of
// what is held "HOST: held by WHOM", of the size of the flavor.
func (m *movers) is(what string, want ...string) {
	m.t.Helper()
	for i := range want {
		if strings.Contains(want[i], ": held by ") {
			want[i] += ": VCPU 1, MEMORY_MB 512, DISK_GB 1"
		}
	}
	slices.Sort(want)
	var got string
	defer func() {
		if m.t.Failed() {
			m.t.Logf("%s (-want +got):\n%s", what, cmp.Diff(strings.Join(want, "\n"), got))
		}
	}()
	m.until(what, func() bool { got = m.look(); return got == strings.Join(want, "\n") })
}

// tree checks what `compute-agent tree --servers` of a host says of servers: a line for each that
// has something there, with the text.
func (m *movers) tree(host string, want map[string]string) {
	m.t.Helper()
	said, code := command(m.t, "tree", "--servers", "--config", m.agents[host].Config)
	if code != 0 {
		m.t.Fatalf("compute-agent tree of %s ended with %d:\n%s", host, code, said)
	}
	for text, name := range want {
		if !slices.ContainsFunc(strings.Split(said, "\n"), func(line string) bool {
			return strings.Contains(line, text) && strings.Contains(line, name)
		}) {
			m.t.Errorf("no line of the tree of %s has %q and %q:\n%s", host, text, name, said)
		}
	}
	if held := strings.Count(said, "MEMORY_MB 512, VCPU 1"); held != len(want) {
		m.t.Errorf("%d consumers are in the tree of %s, not %d:\n%s", held, host, len(want), said)
	}
}

// on are the servers of a host by the client, as the runbook lists them.
func (m *movers) on(host string) []string {
	m.t.Helper()
	var rows []listed
	m.o.do(&rows, "server", "list", "--all-projects", "--host", host)
	var ids []string
	for _, row := range rows {
		ids = append(ids, row.ID)
	}
	slices.Sort(ids)
	return ids
}

// evacuate has the command line evacuate a server. Version 6.0 of it sends the request, and then
// fails to show the answer.
func (m *movers) evacuate(id string) {
	m.t.Helper()
	s := m.o.run("server", "evacuate", id)
	if s.Code != 0 && !strings.Contains(s.all(), "'TupleWithMeta' object has no attribute 'to_dict'") {
		m.t.Fatalf("openstack server evacuate: %+v", s)
	}
}

// TestEmptyingAHost: the commands of that part of the manual, with what is on the hosts, in
// Placement and in what is shown after each.
func TestEmptyingAHost(t *testing.T) {
	testproc.Drawn(t, 2)
	testproc.Parallel(t, testproc.Light)
	m := newMovers(t, nil, "cn1", "cn2")
	one, two := m.bootOn("cn1", "one"), m.bootOn("cn1", "two")
	m.o.do(nil, "server", "stop", two)
	m.is("both are on cn1, one of them stopped",
		"one: ACTIVE on cn1, power 1", "cn1: guest one, power 1", "cn1: held by one INSTANCE",
		"two: SHUTOFF on cn1, power 4", "cn1: guest two, power 4", "cn1: held by two INSTANCE")
	both := []string{one, two}
	slices.Sort(both)

	// Maintenance.
	m.o.do(nil, "compute", "service", "set", "--disable", "--disable-reason", "new memory", "cn1", "nova-compute")
	testproc.Samef(t, cmp.Diff(both, m.on("cn1")), "servers on cn1")
	m.o.do(nil, "server", "migrate", "--wait", one)
	onCN1 := []string{"two: SHUTOFF on cn1, power 4", "cn1: guest two, power 4", "cn1: held by two INSTANCE"}
	moved := []string{"one: VERIFY_RESIZE on cn2, power 1", "cn1: guest one, power 4",
		"cn1: held by a migration of one MIGRATION", "cn2: guest one, power 1", "cn2: held by one INSTANCE"}
	m.is("one waits on cn2", slices.Concat(moved, onCN1)...)
	m.tree("cn1", map[string]string{"MIGRATION": "not a guest", two: "two"})
	m.tree("cn2", map[string]string{one: "one"})
	testproc.Contains(t, m.o.refused("server", "stop", one), "vm_state resized", "stopping a server that waits: %s")
	m.o.do(nil, "server", "migrate", "revert", one)
	back := []string{"one: ACTIVE on cn1, power 1", "cn1: guest one, power 1", "cn1: held by one INSTANCE"}
	m.is("one is back on cn1, which is disabled", slices.Concat(back, onCN1)...)
	m.tree("cn1", map[string]string{one: "one", two: "two"})
	m.tree("cn2", nil)

	for _, id := range both {
		m.o.do(nil, "server", "migrate", "--wait", id)
		m.o.do(nil, "server", "migrate", "confirm", id)
	}
	away := []string{
		"one: ACTIVE on cn2, power 1", "cn2: guest one, power 1", "cn2: held by one INSTANCE",
		"two: SHUTOFF on cn2, power 4", "cn2: guest two, power 4", "cn2: held by two INSTANCE",
	}
	m.is("both are on cn2, and cn1 is empty", away...)
	if left := m.on("cn1"); len(left) > 0 {
		t.Errorf("servers are listed on cn1: %v", left)
	}
	m.tree("cn1", nil)
	m.tree("cn2", map[string]string{one: "one", two: "two"})
	m.o.do(nil, "compute", "service", "set", "--enable", "cn1", "nova-compute")

	// cn2 fails. Its guests are gone with it, but for their disks.
	m.agents["cn2"].Kill()
	if said := m.o.refused("server", "evacuate", one); !strings.Contains(said, "still in use") {
		t.Errorf("evacuating from a host that is not known to be down: %s", said)
	}
	m.o.do(nil, "compute", "service", "set", "--down", "cn2", "nova-compute")
	testproc.Samef(t, cmp.Diff(both, m.on("cn2")), "servers on cn2")
	for _, id := range both {
		m.evacuate(id)
	}
	m.is("both are on cn1, and what cn2 has is kept",
		"one: ACTIVE on cn1, power 1", "cn1: guest one, power 1", "cn1: held by one INSTANCE",
		"two: SHUTOFF on cn1, power 4", "cn1: guest two, power 4", "cn1: held by two INSTANCE",
		"cn2: guest one, power 1", "cn2: held by a migration of one MIGRATION",
		"cn2: guest two, power 4", "cn2: held by a migration of two MIGRATION")
	m.tree("cn1", map[string]string{one: "one", two: "two"})

	// It comes back, forced down as it is.
	m.agents["cn2"].Again(t)
	m.is("cn2 is empty", slices.Concat(back,
		[]string{"two: SHUTOFF on cn1, power 4", "cn1: guest two, power 4", "cn1: held by two INSTANCE"})...)
	m.o.do(nil, "compute", "service", "set", "--up", "cn2", "nova-compute")
	m.tree("cn2", nil)

	var list []struct {
		Server string `json:"Server UUID"`
		Status string
		Type   string
	}
	m.o.do(&list, "server", "migration", "list")
	var ended []string
	for _, one := range list {
		ended = append(ended, m.names[one.Server]+" "+one.Type+" "+one.Status)
	}
	slices.Sort(ended)
	if diff := cmp.Diff([]string{
		"one evacuation completed", "one migration confirmed", "one migration reverted",
		"two evacuation completed", "two migration confirmed",
	}, ended); diff != "" {
		t.Errorf("server migration list (-want +got):\n%s", diff)
	}
	m.o.do(nil, "server", "delete", "--wait", one, two)
	delete(m.names, one)
	delete(m.names, two)
	m.is("nothing is left")
	for _, agent := range m.agents {
		agent.Stop(t)
	}
}
