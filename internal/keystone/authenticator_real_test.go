// SPDX-License-Identifier: Apache-2.0

package keystone_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/applicationcredentials"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/projects"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/roles"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/users"

	"github.com/compute-agent/compute-agent/internal/keystone"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// usersCloud is a real Keystone, with the project "service" and in it the users "placement" and
// "nova" with the role service and "guest" with the role reader. All have the same password.
type usersCloud struct {
	URL     string
	admin   *gophercloud.ServiceClient
	project string
	users   map[string]string // ids by name
}

func newUsersCloud(t *testing.T) *usersCloud {
	t.Helper()
	c := &usersCloud{URL: testproc.StartKeystone(t), users: map[string]string{}}
	ctx := t.Context()
	c.admin = c.as(t, "admin", "admin")
	project, err := projects.Create(ctx, c.admin, projects.CreateOpts{Name: "service", DomainID: "default"}).Extract()
	testproc.Check(t, err)
	c.project = project.ID
	service := testproc.Try(roles.Create(ctx, c.admin, roles.CreateOpts{Name: "service"}).Extract()).Or(t)
	pages := testproc.Try(roles.List(c.admin, roles.ListOpts{Name: "reader"}).AllPages(ctx)).Or(t)
	readers, err := roles.ExtractRoles(pages)
	if err != nil || len(readers) != 1 {
		t.Fatal(err, readers)
	}
	for name, role := range map[string]string{"placement": service.ID, "nova": service.ID, "guest": readers[0].ID} {
		user, err := users.Create(ctx, c.admin,
			users.CreateOpts{Name: name, DomainID: "default", Password: testproc.KeystonePassword}).Extract()
		testproc.Check(t, err)
		c.users[name] = user.ID
		testproc.Check(t, roles.Assign(ctx, c.admin, role,
			roles.AssignOpts{UserID: user.ID, ProjectID: project.ID}).ExtractErr())
	}
	return c
}

// client is a client of the user that the options name.
func (c *usersCloud) client(t *testing.T, options gophercloud.AuthOptions) *gophercloud.ServiceClient {
	t.Helper()
	options.IdentityEndpoint = c.URL
	provider := testproc.Try(openstack.NewClient(c.URL)).Or(t)
	testproc.Check(t, openstack.AuthenticateV3(t.Context(), provider, &options, gophercloud.EndpointOpts{}))
	return testproc.Try(openstack.NewIdentityV3(provider, gophercloud.EndpointOpts{})).Or(t)
}

// as is a client of a user in a project.
func (c *usersCloud) as(t *testing.T, user, project string) *gophercloud.ServiceClient {
	t.Helper()
	return c.client(t, gophercloud.AuthOptions{
		Username: user, DomainName: "Default", Password: testproc.KeystonePassword,
		Scope: &gophercloud.AuthScope{ProjectName: project, DomainName: "Default"},
	})
}

func TestRealKeystoneValidatesTokens(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newUsersCloud(t)
	var later time.Duration
	cfg := keystone.AuthenticatorConfig{
		Config: keystone.Config{
			AuthURL: c.URL, Username: "placement", UserDomainName: "Default", ProjectName: "service",
			ProjectDomainName: "Default",
			Secret:            func() (string, error) { return testproc.KeystonePassword, nil },
			Timeout:           time.Minute, Now: func() time.Time { return time.Now().Add(later) },
		},
		WWWAuthenticateURI: "https://keystone.example/v3",
	}
	a, err := keystone.NewAuthenticator(cfg)
	testproc.Check(t, err)
	testproc.Check(t, a.Check(t.Context()))
	is := func(token string, want osapi.Principal) {
		t.Helper()
		got, err := a.Authenticate(request(token))
		slices.Sort(got.Roles)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	nova := c.as(t, "nova", "service")
	asNova := osapi.Principal{User: c.users["nova"], Project: c.project, Roles: []string{"service"}}
	is(nova.Token(), asNova)
	is(nova.Token(), asNova)
	is(c.as(t, "guest", "service").Token(),
		osapi.Principal{User: c.users["guest"], Project: c.project, Roles: []string{"reader"}})
	testproc.Equal(t, outcome(t, a, "gAAAAABrubbish"), "401", "rubbish: %s")

	system := c.client(t, gophercloud.AuthOptions{Username: "admin", DomainName: "Default",
		Password: testproc.KeystonePassword, Scope: &gophercloud.AuthScope{System: true}})
	if who, err := a.Authenticate(request(system.Token())); err != nil || !who.SystemScope || who.Project != "" {
		t.Errorf("a token for the system: %+v, %v", who, err)
	}

	// An application credential is its user; one with access rules is refused, since no code here
	// would check the rules.
	for _, rules := range [][]applicationcredentials.AccessRule{nil,
		{{Path: "/traits", Method: "GET", Service: "placement"}}} {
		made, err := applicationcredentials.Create(t.Context(), nova, c.users["nova"],
			applicationcredentials.CreateOpts{
				Name: "agent-" + string(rune('a'+len(rules))), Secret: "s", AccessRules: rules,
			}).Extract()
		testproc.Check(t, err)
		agent := c.client(t,
			gophercloud.AuthOptions{ApplicationCredentialID: made.ID, ApplicationCredentialSecret: "s"})
		if rules == nil {
			is(agent.Token(), asNova)
		} else if got := outcome(t, a, agent.Token()); got != "401" {
			t.Errorf("a token with access rules: %s", got)
		}
	}

	// A token that is revoked works until what is known of it is too old.
	testproc.Check(t, tokens.Revoke(t.Context(), c.admin, nova.Token()).Err)
	is(nova.Token(), asNova)
	later = 300 * time.Second
	testproc.Equal(t, outcome(t, a, nova.Token()), "401", "a revoked token, 300 s later: %s")

	// Only a user with the role service can ask about the tokens of others.
	cfg.Username = "guest"
	if a, err = keystone.NewAuthenticator(cfg); err != nil {
		t.Fatal(err)
	}
	testproc.Equal(t, outcome(t, a, c.admin.Token()), "503", "asked by a guest: %s")
	cfg.Secret = func() (string, error) { return "wrong", nil }
	if a, err = keystone.NewAuthenticator(cfg); err != nil {
		t.Fatal(err)
	}
	if err := a.Check(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "check the user's name, domain and password") {
		t.Errorf("with a wrong password: %v", err)
	}
}
