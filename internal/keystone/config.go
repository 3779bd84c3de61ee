// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/rs/zerolog"
)

// Method is what the agent proves to Keystone who it is with.
type Method string

// The methods, with the names that Keystone gives them.
const (
	// Password: a user and a password, for a project or the system.
	Password Method = "password"
	// ApplicationCredential: one of a user, by its id, or by its name and the user. It brings its
	// project.
	ApplicationCredential Method = "application_credential"
	// Token: a token from elsewhere. With a project or the system it is traded for one of that
	// scope, which expires with it; without, it is used as it is.
	Token Method = "token"
)

// Config says where Keystone is, who logs in there, and which endpoint of a service to use.
type Config struct {
	// Section is the one of the configuration file that this comes from, such as
	// "placement_client", for hints.
	Section string
	// AuthURL is the address of Keystone, with or without /v3.
	AuthURL string
	Method  Method
	// Username or UserID is the user, for Password and for an application credential that is given
	// by name. A name needs the user's domain.
	Username, UserID, UserDomainName, UserDomainID string
	// ProjectName, with its domain, or ProjectID, or SystemScope is what the token is for.
	ProjectName, ProjectID, ProjectDomainName, ProjectDomainID string
	// SystemScope asks for a token for the whole deployment instead of one for a project.
	SystemScope bool
	// ApplicationCredentialID or ApplicationCredentialName is the application credential.
	ApplicationCredentialID, ApplicationCredentialName string
	// Secret gives the password, the application credential's secret, or the token. It is asked for
	// at each login.
	Secret func() (string, error)

	// Service is the type of the service whose endpoint is wanted, such as "placement". Empty: none
	// is.
	Service string
	// Endpoint is used instead of what the catalog says, which may lack the service then.
	Endpoint string
	// RegionName is the region whose endpoint is wanted. Empty: there is but one.
	RegionName string
	// Interfaces are the interfaces that will do, the best first. Empty: internal, public.
	Interfaces []string

	// Transport carries the requests (nil: one without a proxy), and Timeout bounds each of them
	// (zero: 30 s).
	Transport http.RoundTripper
	Timeout   time.Duration
	// Now and Jitter (0 <= x < 1) are the clock and the dice. Nil: the real ones.
	Now    func() time.Time
	Jitter func() float64
	// Logger takes a line for each login at debug level, without secrets.
	Logger zerolog.Logger
}

// check reports what cannot work, all at once.
func (c *Config) check() error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	switch u, err := url.Parse(c.AuthURL); {
	case c.AuthURL == "":
		bad("the address of Keystone (auth_url) is not given")
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "":
		// The address is not repeated: a password may be in it.
		bad("the address of Keystone is no URL such as https://keystone.example:5000/v3, without a name and a password")
	}
	if c.Secret == nil {
		bad("neither a password (password_file) nor the secret of an application credential " +
			"(application_credential_secret_file) is given")
	}
	switch c.Method {
	case Password:
		c.checkUser(bad)
		if c.scope() == nil {
			bad("a project (its name and domain, or its id) or the system scope is needed")
		}
	case ApplicationCredential:
		switch {
		case c.ApplicationCredentialID == "" && c.ApplicationCredentialName == "":
			bad("the id or the name of the application credential is needed")
		case c.ApplicationCredentialID == "":
			c.checkUser(bad)
		}
	case Token:
	default:
		bad("%q is no way to log in", string(c.Method))
	}
	if c.ProjectName != "" && c.ProjectID == "" && c.ProjectDomainName == "" && c.ProjectDomainID == "" {
		bad("a project that is given by name needs its domain")
	}
	if len(problems) > 0 {
		return fmt.Errorf("%w: %w", ErrConfig, errors.Join(problems...))
	}
	return nil
}

func (c *Config) checkUser(bad func(string, ...any)) {
	switch {
	case c.UserID == "" && c.Username == "":
		bad("a user (its name and domain, or its id) is needed")
	case c.UserID == "" && c.UserDomainName == "" && c.UserDomainID == "":
		bad("a user that is given by name needs its domain")
	}
}

// key returns the name of a setting in the configuration file.
func (c *Config) key(name string) string {
	if c.Section == "" {
		return name
	}
	return c.Section + "." + name
}

// scope is the requested scope of the token, or nil.
func (c *Config) scope() *gophercloud.AuthScope {
	switch {
	case c.SystemScope:
		return &gophercloud.AuthScope{System: true}
	case c.ProjectID != "":
		return &gophercloud.AuthScope{ProjectID: c.ProjectID}
	case c.ProjectName != "" && c.ProjectDomainID != "":
		return &gophercloud.AuthScope{ProjectName: c.ProjectName, DomainID: c.ProjectDomainID}
	case c.ProjectName != "":
		return &gophercloud.AuthScope{ProjectName: c.ProjectName, DomainName: c.ProjectDomainName}
	}
	return nil
}

// options are the login as gophercloud wants it.
func (c *Config) options(secret string) *gophercloud.AuthOptions {
	o := &gophercloud.AuthOptions{IdentityEndpoint: c.AuthURL, Scope: c.scope()}
	if o.Scope == nil {
		o.Scope = &gophercloud.AuthScope{}
	}
	user := func() {
		if o.UserID = c.UserID; o.UserID != "" {
			return
		}
		o.Username = c.Username
		if o.DomainID = c.UserDomainID; o.DomainID == "" {
			o.DomainName = c.UserDomainName
		}
	}
	switch c.Method {
	case Password:
		user()
		o.Password = secret
	case ApplicationCredential:
		o.ApplicationCredentialSecret = secret
		if o.ApplicationCredentialID = c.ApplicationCredentialID; o.ApplicationCredentialID == "" {
			o.ApplicationCredentialName = c.ApplicationCredentialName
			user()
		}
	case Token:
		o.TokenID = secret
	}
	return o
}
