// SPDX-License-Identifier: Apache-2.0

package keystone_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/internal/keystone"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestCatalog: which endpoint is taken, and which error is returned where none can be.
func TestCatalog(t *testing.T) {
	endpoint := func(id, of, region, url string) string {
		return fmt.Sprintf(`{"id": %q, "interface": %q, "region_id": %q, "region": %q, "url": %q}`,
			id, of, region, region, url)
	}
	placement := func(endpoints ...string) string {
		return `[{"type": "compute", "endpoints": []}, {"type": "placement", "endpoints": [` +
			strings.Join(endpoints, ", ") + `]}]`
	}
	one := func(url string) string { return placement(endpoint("e9", "internal", "R1", url)) }
	regions := placement(endpoint("e1", "internal", "R1", "http://one"), endpoint("e2", "internal", "R2", "http://two"),
		endpoint("e3", "public", "R3", "http://three"))
	in := func(region string, interfaces ...string) func(*keystone.Config) {
		return func(c *keystone.Config) { c.RegionName, c.Interfaces = region, interfaces }
	}
	cases := []struct {
		name, catalog string
		change        func(*keystone.Config)
		want          string
		says          []string // if there is none
	}{
		{"internal before public", placement(endpoint("e1", "public", "R1", "http://public"),
			endpoint("e2", "internal", "R1", "http://internal")), in(""), "http://internal", nil},
		{"public if there is no internal",
			placement(endpoint("e1", "admin", "R1", "http://admin"), endpoint("e2", "public", "R1", "http://public")),
			in(""), "http://public", nil},
		{"as wished", placement(endpoint("e1", "admin", "R1", "http://admin"),
			endpoint("e2", "public", "R1", "http://public")), in("", "admin"), "http://admin", nil},
		{"a path", one("http://controller/placement"), in(""), "http://controller/placement", nil},
		{"slashes", one(" https://controller:8778/placement// "), in(""), "https://controller:8778/placement", nil},
		{"IPv6", one("http://[fd00::1]:8778"), in(""), "http://[fd00::1]:8778", nil},
		{"a path that only looks like a version", one("http://controller/v1/placement"), in(""),
			"http://controller/v1/placement", nil},
		{"the same twice", placement(endpoint("e1", "internal", "R1", "http://one"),
			endpoint("e2", "internal", "R1", "http://one/")), in(""), "http://one", nil},
		{"a region", regions, in("R2"), "http://two", nil},
		{"a region with another interface only", regions, in("R3"), "http://three", nil},
		{"an old region field", strings.ReplaceAll(one("http://one"), `"region_id": "R1", `, ""),
			in("R1"), "http://one", nil},

		{"no catalogue", `[]`, in(""), "", []string{"it is empty"}},
		{"null", `null`, in(""), "", []string{"it is empty"}},
		{"no Placement", `[{"type": "compute"}, {"type": "identity"}, {"type": "compute"}]`, in(""),
			"", []string{`it has "compute", "identity", and no service of type placement`, "openstack service create"}},
		{"no endpoints", placement(), in(""), "", []string{"has no endpoints"}},
		{"several regions", regions, in(""), "", []string{`"R1", "R2"`, "placement_client.region_name"}},
		{"no such region", regions, in("r1"), "", []string{`region "r1" has none`, `"R1", "R2", "R3"`}},
		{"no such interface", regions, in("R1", "public", "admin"),
			"", []string{`"admin", "public"`, `there are "internal"`, "valid_interfaces"}},
		{"two of one kind", placement(endpoint("e1", "internal", "R1", "http://one"),
			endpoint("e2", "internal", "R1", "http://two")), in(""), "", []string{"http://one and http://two"}},
		{"no URL", one(""), in(""),
			"", []string{"the internal endpoint e9 has no URL",
				"openstack endpoint set --url http://HOST:PORT/PATH e9"}},
		{"no http", one("ftp://controller/"), in(""), "", []string{"ftp://controller/", "neither http nor https"}},
		{"no scheme", one("controller:8778"), in(""), "", []string{"controller:8778"}},
		{"no host", one("http:///placement"), in(""), "", []string{"http:///placement"}},
		{"not even a URL", one("http://a b"), in(""), "", []string{"neither http nor https"}},
		{"a version", one("http://controller:8778/v1.0/"),
			in(""), "", []string{"http://controller:8778/v1.0/", "version v1.0 at its end"}},
		{"a placeholder", one("http://controller:8778/$(project_id)s"), in(""), "", []string{"placeholder"}},
		{"an old placeholder", one("http://controller:8778/%(tenant_id)s"), in(""), "", []string{"placeholder"}},
		{"a query", one("http://controller:8778/?a=b"), in(""), "", []string{"more than a path"}},
		{"a password", one("http://u:pw-in-url@controller:8778"), in(""), "", []string{"user name or password"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			f.catalog = c.catalog
			s, _, _ := session(t, f, c.change)
			got, err := s.Endpoint(t.Context())
			if c.want != "" {
				if err != nil || got != c.want {
					t.Errorf("got %q, %v, want %q", got, err, c.want)
				}
				return
			}
			if !errors.Is(err, keystone.ErrCatalog) || strings.Contains(err.Error(), "pw-in-url") {
				t.Fatalf("got %q, %v", got, err)
			}
			for _, says := range c.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%q is missing: %v", says, err)
				}
			}
			// It is put right, and found at the next try.
			f.change(func(f *fake) { f.catalog = one("http://right") })
			s2, err := s.Endpoint(t.Context())
			if c.name != "no such region" && c.name != "no such interface" && (err != nil || s2 != "http://right") {
				t.Errorf("after it was put right: %q, %v", s2, err)
			}
		})
	}
}

// TestCatalogProperty: of any catalogue, what is taken is an http URL of the wished region and the
// best interface there, and an error is short, whatever is in the catalogue.
func TestCatalogProperty(t *testing.T) {
	f := newFake(t)
	rapid.Check(t, func(t *rapid.T) {
		type endpoint struct {
			ID        string `json:"id"`
			Interface string `json:"interface"`
			Region    string `json:"region"`
			URL       string `json:"url"`
		}
		endpoints := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) endpoint {
			return endpoint{
				ID: "e", Interface: rapid.SampledFrom([]string{"internal", "public", "admin", ""}).Draw(t, "interface"),
				Region: rapid.SampledFrom([]string{"R1", "R2", strings.Repeat("long", 1000)}).Draw(t, "region"),
				URL: rapid.OneOf(rapid.SampledFrom([]string{"http://a", "http://b/", "https://c/placement"}),
					rapid.String()).Draw(t, "url"),
			}
		}), 0, 30).Draw(t, "endpoints")
		catalog := testproc.Try(json.Marshal([]any{map[string]any{"type": "placement", "endpoints": endpoints}})).Or(t)
		f.change(func(f *fake) { f.catalog = string(catalog) })
		s := newSession(t, f)
		got, err := s.Endpoint(t.Context())
		if err != nil {
			if !errors.Is(err, keystone.ErrCatalog) || len(err.Error()) > 3000 {
				t.Fatalf("%d bytes: %.3000v", len(err.Error()), err)
			}
			return
		}
		best, found := "public", false
		for _, e := range endpoints {
			if e.Region == "R1" && e.Interface == "internal" {
				best = "internal"
			}
		}
		for _, e := range endpoints {
			found = found || e.Region == "R1" &&
				e.Interface == best && strings.TrimRight(strings.TrimSpace(e.URL), "/") == got
		}
		if !found || !strings.HasPrefix(got, "http") {
			t.Fatalf("%q is taken", got)
		}
	})
}

func newSession(t *rapid.T, f *fake) *keystone.Session {
	s := testproc.Try(keystone.NewSession(keystone.Config{
		Section: "placement_client", Service: "placement",
		AuthURL: f.URL, Method: keystone.Password, Username: "agent", UserDomainName: "Default", ProjectName: "service",
		ProjectDomainName: "Default",
		Secret:            func() (string, error) { return secret, nil },
		Transport:         f.Client().Transport, RegionName: "R1",
	})).Or(t)
	return s
}
