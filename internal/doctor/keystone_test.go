// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// withKeystone has the agent of a healthy host ask a Keystone; catalog is that of
// the token, in which URL stands for Placement's address.
func withKeystone(t *testing.T, answer http.HandlerFunc, catalog string) (*fixture, string) {
	t.Helper()
	f := healthy(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case answer != nil:
			answer(w, r)
		case !strings.Contains(string(body), `"hush"`):
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.Header().Set("X-Subject-Token", "issued")
			w.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprintf(w, `{"token": {"issued_at": "2026-01-01T00:00:00Z", "expires_at": "2026-01-01T01:00:00Z", "user": {"id": "u", "name": "cn1-agent"},
				"project": {"id": "p", "name": "services"}, "roles": [{"name": "service"}, {"name": "member"}], "catalog": %s}}`, strings.ReplaceAll(catalog, "URL", f.address))
		}
	}))
	t.Cleanup(server.Close)
	f.write("/etc/password", "hush\n", 0o600)
	f.config("[agent]\nhost = \"node-1\"\n[drivers.libvirt]\n[placement_client]\nauth = \"keystone\"\nauth_url = \"" +
		server.URL + "/v3\"\n" +
		"username = \"cn1-agent\"\nproject_name = \"services\"\npassword_file = \"/etc/password\"\n")
	f.environ = []string{"COMPUTE_AGENT_PLACEMENT_CLIENT_URL="}
	return f, server.URL
}

// TestKeystone: the checks of whether Keystone answers, takes the credentials and knows Placement
// have different results.
func TestKeystone(t *testing.T) {
	const catalog = `[{"type": "placement", "endpoints": [{"id": "e1", "interface": "internal", "region_id": "R", ` +
		`"url": "URL/"}]}]`
	for name, tc := range map[string]struct {
		answer   http.HandlerFunc
		catalog  string
		breakIt  func(*fixture)
		severity Severity
		found    string // KEYSTONE and URL stand for the addresses.
		fix      string
	}{
		"all is well": {nil, catalog,
			func(*fixture) {}, OK, "URL, microversions up to 1.39, as cn1-agent (roles: member, service)", ""},
		"an address that was set": {nil, `[]`,
			func(f *fixture) { f.environ = nil }, OK, "URL, microversions up to 1.39, as cn1-agent", ""},
		"Keystone does not listen": {nil, catalog, func(f *fixture) {
			f.environ = append(f.environ, "COMPUTE_AGENT_PLACEMENT_CLIENT_AUTH_URL=http://127.0.0.1:1/v3")
		},
			Error, "no process listens at 127.0.0.1:1", "curl -sS -m 10 -D- http://127.0.0.1:1/v3"},
		"no such host": {nil, catalog, func(f *fixture) {
			f.environ = append(f.environ, "COMPUTE_AGENT_PLACEMENT_CLIENT_AUTH_URL=http://keystone.invalid/v3")
		},
			Error, "the name keystone.invalid cannot be resolved", "getent hosts keystone.invalid"},
		"Keystone breaks": {answerWith(500, ""), catalog,
			func(*fixture) {}, Error, "status 500", "curl -sS -m 10 -D- KEYSTONE/v3"},
		"not Keystone": {answerWith(404, "<html>"), catalog,
			func(*fixture) {}, Error, "status 404 for KEYSTONE/v3/auth/tokens", "curl -sS -m 10 -D- KEYSTONE/v3"},
		"a wrong password": {nil, catalog, func(f *fixture) { f.write("/etc/password", "wrong\n", 0o600) }, Error,
			"keystone rejects the credentials (KEYSTONE/v3): status 401", "editor " + configFile},
		"an open password": {nil, catalog,
			func(f *fixture) { f.chmod("/etc/password", 0o644) }, Error, "has mode 0644", "editor " + configFile},
		"no Placement": {nil, `[{"type": "image"}]`,
			func(*fixture) {}, Error, `it has "image", and no service of type placement`,
			"openstack endpoint list --service placement"},
		"another Keystone": {nil, catalog, func(f *fixture) { f.placement = placementServer("1.39", 401, 0) }, Error,
			"does it use the same Keystone", "grep -A 12 keystone_authtoken /etc/placement/placement.conf"},
		"the role is wrong": {nil, catalog,
			func(f *fixture) { f.placement = placementServer("1.39", 403, 0) }, Error,
			"the agent is cn1-agent with the roles member, service",
			"openstack role add --user cn1-agent --project services service"},
	} {
		t.Run(name, func(t *testing.T) {
			testproc.Parallel(t, testproc.Light)
			f, keystone := withKeystone(t, tc.answer, tc.catalog)
			tc.breakIt(f)
			got := result(t, f.examine(), "placement")
			plain := strings.NewReplacer(keystone, "KEYSTONE", f.address, "URL").Replace
			if got.Severity != tc.severity ||
				!strings.Contains(plain(got.Found), tc.found) || plain(got.Fix) != tc.fix {
				t.Errorf("got  %s: %s\n     $ %s\nwant %s: …%s…\n     $ %s",
					got.Severity, plain(got.Found), plain(got.Fix), tc.severity, tc.found, tc.fix)
			}
			if strings.Contains(got.Found+got.Fix+got.Why, "hush") {
				t.Errorf("the password is shown: %+v", got)
			}
		})
	}
}
