// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
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
	login := []string{"token_file"} // and the keys of ClientKeystone
	for _, k := range v.cfg.section("placement_client").keys {
		if strings.HasPrefix(k.Field, "keystone.") {
			login = append(login, k.Name)
		}
	}
	if c.Auth != AuthKeystone {
		for _, name := range login[1:] {
			v.useless("placement_client."+name, "while placement_client.auth is "+quote(c.Auth),
				"set auth = \"keystone\"")
		}
		return
	}
	k := c.Keystone
	v.needed(k.AuthURL, "auth_url", "the address of Keystone, such as \"https://keystone.example:5000/v3\"")
	read := []string{"auth_url", "auth_type", "region_name", "valid_interfaces"}
	switch k.AuthType {
	case AuthTypePassword:
		read = append(append(append(read, userKeys...), projectKeys...), "password_file")
		v.user()
		v.needed(k.PasswordFile, "password_file", "the file that holds the user's password")
		if k.ProjectName == "" && k.ProjectID == "" && k.SystemScope == "" {
			v.needed("", "project_name", "the project that the agent's user has its role in, as a rule \"service\"")
		}
	case AuthTypeApplicationCredential:
		read = append(read, "application_credential_id",
			"application_credential_name", "application_credential_secret_file")
		v.needed(k.ApplicationCredentialSecretFile, "application_credential_secret_file",
			"the file that holds the application credential's secret")
		switch {
		case k.ApplicationCredentialID == "" && k.ApplicationCredentialName == "":
			v.needed("", "application_credential_id", "the identifier of the application credential")
		case k.ApplicationCredentialID == "":
			read = append(read, userKeys...)
			v.user()
		default:
			v.checkOneOf("application_credential_id", "application_credential_name")
		}
	case AuthTypeToken:
		read = append(append(read, projectKeys...), "token_file")
		v.needed(c.TokenFile, "token_file", "the file that holds the token")
	}
	v.checkOneOf("project_id", "project_name")
	v.checkOneOf("project_domain_id", "project_domain_name")
	if k.SystemScope != "" {
		v.checkOneOf("system_scope", "project_name")
		v.checkOneOf("system_scope", "project_id")
	}
	for _, key := range login {
		if !slices.Contains(read, key) {
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
	v.checkOneOf("user_id", "username")
	v.checkOneOf("user_domain_id", "user_domain_name")
}

// needed reports a key of [placement_client] that is empty, at the key that makes it needed.
func (v *validator) needed(value, key, what string) {
	if value != "" {
		return
	}
	v.addProblem(v.firstSet("placement_client.auth_type", "placement_client.auth"),
		"asks Keystone for a token, and placement_client."+key+" is empty", "set "+key+" to "+what)
}

// checkOneOf reports two keys of [placement_client] of which one is enough.
func (v *validator) checkOneOf(one, other string) {
	if v.written("placement_client."+one) && v.written("placement_client."+other) {
		v.addProblem("placement_client."+one, "is set together with placement_client."+other, "remove one of them")
	}
}
