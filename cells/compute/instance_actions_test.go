// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/serverview"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestInstanceActions: what each microversion and caller sees of them.
func TestInstanceActions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{MaxLimit: 4})
	s := server(1, "s1")
	c.has(1, s)
	c.has(nowhere, server(2, "s2"))
	ended := func(n int) *time.Time {
		at := start.Add(time.Duration(n) * time.Minute).Add(time.Millisecond)
		return &at
	}
	origin := func(n int) cellwire.Origin {
		return cellwire.Origin{RequestID: fmt.Sprint("req-", n), UserID: "u", ProjectID: "p1"}
	}
	c.cell(1).actions = []cellwire.Action{
		{Number: 3, Name: cellwire.ActionReboot, Origin: origin(3), Host: "h1", StartedAt: start.Add(3 * time.Minute)},
		{Number: 2, Name: cellwire.ActionStop, Origin: origin(2), Host: "h1", StartedAt: start.Add(2 * time.Minute),
			FinishedAt: ended(2), Failed: true, Details: "why"},
		{Number: 1, Name: cellwire.ActionCreate, Origin: cellwire.Origin{RequestID: "req-1"}, Host: "h1",
			StartedAt: start, FinishedAt: ended(0)},
	}
	item := func(n int, action, owner, at, message, updated string) string {
		text := fmt.Sprintf(
			`{"action":"%s","instance_uuid":"%s","request_id":"req-%d",%s,`+
				`"start_time":"2024-05-01T12:0%s:00.000000","message":%s`, action, uuid(1), n, owner, at, message)
		if updated != "" {
			text += `,"updated_at":"2024-05-01T12:0` + updated + `"`
		}
		return text
	}
	const owned, unknown = `"user_id":"u","project_id":"p1"`, `"user_id":null,"project_id":null`
	items := func(updated bool) []string {
		all := []string{
			item(3, "reboot", owned, "3", "null", "3:00.000000"), item(2, "stop", owned, "2", `"Error"`, "2:00.001000"),
			item(1, "create", unknown, "0", "null", "0:00.001000"),
		}
		for i := range all {
			if !updated {
				all[i], _, _ = strings.Cut(all[i], `,"updated_at"`)
			}
			all[i] += "}"
		}
		return all
	}
	list := func(items ...string) string { return `{"instanceActions":[` + strings.Join(items, ",") + `]}` }
	link := func(query string) string {
		return fmt.Sprintf(`,"links":[{"rel":"next","href":"http://compute/v2.1/servers/%s/os-instance-actions?%s"}]}`,
			uuid(1), query)
	}
	with := func(body, more string) string { return strings.TrimSuffix(body, "}") + more }
	const path = "GET /os-instance-actions"
	c.hold(reader, "2.57", []exchanged{{path, "", 200, list(items(false)...)},
		{path + "?limit=1", "", 200, list(items(false)...)}})
	all := items(true)
	c.hold(reader, "2.58", []exchanged{
		{path, "", 200, list(all...)},
		{path + "?limit=1", "", 200, with(list(all[0]), link("limit=1&marker=req-3"))},
		{path + "?limit=1&marker=req-3", "", 200, with(list(all[1]), link("limit=1&marker=req-2"))},
		{path + "?marker=req-1", "", 200, list()},
		{path + "?marker=req-9", "", 400, "badRequest: Marker req-9 could not be found."},
		{path + "?changes-since=2024-05-01T12:02:00Z", "", 200, list(all[:2]...)},
		{path + "?changes-since=soon", "", 400,
			"badRequest: Invalid input for query parameters changes-since. Value: soon. 'soon' is not a 'date-time'"},
		{path + "?changes-before=2024-05-01T12:02:00Z",
			"", 400, "badRequest: Additional properties are not allowed ('changes-before' was unexpected)"},
		{path + "?limit=-1", "", 400,
			"badRequest: Invalid input for query parameters limit. Value: -1. '-1' does not match '^[0-9]*$'"},
		{path + "?limit=1&limit=2", "", 400,
			"badRequest: Invalid input for query parameters limit. Value: ['1', '2']. ['1', '2'] is too long"},
	})
	c.hold(reader, "2.66", []exchanged{
		{path + "?changes-before=2024-05-01T12:02:00Z", "", 200, list(all[2])},
		{path + "?changes-since=2024-05-01T12:03:00Z&changes-before=2024-05-01T12:02:00Z", "", 400,
			"badRequest: The value of changes-since must be less than or equal to changes-before."},
	})

	one := func(version int, who string, events string) exchanged {
		text := items(version >= 58)[1]
		if events != "" {
			text = with(text, `,"events":[`+events+"]}")
		}
		return exchanged{path + "/req-2", "", 200, `{"instanceAction":` + text + "}"}
	}
	event := `{"event":"compute_stop_instance","start_time":"2024-05-01T12:02:00.000000",` +
		`"finish_time":"2024-05-01T12:02:00.001000","result":"Error"`
	hash := serverview.HostID(&cellwire.Server{ProjectID: "p1", Host: "h1"})
	for _, tt := range []struct {
		who     string
		version int
		events  string
	}{
		{member, 50, ""}, {administrator, 50, event + `,"traceback":"why"}`},
		{member, 51, event + "}"}, {administrator, 51, event + `,"traceback":"why"}`},
		{reader, 62, event + `,"hostId":"` + hash + `"}`},
		{administrator, 62, event + `,"traceback":"why","host":"h1","hostId":"` + hash + `"}`},
	} {
		c.hold(tt.who, fmt.Sprint("2.", tt.version), []exchanged{one(tt.version, tt.who, tt.events)})
	}
	c.hold(member, "2.69", []exchanged{{path + "/req-9", "", 404, "itemNotFound: Action req-9 not found"}})

	if got := c.ask(member, "2.69", "/v2.1/servers/"+uuid(2)+"/os-instance-actions"); got.status != 200 ||
		got.text != list() {
		t.Errorf("of a server that is not placed yet: %d %s", got.status, got.text)
	}
	gone := "itemNotFound: Instance " + uuid(1) + " could not be found."
	c.hold(member2, "2.69", []exchanged{{path, "", 404, gone}})
	c.cell(1).servers[0].Deleted = true
	c.hold(member, "2.20", []exchanged{{path, "", 404, gone}})
	c.hold(member, "2.21", []exchanged{{path, "", 200, list(items(false)...)}})
	c.cell(1).fail = refused
	c.hold(member, "2.69", []exchanged{{path, "", 500,
		"computeFault: NovaException: The server's cell is not responding. Try again when it is back."}})
}
