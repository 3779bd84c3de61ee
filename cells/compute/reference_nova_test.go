// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestNovaFitsTheDocument compares the answers of Nova 26 with the document: a client that is
// written for the one understands the other.
func TestNovaFitsTheDocument(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	seen := map[string]bool{}
	for _, file := range []string{
		"nova_aggregates.json", "nova_create_delete.json",
		"nova_flavors.json", "nova_hypervisors.json", "nova_quotas.json",
		"nova_server_groups.json", "nova_servers.json", "nova_services.json", "nova_versions.json",
	} {
		for _, c := range recordedCalls(t, file) {
			method, path, _ := strings.Cut(c.Request, " ")
			r := httptest.NewRequest(method, "http://compute"+path, strings.NewReader(c.Body))
			r.Header.Set("X-Auth-Token", "u-p1:p1")
			answer := testproc.Try(json.Marshal(c.Answer)).Or(t)
			if c.Answer == nil {
				answer = nil
			}
			wrong := different(r, []byte(c.Body), c.Status, fromNovaAt(c.Version, answer), answer)
			switch why := notInDocument(path); {
			case wrong != nil && why == "":
				t.Errorf("%s %s: %v", file, c.Name, wrong)
			case wrong != nil:
				documented(t, why)
				seen[why] = true
			}
		}
	}
	for _, why := range []string{"there is no v2.0", "there is no access"} {
		if !seen[why] {
			t.Errorf("no recording shows a difference: %s", why)
		}
	}
}

// notInDocument is the difference because of which the answers of a path do not fit the document,
// "" for none.
func notInDocument(path string) string {
	switch {
	case strings.HasPrefix(path, "/v2/"), path == "/v2":
		return "there is no v2.0"
	case strings.HasSuffix(path, "/os-flavor-access"):
		return "there is no access"
	}
	return ""
}

// fromNovaAt are the headers of an answer of Nova's.
func fromNovaAt(version string, answer []byte) http.Header {
	h := http.Header{}
	if len(answer) > 0 {
		h.Set("Content-Type", "application/json")
	}
	switch version {
	case "":
		version = api.MinVersion.String()
	case "latest":
		version = api.MaxVersion.String()
	}
	h.Set("X-OpenStack-Nova-API-Version", version)
	return h
}

// TestServersOfNovaFitTheDocument does so with the servers that Nova 26 showed.
func TestServersOfNovaFitTheDocument(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	data := testproc.Try(recordings.ReadFile("testdata/nova_server_views.json")).Or(t)
	var views map[string]map[string]any
	testproc.Check(t, json.Unmarshal(data, &views))
	for name, server := range views {
		withoutDifferences(t, server)
		view := testproc.Try(json.Marshal(server)).Or(t)
		version := name[strings.LastIndex(name, "-")+1:]
		path, answer := "/v2.1/servers/"+uuid(1), `{"server":`+string(view)+"}"
		switch {
		case strings.HasPrefix(name, "down-list-"):
			path, answer = "/v2.1/servers", `{"servers":[`+string(view)+"]}"
		case strings.HasPrefix(name, "down-detail-"):
			path, answer = "/v2.1/servers/detail", `{"servers":[`+string(view)+"]}"
		}
		r := httptest.NewRequest(http.MethodGet, "http://compute"+path, nil)
		if wrong := different(r, nil, http.StatusOK, fromNovaAt(version, []byte(answer)),
			[]byte(answer)); wrong != nil {
			t.Errorf("%s: %v", name, wrong)
		}
	}
}

// withoutDifferences takes out of a server what it cannot have here.
func withoutDifferences(t *testing.T, server map[string]any) {
	t.Helper()
	documented(t, "a server without an image has one")
	imaged(server)
	documented(t, "there are no volumes")
	if _, has := server["os-extended-volumes:volumes_attached"]; has {
		server["os-extended-volumes:volumes_attached"] = []any{}
	}
	documented(t, "no server has a kernel or a root device")
	for name, value := range map[string]any{"kernel_id": "", "ramdisk_id": "", "root_device_name": nil} {
		if _, has := server["OS-EXT-SRV-ATTR:"+name]; has {
			server["OS-EXT-SRV-ATTR:"+name] = value
		}
	}
}
