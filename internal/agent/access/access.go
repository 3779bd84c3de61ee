// SPDX-License-Identifier: Apache-2.0

package access

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/keystone"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/reportclient"
)

// Access is the configuration of a Placement client.
type Access struct {
	// Config is the client's. Its Transport is also used for Keystone. Dial is nil with a proxy,
	// Endpoint if the URL is configured, and Reauthorize without Keystone.
	placementclient.Config
	// Keystone is the Keystone session; nil if not used.
	Keystone *keystone.Session
}

// New returns the access configured in [placement_client]. It makes no requests, and reads
// certificates but no tokens or passwords. A given transport replaces that of the configuration.
//
// Errors: unusable certificate files, with the key.
func New(c config.PlacementClient, transport http.RoundTripper, log zerolog.Logger) (*Access, error) {
	a := &Access{Config: placementclient.Config{
		URL: c.URL, Transport: transport, Authorize: authorizer(c), Timeout: c.Timeout, Retries: c.Retries, Logger: log,
		RequestID: func(ctx context.Context) string {
			return cmp.Or(cellwire.OriginOf(ctx).RequestID, plugins.RequestID(ctx))
		},
	}}
	if transport == nil {
		dialer := &net.Dialer{Timeout: c.ConnectTimeout, KeepAlive: 30 * time.Second}
		made, err := newTransport(c, dialer, log)
		if err != nil {
			return nil, err
		}
		a.Transport = made
		if !c.UseProxy {
			a.Dial = dialer.DialContext
		}
	}
	if c.Auth == config.AuthCertificate {
		// The certificate of a connection may have expired since it was made.
		a.Reauthorize = func(context.Context, http.Header) error {
			a.CloseIdle()
			return nil
		}
	}
	if c.Auth != config.AuthKeystone {
		return a, nil
	}
	session, err := keystone.NewSession(keystoneConfig(c, a.Transport, log))
	if err != nil {
		return nil, fmt.Errorf("[placement_client]: %w", err)
	}
	a.Keystone, a.Authorize, a.Reauthorize = session, session.Authorize, session.Reauthorize
	if c.URL == "" {
		a.Endpoint = session.Endpoint
	}
	return a, nil
}

// ForCommand returns a client of the Placement of [placement_client] for a command, at a
// microversion. It does not retry: an operator waits. The caller closes its idle connections.
//
// Errors: as [New]; an invalid microversion or URL.
func ForCommand(c config.PlacementClient, microversion string) (*placementclient.Client, error) {
	a, err := New(c, nil, zerolog.Nop())
	if err != nil {
		return nil, err
	}
	a.Retries, a.Microversion = 0, microversion
	return placementclient.New(a.Config)
}

// RequestObserver is called for each request to Placement, see [placementclient.Config].Observe.
type RequestObserver = func(ctx context.Context, req *http.Request, route string) (done func(status int, err error))

// NewReportClient returns an agent's client as configured in [placement_client], which records
// reshapes in a journal and says which run of the agent it is of; nil: none. It makes no requests.
func NewReportClient(
	cfg *config.Config, reshapes reportclient.ReshapeLog,
	observe RequestObserver, process *agentruns.ProcessSender, log zerolog.Logger,
) (*reportclient.Client, error) {
	a, err := New(cfg.PlacementClient, nil, log)
	if err != nil {
		return nil, err
	}
	a.Observe, a.Transport = observe, process.Transport(a.Transport)
	return reportclient.New(reportclient.Config{Config: a.Config,
		RefreshInterval: cfg.Tracker.AssociationRefresh, ReshapeLog: reshapes})
}

// CloseIdle closes the idle connections.
func (a *Access) CloseIdle() { (&http.Client{Transport: a.Transport}).CloseIdleConnections() }

func keystoneConfig(c config.PlacementClient, transport http.RoundTripper, log zerolog.Logger) keystone.Config {
	k := c.Keystone
	secret := map[string]struct{ key, file string }{
		config.AuthTypePassword:              {"password_file", k.PasswordFile},
		config.AuthTypeApplicationCredential: {"application_credential_secret_file", k.ApplicationCredentialSecretFile},
		config.AuthTypeToken:                 {"token_file", c.TokenFile},
	}[k.AuthType]
	return keystone.Config{
		Section: "placement_client", Service: wire.ServiceType,
		AuthURL: k.AuthURL, Method: keystone.Method(k.AuthType),
		Username: k.Username, UserID: k.UserID, UserDomainName: k.UserDomainName, UserDomainID: k.UserDomainID,
		ProjectName: k.ProjectName, ProjectID: k.ProjectID,
		ProjectDomainName: k.ProjectDomainName, ProjectDomainID: k.ProjectDomainID,
		SystemScope:             k.SystemScope == config.SystemScopeAll,
		ApplicationCredentialID: k.ApplicationCredentialID, ApplicationCredentialName: k.ApplicationCredentialName,
		Secret: func() (string, error) {
			s, err := config.ReadSecret(secret.file)
			if err != nil {
				return "", fmt.Errorf("placement_client.%s: %w", secret.key, err)
			}
			return s.Reveal(), nil
		},
		Endpoint: c.URL, RegionName: k.RegionName, Interfaces: k.ValidInterfaces,
		Transport: transport, Timeout: c.Timeout, Logger: log,
	}
}

// idleTimeout is how long a connection without requests stays open. The requests of a pass follow
// each other, and the next pass that has any comes minutes later: a connection that waits for it
// costs Placement memory, once for each host.
const idleTimeout = 10 * time.Second

// newTransport returns the HTTP transport with TLS and, if configured, a proxy.
func newTransport(c config.PlacementClient, dialer *net.Dialer, log zerolog.Logger) (http.RoundTripper, error) {
	files := pki.ClientTLS{CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile}
	made, err := files.Transport(log, nil, func(trust *tls.Config) *http.Transport {
		t := &http.Transport{
			DialContext:         dialer.DialContext,
			TLSHandshakeTimeout: c.ConnectTimeout,
			ForceAttemptHTTP2:   true,
			MaxIdleConns:        4,
			IdleConnTimeout:     idleTimeout,
			TLSClientConfig:     trust,
		}
		if c.UseProxy {
			t.Proxy = http.ProxyFromEnvironment
		}
		return t
	})
	if err != nil {
		return nil, withKeys(err,
			func(names ...string) string { return "placement_client." + strings.Join(names, " and ") })
	}
	return made, nil
}

// withKeys names the configuration keys of files that cannot be used.
func withKeys(err error, keys func(names ...string) string) error {
	if errors.Is(err, pki.ErrCertificate) {
		return fmt.Errorf("%s: %w", keys("cert_file", "key_file"), err)
	}
	return fmt.Errorf("%s: %w", keys("ca_file"), err)
}

// authorizer sets the authentication headers without Keystone; nil if there are none. It reads the
// token for each request, so that a renewed one needs no restart.
func authorizer(c config.PlacementClient) func(context.Context, http.Header) error {
	if c.Auth == config.AuthCertificate {
		return nil
	}
	if c.Auth == config.AuthNoauth {
		return func(_ context.Context, h http.Header) error {
			h.Set(wire.HeaderAuthToken, "admin")
			h.Set(wire.HeaderRoles, "admin,service")
			return nil
		}
	}
	return func(_ context.Context, h http.Header) error {
		if c.TokenFile == "" {
			return errors.New("placement_client.token_file is not set")
		}
		return putToken(h, "placement_client.token_file", c.TokenFile)
	}
}

// putToken adds the token of a file to headers; key is the configuration key, for errors.
func putToken(h http.Header, key, file string) error {
	token, err := config.ReadSecret(file)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	h.Set(wire.HeaderAuthToken, token.Reveal())
	return nil
}

// CellCredentials are the credentials of a client of cells.
type CellCredentials struct {
	// Section is the configuration section, and Prefix that of its keys, for errors.
	Section, Prefix                      string
	TokenFile, CAFile, CertFile, KeyFile string
}

// CellsOf returns the compute API's credentials for all cells.
func CellsOf(c config.ComputeAPI) CellCredentials {
	return CellCredentials{"compute_api", "cell_", c.CellTokenFile, c.CellCAFile, c.CellCertFile, c.CellKeyFile}
}

// CellOf returns the agent's credentials for its cell.
func CellOf(c config.CellClient) CellCredentials {
	return CellCredentials{"cell_client", "", c.TokenFile, c.CAFile, c.CertFile, c.KeyFile}
}

// Cell returns the configuration of a client of the cell at url, or an error about the files.
// Tokens are read for each request, and certificates again when they change, so that renewed ones
// need no restart.
func (c CellCredentials) Cell(url string, log zerolog.Logger) (cellclient.Config, error) {
	out := cellclient.Config{
		URL: url, Files: pki.ClientTLS{CAFile: c.CAFile,
			CertFile: c.CertFile, KeyFile: c.KeyFile, MinVersion: cellclient.MinTLS}, Logger: log,
	}
	if c.TokenFile != "" {
		out.Authorize = func(h http.Header) error { return putToken(h, c.keys("token_file"), c.TokenFile) }
	}
	if _, err := out.Files.Config(); err != nil {
		return cellclient.Config{}, withKeys(err, c.keys)
	}
	return out, nil
}

// keys returns the full names of keys.
func (c CellCredentials) keys(names ...string) string {
	whole := make([]string, len(names))
	for i, name := range names {
		whole[i] = c.Section + "." + c.Prefix + name
	}
	return strings.Join(whole, " and ")
}
