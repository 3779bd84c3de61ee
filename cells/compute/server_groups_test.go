// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestServerGroupsAsInNova makes, lists and deletes groups as the recordings do.
func TestServerGroupsAsInNova(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	c.withCalls()
	c.replayAliased(recordedCalls(t, "nova_server_groups.json"), map[string]ours{})
	got := c.ask(member, "2.69", "/v2.1/limits").body["limits"].(map[string]any)["absolute"].(map[string]any)
	if got["totalServerGroupsUsed"] != 10.0 || got["maxServerGroups"] != 10.0 {
		t.Errorf("limits are %v", got)
	}
	if got := c.do(administrator, "2.69", "PUT", "/v2.1/os-quota-sets/p1",
		`{"quota_set":{"server_groups":9}}`); got.message() !=
		"badRequest: Quota limit 9 for server_groups must be greater than or equal to already used and reserved 10." {
		t.Errorf("a quota below what is used: got %d %s, want 400", got.status, got.text)
	}
	if got := c.ask(member, "2.69", "/v2.1/os-server-groups?limit=99999999999999999999&offset=9"); len(
		got.body["server_groups"].([]any)) != 1 {
		t.Error(got.text)
	}
}

// TestServerInAGroup: the hint group, by whom, and what becomes of it; members that are deleted are
// not shown.
func TestServerInAGroup(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	boots, _ := c.withCalls()
	c.withFlavors()
	group, err := c.store.CreateServerGroup(t.Context(),
		apidb.ServerGroup{Name: "g", ProjectID: "p1", UserID: "u-p1", Policy: apidb.PolicyAffinity}, nil)
	testproc.Check(t, err)
	const server = `{"server":{"name":"n1","imageRef":"` + image + `","flavorRef":"1","networks":"none"},"%s":%s}`
	const none = "aaaaaaaa-0000-4000-8000-000000000000"
	for _, tt := range []struct {
		who, member, hints string
		err                error
		status             int
		says               string
	}{
		{who: member, member: "os:scheduler_hints", hints: `{"group":"` + group.UUID + `"}`, status: 202},
		{who: member, member: "OS-SCH-HNT:scheduler_hints", hints: `{"group":"` + group.UUID + `"}`, status: 202},
		{who: member, member: "os:scheduler_hints", hints: `{"group":"` + none + `"}`, status: 400,
			says: "badRequest: Instance group " + none + " could not be found."},
		{who: member2, member: "os:scheduler_hints", hints: `{"group":"` + group.UUID + `"}`, status: 400,
			says: "badRequest: Instance group " + group.UUID + " could not be found."},
		{who: member, member: "os:scheduler_hints", hints: `{"group":"g"}`, status: 400,
			says: "badRequest: Invalid input for field/attribute group. Value: g. 'g' is not a 'uuid'"},
		{who: member, member: "os:scheduler_hints", hints: `{"group":"` + group.UUID + `","same_host":"` + none + `"}`,
			status: 400, says: "badRequest: os:scheduler_hints: the server " + none +
				" of same_host could not be found."},
		{who: member, member: "os:scheduler_hints", hints: `{"group":"` + group.UUID + `"}`,
			err: fmt.Errorf("creating: %w", quota.ErrGroupFull), status: 403,
			says: "forbidden: Quota exceeded, too many servers in group"},
		{who: member, member: "os:scheduler_hints", hints: `{"group":"` + group.UUID + `"}`, err: apidb.ErrGroup,
			status: 400, says: "badRequest: The server group could not be found."},
	} {
		boots.asked, boots.err = nil, tt.err
		got := c.do(tt.who, "2.69", "POST", "/v2.1/servers", fmt.Sprintf(server, tt.member, tt.hints))
		if got.status != tt.status || got.message() != tt.says {
			t.Errorf("%s: %d %s, not %d %s", tt.hints, got.status, got.message(), tt.status, tt.says)
		}
		if tt.status == 202 && boots.asked[0].Group != group.UUID {
			t.Errorf("%s: asked for %+v", tt.hints, boots.asked)
		}
	}

	for n := range 3 {
		err := c.store.CreateServers(t.Context(),
			[]apidb.RequestSpec{{Server: cellwire.Server{UUID: uuid(n), ProjectID: "p1", UserID: "u-p1"},
				Group: group.UUID}}, nil)
		testproc.Check(t, err)
	}
	testproc.Check(t, c.store.AbandonBuild(t.Context(), uuid(1)))
	got := c.ask(member, "2.69", "/v2.1/os-server-groups/"+group.UUID).body["server_group"].(map[string]any)["members"]
	testproc.Same(t, gocmp.Diff(any([]any{uuid(0), uuid(2)}), got))

	// A server says in which group it is from 2.71 on, also when its cell is down.
	for n, want := range map[int][]any{0: {group.UUID}, 7: {}} {
		if n == 7 {
			testproc.Check(t,
				c.store.CreateServers(t.Context(),
					[]apidb.RequestSpec{{Server: cellwire.Server{UUID: uuid(n), ProjectID: "p1", UserID: "u-p1"}}},
					nil))
		}
		show := func(version string) map[string]any {
			t.Helper()
			return c.ask(member, version, "/v2.1/servers/"+uuid(n)).body["server"].(map[string]any)
		}
		check := func(what string) {
			t.Helper()
			testproc.Samef(t, gocmp.Diff(any(want), show("2.71")["server_groups"]), "%s", what)
			if _, has := show("2.70")["server_groups"]; has {
				t.Errorf("%s: 2.70 has server_groups", what)
			}
		}
		check("while it is built")
		testproc.Check(t, c.store.Place(t.Context(), uuid(n), cellUUID(1)))
		testproc.Check(t, c.store.FinishBuild(t.Context(), uuid(n)))
		c.cell(1).fail = refused
		check("in a cell that is down")
	}
}
