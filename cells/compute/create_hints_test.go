// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestHintsAboutServers: same_host and different_host, whose servers they may name, and every other
// hint of Nova's, which is refused by its name.
func TestHintsAboutServers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	boots, _ := c.withCalls()
	c.withFlavors()
	other := server(3, "s3")
	other.ProjectID = "p2"
	c.has(1, server(1, "s1"))
	c.has(nowhere, server(2, "s2"))
	c.has(1, other)
	gone := server(4, "s4")
	c.has(1, gone)
	testproc.Check(t, c.store.SetQueued(t.Context(), map[string]bool{gone.UUID: true}))
	missing := func(uuid, hint string) string {
		return "badRequest: os:scheduler_hints: the server " + uuid + " of " + hint + " could not be found."
	}
	refused := func(hint string) string {
		return "badRequest: os:scheduler_hints: this service does not have " + hint +
			". The hints that it has are group, same_host and different_host."
	}
	many := strings.Repeat(`"`+uuid(1)+`",`, 100) + `"` + uuid(1) + `"`
	for _, tt := range []struct {
		who, hints      string
		same, different []string
		says            string
	}{
		{who: member, hints: `{"same_host":"` + uuid(1) + `"}`, same: []string{uuid(1)}},
		{who: member, hints: `{"different_host":["` + uuid(1) + `","` + strings.ToUpper(uuid(2)) + `"]}`,
			different: []string{uuid(1), uuid(2)}},
		{who: member, hints: `{"same_host":[],"different_host":[]}`},
		{who: administrator, hints: `{"different_host":"` + uuid(3) + `","same_host":["` + uuid(1) + `"]}`,
			same: []string{uuid(1)}, different: []string{uuid(3)}},
		{who: member, hints: `{"same_host":"` + uuid(3) + `"}`, says: missing(uuid(3), "same_host")},
		{who: member, hints: `{"different_host":["` + uuid(1) + `","` + uuid(9) + `"]}`,
			says: missing(uuid(9), "different_host")},
		{who: member, hints: `{"different_host":"` + uuid(4) + `"}`, says: missing(uuid(4), "different_host")},
		{who: member, hints: `{"same_host":"s1\u0000"}`, says: missing("s1\x00", "same_host")},
		{who: member, hints: `{"same_host":[` + many + `]}`,
			says: "badRequest: os:scheduler_hints: same_host names more than 100 servers."},
		{who: member, hints: `{"query":"[\"=\",\"$free_ram_mb\",1024]"}`, says: refused("query")},
		{who: member, hints: `{"target_cell":"cell1"}`, says: refused("target_cell")},
		{who: member, hints: `{"different_cell":["cell1"]}`, says: refused("different_cell")},
		{who: member, hints: `{"build_near_host_ip":"10.0.0.1","cidr":"/24"}`,
			says: refused("build_near_host_ip, cidr")},
		{who: member, hints: `{"reservation":"` + uuid(1) + `"}`, says: refused("reservation")},
	} {
		boots.asked = nil
		got := c.do(tt.who, "2.69", "POST", "/v2.1/servers",
			fmt.Sprintf(
				`{"server":{"name":"n1","imageRef":"%s","flavorRef":"1","networks":"none"},"os:scheduler_hints":%s}`,
				image, tt.hints))
		if got.message() != tt.says || (got.status == 202) != (tt.says == "") ||
			got.status != 202 && got.status != 400 {
			t.Errorf("%s: %d %s, not %s", tt.hints, got.status, got.text, tt.says)
		}
		if tt.says != "" {
			continue
		}
		if diff := gocmp.Diff([][]string{tt.same, tt.different},
			[][]string{boots.asked[0].SameHost, boots.asked[0].DifferentHost}); diff != "" {
			t.Errorf("%s: %s", tt.hints, diff)
		}
	}
}
