// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const image = "70a599e0-31e7-49b7-b260-868f441e862b"

var anyUUID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// made takes out of the answer to a boot what is new each time.
func made(name string, body any) any {
	answer, _ := body.(map[string]any)
	if id, is := answer["reservation_id"].(string); is && regexp.MustCompile(`^r-[a-z0-9]{8}$`).MatchString(id) {
		answer["reservation_id"] = "made"
	}
	server, is := answer["server"].(map[string]any)
	if !is {
		return body
	}
	server["id"] = anyUUID.ReplaceAllString(server["id"].(string), "ID")
	for _, link := range server["links"].([]any) {
		link := link.(map[string]any)
		link["href"] = anyUUID.ReplaceAllString(link["href"].(string), "ID")
	}
	if password := server["adminPass"].(string); name != "post-adminpass" &&
		regexp.MustCompile(`^[2-9A-HJ-NP-Za-km-z]{12}$`).MatchString(password) {
		server["adminPass"] = "made"
	}
	return body
}

// TestCreateDeleteAndActionsAsInNova boots, deletes and restores as the recordings do.
func TestCreateDeleteAndActionsAsInNova(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	boots, _ := c.withCalls()
	boots.room = 10
	c.withFlavors()
	place := func(cell, n int, project, vmState, taskState string) {
		s := server(n, fmt.Sprintf("s%d", n))
		s.ProjectID, s.VMState, s.TaskState = project, vmState, taskState
		c.has(cell, s)
	}
	place(1, 2, "p1", cellwire.VMActive, "")
	place(1, 4, "p1", cellwire.VMSoftDeleted, "")
	place(1, 5, "p1", cellwire.VMActive, "")
	place(2, 6, "p1", cellwire.VMError, "")
	place(2, 7, "p1", cellwire.VMBuilding, cellwire.TaskSpawning)
	place(0, 8, "p1", cellwire.VMError, "")
	place(2, 9, "p2", cellwire.VMActive, "")
	place(2, 10, "p2", cellwire.VMActive, "")
	place(1, 12, "p1", cellwire.VMStopped, "")
	place(2, 13, "p1", cellwire.VMSoftDeleted, "")
	place(1, 14, "p1", cellwire.VMActive, cellwire.TaskDeleting)
	building := server(1, "building")
	building.UUID, building.VMState, building.TaskState =
		"f0a2d8a7-5269-4b01-b53e-34ad07959593", cellwire.VMBuilding, cellwire.TaskScheduling
	c.has(nowhere, building)

	notReaders := func(rule string) ours {
		return ours{why: "readers only read", status: 403,
			says: "forbidden: Policy doesn't allow os_compute_api:" + rule + " to be performed."}
	}
	noLocks := "no server is locked here"
	c.replay(recordedCalls(t, "nova_create_delete.json"), map[string]ours{
		"post-net-unknown": {
			why: "there are no networks", status: 400,
			says: `badRequest: networks: this service has no networks; send "networks": "none".`,
		},
		"post-bfv-image-empty":      {why: "an empty image is an empty disk", status: 202},
		"post-ram-quota-reader":     notReaders("servers:create"),
		"delete-reader":             notReaders("servers:delete"),
		"action-restore-reader":     notReaders("os-deferred-delete:restore"),
		"delete-locked-member":      {why: noLocks, status: 204},
		"action-locked-forceDelete": {why: noLocks, status: 202},
		"action-locked-restore-member": {why: noLocks,
			status: 409,
			says: "conflictingRequest: Cannot 'restore' instance 00000005-0000-4000-8000-000000000005 while it is " +
				"in vm_state active"},
		"post-over-quota-cores": {why: "no project has access to a private flavor", status: 400,
			says: "badRequest: Flavor 8b1a could not be found."},
	}, made)
}

// TestRequestedServer is what the scheduler gets of all that can be asked for.
func TestRequestedServer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	tiny := cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{Name: "m1.tiny", VCPUs: 1, MemoryMB: 512, RootGB: 1}}
	base := func(change func(*scheduler.CreateRequest)) scheduler.CreateRequest {
		r := scheduler.CreateRequest{Min: 1, Max: 1}
		r.Server = cellwire.Server{
			ProjectID: "p1", UserID: "u-p1", Name: "n1",
			Hostname: "n1", ImageRef: image, Flavor: tiny, DiskConfig: "MANUAL", Metadata: map[string]string{},
		}
		if change != nil {
			change(&r)
		}
		return r
	}
	for _, tt := range []struct {
		name, who, version, more string // more members of the server
		want                     scheduler.CreateRequest
	}{
		{name: "nothing else", version: "2.69", more: `"networks":"none"`, want: base(nil)},
		{name: "before descriptions the name is one",
			version: "2.18", want: base(func(r *scheduler.CreateRequest) { r.Description = new("n1") })},
		{name: "a description", version: "2.19", more: `"description":"d"`,
			want: base(func(r *scheduler.CreateRequest) { r.Description = new("d") })},
		{name: "an empty list of networks", version: "2.69", more: `"networks":[]`, want: base(nil)},
		{
			name: "everything", version: "2.69", more: `"networks":"none","description":"d","metadata":{"a":"b","c":""},"tags":["x","y","x"],"user_data":"aGVsbG8=",
				"config_drive":"yes","OS-DCF:diskConfig":"AUTO","accessIPv4":"10.0.0.1","accessIPv6":"2001:DB8::0:1","adminPass":"p","min_count":2,"max_count":"4",
				"security_groups":[{"name":"default"}],"block_device_mapping_v2":[],"availability_zone":"nova","trusted_image_certificates":null`,
			want: base(func(r *scheduler.CreateRequest) {
				r.Min, r.Max = 2, 4
				s := &r.Server
				s.Description, s.Metadata, s.Tags = new("d"), map[string]string{"a": "b", "c": ""}, []string{"x", "y"}
				s.UserData, s.ConfigDrive, s.DiskConfig, s.Zone = "aGVsbG8=", true, "AUTO", "nova"
				s.AccessIPv4, s.AccessIPv6 = "10.0.0.1", "2001:db8::1"
			}),
		},
		{name: "at least two are two", version: "2.69", more: `"networks":"none","min_count":2`,
			want: base(func(r *scheduler.CreateRequest) { r.Min, r.Max = 2, 2 })},
		{name: "a zone of a host", version: "2.69", more: `"networks":"none","availability_zone":"east"`,
			want: base(func(r *scheduler.CreateRequest) { r.Zone = "east" })},
		{name: "a host", who: administrator, version: "2.69", more: `"networks":"none","availability_zone":"nova:c1h1"`,
			want: base(func(r *scheduler.CreateRequest) { r.Zone, r.ForcedHost = "nova", "c1h1" })},
		{name: "a host in another zone", who: administrator, version: "2.69",
			more: `"networks":"none","availability_zone":"west:c1h1"`,
			want: base(func(r *scheduler.CreateRequest) { r.ForcedHost = "c1h1" })},
		{name: "a host and a node", who: administrator,
			version: "2.69", more: `"networks":"none","availability_zone":":c1h1:n1"`,
			want: base(func(r *scheduler.CreateRequest) { r.ForcedHost, r.ForcedNode = "c1h1", "n1" })},
		{name: "a node", who: administrator, version: "2.69", more: `"networks":"none","availability_zone":"nova::n1"`,
			want: base(func(r *scheduler.CreateRequest) { r.Zone, r.ForcedNode = "nova", "n1" })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCloud(t, Options{})
			boots, _ := c.withCalls()
			c.withFlavors()
			c.servicesOf(1, cellwire.Service{UUID: c1h1.UUID, Host: "c1h1", Binary: "nova-compute", Up: true})
			c.inZone("east", "c1h1")
			who, more := tt.who, tt.more
			if who == "" {
				who = member
			}
			if more != "" {
				more = "," + more
			}
			got := c.do(who, tt.version, "POST", "/v2.1/servers", `{"server":{"name":"n1","imageRef":"`+image+
				`","flavorRef":"http://x/v2.1/flavors/1?a=b"`+more+`},"os:scheduler_hints":{}}`)
			if got.status != 202 {
				t.Fatalf("POST /servers: got %d %s, want 202", got.status, got.text)
			}
			tt.want.AllowCellDown, tt.want.RequestID = who == administrator, got.header.Get("X-Compute-Request-Id")
			testproc.Same(t, gocmp.Diff([]scheduler.CreateRequest{tt.want}, boots.asked,
				cmpopts.IgnoreFields(cellwire.Server{}, "Reservation"), cmpopts.EquateEmpty()))
			testproc.Equal(t, got.header.Get("Location"), "http://compute/v2.1/servers/"+uuid(100), "Location is %q")
		})
	}
}

// TestUnsupportedRequestsAreRejected: what this service has not is refused in a sentence, and what
// does not come to pass in Nova's.
func TestUnsupportedRequestsAreRejected(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const base = `"name":"n1","imageRef":"` + image + `","flavorRef":"1"`
	const none = base + `,"networks":"none"`
	for _, tt := range []struct {
		name, who, version, server, beside string
		status                             int
		says                               string
	}{
		{name: "hints", server: none, beside: `,"os:scheduler_hints":{"group":"` + image + `"}`, status: 400,
			says: "badRequest: Instance group " + image + " could not be found."},
		{name: "hints by their long name", server: none, beside: `,"OS-SCH-HNT:scheduler_hints":{"foo":1}`, status: 400,
			says: "badRequest: OS-SCH-HNT:scheduler_hints: this service does not have foo. The hints that it has " +
				"are group, same_host and different_host."},
		{name: "networks", server: base + `,"networks":"auto"`, status: 400,
			says: `badRequest: networks: this service has no networks; send "networks": "none".`},
		{name: "networks before 2.37", version: "2.1", server: base + `,"networks":[{"uuid":"x"}]`, status: 400,
			says: "badRequest: networks: this service has no networks; leave them out."},
		{name: "a volume", server: none + `,"block_device_mapping_v2":[{"source_type":"blank"}]`, status: 400,
			says: "badRequest: block_device_mapping_v2: this service has no volumes; servers boot from the image " +
				"of imageRef."},
		{name: "a volume as of old", server: none + `,"block_device_mapping":[{"device_name":"vda"}]`, status: 400,
			says: "badRequest: block_device_mapping: this service has no volumes; servers boot from the image " +
				"of imageRef."},
		{name: "files", version: "2.56", server: none + `,"personality":[{"path":"a","contents":"b"}]`, status: 400,
			says: "badRequest: Invalid input for field/attribute contents. Value: b. 'b' is not a 'base64'"},
		{name: "proper files", version: "2.56", server: none + `,"personality":[{"path":"a","contents":"aGVsbG8="}]`,
			status: 400, says: "badRequest: personality: this service does not inject files; send user_data instead."},
		{name: "certificates", server: none + `,"trusted_image_certificates":["a"]`, status: 400,
			says: "badRequest: trusted_image_certificates: this service does not validate the signatures of images."},
		{name: "a security group", server: none + `,"security_groups":[{"name":"default"},{"name":"web"}]`, status: 400,
			says: "badRequest: Security group web not found for project p1."},
		{name: "a disabled flavor", server: `"name":"n1","imageRef":"` +
			image + `","flavorRef":"off","networks":"none"`, status: 400,
			says: "badRequest: Flavor off could not be found."},
		{name: "no disk, for a member", server: `"name":"n1","imageRef":"` + image +
			`","flavorRef":"diskless","networks":"none"`,
			status: 403, says: "forbidden: Only volume-backed servers are allowed for flavors with zero disk."},
		{name: "no disk", who: administrator, server: `"name":"n1","imageRef":"` + image +
			`","flavorRef":"8b1a","networks":"none"`, status: 202},
		{name: "a zone of a disabled host", server: none + `,"availability_zone":"west"`, status: 400,
			says: "badRequest: The requested availability zone is not available"},
		{name: "too many colons", who: administrator, server: none + `,"availability_zone":"a:b:c:d"`, status: 400,
			says: "badRequest: Invalid input received: Unable to parse availability_zone"},
		{name: "far too many", server: none + `,"max_count":1001`, status: 400,
			says: "badRequest: max_count must be at most 1000"},
		{name: "more than can be counted", server: none + `,"max_count":99999999999999999999999`, status: 400,
			says: "badRequest: max_count must be at most 1000"},
		{name: "2.74's host", server: none + `,"host":"h"`,
			status: 400,
			says: "badRequest: Invalid input for field/attribute server. Value: {'name': 'n1', 'imageRef': '" +
				image + "', 'flavorRef': '1', 'networks': 'none', 'host': 'h'}. Additional properties are not " +
				"allowed ('host' was unexpected)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCloud(t, Options{})
			boots, _ := c.withCalls()
			c.withFlavors()
			for _, f := range []apidb.Flavor{
				{Flavor: cellwire.Flavor{ID: "off",
					Flavor: plugins.Flavor{Name: "off", VCPUs: 1, MemoryMB: 1, RootGB: 1}},
					IsPublic: true, Disabled: true},
				{Flavor: cellwire.Flavor{ID: "diskless",
					Flavor: plugins.Flavor{Name: "diskless", VCPUs: 1, MemoryMB: 1}}, IsPublic: true},
			} {
				testproc.Check(t, c.store.CreateFlavor(t.Context(), f))
			}
			c.servicesOf(1, cellwire.Service{UUID: c1h1.UUID, Host: "c1h1", Binary: "nova-compute", Disabled: true})
			c.inZone("west", "c1h1")
			who, version := tt.who, tt.version
			if who == "" {
				who = member
			}
			if version == "" {
				version = "2.69"
			}
			got := c.do(who, version, "POST", "/v2.1/servers", `{"server":{`+tt.server+`}`+tt.beside+`}`)
			if got.status != tt.status || got.message() != tt.says {
				t.Errorf("%d %s, not %d %s", got.status, got.message(), tt.status, tt.says)
			}
			if tt.status != 202 && len(boots.asked) > 0 {
				t.Errorf("it was booted: %v", boots.asked)
			}
		})
	}
}

// TestBootsInAnOutage: a policy decides who may boot although servers of the project are in a cell
// that is down. The refusal names that policy, and not the cell.
func TestBootsInAnOutage(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, tt := range []struct {
		name, who, rule string
		allowed         bool
	}{
		{"a member", member, "", false},
		{"an administrator", administrator, "", true},
		{"a member, when everybody may", member, "@", true},
		{"an administrator, when no user may", administrator, "!", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCloud(t, Options{})
			boots, _ := c.withCalls()
			c.withFlavors()
			if tt.rule != "" {
				path := filepath.Join(t.TempDir(), "policy.yaml")
				testproc.Check(t,
					os.WriteFile(path, []byte(`"os_compute_api:servers:create:cell_down": "`+tt.rule+`"`), 0o600))
				c.api.service.Policy = testproc.Try(OpenPolicy(path, zerolog.Nop())).Or(t)
			}
			boots.err = fmt.Errorf("project p1, cell1: %w", quota.ErrCellDown)
			got := c.do(tt.who, "2.69", "POST", "/v2.1/servers", `{"server":{"name":"n1","imageRef":"`+image+
				`","flavorRef":"1","networks":"none"}}`)
			if len(boots.asked) != 1 || boots.asked[0].AllowCellDown != tt.allowed {
				t.Errorf("%+v, allowed is not %t", boots.asked, tt.allowed)
			}
			if want := "forbidden: Policy doesn't allow os_compute_api:servers:create:cell_down to be performed. " +
				"Servers of the project are in a cell that does not answer, and new ones are refused until it does. " +
				"Try again later."; got.status != 403 || got.message() != want {
				t.Errorf("POST /servers: got %d %s, want 403 because of the cell that is down", got.status, got.text)
			}
		})
	}
}

// TestSchedulerErrorsHaveTheirStatus: each error of the scheduler has its status.
func TestSchedulerErrorsHaveTheirStatus(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, tt := range []struct {
		err    error
		status int
		says   string
	}{
		{&resourcerequest.InvalidError{Message: "No such class."}, 400, "badRequest: No such class."},
		{fmt.Errorf("creating servers: %w", apidb.ErrUnavailable), 503,
			"serviceUnavailable: The API database cannot be used now. Send the request again in a moment."},
		{errors.New("something else"), 500, ""},
	} {
		c := newCloud(t, Options{})
		boots, _ := c.withCalls()
		c.withFlavors()
		boots.err = tt.err
		got := c.do(member, "2.69", "POST", "/v2.1/servers", `{"server":{"name":"n1","imageRef":"`+image+
			`","flavorRef":"1","networks":"none"}}`)
		if got.status != tt.status || tt.says != "" &&
			got.message() != tt.says || strings.Contains(got.text, "something else") {
			t.Errorf("POST /servers while the scheduler fails with %v: got %d %s", tt.err, got.status, got.text)
		}
	}
}
