// SPDX-License-Identifier: Apache-2.0

package compute

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// recorded are servers as nova-api 26.2.2 showed them, by what they are, the user's role and the
// microversion: "show-active-admin-2.69", and after "down" while their cell was down.
//
//go:embed testdata/nova_server_views.json
var recorded []byte

var recordedName = regexp.MustCompile(`^show-(.+)-(admin|member)-(2\.\d+)$`)

// TestServersLookAsInNova shows servers at many microversions and compares whole records with those
// of Nova. What the servers are is read from what Nova showed to an administrator at 2.69.
func TestServersLookAsInNova(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var records map[string]map[string]any
	testproc.Check(t, json.Unmarshal(recorded, &records))
	for _, name := range slices.Sorted(maps.Keys(records)) {
		parts := recordedName.FindStringSubmatch(name)
		if parts == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			what, who, version := parts[1], parts[2], parts[3]
			server := fromNova(t, records["show-"+what+"-admin-2.69"])
			if old, has := records["show-"+what+"-admin-2.1"]; has {
				server.Flavor.ID = old["flavor"].(map[string]any)["id"].(string)
			}
			c := newCloud(t, Options{})
			cell := 1
			if server.VMState == cellwire.VMBuilding && server.ID == 0 {
				cell = nowhere
			}
			c.has(cell, server)

			got := c.ask(who, version, "/v2.1/servers/"+server.UUID)
			if got.status != 200 {
				t.Fatalf("GET of the server: got %d %s, want 200", got.status, got.text)
			}
			want := records[name]
			// What this project does not have, or what Nova's record says of the moment.
			imaged(want)
			want["os-extended-volumes:volumes_attached"] = []any{}
			for _, key := range []string{"kernel_id", "ramdisk_id"} {
				if _, has := want["OS-EXT-SRV-ATTR:"+key]; has {
					want["OS-EXT-SRV-ATTR:"+key] = ""
				}
			}
			if _, has := want["OS-EXT-SRV-ATTR:root_device_name"]; has {
				want["OS-EXT-SRV-ATTR:root_device_name"] = nil
			}
			if cell == nowhere {
				want["updated"] = got.body["server"].(map[string]any)["updated"]
			}
			testproc.Samef(t, gocmp.Diff(want, got.body["server"]), "(-Nova +ours)")
		})
	}
}

// TestHostStatus: administrators see the status of a server's host, as
// nova.compute.api.API.get_instance_host_status has it.
func TestHostStatus(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	for i, tt := range []struct {
		host                 string
		up, disabled, forced bool
		want                 any
	}{
		{"", false, false, false, ""},
		{"h", true, false, false, "UP"},
		{"h", true, true, false, "MAINTENANCE"},
		{"h", false, true, false, "MAINTENANCE"},
		{"h", false, false, false, "UNKNOWN"},
		{"h", false, false, true, "DOWN"},
		{"h", false, true, true, "DOWN"},
	} {
		s := server(i+1, "vm")
		s.Host, s.HostUp, s.HostDisabled, s.HostForcedDown = tt.host, tt.up, tt.disabled, tt.forced
		c.has(1, s)
		shown := func(who string) any {
			record, _ := c.ask(who, "2.69", "/v2.1/servers/"+s.UUID).body["server"].(map[string]any)
			return record["host_status"]
		}
		testproc.Equal(t, shown(administrator), tt.want, "%+v: %v", tt)
		if got := shown(member); got != nil {
			t.Errorf("%+v: a member gets %v", tt, got)
		}
	}
}

// TestServersOfADownCellLookAsInNova compares minimal records with those of Nova.
func TestServersOfADownCellLookAsInNova(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var records map[string]map[string]any
	testproc.Check(t, json.Unmarshal(recorded, &records))
	for _, tt := range []struct{ name, what, who, path string }{
		{"down-show-member-2.69", "active", member, "/v2.1/servers/" + uuid(1)},
		{"down-show-admin-2.69", "active", administrator, "/v2.1/servers/" + uuid(1)},
		{"down-show-bfv-member-2.69", "bfv", member, "/v2.1/servers/" + uuid(3)},
		{"down-list-member-2.69", "active", member, "/v2.1/servers"},
		{"down-detail-member-2.69", "active", member, "/v2.1/servers/detail"},
	} {
		server := fromNova(t, records["show-"+tt.what+"-admin-2.69"])
		server.Zone = "" // Its host's, which the API database does not know.
		if zone := records[tt.name]["OS-EXT-AZ:availability_zone"]; zone != nil && zone != "UNKNOWN" {
			server.Zone = zone.(string)
		}
		c := newCloud(t, Options{})
		c.has(1, server)
		c.cell(1).fail = refused
		got := c.ask(tt.who, "2.69", tt.path)
		record := got.body["server"]
		if all, is := got.body["servers"].([]any); is {
			record = all[0]
		}
		want := records[tt.name]
		imaged(want)
		if created, has := want["created"]; has { // the mapping's, which the recording's was not made together with
			want["created"] = record.(map[string]any)["created"]
			if created == "" {
				t.Error("Nova's has none")
			}
		}
		testproc.Samef(t, gocmp.Diff(any(want), record), "%s (-Nova +ours)", tt.name)
	}
}

// imaged gives the record of a server that Nova booted from a volume what one has here that was
// booted from no image: clients say "booted from volume" of "".
func imaged(record map[string]any) {
	if record["image"] == "" {
		record["image"] = map[string]any{"id": "no-image",
			"links": []any{map[string]any{"rel": "bookmark", "href": "http://compute/images/no-image"}}}
	}
}

// fromNova reads a server out of what is shown of it to an administrator at 2.69.
func fromNova(t *testing.T, record map[string]any) cellwire.Server {
	t.Helper()
	text := func(key string) string {
		s, _ := record[key].(string)
		return s
	}
	number := func(m map[string]any, key string) int64 { return int64(m[key].(float64)) }
	moment := func(key, layout string) *time.Time {
		if text(key) == "" {
			return nil
		}
		at := testproc.Try(time.Parse(layout, text(key))).Or(t)
		return &at
	}
	flavor := record["flavor"].(map[string]any)
	s := cellwire.Server{
		UUID: text("id"), Name: text("name"), ProjectID: text("tenant_id"), UserID: text("user_id"),
		AccessIPv4: text("accessIPv4"),
		Zone:       text("OS-EXT-AZ:availability_zone"),
		Host:       text("OS-EXT-SRV-ATTR:host"), Node: text("OS-EXT-SRV-ATTR:hypervisor_hostname"),
		Reservation: text("OS-EXT-SRV-ATTR:reservation_id"), Hostname: text("OS-EXT-SRV-ATTR:hostname"),
		UserData: text("OS-EXT-SRV-ATTR:user_data"),
		VMState:  text("OS-EXT-STS:vm_state"), TaskState: text("OS-EXT-STS:task_state"),
		PowerState:  plugins.PowerState(number(record, "OS-EXT-STS:power_state")),
		ConfigDrive: text("config_drive") == "True",
		Locked:      record["locked"].(bool), HostUp: text("host_status") == "UP",
		CreatedAt: *moment("created", time.RFC3339), UpdatedAt: moment("updated", time.RFC3339),
		LaunchedAt:   moment("OS-SRV-USG:launched_at", "2006-01-02T15:04:05.000000"),
		TerminatedAt: moment("OS-SRV-USG:terminated_at", "2006-01-02T15:04:05.000000"),
		LaunchIndex:  int(number(record, "OS-EXT-SRV-ATTR:launch_index")), DiskConfig: text("OS-DCF:diskConfig"),
		Flavor: cellwire.Flavor{
			Flavor: plugins.Flavor{
				Name: flavor["original_name"].(string), VCPUs: number(flavor, "vcpus"), MemoryMB: number(flavor, "ram"),
				RootGB:      number(flavor, "disk"),
				EphemeralGB: number(flavor, "ephemeral"),
				SwapMB:      number(flavor, "swap"), ExtraSpecs: map[string]string{},
			},
		},
		Metadata: map[string]string{},
	}
	for key, value := range record["metadata"].(map[string]any) {
		s.Metadata[key] = value.(string)
	}
	for key, value := range flavor["extra_specs"].(map[string]any) {
		s.Flavor.ExtraSpecs[key] = value.(string)
	}
	for _, tag := range record["tags"].([]any) {
		s.Tags = append(s.Tags, tag.(string))
	}
	if image, is := record["image"].(map[string]any); is {
		s.ImageRef = image["id"].(string)
	}
	if description, is := record["description"].(string); is {
		s.Description = &description
	}
	if certs, is := record["trusted_image_certificates"].([]any); is {
		for _, cert := range certs {
			s.TrustedCerts = append(s.TrustedCerts, cert.(string))
		}
	}
	if fault, is := record["fault"].(map[string]any); is {
		at := testproc.Try(time.Parse(time.RFC3339, fault["created"].(string))).Or(t)
		s.Fault = &cellwire.Fault{Code: int(number(fault, "code")), Message: fault["message"].(string), Created: at}
		s.Fault.Details, _ = fault["details"].(string)
	}
	if name := strings.TrimPrefix(text("OS-EXT-SRV-ATTR:instance_name"), "instance-"); name != "" {
		testproc.Try(fmt.Sscanf(name, "%x", &s.ID)).Or(t)
	}
	return s
}
