// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// aliases are the uuids that this API makes, by the names that recordings have for Nova's: uuid-1,
// uuid-2 and so on in the order in which they appear. testdata/record_nova.py makes these
// recordings.
type aliases struct{ uuids []string }

var (
	aliasForm  = regexp.MustCompile(`uuid-\d+`)
	momentForm = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6}|Z)$`)
	newUUID    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`)
)

// replayAliased is replay for recordings with aliases. Times are compared as such, but for
// updated_at, which Nova does not always keep.
func (c *cloud) replayAliased(calls []call, except map[string]ours) {
	c.t.Helper()
	var known aliases
	c.replayWith(&known, calls, except, known.normalOf, nil)
}

// replayWith is replay for recordings with aliases. act does what a host did before a call.
func (c *cloud) replayWith(
	known *aliases, calls []call, except map[string]ours, normal func(string, any) any, act func(hostDid),
) {
	c.t.Helper()
	for i := range calls {
		calls[i].before = func(asked *call) {
			if asked.Host != nil {
				act(*asked.Host)
			}
			real := func(alias string) string {
				var n int
				if _, err := fmt.Sscanf(alias, "uuid-%d", &n); err != nil || n > len(known.uuids) {
					c.t.Fatalf("%s: %s is not known", asked.Name, alias)
				}
				return known.uuids[n-1]
			}
			asked.Request, asked.Body = aliasForm.ReplaceAllStringFunc(asked.Request, real),
				aliasForm.ReplaceAllStringFunc(asked.Body, real)
		}
	}
	c.replay(calls, except, normal)
}

// normalOf is normal for the body of any call.
func (a *aliases) normalOf(_ string, body any) any { return a.normal(body) }

func (a *aliases) normal(value any) any {
	switch v := value.(type) {
	case string:
		if momentForm.MatchString(v) {
			return "TIME"
		}
		return newUUID.ReplaceAllStringFunc(v, func(uuid string) string {
			if strings.HasPrefix(uuid, "aaaaaaaa") { // one that the recordings make up
				return uuid
			}
			at := slices.Index(a.uuids, uuid)
			if at < 0 {
				at = len(a.uuids)
				a.uuids = append(a.uuids, uuid)
			}
			return fmt.Sprintf("uuid-%d", at+1)
		})
	case []any:
		for i := range v {
			v[i] = a.normal(v[i])
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			v[name] = a.normal(v[name])
		}
		delete(v, "updated_at")
	}
	return value
}

// withHosts has three hosts in a cell, of which the last one is disabled.
func (c *cloud) withHosts() {
	c.t.Helper()
	var services []cellwire.Service
	for n, host := range []string{"h1", "h2", "h3"} {
		services = append(services, cellwire.Service{UUID: uuid(500 + n), Host: host, Binary: "nova-compute", Up: n < 2,
			Disabled: n == 2, UpdatedAt: &start})
	}
	c.servicesOf(1, services...)
}

// TestAggregatesAndZonesAsInNova makes, changes and lists aggregates and zones as the recordings
// do.
func TestAggregatesAndZonesAsInNova(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	boots, _ := c.withCalls()
	c.withHosts()
	c.replayAliased(recordedCalls(t, "nova_aggregates.json"), map[string]ours{})
	testproc.EqualList(t, boots.mirrored, []string{"h1", "h1", "h3", "h1"}, "mirrored are %v")
}

// TestZoneOfHostsWithServers: a host does not change its zone while there are servers on it.
func TestZoneOfHostsWithServers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	c.withCalls()
	c.withHosts()
	for _, name := range []string{`"one"`, `"two","availability_zone":"z2"`} {
		if got := c.do(administrator, "2.69", "POST",
			"/v2.1/os-aggregates", `{"aggregate":{"name":`+name+`}}`); got.status != 200 {
			t.Fatalf("creating an aggregate: got %d %s, want 200", got.status, got.text)
		}
	}
	ask := func(what, method, path, body string, status int, says string) {
		t.Helper()
		if got := c.do(administrator, "2.69", method, "/v2.1/os-aggregates/"+path, body); got.status != status ||
			got.message() != says {
			t.Errorf("%s: %d %s, not %d %s", what, got.status, got.message(), status, says)
		}
	}
	change := func(action, host string) string { return `{"` + action + `":{"host":"` + host + `"}}` }
	s := server(1, "s1")
	s.Host = "h1"
	c.has(1, s)
	const moved = "Reason: The availability zone of the host would change from '%s' to '%s', but it has instances. " +
		"Delete them or move them away first."
	ask("a host with servers, no zone", "POST", "1/action", change("add_host", "h1"), 200, "")
	ask("a host with servers, another zone", "POST", "2/action", change("add_host", "h1"), 409,
		"conflictingRequest: Cannot add host to aggregate 2. "+fmt.Sprintf(moved, "nova", "z2"))
	ask("an empty host, another zone", "POST", "2/action", change("add_host", "h2"), 200, "")
	ask("a new zone for a host with servers", "PUT", "1", `{"aggregate":{"name":"eins","availability_zone":"z1"}}`, 400,
		"badRequest: Cannot update aggregate 1. Reason: One or more hosts contain instances in this zone.")
	ask("by metadata", "POST", "1/action", `{"set_metadata":{"metadata":{"availability_zone":"z1","ssd":"1"}}}`, 400,
		"badRequest: Cannot update metadata of aggregate 1. Reason: One or more hosts contain instances in this zone.")
	ask("a key with a space at its end", "POST", "1/action", `{"set_metadata":{"metadata":{"ssd ":"1"}}}`, 200, "")
	ask("another key for MariaDB", "POST", "1/action", `{"set_metadata":{"metadata":{"ssd":"2"}}}`, 400,
		`badRequest: Cannot update metadata of aggregate 1. Reason: The keys "ssd" and "ssd " differ only in spaces `+
			`at the end.`)
	ask("two new ones", "POST", "1/action", `{"set_metadata":{"metadata":{"hdd  ":"2","hdd ":"1"}}}`, 400,
		`badRequest: Cannot update metadata of aggregate 1. Reason: The keys "hdd " and "hdd  " differ only in `+
			`spaces at the end.`)
	testproc.Try(c.store.ChangeAggregate(t.Context(), 1, func(a *apidb.Aggregate, _ []apidb.Aggregate) error {
		a.Metadata["ssd"] = "of a former version"
		return nil
	})).Or(t)
	set := `"nvme":"1","ssd":"2"`
	if dbservers.Engine(t) == "mariadb" {
		set = `"nvme":"1"` // it has taken the two keys for one
	}
	ask("what has nothing to do with two keys of a former version",
		"POST", "1/action", `{"set_metadata":{"metadata":{`+set+`}}}`, 200, "")
	ask("all keys", "POST", "1/action", `{"set_metadata":{"metadata":{"ssd ":null,"ssd":null,"nvme":null}}}`, 200, "")
	got := c.ask(administrator, "2.69", "/v2.1/os-aggregates/1").body["aggregate"].(map[string]any)
	if diff := gocmp.Diff(map[string]any{}, got["metadata"]); diff != "" || got["name"] != "one" {
		t.Errorf("what was refused in part changed all the same: %v", got)
	}
	s2 := server(2, "s2")
	s2.Host, s2.VMState = "h2", cellwire.VMSoftDeleted
	c.has(1, s2)
	ask("a host whose server can be restored", "POST", "2/action", change("remove_host", "h2"), 409,
		"conflictingRequest: Cannot remove host from aggregate 2. "+fmt.Sprintf(moved, "z2", "nova"))
	ask("a host with servers, the same zone", "POST", "1/action", change("remove_host", "h1"), 200, "")
	moving := func(status cellwire.MigrationStatus) {
		c.cell(1).migrations = []cellwire.Migration{
			{ServerUUID: s.UUID, SourceHost: "h1", DestHost: "h3", DestNode: "n3", Status: status},
		}
	}
	moving(cellwire.MigrationFinished)
	ask("a host to which a server moves", "POST", "2/action", change("add_host", "h3"), 409,
		"conflictingRequest: Cannot add host to aggregate 2. "+fmt.Sprintf(moved, "nova", "z2"))
	moving(cellwire.MigrationReverted)
	ask("a host to which one moved once", "POST", "2/action", change("add_host", "h3"), 200, "")
	ask("and out of it", "POST", "2/action", change("remove_host", "h3"), 200, "")
	c.cell(1).fail = refused
	ask("the cell is down", "POST", "2/action", change("add_host", "h3"), 500,
		"computeFault: NovaException: The service's cell is not responding. Try again when it is back.")
	ask("the cell is down, and the zone stays", "POST", "1/action", change("add_host", "h3"), 200, "")
}

// TestZonesInAnOutage: a zone whose hosts are all in a cell that is down is not available, and the
// internal one is not for members.
func TestZonesInAnOutage(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{InternalZone: "hidden", DefaultZone: "here"})
	c.withCalls()
	c.withHosts()
	c.servicesOf(2, cellwire.Service{UUID: uuid(600), Host: "far", Binary: "nova-compute", Up: true})
	c.inZone("hidden", "h2")
	c.inZone("away", "far")
	zones := func(who, path string) (shown []string) {
		t.Helper()
		for _, z := range c.ask(who, "2.69", "/v2.1/os-availability-zone"+path).body["availabilityZoneInfo"].([]any) {
			zone := z.(map[string]any)
			shown = append(shown,
				fmt.Sprintf("%v %v", zone["zoneName"], zone["zoneState"].(map[string]any)["available"]))
		}
		return shown
	}
	for _, tt := range []struct {
		who, path string
		want      []string
	}{
		{member, "", []string{"away true", "here true"}},
		{administrator, "/detail", []string{"away true", "here true", "hidden true"}},
	} {
		testproc.Samef(t, gocmp.Diff(tt.want, zones(tt.who, tt.path)), "%s %s", tt.who, tt.path)
	}
	c.cell(2).fail = refused
	testproc.Same(t, gocmp.Diff([]string{"here true", "away false"}, zones(member, "")))
	got := c.ask(administrator, "2.69", "/v2.1/os-services")
	for _, s := range got.body["services"].([]any) {
		if s := s.(map[string]any); s["host"] == "h2" &&
			s["zone"] != "hidden" || s["host"] == "h1" && s["zone"] != "here" {
			t.Errorf("the service: got %v, want its zone as in the outage", s)
		}
	}
}

// TestDefaultScheduleZone is the zone of servers for which none is asked.
func TestDefaultScheduleZone(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{ScheduleZone: "east"})
	boots, _ := c.withCalls()
	c.withFlavors()
	c.withHosts()
	const server = `{"server":{"name":"n1","imageRef":"` + image + `","flavorRef":"1","networks":"none"%s}}`
	if got := c.do(member, "2.69", "POST", "/v2.1/servers",
		fmt.Sprintf(server, "")); got.message() != "badRequest: The requested availability zone is not available" {
		t.Errorf("a server without a zone: got %d %s, want that the zone is not available", got.status, got.text)
	}
	c.inZone("east", "h1")
	for more, want := range map[string]string{"": "east", `,"availability_zone":"nova"`: "nova"} {
		boots.asked = nil
		if got := c.do(member, "2.69", "POST", "/v2.1/servers", fmt.Sprintf(server, more)); got.status != 202 ||
			boots.asked[0].Zone != want {
			t.Errorf("%s: %d %s, asked for %+v", more, got.status, got.text, boots.asked)
		}
	}
}

// TestDeletedServiceLeavesAggregates: the host of a service that is deleted is in no aggregate any
// more, also in Placement.
func TestDeletedServiceLeavesAggregates(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	boots, _ := c.withCalls()
	c.withHosts()
	kept := c.inZone("z", "h1", "h3")
	if got := c.do(administrator, "2.69", "DELETE", "/v2.1/os-services/"+uuid(502), ""); got.status != 204 {
		t.Fatalf("deleting a service: got %d %s, want 204", got.status, got.text)
	}
	after, err := c.store.Aggregate(t.Context(), kept.ID)
	if err != nil || !slices.Equal(after.Hosts, []string{"h1"}) || !slices.Equal(boots.mirrored, []string{"h3"}) {
		t.Errorf("%+v, %v; mirrored are %v", after, err, boots.mirrored)
	}
	if zones := apidb.HostZones([]apidb.Aggregate{after}); len(zones) != 1 {
		t.Error(zones)
	}
}
