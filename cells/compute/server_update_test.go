// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// exchanged is a call about server 1, below its path, and its answer.
type exchanged struct {
	call, body string
	status     int
	answer     string // the body, or the refusal with its name
}

// hold makes calls one after the other.
func (c *cloud) hold(who, version string, calls []exchanged) {
	c.t.Helper()
	for _, call := range calls {
		method, path, _ := strings.Cut(call.call, " ")
		got := c.do(who, version, method, "/v2.1/servers/"+uuid(1)+path, call.body)
		answer := got.text
		if got.status >= 400 {
			answer = got.message()
		}
		if got.status != call.status || answer != call.answer {
			c.t.Errorf("%s %s %s: %d %s, not %d %s",
				who, call.call, call.body, got.status, answer, call.status, call.answer)
		}
	}
}

// marked is a cloud with a server in a state, with an item of metadata and a tag.
func marked(t *testing.T, vm string, cell int) *cloud {
	t.Helper()
	c := newCloud(t, Options{})
	_, quotas := c.withCalls()
	quotas.defaults["metadata_items"] = 3
	s := server(1, "s1")
	s.VMState, s.Metadata, s.Tags, s.LaunchedAt = vm, map[string]string{"a": "1"}, []string{"x"}, &start
	c.has(cell, s)
	return c
}

func TestMetadata(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	gone := "itemNotFound: Metadata item was not found"
	marked(t, cellwire.VMActive, 1).hold(member, "2.1", []exchanged{
		{"GET /metadata", "", 200, `{"metadata":{"a":"1"}}`},
		{"GET /metadata/a", "", 200, `{"meta":{"a":"1"}}`},
		{"GET /metadata/b", "", 404, gone},
		{"POST /metadata", `{"metadata":{"b":"2"}}`, 200, `{"metadata":{"a":"1","b":"2"}}`},
		{"PUT /metadata/a", `{"meta":{"a":"3"}}`, 200, `{"meta":{"a":"3"}}`},
		{"PUT /metadata/a", `{"meta":{"b":"3"}}`, 400, "badRequest: Request body and URI mismatch"},
		{"PUT /metadata/a", `{"meta":{"a":"1","b":"1"}}`,
			400, "badRequest: Invalid input for field/attribute meta. Value: {'a': '1', 'b': '1'}. {'a': '1', 'b': " +
				"'1'} has too many properties"},
		{"GET /metadata", "", 200, `{"metadata":{"a":"3","b":"2"}}`},
		{"POST /metadata", `{"metadata":{"c":"","d":"","a":""}}`, 403,
			"forbidden: Maximum number of metadata items exceeds 3"},
		{"PUT /metadata", `{"metadata":{"c":"","d":"","a":""}}`, 200, `{"metadata":{"a":"","c":"","d":""}}`},
		{"DELETE /metadata/a", "", 204, ""},
		{"DELETE /metadata/a", "", 404, gone},
		{"GET /metadata", "", 200, `{"metadata":{"c":"","d":""}}`},
		{"PUT /metadata", `{"metadata":{}}`, 200, `{"metadata":{}}`},
		{"PUT /metadata", `{}`, 400, "badRequest: 'metadata' is a required property"},
		{"POST /metadata", `{"metadata":{"a":1}}`, 400,
			"badRequest: Invalid input for field/attribute a. Value: 1. 1 is not of type 'string'"},
	})
	cannot := func(action string) string {
		return "conflictingRequest: Cannot '" + action +
			" metadata' instance " + uuid(1) + " while it is in vm_state building"
	}
	for _, cell := range []int{1, nowhere} {
		marked(t, cellwire.VMBuilding, cell).hold(member, "2.1", []exchanged{
			{"GET /metadata", "", 200, `{"metadata":{"a":"1"}}`},
			{"POST /metadata", `{"metadata":{"b":"2"}}`, 409, cannot("update")},
			{"DELETE /metadata/a", "", 409, cannot("delete")},
		})
	}
}

func TestTags(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := marked(t, cellwire.VMStopped, 1)
	c.hold(member, "2.26", []exchanged{
		{"GET /tags", "", 200, `{"tags":["x"]}`},
		{"GET /tags/x", "", 204, ""},
		{"GET /tags/y", "", 404, "itemNotFound: Server " + uuid(1) + " has no tag 'y'"},
		{"PUT /tags/x", "", 204, ""},
		{"PUT /tags/y", "", 201, ""},
		{"PUT /tags/z", "{}", 400, "badRequest: {} is not of type 'null'"},
		{"PUT /tags/a,b", "", 400,
			"badRequest: Tag 'a,b' is invalid. It must be a non empty string without characters '/' and ','. " +
				"Validation error message: 'a,b' does not match '^[^,/]*$'"},
		{"GET /tags", "", 200, `{"tags":["x","y"]}`},
		{"DELETE /tags/x", "", 204, ""},
		{"DELETE /tags/x", "", 404, "itemNotFound: Instance " + uuid(1) + " has no tag 'x'"},
		{"PUT /tags", `{"tags":["q","q","p"]}`, 200, `{"tags":["q","p"]}`},
		{"DELETE /tags", "", 204, ""},
		{"GET /tags", "", 200, `{"tags":[]}`},
		{"PUT /tags", `{"tags":["a/b"]}`, 400,
			"badRequest: Invalid input for field/attribute 0. Value: a/b. 'a/b' does not match '^[^,/]*$'"},
	})
	if got := c.do(member, "2.26", "PUT", "/v2.1/servers/"+uuid(1)+"/tags/t",
		""); got.header.Get("Location") != "http://compute/v2.1/servers/"+uuid(1)+"/tags/t" {
		t.Errorf("the location of a new tag is %q", got.header.Get("Location"))
	}
	var many []string
	for i := range cellwire.MaxTags {
		many = append(many, fmt.Sprintf(`"t%d"`, i))
	}
	all := "[" + strings.Join(many, ",") + "]"
	c.hold(member, "2.69", []exchanged{
		{"PUT /tags", `{"tags":` + all + `}`, 200, `{"tags":` + all + `}`},
		{"PUT /tags/more", "", 400, "badRequest: The number of tags exceeded the per-server limit 50"},
	})
	c.hold(member, "2.25", []exchanged{{"GET /tags", "", 404, "itemNotFound: The resource could not be found."}})
	cannot := func(action string) string {
		return "conflictingRequest: Cannot '" + action + "' instance " + uuid(1) + " while it is in vm_state error"
	}
	marked(t, cellwire.VMError, 0).hold(member, "2.26", []exchanged{
		{"GET /tags", "", 200, `{"tags":["x"]}`},
		{"PUT /tags/y", "", 409, cannot("update tag")},
		{"PUT /tags", `{"tags":["y"]}`, 409, cannot("update tags")},
		{"DELETE /tags/x", "", 409, cannot("delete tag")},
		{"DELETE /tags", "", 409, cannot("delete tags")},
	})
}

// TestUpdate: what can be changed in each microversion, and which members the answer has.
func TestUpdate(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := marked(t, cellwire.VMActive, 1)
	body := func(got reply) map[string]any {
		s, _ := got.body["server"].(map[string]any)
		return s
	}
	path := "/v2.1/servers/" + uuid(1)
	got := body(c.do(member, "2.1", "PUT", path,
		`{"server":{"name":"other","accessIPv4":"10.0.0.1","OS-DCF:diskConfig":"AUTO"}}`))
	if got["name"] != "other" || got["accessIPv4"] != "10.0.0.1" || got["OS-DCF:diskConfig"] != "AUTO" {
		t.Errorf("PUT at 2.1: got %v, want the new name and address", got)
	}
	shown := body(c.ask(member, "2.1", path))
	for _, without := range []string{
		"OS-EXT-AZ:availability_zone", "config_drive", "key_name", "OS-SRV-USG:launched_at", "OS-SRV-USG:terminated_at",
		"OS-EXT-STS:task_state", "OS-EXT-STS:vm_state",
		"OS-EXT-STS:power_state", "os-extended-volumes:volumes_attached",
	} {
		delete(shown, without)
	}
	testproc.Samef(t, gocmp.Diff(shown, got), "(-shown +answered)")
	if got := body(c.do(member, "2.19", "PUT", path, `{"server":{"description":"d"}}`)); got["description"] != "d" ||
		got["name"] != "other" {
		t.Errorf("PUT of a description: got %v, want it beside the same name", got)
	}
	if got := body(c.do(member, "2.19", "PUT", path, `{"server":{"description":null}}`)); got["description"] != nil {
		t.Errorf("PUT of no description: got %v, want null", got)
	}
	for version, want := range map[string]any{"2.70": nil, "2.71": []any{}} {
		if got := body(c.do(member, version, "PUT", path,
			`{"server":{"name":"other"}}`))["server_groups"]; !gocmp.Equal(want, got) {
			t.Errorf("%s: server_groups are %v, not %v", version, got, want)
		}
	}
	c.hold(member, "2.1", []exchanged{
		{"PUT ", `{"server":{"description":"d"}}`, 400,
			"badRequest: Invalid input for field/attribute server. Value: {'description': 'd'}. Additional " +
				"properties are not allowed ('description' was unexpected)"},
		{"PUT ", `{"server":{"name":""}}`, 400,
			"badRequest: Invalid input for field/attribute name. Value: . '' is too short"},
	})
	c.hold(reader, "2.69", []exchanged{{"PUT ", `{"server":{"name":"n"}}`, 403,
		"forbidden: Policy doesn't allow os_compute_api:servers:update to be performed."}})
	c.hold(member2, "2.69", []exchanged{{"PUT ", `{"server":{"name":"n"}}`, 404, "itemNotFound: Instance " +
		uuid(1) + " could not be found."}})
	c.cell(1).fail = refused
	down := "computeFault: NovaException: The server's cell is not responding. Try again when it is back."
	c.hold(member, "2.69", []exchanged{
		{"PUT ", `{"server":{"name":"n"}}`, 500, down},
		{"GET /metadata", "", 500, down}, {"PUT /metadata", `{"metadata":{}}`, 500, down},
		{"PUT /tags", `{"tags":[]}`, 500, down},
	})
	marked(t, cellwire.VMBuilding, nowhere).hold(member, "2.69", []exchanged{
		{"PUT ", `{"server":{"name":"n"}}`, 409, "conflictingRequest: Instance " + uuid(1) + " is not ready"},
	})
	marked(t, cellwire.VMError, 0).hold(member, "2.69", []exchanged{{"GET /tags", "", 200, `{"tags":["x"]}`}})
}
