// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestOpenstackAggregates: aggregates, availability zones and server groups by the command line,
// and servers that go where these say.
func TestOpenstackAggregates(t *testing.T) {
	testproc.Drawn(t, 2)
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t)
	o := newOpenstack(t, c.osc()...)
	create := func(name string, words ...string) (id string) {
		t.Helper()
		var made struct{ ID string }
		o.do(&made, append(
			append([]string{"server", "create", "--flavor", "m1.tiny", "--image", "", "--network", "none"}, words...),
			name)...)
		c.until(name+" has come to something", func() bool { return c.status(made.ID) != "BUILD" })
		return made.ID
	}
	type where struct {
		Status string `json:"status"`
		Host   string `json:"OS-EXT-SRV-ATTR:host"`
		Zone   string `json:"OS-EXT-AZ:availability_zone"`
		Fault  struct{ Message string }
	}
	show := func(id string) where {
		t.Helper()
		var shown struct{ Server where }
		c.ask("GET", "/servers/"+id, nil, &shown)
		return shown.Server
	}

	// A zone.
	o.do(nil, "aggregate", "create", "--zone", "east", "--property", "ssd=true", "racks")
	o.do(nil, "aggregate", "add", "host", "racks", "host1")
	type aggregate struct {
		Name       string            `json:"name"`
		Zone       string            `json:"availability_zone"`
		Hosts      []string          `json:"hosts"`
		Properties map[string]string `json:"properties"`
	}
	var racks aggregate
	o.do(&racks, "aggregate", "show", "racks")
	if diff := cmp.Diff(aggregate{"racks", "east", []string{"host1"}, map[string]string{"ssd": "true"}},
		racks); diff != "" {
		t.Errorf("aggregate show (-want +got):\n%s", diff)
	}
	type zone struct {
		Name   string `json:"Zone Name"`
		Status string `json:"Zone Status"`
	}
	var zones []zone
	o.do(&zones, "availability", "zone", "list", "--compute")
	testproc.Samef(t, cmp.Diff([]zone{{"east", "available"}, {"nova", "available"}}, zones), "availability zone list")
	east := create("east", "--availability-zone", "east")
	if got := show(east); got.Status != "ACTIVE" || got.Host != "host1" || got.Zone != "east" {
		t.Errorf("in the zone east: %+v", got)
	}
	if said := o.refused("server", "create", "--flavor", "m1.tiny", "--image", "", "--network", "none",
		"--availability-zone", "west", "lost"); !strings.Contains(said, "not available") {
		t.Errorf("a zone that there is not: %s", said)
	}
	if said := o.refused("aggregate", "remove", "host", "racks", "host1"); !strings.Contains(said, "409") {
		t.Errorf("a host with servers leaves its zone: %s", said)
	}
	if said := o.refused("aggregate", "create", "racks"); !strings.Contains(said, "already exists") {
		t.Errorf("a second aggregate of the name: %s", said)
	}
	o.do(nil, "server", "delete", "--wait", east)
	c.until("the server is gone", func() bool { return c.status(east) == "gone" })
	o.do(nil, "aggregate", "remove", "host", "racks", "host1")
	o.do(nil, "aggregate", "delete", "racks")
	zones = nil
	o.do(&zones, "availability", "zone", "list", "--compute")
	testproc.Samef(t, cmp.Diff([]zone{{"nova", "available"}}, zones), "availability zone list, afterwards")

	// A group.
	var group struct{ ID, Policy string }
	o.do(&group, "server", "group", "create", "--policy", "anti-affinity", "apart")
	if group.Policy != "anti-affinity" {
		t.Errorf("server group create: %+v", group)
	}
	var on []string
	for _, name := range []string{"one", "two"} {
		got := show(create(name, "--hint", "group="+group.ID))
		on = append(on, got.Host)
	}
	slices.Sort(on)
	testproc.Samef(t, cmp.Diff([]string{"host1", "host2"}, on), "the hosts of the group")
	const ruledOut = "No valid host was found. There are not enough hosts available. The policy anti-affinity of " +
		"the server group apart rules out others."
	if got := show(create("three", "--hint", "group="+group.ID)); got.Status != "ERROR" ||
		got.Fault.Message != ruledOut {
		t.Errorf("the third of two: %+v", got)
	}
	var groups []map[string]any
	o.do(&groups, "server", "group", "list", "--long")
	if len(groups) != 1 || groups[0]["Name"] != "apart" {
		t.Errorf("server group list: %v", groups)
	}
	o.do(nil, "server", "group", "delete", "apart")
}
