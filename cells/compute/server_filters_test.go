// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// read reads the query of a list, as a user.
func (c *cloud) read(who, version, query string) (*listRequest, error) {
	c.t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/v2.1/servers?"+query, nil)
	r.Header.Set("X-Auth-Token", callers[who][0])
	r.Header.Set("X-Roles", callers[who][1])
	r.Header.Set("OpenStack-API-Version", "compute "+version)
	var list *listRequest
	var err error
	in := c.api.incoming()
	x := &in.Exchange
	c.api.service.Serve(httptest.NewRecorder(), r, &x.Exchange, handling{in, func() error {
		testproc.Check(c.t, x.Resolve())
		if x.Params, err = listQuery(x); err == nil {
			list, err = c.api.readList(x, false)
		}
		return err
	}})
	return list, err
}

// handling is a request that a test handles.
type handling struct {
	*incoming
	do func() error
}

func (h handling) Handle() error { return h.do() }

func at(s string) *time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return &t
}

func pointer[T any](v T) *T { return &v }

// TestFiltersOfAnAdministrator: what each filter asks of the cells.
func TestFiltersOfAnAdministrator(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	for query, want := range map[string]cellwire.ServerQuery{
		"":                        {},
		"name=^web":               {NamePattern: "^web"},
		"display_name=web":        {NamePattern: "web"},
		"name=a&name=b":           {NamePattern: "b"}, // the last counts
		"name=a;b":                {NamePattern: "a;b"},
		"user_id=u":               {UserID: "u"},
		"uuid=" + uuid(1):         {UUIDs: []string{uuid(1)}},
		"host=h&node=n":           {Hosts: []string{"h"}, Patterns: map[string]string{"node": "n"}},
		"flavor=2":                {FlavorID: "2"},
		"image=i":                 {ImageRef: "i"},
		"image=no-image":          {NoImage: true},
		"image_ref=i":             {ImageRef: "i"},
		"vm_state=active":         {VMStates: []string{"active"}},
		"task_state=deleting":     {TaskStates: []string{"deleting"}},
		"vm_state=x&status=BUILD": {VMStates: []string{"building"}},
		"status=reboot": {VMStates: []string{"active"},
			TaskStates: []string{"reboot_pending", "reboot_started", "rebooting"}},
		"status=REBUILD": {VMStates: []string{"active", "error", "stopped"},
			TaskStates: []string{"rebuild_block_device_mapping", "rebuild_spawning", "rebuilding"}},
		"status=ACTIVE&status=reboot":  {VMStates: []string{"active"}},
		"status=deleted":               {VMStates: []string{"deleted"}, Deleted: cellwire.DeletedOnly},
		"status=SOFT_DELETED":          {VMStates: []string{"soft-delete"}},
		"hostname=h":                   {Patterns: map[string]string{"hostname": "h"}},
		"description=d":                {Patterns: map[string]string{"display_description": "d"}},
		"display_description=d":        {Patterns: map[string]string{"display_description": "d"}},
		"availability_zone=z":          {Patterns: map[string]string{"availability_zone": "z"}},
		"reservation_id=r":             {Patterns: map[string]string{"reservation_id": "r"}},
		"access_ip_v4=1.2.3.4":         {Patterns: map[string]string{"access_ip_v4": "1.2.3.4"}},
		"access_ip_v6=::1":             {Patterns: map[string]string{"access_ip_v6": "::1"}},
		"tags=a,b&tags-any=c":          {TagsAll: []string{"a", "b"}, TagsAny: []string{"c"}},
		"not-tags=a,b&not-tags-any=c":  {NotTagsAll: []string{"a", "b"}, NotTagsAny: []string{"c"}},
		"config_drive=True":            {ConfigDrive: pointer(true)},
		"power_state=1":                {PowerStates: []plugins.PowerState{1}},
		"launch_index=0":               {LaunchIndex: pointer(0)},
		"deleted=True":                 {Deleted: cellwire.DeletedOnly},
		"deleted=maybe":                {},
		"deleted=False&soft_deleted=1": {SoftDeleted: true},
		"changes-since=2024-05-01":     {ChangedSince: at("2024-05-01T00:00:00Z"), Deleted: cellwire.DeletedAny},
		"changes-since=2024-05-01T14:00:00%2B02:00&changes-before=2024-05-01%2012:00:00&deleted=0": {
			ChangedSince: at("2024-05-01T12:00:00Z"), ChangedBefore: at("2024-05-01T12:00:00Z"),
		},
		"project_id=p2": {}, // nothing without all_tenants
		"tenant_id=p2":  {},
	} {
		got, err := c.read(administrator, "2.69", query)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		want.ProjectID, want.Sort = "p1", []cellwire.SortKey{{Key: "created_at", Desc: true}}
		if diff := gocmp.Diff(want, got.query); diff != "" || got.nothing {
			t.Errorf("%s: nothing: %v (-want +got):\n%s", query, got.nothing, diff)
		}
	}
	for query, project := range map[string]string{"all_tenants=1": "", "all_tenants": "",
		"all_tenants=1&project_id=p2": "p2", "all_tenants=yes&tenant_id=p3": "p3",
		"all_tenants=no&project_id=p2": "p1"} {
		if got, err := c.read(administrator, "2.69", query); err != nil || got.query.ProjectID != project {
			t.Errorf("%s: %v, %+v", query, err, got)
		}
	}
	for _, query := range []string{"ip=1.2.3.4", "ip6=::1", "kernel_id=k", "ramdisk_id=r", "root_device_name=/dev/vda",
		"power_state=on", "launch_index=x"} {
		if got, err := c.read(administrator, "2.69", query); err != nil || !got.nothing {
			t.Errorf("%s: %v, %+v", query, err, got)
		}
	}
}

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
		t.Errorf("%d %s", got.status, got.text)
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
	// What members may not filter by, and what a microversion does not have yet, does not count.
	for version, query := range map[string]string{"2.69": "metadata=a&_x=b&host=h&user_id=u&uuid=x&locked=True&" +
		"locked_by=x&created_at=x", "2.25": "tags=a&not-tags=b&changes-before=foo", "2.4": "ip6=::1"} {
		got, err := c.read(member, version, query)
		testproc.Checkf(t, err, "%s", query)
		want := cellwire.ServerQuery{ProjectID: "p1", Sort: []cellwire.SortKey{{Key: "created_at", Desc: true}}}
		if diff := gocmp.Diff(want, got.query); diff != "" || got.nothing {
			t.Errorf("%s (-want +got):\n%s", query, diff)
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

// TestLimits: how many records a page has at most.
func TestLimits(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{MaxLimit: 50})
	for query, want := range map[string]int{"": 50, "limit=0": 0, "limit=007": 7, "limit=50": 50, "limit=51": 50,
		"limit=99999999999999999999999": 50, "limit=1&limit=2": 2} {
		if got, err := c.read(member, "2.1", query); err != nil || got.limit != want {
			t.Errorf("%s: %v, %+v", query, err, got)
		}
	}
}
