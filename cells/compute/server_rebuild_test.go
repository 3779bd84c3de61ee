// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler/cellmappings"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const otherImage = "155d900f-4e14-4e4c-a73d-069cbf4541e6"

// rebuildable is a cloud with a server that ran.
func rebuildable(t *testing.T, change func(*cellwire.Server)) *cloud {
	t.Helper()
	c := newCloud(t, Options{})
	c.withCalls()
	c.do(member, "2.2", "POST", "/v2.1/os-keypairs", importing("new", ed25519Key))
	s := server(1, "s1")
	s.LaunchedAt, s.UserData, s.KeyName, s.KeyData, s.Metadata = &start, "QQ==", "old",
		"ssh-rsa A", map[string]string{"a": "1"}
	if change != nil {
		change(&s)
	}
	c.has(1, s)
	return c
}

const rebuildPath = "/v2.1/servers/00000001-0000-4000-8000-000000000001/action"

// TestRebuild: what the cell is asked for, and which members the answer has in each microversion.
func TestRebuild(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	data := base64.StdEncoding.EncodeToString([]byte("#!/bin/sh\n"))
	for _, tt := range []struct {
		name, version, body string
		want                func(s *cellwire.Server)
		has                 []string
	}{
		{name: "the image alone", version: "2.1", body: `{"rebuild":{"imageRef":"` + otherImage + `"}}`,
			want: func(*cellwire.Server) {}},
		{
			name: "what it is called", version: "2.19",
			body: `{"rebuild":{"imageRef":"` + otherImage +
				`","name":"n","metadata":{"b":"2"},"description":"d","OS-DCF:diskConfig":"AUTO",` +
				`"accessIPv4":"10.0.0.1","adminPass":"p","preserve_ephemeral":false}}`,
			want: func(s *cellwire.Server) {
				s.Name, s.Metadata, s.Description, s.DiskConfig, s.AccessIPv4 =
					"n", map[string]string{"b": "2"}, new("d"), "AUTO", "10.0.0.1"
			},
		},
		{
			name: "another key", version: "2.54",
			body: `{"rebuild":{"imageRef":"` + otherImage + `","key_name":"new"}}`,
			want: func(s *cellwire.Server) { s.KeyName, s.KeyData = "new", ed25519Key }, has: []string{"key_name"},
		},
		{
			name: "no key and no data", version: "2.57",
			body: `{"rebuild":{"imageRef":"` + otherImage + `","key_name":null,"user_data":null}}`,
			want: func(s *cellwire.Server) { s.KeyName, s.KeyData, s.UserData = "", "", "" },
			has:  []string{"key_name", "user_data"},
		},
		{
			name: "other data", version: "2.71", body: `{"rebuild":{"imageRef":"` + otherImage + `","user_data":"` +
				data + `","trusted_image_certificates":null}}`,
			want: func(s *cellwire.Server) { s.UserData = data },
			has:  []string{"key_name", "user_data", "trusted_image_certificates", "server_groups"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := rebuildable(t, nil)
			want := c.cell(1).servers[0]
			want.ImageRef, want.TaskState = otherImage, cellwire.TaskRebuilding
			tt.want(&want)
			got := c.do(member, tt.version, "POST", rebuildPath, tt.body)
			shown, _ := got.body["server"].(map[string]any)
			if got.status != http.StatusAccepted ||
				got.header.Get("Location") != "http://compute/v2.1/servers/"+uuid(1) {
				t.Fatalf("%d %s, at %s", got.status, got.text, got.header.Get("Location"))
			}
			testproc.Samef(t, gocmp.Diff(want, c.cell(1).servers[0]), "the server")
			if shown["status"] != "REBUILD" || shown["name"] != want.Name ||
				shown["image"].(map[string]any)["id"] != otherImage || shown["adminPass"] == "" {
				t.Errorf("the answer is %s", got.text)
			}
			for _, member := range []string{"key_name", "user_data", "trusted_image_certificates", "server_groups"} {
				if _, has := shown[member]; has != slices.Contains(tt.has, member) {
					t.Errorf("%s: %s is there: %v", tt.version, member, has)
				}
			}
			if len(tt.has) > 1 &&
				(shown["key_name"] != api.OrNull(want.KeyName) || shown["user_data"] != api.OrNull(want.UserData)) {
				t.Errorf("key_name %v, user_data %v", shown["key_name"], shown["user_data"])
			}
		})
	}
}

// TestRebuildWithUserDataNeedsItsHost: new user data is sent only to a host that may have it, and
// only if the server is still there. Without new data no host is asked for.
func TestRebuildWithUserDataNeedsItsHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, tt := range map[string]struct {
		members, host string
		err           error
		asked         int
		status        int
		says          string
	}{
		"it may":       {members: `,"user_data":"QUI="`, host: "h1", asked: 1, status: 202},
		"any host may": {members: `,"user_data":"QUI="`, asked: 1, status: 202},
		"it moved meanwhile": {members: `,"user_data":"QUI="`, host: "h2", asked: 1, status: 409,
			says: "conflictingRequest: Instance " + uuid(1) + " has moved to another host. Send the request again."},
		"no person enrolled it": {members: `,"user_data":"QUI="`,
			err: fmt.Errorf("host h1: %w", cellmappings.ErrNotEnrolled), asked: 1, status: 409,
			says: "conflictingRequest: Instance " +
				uuid(1) +
				" is on a host that no administrator has enrolled, which gets no user data. Rebuild it without " +
				"user_data, or ask an administrator to enrol its host."},
		"its cell is down": {members: `,"user_data":"QUI="`, err: gather.ErrDown, asked: 1, status: 500,
			says: "computeFault: NovaException: The server's cell is not responding. Try again when it is back."},
		"the data that it has":     {err: cellmappings.ErrNotEnrolled, status: 202},
		"no data any more":         {members: `,"user_data":null`, err: cellmappings.ErrNotEnrolled, status: 202},
		"empty data":               {members: `,"user_data":""`, err: cellmappings.ErrNotEnrolled, status: 202},
		"a key, and no other data": {members: `,"key_name":"new"`, err: cellmappings.ErrNotEnrolled, status: 202},
	} {
		t.Run(name, func(t *testing.T) {
			c := rebuildable(t, func(s *cellwire.Server) { s.Host = "h1" })
			boots, _ := c.withCalls()
			boots.userDataHost, boots.err = tt.host, tt.err
			before := c.cell(1).servers[0]
			got := c.do(member, "2.71", "POST", rebuildPath, `{"rebuild":{"imageRef":"`+otherImage+`"`+tt.members+`}}`)
			if got.status != tt.status || tt.says != "" && got.message() != tt.says {
				t.Errorf("%d %s, not %d %s", got.status, got.text, tt.status, tt.says)
			}
			if diff := gocmp.Diff(before, c.cell(1).servers[0]); (diff == "") != (tt.status != 202) {
				t.Errorf("the server was changed:\n%s", diff)
			}
			if len(boots.seeded) != tt.asked {
				t.Errorf("asked for the hosts of %v", boots.seeded)
			}
		})
	}
}

// TestRebuildRefused: nothing is changed by what is refused.
func TestRebuildRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	with := func(members string) string { return `{"rebuild":{"imageRef":"` + otherImage + `"` + members + `}}` }
	cannot := func(kind, state string) string {
		return "conflictingRequest: Cannot 'rebuild' instance " + uuid(1) + " while it is in " + kind + " " + state
	}
	for _, tt := range []struct {
		name, who, version, body string
		change                   func(*cellwire.Server)
		fail                     func(*http.Request, int) (*http.Response, error)
		status                   int
		says                     string
	}{
		{name: "it is softly deleted", change: func(s *cellwire.Server) { s.VMState = cellwire.VMSoftDeleted },
			status: 409, says: cannot("vm_state", "soft-delete")},
		{name: "it is rebooted", change: func(s *cellwire.Server) { s.TaskState = "rebooting" }, status: 409,
			says: cannot("task_state", "rebooting")},
		{name: "it was never made",
			change: func(s *cellwire.Server) { s.VMState, s.LaunchedAt = cellwire.VMError, nil }, status: 409,
			says: "conflictingRequest: Instance " + uuid(1) + " is in an invalid state for 'rebuild'"},
		{name: "its host cannot", fail: func(*http.Request, int) (*http.Response, error) {
			return answer(409, `{"code":"unable","message":"`+"The host of instance "+uuid(1)+` cannot rebuild it."}`),
				nil
		}, status: 409, says: "conflictingRequest: The host of instance " + uuid(1) + " cannot rebuild it."},
		{name: "by a reader", who: reader, status: 403,
			says: "forbidden: Policy doesn't allow os_compute_api:servers:rebuild to be performed."},
		{name: "by another project", who: member2, status: 404, says: "itemNotFound: Instance " +
			uuid(1) + " could not be found."},
		{name: "with an unknown key", body: with(`,"key_name":"none"`), status: 400,
			says: "badRequest: Invalid key_name provided."},
		{name: "with the disk", body: with(`,"preserve_ephemeral":true`), status: 400,
			says: "badRequest: preserve_ephemeral: this service cannot keep the ephemeral disk of a server that " +
				"is rebuilt."},
		{name: "with certificates", body: with(`,"trusted_image_certificates":["a"]`), status: 400,
			says: "badRequest: trusted_image_certificates: this service does not validate the signatures of images."},
		{name: "with files", version: "2.56", body: with(`,"personality":[{"path":"/a","contents":"QQ=="}]`),
			status: 400, says: "badRequest: personality: this service does not inject files; use user_data instead."},
		{name: "with no files any more", version: "2.57",
			body: with(`,"personality":[]`), status: 400,
			says: "badRequest: Invalid input for field/attribute rebuild. Value: {'imageRef': '" + otherImage +
				"', 'personality': []}. Additional properties are not allowed ('personality' was unexpected)"},
		{name: "without an image", body: `{"rebuild":{}}`,
			status: 400,
			says: "badRequest: Invalid input for field/attribute rebuild. Value: {}. 'imageRef' is a " +
				"required property"},
		{name: "with a name of an image", body: `{"rebuild":{"imageRef":"debian"}}`, status: 400,
			says: "badRequest: Invalid input for field/attribute imageRef. Value: debian. 'debian' is not a 'uuid'"},
		{name: "with a key before 2.54", version: "2.53",
			body: with(`,"key_name":"new"`), status: 400,
			says: "badRequest: Invalid input for field/attribute rebuild. Value: {'imageRef': '" + otherImage +
				"', 'key_name': 'new'}. Additional properties are not allowed ('key_name' was unexpected)"},
		{name: "its cell is down", fail: refused, status: 500,
			says: "computeFault: NovaException: The server's cell is not responding. Try again when it is back."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := rebuildable(t, tt.change)
			before := c.cell(1).servers[0]
			c.cell(1).fail = tt.fail
			who, version, body := tt.who, tt.version, tt.body
			if who == "" {
				who = member
			}
			if version == "" {
				version = "2.71"
			}
			if body == "" {
				body = with("")
			}
			if got := c.do(who, version, "POST", rebuildPath, body); got.status != tt.status ||
				got.message() != tt.says {
				t.Errorf("%d %s, not %d %s", got.status, got.message(), tt.status, tt.says)
			}
			testproc.Samef(t, gocmp.Diff(before, c.cell(1).servers[0]), "the server was changed")
		})
	}
}
