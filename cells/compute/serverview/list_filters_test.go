// SPDX-License-Identifier: Apache-2.0

package serverview

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// read reads the query of a list, as a user of p1 with a role.
func read(t *testing.T, d *Lists, role, version, query string) (list *listRequest, err error) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/v2.1/servers?"+query, nil)
	r.Header.Set("X-Auth-Token", "u-p1:p1")
	r.Header.Set("X-Roles", role)
	r.Header.Set("OpenStack-API-Version", "compute "+version)
	routes := d.Routes()
	routes[0].Handle = func(x *api.Exchange) error {
		list, err = d.readList(x, false)
		return err
	}
	service := &api.Service{
		Service: osapi.NewService(osapi.Options{Authenticator: osapi.NoAuth{}, Logger: zerolog.Nop()}),
		Routes:  api.NewRoutes(routes), Policy: api.NewPolicy(api.RulesOf(routes)),
	}
	h := &handler{Exchange: &api.Exchange{Service: service}}
	service.Serve(httptest.NewRecorder(), r, &h.Exchange.Exchange, h)
	return list, h.err
}

// handler is a request on its way, and the error that it ends with.
type handler struct {
	*api.Exchange
	err error
}

func (h *handler) Handle() error {
	if h.err = h.Resolve(); h.err == nil {
		h.err = h.Answer()
	}
	return h.err
}

func (h *handler) Explain(err error) *osapi.Error {
	var refusal *osapi.Error
	if errors.As(err, &refusal) {
		return refusal
	}
	return osapi.Errorf(http.StatusInternalServerError, "%v", err)
}

// uuid numbers servers.
func uuid(n int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", n, n) }

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
	d := &Lists{MaxLimit: 1000}
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
		"key_name=my":                  {Patterns: map[string]string{"key_name": "my"}},
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
		got, err := read(t, d, "admin", "2.69", query)
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
		if got, err := read(t, d, "admin", "2.69", query); err != nil || got.query.ProjectID != project {
			t.Errorf("%s: %v, %+v", query, err, got)
		}
	}
	for _, query := range []string{"ip=1.2.3.4", "ip6=::1", "kernel_id=k", "ramdisk_id=r", "root_device_name=/dev/vda",
		"power_state=on", "launch_index=x"} {
		if got, err := read(t, d, "admin", "2.69", query); err != nil || !got.nothing {
			t.Errorf("%s: %v, %+v", query, err, got)
		}
	}
}

// TestFiltersThatDoNotCount: what members may not filter by, and what a microversion does not have
// yet.
func TestFiltersThatDoNotCount(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	d := &Lists{MaxLimit: 1000}
	for version, query := range map[string]string{"2.69": "metadata=a&_x=b&host=h&user_id=u&uuid=x&locked=True&" +
		"locked_by=x&created_at=x", "2.25": "tags=a&not-tags=b&changes-before=foo", "2.4": "ip6=::1"} {
		got, err := read(t, d, "member", version, query)
		testproc.Checkf(t, err, "%s", query)
		want := cellwire.ServerQuery{ProjectID: "p1", Sort: []cellwire.SortKey{{Key: "created_at", Desc: true}}}
		if diff := gocmp.Diff(want, got.query); diff != "" || got.nothing {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
}

// TestLimits: how many records a page has at most.
func TestLimits(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	d := &Lists{MaxLimit: 50}
	for query, want := range map[string]int{"": 50, "limit=0": 0, "limit=007": 7, "limit=50": 50, "limit=51": 50,
		"limit=99999999999999999999999": 50, "limit=1&limit=2": 2} {
		if got, err := read(t, d, "member", "2.1", query); err != nil || got.limit != want {
			t.Errorf("%s: %v, %+v", query, err, got)
		}
	}
}
