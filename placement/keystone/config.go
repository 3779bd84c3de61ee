// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/gophercloud/gophercloud/v2"
)

// ErrConfig is wrapped by all errors about a Config that cannot work.
var ErrConfig = errors.New("invalid Keystone configuration")

// Config says where Keystone is and who asks it about tokens: a user with a password, or an application credential. The
// user needs the role service, or admin, to be told about the tokens of others.
type Config struct {
	// AuthURL is the address of Keystone, with or without /v3.
	AuthURL string
	// ApplicationCredentialID goes before the user, if it is set. Secret is its secret then.
	ApplicationCredentialID string
	// Username, UserDomainName, ProjectName and ProjectDomainName are the user and the project to ask in.
	Username, UserDomainName, ProjectName, ProjectDomainName string
	// Secret gives the password, or the secret of the application credential. It is asked for at each login, so that a
	// secret can be changed while the service runs, and once by New.
	Secret func() (string, error)
	// CAFile has PEM certificates to trust instead of the system's.
	CAFile string

	// WWWAuthenticateURI is where clients are told to get a token. AuthURL when empty.
	WWWAuthenticateURI string
	// Timeout is how long finding out about a token may take. 10 s when zero.
	Timeout time.Duration
	// TokenCacheTime is how long what Keystone says of a token is believed. 300 s when zero.
	TokenCacheTime time.Duration
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

const (
	defaultTimeout   = 10 * time.Second
	defaultCacheTime = 300 * time.Second
)

// login is what is needed to get a token for the service itself.
type login struct {
	options gophercloud.AuthOptions
	tls     *tls.Config
}

// login checks the configuration, and reads the certificates that it names. The secret is still to be filled in.
func (c *Config) login() (login, error) {
	l := login{options: gophercloud.AuthOptions{IdentityEndpoint: c.AuthURL}, tls: &tls.Config{MinVersion: tls.VersionTLS12}}
	switch {
	case c.AuthURL == "":
		return login{}, fmt.Errorf("%w: the address of Keystone (auth_url) is not given", ErrConfig)
	case c.Secret == nil:
		return login{}, fmt.Errorf("%w: neither a password (password_file) nor the secret of an application credential (application_credential_secret_file) is given", ErrConfig)
	case c.ApplicationCredentialID != "":
		l.options.ApplicationCredentialID = c.ApplicationCredentialID
	case c.Username == "" || c.UserDomainName == "" || c.ProjectName == "" || c.ProjectDomainName == "":
		return login{}, fmt.Errorf("%w: a user and a project, each with its domain, or an application credential are needed", ErrConfig)
	default:
		l.options.Username, l.options.DomainName = c.Username, c.UserDomainName
		l.options.Scope = &gophercloud.AuthScope{ProjectName: c.ProjectName, DomainName: c.ProjectDomainName}
	}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return login{}, fmt.Errorf("%w: read the certificates to trust: %w", ErrConfig, err)
		}
		l.tls.RootCAs = x509.NewCertPool()
		if !l.tls.RootCAs.AppendCertsFromPEM(pem) {
			return login{}, fmt.Errorf("%w: %s has no certificates in PEM", ErrConfig, c.CAFile)
		}
	}
	return l, checkURL(c.AuthURL)
}

func checkURL(address string) error {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
		// The address is not repeated: a password may be in it.
		return fmt.Errorf("%w: the address of Keystone is no URL such as https://keystone.example:5000/v3, without a name and a password", ErrConfig)
	}
	return nil
}

// httpClient asks Keystone. It takes no proxy from the environment and follows no redirection: with either, tokens would go
// where nobody meant them to.
func httpClient(config *tls.Config) http.Client {
	return http.Client{
		Transport: &bounded{&http.Transport{
			TLSClientConfig:     config,
			ForceAttemptHTTP2:   true,
			MaxIdleConnsPerHost: maxCalls,
			IdleConnTimeout:     90 * time.Second,
			TLSHandshakeTimeout: defaultTimeout,
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// maxAnswer bounds what Keystone answers, in bytes.
const maxAnswer = 1 << 20

// bounded is a transport whose answers are cut off after maxAnswer bytes.
type bounded struct{ http.RoundTripper }

func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}
