// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestNoAuthBelievesTheRequest(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		headers []string
		want    osapi.Principal
	}{
		"the admin": {[]string{"X-Auth-Token: admin"},
			osapi.Principal{User: "admin", Project: "admin", Roles: []string{"admin"}}},
		"a user":         {[]string{"X-Auth-Token: me"}, osapi.Principal{User: "me", Project: "me"}},
		"with a project": {[]string{"X-Auth-Token: me:ours"}, osapi.Principal{User: "me", Project: "ours"}},
		"project by header": {[]string{"X-Auth-Token: me:ours", "X-Project-Id: theirs"},
			osapi.Principal{User: "me", Project: "theirs"}},
		"roles by header": {[]string{"X-Auth-Token: admin", "X-Roles: Member, reader"},
			osapi.Principal{User: "admin", Project: "admin", Roles: []string{"member", "reader"}}},
		"for the system": {[]string{"X-Auth-Token: admin", "OpenStack-System-Scope: all"},
			osapi.Principal{User: "admin", Roles: []string{"admin"}, SystemScope: true}},
		"for no system": {[]string{"X-Auth-Token: me", "OpenStack-System-Scope: "},
			osapi.Principal{User: "me", Project: "me"}},
		"an empty name": {[]string{"X-Auth-Token: "}, osapi.Principal{}},
		"keystoneauth none": {[]string{"X-Auth-Token: notused"},
			osapi.Principal{User: "notused", Project: "notused", Roles: []string{"admin"}}},
		"admin of a project": {[]string{"X-Auth-Token: admin:p"},
			osapi.Principal{User: "admin", Project: "p", Roles: []string{"admin"}}},
	} {
		r := httptest.NewRequest(http.MethodGet, "/traits", nil)
		for _, line := range c.headers {
			name, value, _ := strings.Cut(line, ": ")
			r.Header.Set(name, value)
		}
		got, err := osapi.NoAuth{}.Authenticate(r)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	if _, err := (osapi.NoAuth{}).Authenticate(httptest.NewRequest(http.MethodGet, "/traits", nil)); !errors.Is(
		err, osapi.ErrUnauthenticated) {
		t.Errorf("without a token: %v", err)
	}
}

func TestPolicy(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	who := map[string]osapi.Principal{
		"admin":        {User: "u", Project: "p", Roles: []string{"admin"}},
		"service":      {User: "u", Project: "p", Roles: []string{"service"}},
		"reader":       {User: "u", Project: "p", Roles: []string{"reader"}},
		"other reader": {User: "u", Project: "q", Roles: []string{"reader"}},
		"member":       {User: "u", Project: "p", Roles: []string{"member"}},
		"system":       {User: "u", Roles: []string{"admin", "service", "reader"}, SystemScope: true},
	}
	for _, c := range []struct {
		defaults api.Defaults
		action   api.Action
		allowed  string
	}{
		{api.Secure, api.ListProviders, "admin service"},
		{api.Secure, api.UpdateAllocations, "admin service"},
		{api.Secure, api.ReshapeProviders, "service"},
		{api.Secure, api.ShowUsages, "admin reader service"},
		{"", api.ReshapeProviders, "service"},
		{api.Legacy, api.ListProviders, "admin service"},
		{api.Legacy, api.ReshapeProviders, "admin service"},
		{api.Legacy, api.ShowUsages, "admin reader service"},
		{api.Open, api.ReshapeProviders, "admin member other reader reader service"},
		{api.Open, api.ShowUsages, "admin member other reader reader service"},
	} {
		policy := testproc.Try(api.NewPolicy(c.defaults)).Or(t)
		var allowed []string
		for _, name := range []string{"admin", "member", "other reader", "reader", "service", "system"} {
			if p := who[name]; policy.Allows(c.action, &p, "p") {
				allowed = append(allowed, name)
			}
		}
		testproc.Equal(t, strings.Join(allowed, " "), c.allowed, "%s, %s: allowed are %q", c.defaults, c.action)
	}
	reader := who["reader"]
	if secure, _ := api.NewPolicy(api.Secure); secure.Allows(api.ShowUsages, &reader, "") {
		t.Error("a reader may see the usages of no project")
	}
	if _, err := api.NewPolicy("strict"); err == nil {
		t.Error("policy defaults that do not exist are taken")
	}
}

// TestPolicyGuardsEveryEndpoint sends each request as a user without roles: all but GET / must be
// refused.
func TestPolicyGuardsEveryEndpoint(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	for _, path := range []string{
		"GET /resource_providers", "POST /resource_providers", "GET /resource_providers/x", "PUT /resource_providers/x",
		"DELETE /resource_providers/x",
		"GET /resource_providers/x/inventories", "PUT /resource_providers/x/inventories",
		"POST /resource_providers/x/inventories", "DELETE /resource_providers/x/inventories",
		"GET /resource_providers/x/inventories/y", "PUT /resource_providers/x/inventories/y",
		"DELETE /resource_providers/x/inventories/y",
		"GET /resource_providers/x/usages", "GET /resource_providers/x/allocations",
		"GET /resource_providers/x/aggregates", "PUT /resource_providers/x/aggregates",
		"GET /resource_providers/x/traits", "PUT /resource_providers/x/traits", "DELETE /resource_providers/x/traits",
		"GET /resource_classes", "POST /resource_classes", "GET /resource_classes/x", "PUT /resource_classes/x",
		"DELETE /resource_classes/x",
		"GET /traits", "GET /traits/x", "PUT /traits/x", "DELETE /traits/x",
		"POST /allocations", "GET /allocations/x", "PUT /allocations/x", "DELETE /allocations/x",
		"GET /usages", "POST /reshaper",
	} {
		method, path, _ := strings.Cut(path, " ")
		call{method: method, path: path, version: "1.39", headers: []string{"X-Auth-Token: user"}, status: 403}.do(t, h)
		call{method: method, path: path, version: "1.39",
			headers: []string{"OpenStack-System-Scope: all"}, status: 403}.do(t, h)
	}
	// The form that a class had before 1.7 asks as well.
	call{method: "PUT", path: "/resource_classes/x",
		version: "1.6", headers: []string{"X-Auth-Token: user"}, status: 403}.do(t, h)
	calls(t, h,
		call{method: "GET", path: "/", version: "1.39", headers: []string{"X-Auth-Token: user"}, status: 200},
		call{method: "GET", path: "/usages?project_id=ours", version: "1.39",
			headers: []string{"X-Auth-Token: me:ours", "X-Roles: reader"}, status: 200},
		call{method: "GET", path: "/usages?project_id=theirs", version: "1.39",
			headers: []string{"X-Auth-Token: me:ours", "X-Roles: reader"}, status: 403},
		call{method: "GET", path: "/usages?zz=%ff",
			version: "1.39", headers: []string{"X-Auth-Token: me:ours", "X-Roles: reader"}, status: 403},
	)
}

// TestRefusedReshapeNamesTheLegacyDefaults: a compute agent whose user has the role admin and not
// service is refused, and both the answer and the server's log say how it can be allowed. What
// legacy defaults would not allow has no such hint.
func TestRefusedReshapeNamesTheLegacyDefaults(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const setting = `[policy] defaults = "legacy"`
	file := filepath.Join(t.TempDir(), "policy.yaml")
	testproc.Check(t, os.WriteFile(file, []byte(`"placement:reshaper:reshape": "role:service"`), 0o600))
	own := testproc.Try(api.OpenPolicy(api.Secure, file, zerolog.Nop())).Or(t)
	legacy := testproc.Try(api.NewPolicy(api.Legacy)).Or(t)
	for name, c := range map[string]struct {
		policy api.Policy
		user   string
		hint   bool
	}{
		"admin":                             {api.Policy{}, "admin", true},
		"no role":                           {api.Policy{}, "user", false},
		"no role under legacy defaults":     {legacy, "user", false},
		"admin, and a file that says no":    {own, "admin", false},
		"admin with a token for the system": {api.Policy{}, "admin system", false},
	} {
		var log bytes.Buffer
		h := newAPI(t, func(cfg *api.Config) { cfg.Policy, cfg.Logger = c.policy, zerolog.New(&log) })
		user, system, _ := strings.Cut(c.user, " ")
		headers := []string{"X-Auth-Token: " + user}
		if system != "" {
			headers = append(headers, "OpenStack-System-Scope: all")
		}
		w := call{method: "POST", path: "/reshaper", version: "1.39", body: `{"inventories":{},"allocations":{}}`,
			headers: headers, status: 403}.do(t, h)
		if detail := errorOf(t, w).Detail; strings.Contains(detail, setting) != c.hint {
			t.Errorf("%s: the answer is %q", name, detail)
		}
		var line struct{ Level, Hint, Path string }
		if err := json.Unmarshal(log.Bytes(), &line); err != nil || line.Path != "/reshaper" {
			t.Fatalf("%s: %v in %s", name, err, &log)
		}
		if strings.Contains(line.Hint, setting) != c.hint || (line.Level == "warn") != c.hint {
			t.Errorf("%s: the line in the log is %s", name, &log)
		}
	}
	call{method: "POST", path: "/reshaper", version: "1.39", body: `{"inventories":{},"allocations":{}}`,
		status: 400}.do(t, newAPI(t, func(cfg *api.Config) { cfg.Policy = legacy }))
}

func TestAnAuthenticatorThatCannotTell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t, func(c *api.Config) { c.Authenticator = unsure{} })
	calls(t, h,
		call{method: "GET", path: "/traits", version: "1.39", status: 503},
		call{method: "GET", path: "/", status: 200},
	)
}

type unsure struct{}

func (unsure) Authenticate(*http.Request) (osapi.Principal, error) {
	return osapi.Principal{}, errors.New("keystone is down")
}

func sum(token string) string {
	s := sha256.Sum256([]byte(token))
	return hex.EncodeToString(s[:])
}

func TestTokens(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	file := "# who may come in\n\n" + sum("s3cret") +
		" service compute-agent service\n" + strings.ToUpper(sum("other")) + " Reader,member me\n"
	auth := testproc.Try(osapi.ReadTokens(strings.NewReader(file), "tokens")).Or(t)
	h := newAPI(t, func(c *api.Config) { c.Authenticator = auth })
	calls(t, h,
		call{method: "GET", path: "/traits", version: "1.39", headers: []string{"X-Auth-Token: s3cret"}, status: 200},
		call{method: "GET", path: "/traits", version: "1.39",
			headers: []string{"-X-Auth-Token", "Authorization: bearer s3cret"}, status: 200},
		call{method: "GET", path: "/traits", version: "1.39",
			headers: []string{"X-Auth-Token: other", "X-Roles: admin"}, status: 403},
		call{method: "GET", path: "/usages?project_id=me",
			version: "1.39", headers: []string{"X-Auth-Token: other"}, status: 200},
		call{method: "GET", path: "/", headers: []string{"-X-Auth-Token"}, status: 200},
	)
	for _, headers := range [][]string{
		{"-X-Auth-Token"}, {"X-Auth-Token: admin"}, {"X-Auth-Token: " + sum("s3cret")},
		{"-X-Auth-Token", "Authorization: Basic s3cret"},
	} {
		w := call{method: "GET", path: "/traits", version: "1.39", headers: headers, status: 401}.do(t, h)
		if got := w.Header().Get("WWW-Authenticate"); !strings.HasPrefix(got, "Bearer") {
			t.Errorf("%v: WWW-Authenticate is %q", headers, got)
		}
	}
}

func TestTokenFilesThatAreNotRight(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, file := range map[string]string{
		"empty":         "# nothing\n",
		"a plain token": "s3cret service me\n",
		"too short":     sum("a")[:62] + " service me\n",
		"not hex":       "zz" + sum("a")[2:] + " service me\n",
		"no user":       sum("a") + " service\n",
		"too much":      sum("a") + " service me project more\n",
		"too many":      strings.Repeat(sum("a")+" service me\n", 1001),
		"endless line":  strings.Repeat("a", 1<<20),
	} {
		_, err := osapi.ReadTokens(strings.NewReader(file), "/etc/tokens")
		testproc.ErrorHas(t, err, "/etc/tokens", "%s: the error is %v", name)
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error shows the token: %v", name, err)
		}
	}
}

func TestCORS(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const good, bad = "http://valid.example.com", "http://invalid.example.com"
	h := newAPI(t, func(c *api.Config) {
		c.CORS = api.CORS{AllowedOrigins: []string{good}, AllowHeaders: []string{"openstack-api-version"}}
	})
	for _, c := range []struct {
		name, method string
		headers      []string
		origin       string // Access-Control-Allow-Origin
		allowHeaders string
	}{
		{"preflight", "OPTIONS", []string{"Origin: " + good, "Access-Control-Request-Method: GET",
			"Access-Control-Request-Headers: OpenStack-API-Version, accept"}, good, "OpenStack-API-Version,accept"},
		{"preflight of another origin", "OPTIONS", []string{"Origin: " + bad, "Access-Control-Request-Method: GET"}, "",
			""},
		{"preflight for an odd method", "OPTIONS", []string{"Origin: " + good, "Access-Control-Request-Method: BREW"},
			"", ""},
		{"preflight for a header that may not be sent",
			"OPTIONS", []string{"Origin: " + good, "Access-Control-Request-Method: GET",
				"Access-Control-Request-Headers: x-auth-token"}, "", ""},
		{"no preflight", "OPTIONS", nil, "", ""},
		{"request", "GET", []string{"Origin: " + good}, good, ""},
		{"request of another origin", "GET", []string{"Origin: " + bad}, "", ""},
		{"request of no origin", "GET", nil, "", ""},
	} {
		w := call{method: c.method, path: "/", headers: c.headers, status: 200}.do(t, h)
		if got := w.Header().Get("Access-Control-Allow-Origin"); got != c.origin {
			t.Errorf("%s: the origin %q is allowed, want %q", c.name, got, c.origin)
		}
		if got := w.Header().Get("Access-Control-Allow-Headers"); got != c.allowHeaders {
			t.Errorf("%s: the headers %q are allowed, want %q", c.name, got, c.allowHeaders)
		}
		if c.method == "GET" && c.headers != nil &&
			!strings.Contains(strings.Join(w.Header().Values("Vary"), ","), "Origin") {
			t.Errorf("%s: Vary is %q", c.name, w.Header().Values("Vary"))
		}
	}
	wild := newAPI(t, func(c *api.Config) { c.CORS = api.CORS{AllowedOrigins: []string{"*"}} })
	w := call{method: "GET", path: "/", headers: []string{"Origin: " + bad}, status: 200}.do(t, wild)
	if w.Header().Get("Access-Control-Allow-Origin") != "*" ||
		w.Header().Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("any origin: %v", w.Header())
	}
}
