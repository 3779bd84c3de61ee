// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestWrongQueries: what is refused, in the words of Nova.
func TestWrongQueries(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	for _, tt := range []struct {
		who, version, query string
		status              int
		says                string
	}{
		{member, "2.69", "limit=", 400,
			"badRequest: Invalid input for query parameters limit. Value: . '' is too short"},
		{member, "2.69", "limit=abc", 400,
			"badRequest: Invalid input for query parameters limit. Value: abc. 'abc' does not match '^[0-9]*$'"},
		{member, "2.69", "limit=it's", 400,
			`badRequest: Invalid input for query parameters limit. Value: it's. "it's" does not match '^[0-9]*$'`},
		{member, "2.69", "name=(", 400,
			"badRequest: Invalid input for query parameters name. Value: (. '(' is not a 'regex'"},
		{member, "2.69", "name=%00", 400,
			"badRequest: Invalid input for query parameters name. Value: \x00. '\x00' is not text"},
		{member, "2.69", "changes-since=foo", 400,
			"badRequest: Invalid input for query parameters changes-since. Value: foo. 'foo' is not a 'date-time'"},
		{
			member, "2.69", "changes-since=2024-05-02&changes-before=2024-05-01", 400,
			"badRequest: The value of changes-since must be less than or equal to changes-before.",
		},
		{member, "2.69", "status=DELETED", 403, "forbidden: Only administrators may list deleted instances"},
		{member, "2.69", "status=", 400, "badRequest: Invalid status value"},
		{administrator, "2.69", "metadata=a", 400, "badRequest: Invalid filter field: metadata."},
		{administrator, "2.69", "_x=a", 400, "badRequest: Invalid filter field: _x."},
		{administrator, "2.69", "created_at=2024", 400, "badRequest: Servers cannot be filtered by created_at here."},
		{member, "2.69", "sort_key=node", 403, "forbidden: Only administrators can sort servers by node"},
	} {
		got := c.ask(tt.who, tt.version, "/v2.1/servers?"+tt.query)
		if got.status != tt.status || got.message() != tt.says {
			t.Errorf("%s: %d %q, not %d %q", tt.query, got.status, got.message(), tt.status, tt.says)
		}
	}
	// More conditions than a cell takes are the client's fault as well.
	tags := url.Values{"tags": {"0"}}
	for range 200 {
		tags.Set("tags", tags.Get("tags")+",a")
	}
	if got := c.ask(member, "2.69", "/v2.1/servers?"+tags.Encode()); got.status != 400 {
		t.Errorf("a query with 201 tags: got %d %s, want 400", got.status, got.text)
	}
	// Regular expressions are bounded: in bytes all of them together, and those that are looked for
	// in what they become.
	for _, query := range []string{
		url.Values{"name": {strings.Repeat(`\pL`, 3000)}}.Encode(),
		url.Values{"name": slices.Repeat([]string{strings.Repeat("a", 100)}, 100)}.Encode(),
		url.Values{"name": {strings.Repeat(".{0,1000}", 100)}}.Encode(),
	} {
		if got := c.ask(member, "2.69", "/v2.1/servers?"+query); got.status != 400 {
			t.Errorf("%.40s...: %d %s", query, got.status, got.text)
		}
	}
}

// TestEmptyPatternsAreRefused: Nova's format "regex" does not take the empty text, where it takes
// it of other parameters. The names are those of Nova 26's schemas of 2.1 and, for tags, 2.26;
// members and administrators are refused alike, also where members may not filter.
func TestEmptyPatternsAreRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	for _, name := range []string{
		"access_ip_v4", "access_ip_v6", "auto_disk_config", "availability_zone", "config_drive", "created_at",
		"description", "display_description", "display_name", "flavor",
		"hostname", "ip", "ip6", "kernel_id", "key_name", "launched_at", "locked_by", "name", "node", "power_state",
		"progress", "ramdisk_id", "reservation_id",
		"root_device_name", "terminated_at", "tags", "tags-any", "not-tags", "not-tags-any",
	} {
		says := "badRequest: Invalid input for query parameters " + name + ". Value: . '' is not a 'regex'"
		for _, who := range []string{member, administrator} {
			for _, query := range []string{name + "=", name, name + "=x&" + name + "="} {
				for _, path := range []string{"/v2.1/servers?", "/v2.1/servers/detail?"} {
					if got := c.ask(who, "2.26", path+query); got.status != 400 || got.message() != says {
						t.Errorf("%s of %s: %d %q, not %q", path+query, who, got.status, got.message(), says)
					}
				}
			}
		}
	}
	for _, name := range []string{"user_id", "project_id", "tenant_id", "launch_index", "image_ref", "image",
		"vm_state", "task_state", "host", "uuid", "all_tenants", "soft_deleted", "deleted"} {
		if got := c.ask(administrator, "2.26", "/v2.1/servers?"+name+"="); got.status != 200 {
			t.Errorf("%s: %d %s", name, got.status, got.message())
		}
	}
	if got := c.ask(member, "2.25", "/v2.1/servers?tags="); got.status != 200 { // not known yet
		t.Errorf("tags before 2.26: %d %s", got.status, got.message())
	}
}
