// SPDX-License-Identifier: Apache-2.0

package config

import "slices"

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

// DefaultPlacementURL is where Placement is taken to be when nothing else says it.
const DefaultPlacementURL = "http://127.0.0.1:8778"

// resolvePlacementURL fills in where Placement is, unless Keystone's catalogue
// says it.
func (l *loader) resolvePlacementURL() {
	if c := &l.cfg.PlacementClient; c.URL == "" && c.Auth != AuthKeystone {
		c.URL = DefaultPlacementURL
		l.cfg.sources["placement_client.url"] = l.cfg.sources["placement_client.url"].orDefault("")
	}
}

// clientKeystoneKeys are keys of [placement_client].
var clientKeystoneKeys = []key[Config]{
	{"auth_url", restart, "Address of Keystone. This and the keys below are for auth = \"keystone\".",
		text[Config]{at: func(c *Config) *string { return &c.PlacementClient.Keystone.AuthURL },
			words: "a URL such as \"https://keystone.example:5000/v3\"", check: optionalURL}},
	{
		"auth_type",
		restart,
		"How the agent logs in to Keystone: with a user's password, an application credential, or\nthe token in " +
			"token_file, which is exchanged for one of the project below, or used\ndirectly if there is no project.",
		choice[Config]{
			func(c *Config) *string { return &c.PlacementClient.Keystone.AuthType },
			AuthTypePassword,
			[]string{AuthTypePassword, AuthTypeApplicationCredential, AuthTypeToken},
		},
	},
	{"username", restart, "Name of the agent's user, which needs the role service or admin in the project.",
		text[Config]{at: func(c *Config) *string { return &c.PlacementClient.Keystone.Username }, words: "a name"}},
	{"user_id", restart, "Identifier of the user, instead of the name.",
		text[Config]{at: func(c *Config) *string { return &c.PlacementClient.Keystone.UserID },
			words: "an identifier"}},
	{"user_domain_name", restart, "Domain of the user.",
		text[Config]{at: func(c *Config) *string { return &c.PlacementClient.Keystone.UserDomainName },
			def: "Default", words: "a name"}},
	{"user_domain_id", restart, "Identifier of that domain, instead of its name.",
		text[Config]{at: func(c *Config) *string { return &c.PlacementClient.Keystone.UserDomainID },
			words: "an identifier"}},
	{"password_file", restart, "File of the user's password, or the name of a credential.",
		text[Config]{at: func(c *Config) *string { return &c.PlacementClient.Keystone.PasswordFile },
			words: secretWords, check: secretPath}},
	{"project_name", restart, "Project of the token, usually \"service\". An application credential has its own.",
		text[Config]{at: func(c *Config) *string { return &c.PlacementClient.Keystone.ProjectName }, words: "a name"}},
	{"project_id", restart, "Identifier of the project, instead of the name.",
		text[Config]{at: func(c *Config) *string { return &c.PlacementClient.Keystone.ProjectID },
			words: "an identifier"}},
	{"project_domain_name", restart, "Domain of the project.",
		text[Config]{at: func(c *Config) *string { return &c.PlacementClient.Keystone.ProjectDomainName },
			def: "Default", words: "a name"}},
	{"project_domain_id", restart, "Identifier of that domain, instead of its name.",
		text[Config]{at: func(c *Config) *string { return &c.PlacementClient.Keystone.ProjectDomainID },
			words: "an identifier"}},
	{"system_scope", restart, "\"all\" requests a system-scoped token instead of one for a project.",
		choice[Config]{func(c *Config) *string { return &c.PlacementClient.Keystone.SystemScope },
			"", []string{"", SystemScopeAll}}},
	{"application_credential_id", restart, "Identifier of the application credential.",
		text[Config]{at: func(c *Config) *string { return &c.PlacementClient.Keystone.ApplicationCredentialID },
			words: "an identifier"}},
	{"application_credential_name", restart,
		"Name of the application credential, instead of its identifier; the user must be given too.",
		text[Config]{at: func(c *Config) *string { return &c.PlacementClient.Keystone.ApplicationCredentialName },
			words: "a name"}},
	{"application_credential_secret_file", restart, "File of its secret, or the name of a credential.",
		text[Config]{at: func(c *Config) *string { return &c.PlacementClient.Keystone.ApplicationCredentialSecretFile },
			words: secretWords, check: secretPath}},
	{"region_name", restart, "Region of Placement. May be empty if there is only one region.",
		text[Config]{at: func(c *Config) *string { return &c.PlacementClient.Keystone.RegionName }, words: "a name"}},
	{
		"valid_interfaces",
		restart,
		"Acceptable interfaces of Placement's endpoint, in order of preference.",
		list[Config]{
			at:       func(c *Config) *[]string { return &c.PlacementClient.Keystone.ValidInterfaces },
			def:      []string{"internal", "public"},
			words:    "an array of \"internal\", \"public\" and \"admin\", at least one",
			check:    endpointInterface,
			required: true,
		},
	},
}

func endpointInterface(s string) *fault {
	if !slices.Contains([]string{"internal", "public", "admin"}, s) {
		return faultf("write \"internal\", \"public\" or \"admin\"", "%s is not an interface of an endpoint", shown(s))
	}
	return nil
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
		for _, k := range clientKeystoneKeys {
			v.useless(k.name, "while placement_client.auth is "+quote(c.Auth), "set auth = \"keystone\"")
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
	for _, key := range slices.Concat([]string{"token_file"}, names(clientKeystoneKeys)) {
		if !slices.Contains(mine, key) {
			v.useless(key, "with placement_client.auth_type = "+quote(k.AuthType), "change auth_type")
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
	at := "placement_client.auth_type"
	if _, set := v.cfg.sources[at]; !set {
		at = "placement_client.auth"
	}
	v.bad(at, "asks Keystone for a token, and placement_client."+key+" is empty", "set "+key+" to "+what)
}

// either reports two keys of [placement_client] of which one is enough.
func (v *validator) either(one, other string) {
	if v.written("placement_client."+one) && v.written("placement_client."+other) {
		v.bad("placement_client."+one, "is set together with placement_client."+other, "remove one of them")
	}
}

// useless reports a key of [placement_client] that was written and has no effect.
func (v *validator) useless(key, because, hint string) {
	if v.written("placement_client." + key) {
		v.bad("placement_client."+key, "has no effect "+because, hint+", or remove "+key)
	}
}
