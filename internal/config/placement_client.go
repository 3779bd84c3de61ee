// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"time"
)

// PlacementClient is the section [placement_client]: the Placement service that
// the agent reports to.
type PlacementClient struct {
	URL            string // Empty only with AuthKeystone: the catalogue says it.
	Auth           string // AuthNoauth, AuthToken, AuthKeystone or AuthCertificate.
	TokenFile      string
	CAFile         string
	CertFile       string
	KeyFile        string
	Timeout        time.Duration
	ConnectTimeout time.Duration
	Retries        int
	UseProxy       bool
	Keystone       ClientKeystone
}

// Values of PlacementClient.Auth.
const (
	AuthNoauth   = "noauth"
	AuthToken    = "token"
	AuthKeystone = "keystone"
	// AuthCertificate sends no token: the certificate of the connection says which host it is.
	AuthCertificate = "certificate"
)

// DefaultPlacementURL is where Placement is taken to be when nothing else says it.
const DefaultPlacementURL = "http://127.0.0.1:8778"

func (p *PlacementClient) section() section {
	return section{"placement_client", []Service{AgentService, ComputeAPIService},
		"The Placement service that the agent reports to and that the compute API asks.",
		slices.Concat([]key{
			{"url", restart, "URL of Placement, including its path. Empty means the endpoint in Keystone's\ncatalog " +
				"with auth = \"keystone\", else " + DefaultPlacementURL + ".",
				text{at: &p.URL, words: "a URL such as \"https://placement.example:8778\"", check: serviceURL}},
			{"auth", restart, "How the agent authenticates: \"noauth\" (Placement with auth_strategy = noauth2, for " +
				"one\nmachine or a test), \"token\" (the token in token_file), \"keystone\" (a token from\nKeystone, " +
				"renewed as needed) or \"certificate\" (the host's certificate in cert_file, for a\nbundled " +
				"Placement with placement_tls.host_ca_file; no token is sent).",
				choice{&p.Auth, AuthNoauth, []string{AuthNoauth, AuthToken, AuthKeystone, AuthCertificate}}},
			tokenFile(&p.TokenFile),
			caFile(&p.CAFile),
			{"cert_file", restart, "File of the agent's own TLS certificate, in PEM, or the name of a credential.",
				secretText(&p.CertFile)},
			keyFile("", &p.KeyFile),
			{"timeout", restart, "Timeout of a request, including the response.",
				duration{at: &p.Timeout, def: 30 * time.Second, min: 100 * time.Millisecond, max: 10 * time.Minute}},
			{"connect_timeout", restart, "Timeout of a connection attempt, including TLS.",
				duration{at: &p.ConnectTimeout, def: 5 * time.Second, min: 100 * time.Millisecond,
					max: 5 * time.Minute}},
			{"retries", restart, "Maximum number of retries of a request that is safe to repeat, after a lost " +
				"connection or\nstatus 429, 502, 503 or 504.", number{at: &p.Retries, def: 3, max: 20}},
			{"use_proxy", restart,
				"Whether to use HTTP_PROXY, HTTPS_PROXY and NO_PROXY. Control planes are rarely behind a\nproxy.",
				toggle{&p.UseProxy, false}},
		}, p.Keystone.keys())}
}

// ClientKeystone is the part of [placement_client] that says who the agent is to
// Keystone, and which of Placement's endpoints it takes from the catalogue.
type ClientKeystone struct {
	AuthURL                         string
	AuthType                        string // AuthTypePassword, AuthTypeApplicationCredential or AuthTypeToken.
	Username                        string
	UserID                          string
	UserDomainName                  string
	UserDomainID                    string
	PasswordFile                    string
	ProjectName                     string
	ProjectID                       string
	ProjectDomainName               string
	ProjectDomainID                 string
	SystemScope                     string // SystemScopeAll, or empty.
	ApplicationCredentialID         string
	ApplicationCredentialName       string
	ApplicationCredentialSecretFile string
	RegionName                      string
	ValidInterfaces                 []string
}

// Values of ClientKeystone.AuthType.
const (
	AuthTypePassword              = "password"
	AuthTypeApplicationCredential = "application_credential"
	AuthTypeToken                 = "token"
)

// SystemScopeAll is the value of ClientKeystone.SystemScope that asks for it.
const SystemScopeAll = "all"

func (k *ClientKeystone) keys() []key {
	return []key{
		{"auth_url", restart, "Address of Keystone. This and the keys below are for auth = \"keystone\".",
			text{at: &k.AuthURL, words: "a URL such as \"https://keystone.example:5000/v3\"", check: serviceURL}},
		{"auth_type", restart, "How the agent logs in to Keystone: with a user's password, an application " +
			"credential, or\nthe token in token_file, which is exchanged for one of the project below, or used\n" +
			"directly if there is no project.",
			choice{&k.AuthType, AuthTypePassword,
				[]string{AuthTypePassword, AuthTypeApplicationCredential, AuthTypeToken}}},
		{"username", restart, "Name of the agent's user, which needs the role service or admin in the project.",
			text{at: &k.Username, words: "a name"}},
		{"user_id", restart, "Identifier of the user, instead of the name.",
			text{at: &k.UserID, words: "an identifier"}},
		{"user_domain_name", restart, "Domain of the user.",
			text{at: &k.UserDomainName, def: "Default", words: "a name"}},
		{"user_domain_id", restart, "Identifier of that domain, instead of its name.",
			text{at: &k.UserDomainID, words: "an identifier"}},
		{"password_file", restart, "File of the user's password, or the name of a credential.",
			secretText(&k.PasswordFile)},
		{"project_name", restart, "Project of the token, usually \"service\". An application credential has its own.",
			text{at: &k.ProjectName, words: "a name"}},
		{"project_id", restart, "Identifier of the project, instead of the name.",
			text{at: &k.ProjectID, words: "an identifier"}},
		{"project_domain_name", restart, "Domain of the project.",
			text{at: &k.ProjectDomainName, def: "Default", words: "a name"}},
		{"project_domain_id", restart, "Identifier of that domain, instead of its name.",
			text{at: &k.ProjectDomainID, words: "an identifier"}},
		{"system_scope", restart, "\"all\" requests a system-scoped token instead of one for a project.",
			choice{&k.SystemScope, "", []string{"", SystemScopeAll}}},
		{"application_credential_id", restart, "Identifier of the application credential.",
			text{at: &k.ApplicationCredentialID, words: "an identifier"}},
		{"application_credential_name", restart,
			"Name of the application credential, instead of its identifier; the user must be given too.",
			text{at: &k.ApplicationCredentialName, words: "a name"}},
		{"application_credential_secret_file", restart, "File of its secret, or the name of a credential.",
			secretText(&k.ApplicationCredentialSecretFile)},
		{"region_name", restart, "Region of Placement. May be empty if there is only one region.",
			text{at: &k.RegionName, words: "a name"}},
		{"valid_interfaces", restart, "Acceptable interfaces of Placement's endpoint, in order of preference.",
			list{at: &k.ValidInterfaces, def: []string{"internal", "public"},
				words: "an array of \"internal\", \"public\" and \"admin\", at least one", check: endpointInterface,
				required: true}},
	}
}

// resolvePlacementURL fills in where Placement is, unless Keystone's catalogue
// says it.
func (l *loader) resolvePlacementURL() {
	if c := &l.cfg.PlacementClient; c.URL == "" && c.Auth != AuthKeystone {
		c.URL = DefaultPlacementURL
		l.cfg.sources["placement_client.url"] = l.cfg.sources["placement_client.url"].orDefault("")
	}
}

var (
	userKeys    = []string{"username", "user_id", "user_domain_name", "user_domain_id"}
	projectKeys = []string{"project_name", "project_id", "project_domain_name", "project_domain_id", "system_scope"}
)

// clientKeystone reports what is missing for a login at Keystone, and what has
// no effect.
func (v *validator) clientKeystone() {
	c := v.cfg.PlacementClient
	if c.Auth != AuthKeystone {
		for _, k := range c.Keystone.keys() {
			v.useless("placement_client."+k.name, "while placement_client.auth is "+quote(c.Auth),
				"set auth = \"keystone\"")
		}
		return
	}
	k := c.Keystone
	v.needed(k.AuthURL, "auth_url", "the address of Keystone, such as \"https://keystone.example:5000/v3\"")
	mine := []string{"auth_url", "auth_type", "region_name", "valid_interfaces"}
	switch k.AuthType {
	case AuthTypePassword:
		mine = append(append(append(mine, userKeys...), projectKeys...), "password_file")
		v.user()
		v.needed(k.PasswordFile, "password_file", "the file that holds the user's password")
		if k.ProjectName == "" && k.ProjectID == "" && k.SystemScope == "" {
			v.needed("", "project_name", "the project that the agent's user has its role in, as a rule \"service\"")
		}
	case AuthTypeApplicationCredential:
		mine = append(mine, "application_credential_id",
			"application_credential_name", "application_credential_secret_file")
		v.needed(k.ApplicationCredentialSecretFile, "application_credential_secret_file",
			"the file that holds the application credential's secret")
		switch {
		case k.ApplicationCredentialID == "" && k.ApplicationCredentialName == "":
			v.needed("", "application_credential_id", "the identifier of the application credential")
		case k.ApplicationCredentialID == "":
			mine = append(mine, userKeys...)
			v.user()
		default:
			v.either("application_credential_id", "application_credential_name")
		}
	case AuthTypeToken:
		mine = append(append(mine, projectKeys...), "token_file")
		v.needed(c.TokenFile, "token_file", "the file that holds the token")
	}
	v.either("project_id", "project_name")
	v.either("project_domain_id", "project_domain_name")
	if k.SystemScope != "" {
		v.either("system_scope", "project_name")
		v.either("system_scope", "project_id")
	}
	for _, key := range slices.Concat([]string{"token_file"}, names(k.keys())) {
		if !slices.Contains(mine, key) {
			v.useless("placement_client."+key, "with placement_client.auth_type = "+quote(k.AuthType),
				"change auth_type")
		}
	}
}

// user reports a user that is missing or given twice.
func (v *validator) user() {
	k := v.cfg.PlacementClient.Keystone
	if k.Username == "" && k.UserID == "" {
		v.needed("", "username", "the name of the agent's user")
	}
	v.either("user_id", "username")
	v.either("user_domain_id", "user_domain_name")
}

// needed reports a key of [placement_client] that is empty, at the key that makes it needed.
func (v *validator) needed(value, key, what string) {
	if value != "" {
		return
	}
	v.bad(v.firstSet("placement_client.auth_type", "placement_client.auth"),
		"asks Keystone for a token, and placement_client."+key+" is empty", "set "+key+" to "+what)
}

// either reports two keys of [placement_client] of which one is enough.
func (v *validator) either(one, other string) {
	if v.written("placement_client."+one) && v.written("placement_client."+other) {
		v.bad("placement_client."+one, "is set together with placement_client."+other, "remove one of them")
	}
}
