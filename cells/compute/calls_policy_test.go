// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"testing"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestPolicyOfEachCall: each call by an administrator, a member, a reader, and a member of another
// project.
func TestPolicyOfEachCall(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	boot := `{"server":{"name":"n1","imageRef":"` + image + `","flavorRef":"1","networks":"none"}}`
	newFlavor := `{"flavor":{"name":"new","id":"new","ram":1,"vcpus":1,"disk":1}}`
	for _, tt := range []struct {
		method, path, body           string
		admin, member, reader, other int
	}{
		{"POST", "/servers", boot, 202, 202, 403, 202},
		{"DELETE", "/servers/" + uuid(1), "", 204, 204, 403, 404},
		{"POST", "/servers/" + uuid(1) + "/action", `{"forceDelete":null}`, 202, 202, 403, 404},
		{"POST", "/servers/" + uuid(2) + "/action", `{"restore":null}`, 202, 202, 403, 404},
		{"POST", "/servers/" + uuid(3) + "/action", `{"reboot":{"type":"HARD"}}`, 202, 202, 403, 404},
		{"PUT", "/servers/" + uuid(1), `{"server":{"name":"n"}}`, 200, 200, 403, 404},
		{"GET", "/servers/" + uuid(1) + "/metadata", "", 200, 200, 200, 404},
		{"POST", "/servers/" + uuid(1) + "/metadata", `{"metadata":{"a":"b"}}`, 200, 200, 403, 404},
		{"PUT", "/servers/" + uuid(1) + "/metadata", `{"metadata":{"a":"b"}}`, 200, 200, 403, 404},
		{"PUT", "/servers/" + uuid(1) + "/metadata/a", `{"meta":{"a":"b"}}`, 200, 200, 403, 404},
		{"GET", "/servers/" + uuid(3) + "/metadata/a", "", 200, 200, 200, 404},
		{"DELETE", "/servers/" + uuid(3) + "/metadata/a", "", 404, 204, 403, 404},
		{"POST", "/servers/" + uuid(1) + "/remote-consoles", `{"remote_console":{"protocol":"serial","type":"serial"}}`,
			200, 200, 403, 404},
		{"GET", "/servers/" + uuid(1) + "/tags", "", 200, 200, 200, 404},
		{"PUT", "/servers/" + uuid(1) + "/tags", `{"tags":["a"]}`, 200, 200, 403, 404},
		{"DELETE", "/servers/" + uuid(1) + "/tags", "", 204, 204, 403, 404},
		{"PUT", "/servers/" + uuid(1) + "/tags/a", "", 204, 201, 403, 404},
		{"GET", "/servers/" + uuid(3) + "/tags/x", "", 204, 204, 204, 404},
		{"DELETE", "/servers/" + uuid(3) + "/tags/x", "", 404, 204, 403, 404},
		{"GET", "/servers/" + uuid(1) + "/os-instance-actions", "", 200, 200, 200, 404},
		{"GET", "/servers/" + uuid(1) + "/os-instance-actions/req-1", "", 200, 200, 200, 404},
		{"GET", "/os-hypervisors", "", 200, 403, 403, 403},
		{"GET", "/os-hypervisors/detail", "", 200, 403, 403, 403},
		{"GET", "/os-hypervisors/statistics", "", 200, 403, 403, 403},
		{"GET", "/os-services", "", 200, 403, 403, 403},
		{"PUT", "/os-services/" + c1h1.UUID, `{"status":"enabled"}`, 200, 403, 403, 403},
		{"DELETE", "/os-services/" + c1h1.UUID, "", 204, 403, 403, 403},
		{"GET", "/os-aggregates", "", 200, 403, 403, 403},
		{"POST", "/os-aggregates", `{"aggregate":{"name":"a"}}`, 200, 403, 403, 403},
		{"GET", "/os-aggregates/1", "", 404, 403, 403, 403},
		{"PUT", "/os-aggregates/1", `{"aggregate":{"name":"a"}}`, 404, 403, 403, 403},
		{"DELETE", "/os-aggregates/1", "", 404, 403, 403, 403},
		{"POST", "/os-aggregates/1/action", `{"add_host":{"host":"h9"}}`, 404, 403, 403, 403},
		{"POST", "/os-aggregates/1/action", `{"remove_host":{"host":"h9"}}`, 404, 403, 403, 403},
		{"POST", "/os-aggregates/1/action", `{"set_metadata":{"metadata":{}}}`, 404, 403, 403, 403},
		{"GET", "/os-availability-zone", "", 200, 200, 200, 200},
		{"GET", "/os-availability-zone/detail", "", 200, 403, 403, 403},
		{"GET", "/os-server-groups", "", 200, 200, 200, 200},
		{"POST", "/os-server-groups", `{"server_group":{"name":"a","policy":"affinity"}}`, 200, 200, 403, 200},
		{"GET", "/os-server-groups/" + uuid(9), "", 404, 404, 404, 404},
		{"DELETE", "/os-server-groups/" + uuid(9), "", 404, 404, 404, 404},
		{"GET", "/os-keypairs", "", 200, 200, 200, 200},
		{"POST", "/os-keypairs", importing("k", ed25519Key), 409, 409, 201, 201},
		{"GET", "/os-keypairs/none", "", 404, 404, 404, 404},
		{"DELETE", "/os-keypairs/none", "", 404, 404, 404, 404},
		{"GET", "/flavors", "", 200, 200, 200, 200},
		{"GET", "/flavors/detail", "", 200, 200, 200, 200},
		{"GET", "/flavors/1", "", 200, 200, 200, 200},
		{"GET", "/flavors/8b1a", "", 200, 404, 404, 404},
		{"POST", "/flavors", newFlavor, 200, 403, 403, 403},
		{"PUT", "/flavors/1", `{"flavor":{"description":"d"}}`, 200, 403, 403, 403},
		{"DELETE", "/flavors/1", "", 202, 403, 403, 403},
		{"GET", "/flavors/1/os-extra_specs", "", 200, 200, 200, 200},
		{"POST", "/flavors/1/os-extra_specs", `{"extra_specs":{}}`, 200, 403, 403, 403},
		{"PUT", "/flavors/1/os-extra_specs/my:a", `{"my:a":"b"}`, 200, 403, 403, 403},
		{"DELETE", "/flavors/2/os-extra_specs/hw:cpu_policy", "", 200, 403, 403, 403},
		{"GET", "/limits", "", 200, 200, 200, 200},
		{"GET", "/limits?tenant_id=p1", "", 200, 403, 403, 403},
		{"GET", "/os-quota-sets/p1", "", 200, 200, 200, 403},
		{"GET", "/os-quota-sets/p1/detail", "", 200, 200, 200, 403},
		{"GET", "/os-quota-sets/p1/defaults", "", 200, 200, 200, 200},
		{"PUT", "/os-quota-sets/p1", `{"quota_set":{"cores":1}}`, 200, 403, 403, 403},
		{"DELETE", "/os-quota-sets/p1", "", 202, 403, 403, 403},
	} {
		c := newCloud(t, Options{})
		c.withCalls()
		c.withFlavors()
		c.has(2, server(1, "s1"))
		soft := server(2, "s2")
		soft.VMState = "soft-delete"
		c.has(2, soft)
		launched := server(3, "s3")
		launched.LaunchedAt, launched.Metadata, launched.Tags = &start, map[string]string{"a": "1"}, []string{"x"}
		c.has(2, launched)
		c.cell(2).actions = []cellwire.Action{{Number: 1,
			Name: cellwire.ActionCreate, Origin: cellwire.Origin{RequestID: "req-1"}}}
		c.servicesOf(1, c1h1)
		// Those who may most come last: what they delete is gone.
		for _, caller := range []struct {
			who    string
			status int
		}{{"nobody", 401}, {member2, tt.other}, {reader, tt.reader}, {member, tt.member}, {administrator, tt.admin}} {
			if got := c.do(caller.who, "2.69", tt.method, "/v2.1"+tt.path, tt.body); got.status != caller.status {
				t.Errorf("%s %s %s: %d %s, not %d", caller.who, tt.method, tt.path, got.status, got.text, caller.status)
			}
		}
	}
}
