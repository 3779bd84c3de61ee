// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/osapi/oslopolicy"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestMicroversions: which one a request gets, which is echoed, and how those are refused that are
// none.
func TestMicroversions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	for _, tt := range []struct {
		name             string
		standard, legacy []string
		status           int
		echo, says       string
	}{
		{name: "none", status: 200, echo: "2.1"},
		{name: "a version", standard: []string{"compute 2.69"}, status: 200, echo: "2.69"},
		{name: "latest", standard: []string{"compute latest"}, status: 200, echo: api.MaxVersion.String()},
		{name: "only the old header", legacy: []string{"2.26"}, status: 200, echo: "2.26"},
		{name: "both", standard: []string{"compute 2.47"}, legacy: []string{"2.26"}, status: 200, echo: "2.47"},
		{name: "another service's", standard: []string{"volume 3.1"}, status: 200, echo: "2.1"},
		{name: "several services", standard: []string{"volume 3.1, compute 2.5", "placement 1.2"}, status: 200,
			echo: "2.5"},
		{name: "the last counts", standard: []string{"compute 2.5", "compute 2.6"}, status: 200, echo: "2.6"},
		{name: "spaces", standard: []string{"  compute   2.5 "}, status: 200, echo: "2.5"},
		{name: "no service", standard: []string{"2.5"}, status: 200, echo: "2.1"},
		{
			name: "too high", standard: []string{"compute 2.999"}, status: 406, echo: "2.999",
			says: "computeFault: Version 2.999 is not supported by the API. Minimum is 2.1 and maximum is " +
				api.MaxVersion.String() + ".",
		},
		{
			name: "too low", standard: []string{"compute 2.0"}, status: 406, echo: "2.0",
			says: "computeFault: Version 2.0 is not supported by the API. Minimum is 2.1 and maximum is " +
				api.MaxVersion.String() + ".",
		},
		{
			name: "another API", standard: []string{"compute 3.1"}, status: 406, echo: "3.1",
			says: "computeFault: Version 3.1 is not supported by the API. Minimum is 2.1 and maximum is " +
				api.MaxVersion.String() + ".",
		},
		{
			name: "a word", standard: []string{"compute abc"}, status: 400,
			says: "badRequest: API Version String abc is of invalid format. Must be of format MajorNum.MinorNum.",
		},
		{
			name: "a leading zero", standard: []string{"compute 2.01"}, status: 400,
			says: "badRequest: API Version String 2.01 is of invalid format. Must be of format MajorNum.MinorNum.",
		},
		{
			name: "no minor number", legacy: []string{"2"}, status: 400,
			says: "badRequest: API Version String 2 is of invalid format. Must be of format MajorNum.MinorNum.",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/v2.1/servers", nil)
			r.Header.Set("X-Auth-Token", "u:p1")
			r.Header["Openstack-Api-Version"] = tt.standard
			if tt.legacy != nil {
				r.Header.Set("X-OpenStack-Nova-API-Version", tt.legacy[0])
			}
			got := c.send(r)
			if got.status != tt.status || got.message() != tt.says {
				t.Errorf("%d %s, not %d %s", got.status, got.message(), tt.status, tt.says)
			}
			standard, vary := "", []string(nil)
			if tt.echo != "" {
				standard, vary = "compute "+tt.echo, []string{"OpenStack-API-Version", "X-OpenStack-Nova-API-Version"}
			}
			if h := got.header; h.Get("OpenStack-API-Version") != standard ||
				h.Get("X-OpenStack-Nova-API-Version") != tt.echo {
				t.Errorf("echoed are %q and %q, not %q",
					h.Get("OpenStack-API-Version"), h.Get("X-OpenStack-Nova-API-Version"), tt.echo)
			}
			testproc.Samef(t, gocmp.Diff(vary, got.header.Values("Vary")), "Vary")
		})
	}
}

// TestEveryAnswerHasARequestID: in both headers, and a new one each time.
func TestEveryAnswerHasARequestID(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	form := regexp.MustCompile(`^req-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for _, path := range []string{"/v2.1/servers", "/v2.1/servers", "/v2.1/nothing", "/v2.1/servers/abc"} {
		got := c.ask(member, "", path)
		id := got.header.Get("X-Openstack-Request-Id")
		if !form.MatchString(id) || seen[id] || got.header.Get("X-Compute-Request-Id") != id {
			t.Errorf("%s: the ids are %q and %q", path, id, got.header.Get("X-Compute-Request-Id"))
		}
		seen[id] = true
	}
}

// TestRefusedBeforeAHandler: who is not known, what is no path, and what is no method of it.
func TestRefusedBeforeAHandler(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	const project = "0123456789abcdef0123456789abcdef"
	for _, tt := range []struct {
		name, method, path, token string
		status                    int
		says                      string
	}{
		{"no token", "GET", "/v2.1/servers", "", 401, "unauthorized: The request has no X-Auth-Token header."},
		{"no token and no such path", "GET", "/v2.1/nothing", "", 401,
			"unauthorized: The request has no X-Auth-Token header."},
		{"no such path", "GET", "/v2.1/nothing", "u:p1", 404, "itemNotFound: The resource could not be found."},
		{
			"the hosts of Nova", "GET", "/v2.1/os-hosts", "u:p1", 404,
			"itemNotFound: This service has no os-hosts: `openstack compute service list` and `openstack hypervisor " +
				"list` show the hosts.",
		},
		{"networks with the project", "GET", "/v2.1/" + project + "/os-networks", "u:" + project, 404,
			"itemNotFound: This service does not support os-networks; docs/cells.md lists the calls that it has."},
		{"the ports of a server", "GET", "/v2.1/servers/abc/os-interface", "u:p1", 404,
			"itemNotFound: This service does not support os-interface; docs/cells.md lists the calls that it has."},
		{"a volume of a server", "PUT", "/v2.1/servers/abc/os-volume_attachments/d", "u:p1", 404,
			"itemNotFound: This service does not support os-volume_attachments; docs/cells.md lists the calls " +
				"that it has."},
		{"the projects of a flavor", "GET", "/v2.1/flavors/1/os-flavor-access", "u:p1", 404,
			"itemNotFound: This service does not support os-flavor-access; docs/cells.md lists the calls that it has."},
		{"no such resource of a server", "GET", "/v2.1/servers/abc/nothing", "u:p1", 404,
			"itemNotFound: The resource could not be found."},
		{"another method for what only Nova has", "POST",
			"/v2.1/os-hosts", "u:p1", 404,
			"itemNotFound: This service has no os-hosts: `openstack compute service list` and `openstack hypervisor " +
				"list` show the hosts."},
		{"a slash too many", "GET", "/v2.1/servers/", "u:p1", 404, "itemNotFound: The resource could not be found."},
		{"a path without end", "GET", "/v2.1/servers" + strings.Repeat("/a", 1000), "u:p1", 404,
			"itemNotFound: The resource could not be found."},
		{"no such method", "PATCH", "/v2.1/servers/detail",
			"u:p1", 405, "badMethod: The method PATCH is not allowed for this resource."},
		{"with the project", "GET", "/v2.1/" + project + "/servers", "u:" + project, 200, ""},
		{"with a project that is a name", "GET", "/v2.1/demo/servers", "u:demo", 200, ""},
		{
			"with another project", "GET", "/v2.1/0a-1b/servers", "u:p1", 400,
			"badRequest: Malformed request URL: URL's project_id '0a-1b' doesn't match Context's project_id 'p1'",
		},
		{"with what cannot be a project", "GET", "/v2.1/xyz/servers", "u:p1", 404,
			"itemNotFound: The resource could not be found."},
		{"a query that cannot be read", "GET", "/v2.1/servers?a=%zz", "u:p1", 400,
			`badRequest: The query of the request cannot be read: invalid URL escape "%zz".`},
		{"a query that is too long", "GET", "/v2.1/servers?name=" + strings.Repeat("a", 70000), "u:p1", 414,
			"computeFault: The query has 70005 bytes; this server reads at most 65536."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(tt.method, tt.path, nil)
			if tt.token != "" {
				r.Header.Set("X-Auth-Token", tt.token)
			}
			got := c.send(r)
			if got.status != tt.status || got.message() != tt.says {
				t.Errorf("%d %s, not %d %s", got.status, got.message(), tt.status, tt.says)
			}
			if allow := got.header.Get("Allow"); tt.status == 405 && allow != "GET" {
				t.Errorf("Allow is %q", allow)
			}
		})
	}
}

// TestProjectInLinks: links have the project where the path has it, and the endpoint that is
// configured.
func TestProjectInLinks(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, tt := range []struct{ endpoint, path, self, bookmark, next string }{
		{"", "/v2.1/servers", "http://compute/v2.1/servers/", "http://compute/servers/",
			"http://compute/v2.1/servers?"},
		{"", "/v2.1/p1/servers", "http://compute/v2.1/p1/servers/", "http://compute/p1/servers/",
			"http://compute/v2.1/p1/servers?"},
		{"https://api.example/compute/", "/v2.1/servers", "https://api.example/compute/v2.1/servers/",
			"https://api.example/compute/servers/", "https://api.example/compute/v2.1/servers?"},
	} {
		c := newCloud(t, Options{Endpoint: tt.endpoint})
		s := c.has(1, server(1, "a"))
		got := c.ask(member, "2.1", tt.path+"?limit=1&sort_dir=asc")
		link := func(from any, n int) any { return from.([]any)[n].(map[string]any)["href"] }
		links := got.body["servers"].([]any)[0].(map[string]any)["links"]
		if link(links, 0) != tt.self+s.UUID || link(links, 1) != tt.bookmark+s.UUID ||
			link(got.body["servers_links"], 0) != tt.next+"limit=1&sort_dir=asc&marker="+s.UUID {
			t.Errorf("%s at %q: %s", tt.path, tt.endpoint, got.text)
		}
	}
}

// TestPanicIsAnswered: a bug costs its own request alone, and the log has the stack.
func TestPanicIsAnswered(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	c.api.service.Routes = api.NewRoutes(
		[]api.Route{{Method: "GET", Path: "/v2.1/bug", Handle: func(*api.Exchange) error { panic("boom") }}})
	got := c.ask(member, "", "/v2.1/bug")
	id := got.header.Get("X-Openstack-Request-Id")
	if got.status != 500 ||
		got.message() !=
			"computeFault: Unexpected API Error. The log of the compute API says more, under the request id "+id+"." {
		t.Errorf("a call that panics: got %d %s, want 500 with the request id", got.status, got.text)
	}
	if log := c.logged.String(); !strings.Contains(log, "boom") ||
		!strings.Contains(log, "api_test.go") || !strings.Contains(log, id) {
		t.Errorf("the log says\n%s", log)
	}
}

// thingsPath is that of a call that is in no reference.
const thingsPath = "/v2.1/things"

// TestBodies: what is no JSON object, is too large, or of another type, is refused in Nova's words.
func TestBodies(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	c.api.service.Routes = api.NewRoutes(
		[]api.Route{{Method: "POST", Path: thingsPath, Body: api.Always(jsonkit.Schema{jsonkit.Type("object")}),
			Handle: func(x *api.Exchange) error {
				return x.Empty(http.StatusAccepted)
			}}})
	for _, tt := range []struct {
		name, kind, body string
		status           int
		says             string
	}{
		{"an object", "application/json", `{"a": "<&>"}`, 202, ""},
		{"of no type", "", `{}`, 202, ""},
		{"a list", "application/json", `[]`, 400, "badRequest: [] is not of type 'object'"},
		{"null", "application/json", `null`, 400, "badRequest: None is not of type 'object'"},
		{"nothing", "application/json", ``, 400, "badRequest: None is not of type 'object'"},
		{"half", "application/json", `{"a":`, 400, "badRequest: Malformed request body"},
		{"XML", "application/xml", `<a/>`, 415, "badMediaType: Unsupported Content-Type"},
		{"too large", "application/json", `{"a":"` + strings.Repeat("a", maxBody) + `"}`, 413,
			"overLimit: Request is too large. Larger than max_request_body_size (114688)."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, length := range []bool{true, false} {
				r := httptest.NewRequest(http.MethodPost, thingsPath, strings.NewReader(tt.body))
				r.Header.Set("X-Auth-Token", "u:p1")
				r.Header.Set("Content-Type", tt.kind)
				if !length {
					r.ContentLength = -1
				}
				if got := c.send(r); got.status != tt.status || tt.says != "" && got.message() != tt.says {
					t.Errorf("%d %s, not %d %s", got.status, got.text, tt.status, tt.says)
				}
			}
		})
	}
}

// TestRoles: what the roles may, and that admin implies member and member reader.
func TestRoles(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	s := c.has(1, server(1, "a"))
	for _, tt := range []struct {
		token, roles string
		path         string
		status       int
		says         string
	}{
		{"u:p1", "reader", "/v2.1/servers", 200, ""},
		{"u:p1", "member", "/v2.1/servers/detail", 200, ""},
		{"u:p1", "MEMBER", "/v2.1/servers/" + s.UUID, 200, ""},
		{"u:p1", "other", "/v2.1/servers", 403,
			"forbidden: Policy doesn't allow os_compute_api:servers:index to be performed."},
		{"u:p1", "other", "/v2.1/servers/detail", 403,
			"forbidden: Policy doesn't allow os_compute_api:servers:detail to be performed."},
		{"u:p1", "other", "/v2.1/servers/" + s.UUID, 403,
			"forbidden: Policy doesn't allow os_compute_api:servers:show to be performed."},
		{"u:p2", "admin", "/v2.1/servers/" + s.UUID, 200, ""},
		{"u:p2", "member", "/v2.1/servers/" + s.UUID, 404, "itemNotFound: Instance " + s.UUID + " could not be found."},
		{"u:p1", "", "/v2.1/servers", 200, ""}, // believed to be a member, as with noauth2
		{"admin", "", "/v2.1/servers?all_tenants=1", 200, ""},
		{"u:p2:Admin,other", "", "/v2.1/servers/" + s.UUID, 200, ""},
		{"u:p1:reader", "", "/v2.1/servers/" + s.UUID, 200, ""},
		{"u:p1:other", "", "/v2.1/servers", 403,
			"forbidden: Policy doesn't allow os_compute_api:servers:index to be performed."},
		{"admin:p2:reader", "", "/v2.1/servers/" + s.UUID,
			404, "itemNotFound: Instance " + s.UUID + " could not be found."},
	} {
		r := httptest.NewRequest(http.MethodGet, tt.path, nil)
		r.Header.Set("X-Auth-Token", tt.token)
		if tt.roles != "" {
			r.Header.Set("X-Roles", tt.roles)
		}
		if got := c.send(r); got.status != tt.status || got.message() != tt.says {
			t.Errorf("%s as %s: %d %s", tt.path, tt.roles, got.status, got.text)
		}
	}
	system := httptest.NewRequest(http.MethodGet, "/v2.1/servers", nil)
	system.Header.Set("X-Auth-Token", "admin")
	system.Header.Set("Openstack-System-Scope", "all")
	testproc.Equal(t, c.send(system).status, 403, "with a token for the system: %d")
}

// unable cannot find out who sends a request.
type unable struct{}

func (unable) Authenticate(*http.Request) (osapi.Principal, error) {
	return osapi.Principal{}, errors.New("keystone is down")
}

// TestUnavailableAuthenticatorIs503: that is the service's fault, and passes.
func TestUnavailableAuthenticatorIs503(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	c.api.service.Authenticator = unable{}
	if got := c.ask(member, "", "/v2.1/servers"); got.status != 503 || got.header.Get("Retry-After") == "" {
		t.Errorf("a call without an authenticator: got %d %s, want 503 with Retry-After", got.status, got.text)
	}
	testproc.Contains(t, c.logged.String(), "keystone is down", "the log says %s")
}

// TestPolicyFileOfNova: rules of Nova's for calls that are not there have no effect, which the log
// says, and no others are refused for them.
func TestPolicyFileOfNova(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path, logged := filepath.Join(t.TempDir(), "policy.yaml"), bytes.Buffer{}
	testproc.Check(t, os.WriteFile(path, []byte(`
admin_api: "role:boss"
project_manager_api: "role:manager and project_id:%(project_id)s"
mine: "rule:project_manager_api or rule:only_novas"
"os_compute_api:os-attach-interfaces:create": "rule:mine or rule:project_manager_or_admin"
"compute:servers:resize:cross_cell": "!"
"os_compute_api:servers:indx": "@"
"os_compute_api:servers:index": "rule:ours"
ours: "role:member"
`), 0o600))
	policy := testproc.Try(OpenPolicy(path, zerolog.New(&logged))).Or(t)
	c := newCloud(t, Options{})
	c.api.service.Policy = policy
	for who, want := range map[string]int{member: 200, reader: 403} {
		if got := c.ask(who, "2.69", "/v2.1/servers"); got.status != want {
			t.Errorf("%s gets %d %s", who, got.status, got.text)
		}
	}
	const want = `"rules":["compute:servers:resize:cross_cell","os_compute_api:os-attach-interfaces:create",` +
		`"os_compute_api:servers:indx"]`
	if text := logged.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, want) {
		t.Errorf("the log says %s", text)
	}
}

// TestPolicyFile: rules of a file go before the defaults, words stand for the roles, and what would
// have no effect is refused.
func TestPolicyFile(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	open := func(text string) (*api.Policy, error) {
		path := filepath.Join(t.TempDir(), "policy.yaml")
		testproc.Check(t, os.WriteFile(path, []byte(text), 0o600))
		return OpenPolicy(path, zerolog.Nop())
	}
	const rule = "os_compute_api:servers:index:get_all_tenants"
	for text, allowed := range map[string]map[string]bool{
		"{}":                {administrator: true, member: false, reader: false},
		rule + `: "admin"`:  {administrator: true, member: false, reader: false},
		rule + `: "member"`: {administrator: true, member: true, reader: false},
		rule + `: reader`:   {administrator: true, member: true, reader: true},
		rule + `: "@"`:      {administrator: true, member: true, reader: true},
		rule + `: "!"`:      {administrator: false, member: false, reader: false},
		rule + `: "rule:mine"` + "\nmine: role:member": {administrator: true, member: true, reader: false},
		rule + `: "project_id:p1 and not role:admin"`:  {administrator: false, member: true, reader: true},
	} {
		policy, err := open(text)
		testproc.Checkf(t, err, "%s", text)
		c := newCloud(t, Options{})
		c.api.service.Policy = policy
		for who, want := range allowed {
			// The rule is asked for when the filter counts, which it does for all.
			if got := c.ask(who, "2.69", "/v2.1/servers?all_tenants=1"); (got.status == 200) != want {
				t.Errorf("%s: %s gets %d %s", text, who, got.status, got.text)
			}
		}
	}
	for text, says := range map[string]string{
		"indx: '@'":                `no rule "indx"`,
		"mine: '@'":                `no rule "mine"`,
		rule + ": 'role:a role:b'": "role:b",
		rule + ": members":         "members",
	} {
		if _, err := open(text); !errors.Is(err, oslopolicy.ErrRule) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
