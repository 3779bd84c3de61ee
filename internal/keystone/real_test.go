// SPDX-License-Identifier: Apache-2.0

package keystone_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/applicationcredentials"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/endpoints"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/projects"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/roles"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/services"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/users"
	"github.com/gophercloud/gophercloud/v2/pagination"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/keystone"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// cloud is a real Keystone with the project "service", the users "placement" and "agent" with the
// roles service and admin in it (OpenStack's Placement of Debian 12 knows no role service yet), and
// a service "placement" that has no endpoints yet.
type cloud struct {
	URL                     string
	admin                   *gophercloud.ServiceClient
	service, agent, project string
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		testproc.Check(t, err)
		return v
	}
}

func (c *cloud) as(t *testing.T, user, project string) *gophercloud.ServiceClient {
	t.Helper()
	provider := must[*gophercloud.ProviderClient](t)(openstack.NewClient(c.URL))
	options := gophercloud.AuthOptions{
		IdentityEndpoint: c.URL, Username: user, DomainName: "Default", Password: testproc.KeystonePassword,
		Scope: &gophercloud.AuthScope{ProjectName: project, DomainName: "Default"},
	}
	testproc.Check(t, openstack.AuthenticateV3(t.Context(), provider, &options, gophercloud.EndpointOpts{}))
	return must[*gophercloud.ServiceClient](t)(openstack.NewIdentityV3(provider, gophercloud.EndpointOpts{}))
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	ctx := t.Context()
	c := &cloud{URL: testproc.StartKeystone(t)}
	c.admin = c.as(t, "admin", "admin")
	c.project = must[*projects.Project](
		t)(projects.Create(ctx, c.admin, projects.CreateOpts{Name: "service", DomainID: "default"}).Extract()).ID
	service := must[*roles.Role](t)(roles.Create(ctx, c.admin, roles.CreateOpts{Name: "service"}).Extract())
	pages := must[pagination.Page](t)(roles.List(c.admin, roles.ListOpts{Name: "admin"}).AllPages(ctx))
	for _, name := range []string{"placement", "agent"} {
		user := must[*users.User](
			t)(users.Create(ctx, c.admin,
			users.CreateOpts{Name: name, DomainID: "default", Password: testproc.KeystonePassword}).Extract())
		for _, role := range append(must[[]roles.Role](t)(roles.ExtractRoles(pages)), *service) {
			testproc.Check(t, roles.Assign(ctx, c.admin,
				role.ID, roles.AssignOpts{UserID: user.ID, ProjectID: c.project}).ExtractErr())
		}
		c.agent = user.ID
	}
	for _, of := range []string{"identity", "placement"} {
		made := must[*services.Service](
			t)(services.Create(ctx, c.admin, services.CreateOpts{Type: of, Extra: map[string]any{"name": of}}).
			Extract())
		if c.service = made.ID; of == "identity" { // where OpenStack's Placement looks for it
			c.publish(t, gophercloud.AvailabilityInternal, c.URL)
		}
	}
	return c
}

// publish puts an address of Placement into the catalogue.
func (c *cloud) publish(t *testing.T, of gophercloud.Availability, url string) *endpoints.Endpoint {
	t.Helper()
	return must[*endpoints.Endpoint](
		t)(endpoints.Create(t.Context(), c.admin,
		endpoints.CreateOpts{Availability: of, Name: "placement", ServiceID: c.service, URL: url}).Extract())
}

// watched notes the status of what is answered, and with which token it was asked.
type watched struct {
	tokens   []string
	statuses []int
}

func (w *watched) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && !strings.Contains(r.URL.Path, "/auth/tokens") {
		w.tokens, w.statuses = append(w.tokens, r.Header.Get("X-Auth-Token")), append(w.statuses, resp.StatusCode)
	}
	return resp, err
}

// TestRealKeystone: with a real Keystone, and both the bundled Placement and OpenStack's own asking
// it about tokens, the agent's client finds Placement in the catalogue and reports to it; its token
// is revoked meanwhile, and the next write succeeds.
func TestRealKeystone(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t)
	t.Run("credentials", func(t *testing.T) { c.testCredentials(t) })
	t.Run("bundled", func(t *testing.T) {
		now := time.Now
		var later time.Duration
		server := must[*placement.Server](t)(placement.New(t.Context(), placement.Config{
			StateDir: t.TempDir(), Logger: zerolog.Nop(),
			Auth: placement.Auth{Strategy: placement.Keystone,
				Keystone: keystone.AuthenticatorConfig{Config: keystone.Config{
					AuthURL: c.URL, Username: "placement",
					UserDomainName: "Default", ProjectName: "service", ProjectDomainName: "Default",
					Secret: func() (string, error) { return testproc.KeystonePassword, nil }, Timeout: time.Minute,
					Now: func() time.Time { return now().Add(later) },
				}}},
		}))
		defer func() { _ = server.Close() }()
		web := httptest.NewServer(server.Handler())
		defer web.Close()
		// it believes what it knows of a token for a while
		c.testReporting(t, web.URL, func() { later = 10 * time.Minute })
	})
	t.Run("openstack", func(t *testing.T) {
		server := testproc.StartPlacementWithKeystone(t,
			testproc.KeystoneUser{AuthURL: c.URL, User: "placement", Password: testproc.KeystonePassword})
		c.testReporting(t, server.URL, func() {})
	})
}

func (c *cloud) config(transport http.RoundTripper) keystone.Config {
	return keystone.Config{
		Section: "placement_client", Service: "placement",
		AuthURL: c.URL, Method: keystone.Password, Username: "agent", UserDomainName: "Default", ProjectName: "service",
		ProjectDomainName: "Default",
		Secret:            func() (string, error) { return testproc.KeystonePassword, nil },
		Transport:         transport, Timeout: time.Minute,
	}
}

func (c *cloud) testReporting(t *testing.T, url string, forget func()) {
	e := c.publish(t, gophercloud.AvailabilityInternal, url+"/")
	defer func() { _ = endpoints.Delete(t.Context(), c.admin, e.ID).ExtractErr() }()
	wire := &watched{}
	session := must[*keystone.Session](t)(keystone.NewSession(c.config(wire)))
	client := must[*reportclient.Client](t)(reportclient.New(reportclient.Config{Config: placementclient.Config{
		Endpoint: session.Endpoint, Authorize: session.Authorize, Reauthorize: session.Reauthorize, Transport: wire,
		Timeout: time.Minute, Logger: zerolog.Nop(),
	}}))
	const root = "00000000-0000-4000-8000-000000000001"
	report := func(total int64) {
		t.Helper()
		known := must[*providertree.Tree](t)(client.Tree(t.Context(), root, "cn1"))
		desired := known.Clone()
		testproc.Try(desired.SetInventories(root, providertree.Inventories{"VCPU": {Total: total}})).Or(t)
		testproc.Check(t, client.Apply(t.Context(), root, client.Plan(known, desired)))
	}
	report(8)
	first := wire.tokens[0]
	if first == "" || slices.ContainsFunc(wire.tokens, func(s string) bool { return s != first }) ||
		slices.Contains(wire.statuses, http.StatusUnauthorized) {
		t.Fatalf("the first report took %d requests with other tokens, or refused: %v", len(wire.tokens), wire.statuses)
	}
	testproc.Check(t, tokens.Revoke(t.Context(), c.admin, first).Err)
	forget()
	wire.tokens, wire.statuses = nil, nil
	report(16)
	if len(wire.statuses) != 2 || wire.statuses[0] != http.StatusUnauthorized || wire.statuses[1] != http.StatusOK ||
		wire.tokens[0] != first || wire.tokens[1] == first {
		t.Errorf("after the token was revoked: statuses %v, a new token %t",
			wire.statuses, wire.tokens[len(wire.tokens)-1] != first)
	}
	fresh := must[*reportclient.Client](t)(reportclient.New(reportclient.Config{Config: placementclient.Config{
		Endpoint: session.Endpoint, Authorize: session.Authorize, Transport: wire,
		Timeout: time.Minute, Logger: zerolog.Nop(),
	}}))
	tree := must[*providertree.Tree](t)(fresh.Tree(t.Context(), root, "cn1"))
	if i, found := tree.Inventory(root, "VCPU"); !found || i.Total != 16 {
		t.Errorf("Placement has %+v, %t", i, found)
	}
}

// testCredentials: every way to log in gives the identity that it should, and errors name what is
// wrong.
func (c *cloud) testCredentials(t *testing.T) {
	ctx := t.Context()
	identify := func(change func(*keystone.Config)) (keystone.Identity, error) {
		cfg := c.config(http.DefaultTransport)
		change(&cfg)
		return must[*keystone.Session](t)(keystone.NewSession(cfg)).Identify(ctx)
	}
	if _, err := identify(func(*keystone.Config) {}); !errors.Is(err, keystone.ErrCatalog) ||
		!strings.Contains(err.Error(), "placement") {
		t.Errorf("without an endpoint: %v", err)
	}
	e := c.publish(t, gophercloud.AvailabilityPublic, "http://placement.example/placement")
	defer func() { _ = endpoints.Delete(ctx, c.admin, e.ID).ExtractErr() }()
	agent := c.as(t, "agent", "service")
	made := must[*applicationcredentials.ApplicationCredential](
		t)(applicationcredentials.Create(ctx, agent,
		c.agent, applicationcredentials.CreateOpts{Name: "cn1", Secret: "s3"}).Extract())
	credential := func(change func(*keystone.Config)) func(*keystone.Config) {
		return func(cfg *keystone.Config) {
			cfg.Method, cfg.Secret = keystone.ApplicationCredential, func() (string, error) { return "s3", nil }
			change(cfg)
		}
	}
	given := func(cfg *keystone.Config) {
		cfg.Method, cfg.Secret = keystone.Token, func() (string, error) { return agent.Token(), nil }
	}
	for name, change := range map[string]func(*keystone.Config){
		"a password": func(*keystone.Config) {},
		"ids": func(cfg *keystone.Config) {
			cfg.UserID,
				cfg.ProjectID = c.agent, c.project
		},
		"an address without a version": func(cfg *keystone.Config) {
			cfg.AuthURL =
				strings.TrimSuffix(cfg.AuthURL, "/v3")
		},
		"an application credential": credential(
			func(cfg *keystone.Config) { cfg.ApplicationCredentialID = made.ID }),
		"an application credential by name": credential(
			func(cfg *keystone.Config) { cfg.ApplicationCredentialName = "cn1" }),
		"a token that is traded": given,
		"a token that is used":   func(cfg *keystone.Config) { given(cfg); cfg.ProjectName = "" },
	} {
		got, err := identify(change)
		if err != nil || got.User != "agent" || got.Project != "service" || !slices.Contains(got.Roles, "service") ||
			got.Endpoint != "http://placement.example/placement" || time.Until(got.Expires) < 10*time.Minute {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	system, err := identify(func(cfg *keystone.Config) {
		cfg.Username, cfg.ProjectName,
			cfg.SystemScope = "admin", "", true
	})
	if err != nil || system.User != "admin" || system.Project != "" {
		t.Errorf("the system: %+v, %v", system, err)
	}
	for name, change := range map[string]func(*keystone.Config){
		"a wrong password": func(cfg *keystone.Config) {
			cfg.Secret = func() (string, error) {
				return "wrong",
					nil
			}
		},
		"a project without a role": func(cfg *keystone.Config) { cfg.ProjectName = "admin" },
		"a wrong secret":           credential(func(cfg *keystone.Config) { cfg.ApplicationCredentialID = "0" }),
		"a token that is unknown": func(cfg *keystone.Config) {
			given(
				cfg)
			cfg.Secret = func() (string, error) { return "gAAAA", nil }
		},
		"such a token as it is": func(cfg *keystone.Config) {
			given(cfg)
			cfg.ProjectName, cfg.Secret = "", func() (string, error) { return "gAAAA", nil }
		},
		"a domain that does not exist": func(cfg *keystone.Config) { cfg.UserDomainName = "none" },
	} {
		testproc.Try(identify(change)).ErrorIs(t, keystone.ErrCredentials, "%s: %v", name)
	}
	if _, err := identify(
		func(cfg *keystone.Config) { cfg.AuthURL = strings.TrimSuffix(cfg.AuthURL, "v3") + "nowhere" }); err == nil ||
		!strings.Contains(err.Error(), "placement_client.auth_url") {
		t.Errorf("a wrong address: %v", err)
	}
}
