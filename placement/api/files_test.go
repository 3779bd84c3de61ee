// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func file(t testing.TB, path, text string) {
	t.Helper()
	testproc.Check(t, os.WriteFile(path, []byte(text), 0o600))
}

func TestATokenFileThatChanges(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "tokens")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		file(t, path, sum("one")+" service me\n")
		auth := testproc.Try(osapi.OpenTokens(path, zerolog.New(&log))).Or(t)
		known := func() string {
			var out []string
			for _, token := range []string{"one", "two"} {
				r := httptest.NewRequest(http.MethodGet, "/traits", nil)
				r.Header.Set("X-Auth-Token", token)
				switch _, err := auth.Authenticate(r); {
				case err == nil:
					out = append(out, token)
				case !errors.Is(err, osapi.ErrUnauthenticated):
					t.Errorf("%s: %v", token, err)
				}
			}
			return strings.Join(out, " ")
		}
		for _, step := range []struct{ file, known, log string }{
			{sum("two") + " service you\n", "two", "Reloaded"},
			{"rubbish\n", "two", "line 1: 1 fields"},
			{sum("one") + " service me\n" + sum("two") + " reader you\n", "one two", "Reloaded"},
		} {
			log.Reset()
			file(t, path, step.file)
			time.Sleep(time.Second)
			testproc.Equal(t, known(), step.known, "%.20q: known are %q", step.file)
			if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), step.log) {
				t.Errorf("%.20q: the log says %s", step.file, log.String())
			}
		}
	})
	if _, err := osapi.OpenTokens(path+".not", zerolog.Nop()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestATokenFileOfOthers: one that other users can read, or that is another user's, is refused at
// the start, and leaves the former tokens in force when it becomes so.
func TestATokenFileOfOthers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "tokens")
	file(t, path, sum("one")+" service me\n")
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o440: true, 0o640: true, 0o644: false,
		0o604: false, 0o660: false, 0o620: false, 0o601: false} {
		testproc.Check(t, os.Chmod(path, mode))
		if _, err := osapi.OpenTokens(path, zerolog.Nop()); (err == nil) != ok || !ok &&
			!strings.Contains(err.Error(), "run: chmod ") {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
	testproc.Check(t, os.Chmod(path, 0o600))
	if os.Geteuid() == 0 {
		testproc.Check(t, os.Chown(path, 65534, -1))
		testproc.Try(osapi.OpenTokens(path, zerolog.Nop())).ErrorHas(t, "belongs to user 65534", "another user's: %v")
		testproc.Check(t, os.Chown(path, 0, -1))
	}
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		auth := testproc.Try(osapi.OpenTokens(path, zerolog.New(&log))).Or(t)
		testproc.Check(t, os.Chmod(path, 0o644))
		time.Sleep(time.Second)
		r := httptest.NewRequest(http.MethodGet, "/traits", nil)
		r.Header.Set("X-Auth-Token", "one")
		if _, err := auth.Authenticate(r); err != nil || !strings.Contains(log.String(), "has mode 0644") {
			t.Errorf("readable for all since the start: %v, the log says %s", err, log.String())
		}
	})
}

// allowedBy is who may do an action by a policy file, out of some people of the project p, asking
// about p.
func allowedBy(policy api.Policy, action api.Action) string {
	var allowed []string
	for _, who := range []struct {
		name string
		osapi.Principal
	}{
		{"admin", osapi.Principal{User: "a", Project: "p", Roles: []string{"admin"}}},
		{"service", osapi.Principal{User: "s", Project: "p", Roles: []string{"service"}}},
		{"reader", osapi.Principal{User: "r", Project: "p", Roles: []string{"reader"}}},
		{"auditor", osapi.Principal{User: "x", Project: "q", Roles: []string{"reader", "auditor"}}},
		{"system", osapi.Principal{User: "y", Roles: []string{"admin", "service"}, SystemScope: true}},
	} {
		if policy.Allows(action, &who.Principal, "p") {
			allowed = append(allowed, who.name)
		}
	}
	return strings.Join(allowed, " ")
}

func TestPolicyFile(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "policy.yaml")
	for _, c := range []struct {
		defaults api.Defaults
		file     string
		allowed  map[api.Action]string
	}{
		{api.Secure, "", map[api.Action]string{api.ListTraits: "admin service", api.ReshapeProviders: "service",
			api.ShowUsages: "admin service reader"}},
		{api.Secure, `"placement:allocations:update": "role:admin or role:service or role:reader"`,
			map[api.Action]string{
				api.UpdateAllocations: "admin service reader auditor", api.DeleteAllocations: "admin service"}},
		{api.Secure, `"placement:reshaper:reshape": "rule:admin_or_service_api"`,
			map[api.Action]string{api.ReshapeProviders: "admin service"}},
		// A base rule that is changed counts for all that refer to it.
		{api.Secure, `"service_api": "user_id:a"`,
			map[api.Action]string{api.ReshapeProviders: "admin", api.ListTraits: "admin service"}},
		{api.Legacy, "", map[api.Action]string{api.ReshapeProviders: "admin service"}},
		{api.Legacy, `"service_api": "role:service"`, map[api.Action]string{api.ReshapeProviders: "service"}},
		// Rules of its own.
		{api.Secure, "context_is_viewer: role:auditor\nplacement:traits:list: rule:context_is_viewer",
			map[api.Action]string{api.ListTraits: "auditor", api.ShowTrait: "admin service"}},
		// The project is that of the request where it has one, else the caller's own; a
		// system-scoped request gets nowhere.
		{api.Secure, "placement:usages: project_id:%(project_id)s\nplacement:traits:list: project_id:%(project_id)s",
			map[api.Action]string{
				api.ShowUsages: "admin service reader", api.ListTraits: "admin service reader auditor"}},
		{api.Secure, "placement:traits:list: '@'\nplacement:traits:show: '!'",
			map[api.Action]string{api.ListTraits: "admin service reader auditor", api.ShowTrait: ""}},
		{api.Open, "placement:traits:list: rule:admin_api",
			map[api.Action]string{api.ListTraits: "admin", api.ShowTrait: "admin service reader auditor"}},
	} {
		file(t, path, c.file)
		policy, err := api.OpenPolicy(c.defaults, path, zerolog.Nop())
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		got := map[api.Action]string{}
		for action := range c.allowed {
			got[action] = allowedBy(policy, action)
		}
		testproc.Samef(t, cmp.Diff(c.allowed, got), "%s, %s", c.defaults, c.file)
	}
}

func TestPolicyFilesThatAreNotRight(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "policy.yaml")
	for _, c := range []struct{ file, says string }{
		{`"placement:allocation:update": "role:admin"`,
			`Placement has no rule "placement:allocation:update", and no rule of the file refers to it; did you ` +
				`mean "placement:allocations:update"?`},
		{`"admin_or_servce_api": "role:admin"`, `did you mean "admin_or_service_api"?`},
		{`"placement:traits:list": "rule:admin_apis"`,
			`rule "placement:traits:list": invalid policy rule: it refers to the rule "admin_apis", which does not ` +
				`exist; did you mean "admin_api"?`},
		{`"admin_api": "rule:admin_or_service_api"` + "\n" + `"admin_or_service_api": "rule:admin_api"`,
			"refers to itself"},
		{`"admin_api": [["role:admin"]]`, "is a list"},
		{"[", "not YAML"},
	} {
		file(t, path, c.file)
		_, err := api.OpenPolicy(api.Secure, path, zerolog.Nop())
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", c.file, err, c.says)
		}
	}
	testproc.Try(api.OpenPolicy("strict", path, zerolog.Nop())).ErrorHas(t, "strict", "defaults that do not exist: %v")
	if _, err := api.OpenPolicy(api.Secure, path+".not", zerolog.Nop()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestAPolicyFileThatChanges(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "policy.yaml")
	synctest.Test(t, func(t *testing.T) {
		file(t, path, "placement:traits:list: role:reader")
		policy := testproc.Try(api.OpenPolicy(api.Secure, path, zerolog.Nop())).Or(t)
		for _, step := range []struct{ file, allowed string }{
			{"", "admin service"},
			{"placement:traits:list: role:admin and and", "admin service"},
			{"placement:traits:list: role:service", "service"},
		} {
			file(t, path, step.file)
			time.Sleep(time.Second)
			testproc.Equal(t, allowedBy(policy, api.ListTraits), step.allowed, "%q: allowed are %q", step.file)
		}
	})
}

func TestCORSOptions(t *testing.T) {
	dbservers.AboutNoDatabase(t)
	testproc.Parallel(t, testproc.Light)
	const origin = "https://dashboard.example"
	ask := []string{"Origin: " + origin, "Access-Control-Request-Method: PUT"}
	for name, c := range map[string]struct {
		cors    api.CORS
		method  string
		headers []string
		want    string // of Allow-Origin, -Credentials, -Methods, -Max-Age and -Expose-Headers
	}{
		"preflight":                    {api.CORS{}, "OPTIONS", ask, origin + " true PUT 3600 -"},
		"preflight for another method": {api.CORS{AllowMethods: []string{"GET"}}, "OPTIONS", ask, "- - - - -"},
		"preflight for a method more": {api.CORS{AllowMethods: []string{"GET", "PUT"}}, "OPTIONS", ask,
			origin + " true PUT 3600 -"},
		"preflight that is remembered": {api.CORS{MaxAge: time.Minute}, "OPTIONS", ask, origin + " true PUT 60 -"},
		"preflight that is forgotten":  {api.CORS{MaxAge: -1}, "OPTIONS", ask, origin + " true PUT - -"},
		"preflight, nothing is exposed": {api.CORS{ExposeHeaders: []string{"X-A"}}, "OPTIONS", ask,
			origin + " true PUT 3600 -"},
		"preflight without credentials": {api.CORS{WithoutCredentials: true},
			"OPTIONS", ask, origin + " - PUT 3600 -"},
		"request": {api.CORS{}, "GET", ask[:1], origin + " true - - -"},
		"request, headers are exposed": {api.CORS{ExposeHeaders: []string{"X-A", "X-B"}}, "GET", ask[:1],
			origin + " true - - X-A,X-B"},
		"request without credentials": {api.CORS{WithoutCredentials: true}, "GET", ask[:1], origin + " - - - -"},
		"request of another origin": {api.CORS{ExposeHeaders: []string{"X-A"}},
			"GET", []string{"Origin: https://evil.example"}, "- - - - -"},
		"request of another of the same": {api.CORS{},
			"GET", []string{"Origin: http://dashboard.example"}, "- - - - -"},
	} {
		c.cors.AllowedOrigins = []string{origin}
		h := newAPI(t, func(cfg *api.Config) { cfg.CORS = c.cors })
		w := call{method: c.method, path: "/", headers: c.headers, status: 200}.do(t, h)
		var got []string
		for _, header := range []string{"Allow-Origin",
			"Allow-Credentials", "Allow-Methods", "Max-Age", "Expose-Headers"} {
			value := w.Header().Get("Access-Control-" + header)
			if value == "" {
				value = "-"
			}
			got = append(got, value)
		}
		testproc.Samef(t, cmp.Diff(c.want, strings.Join(got, " ")), "%s", name)
	}
}

func BenchmarkPolicy(b *testing.B) {
	path := filepath.Join(b.TempDir(), "policy.yaml")
	file(b, path, "placement:traits:list: rule:admin_or_project_reader_or_service_api")
	policy := testproc.Try(api.OpenPolicy(api.Secure, path, zerolog.Nop())).Or(b)
	who := osapi.Principal{User: "u", Project: "p", Roles: []string{"member", "reader"}}
	b.ReportAllocs()
	for b.Loop() {
		if !policy.Allows(api.ListTraits, &who, "") {
			b.Fatal("a reader is not allowed")
		}
	}
}
