// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/keystone"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/systemd"
)

// Process is what the services of one process share.
type Process struct {
	// Connections limit those of all its servers.
	Connections *osapi.Connections
	// Keystone is the one of the configuration. It is called only if it authenticates clients.
	Keystone keystone.AuthenticatorConfig
}

// ProcessOf is what the services of this process share.
func ProcessOf(cfg *config.Config, log zerolog.Logger) Process {
	limits := osapi.ConnectionLimits{Total: cfg.Server.MaxConnections, PerAddress: cfg.Server.MaxConnectionsPerAddress}
	return Process{
		Connections: osapi.NewConnections(limits, cfg.Server.Proxies()...), Keystone: keystoneConfig(cfg.Keystone, log),
	}
}

// keystoneConfig converts [keystone]. The secret's file is read at each login.
func keystoneConfig(k config.Keystone, log zerolog.Logger) keystone.AuthenticatorConfig {
	c := keystone.AuthenticatorConfig{
		Config: keystone.Config{
			Section: "keystone", AuthURL: k.AuthURL,
			ApplicationCredentialID: k.ApplicationCredentialID, Timeout: k.Timeout,
			Username: k.Username, UserDomainName: k.UserDomainName, ProjectName: k.ProjectName,
			ProjectDomainName: k.ProjectDomainName, Logger: log,
		},
		CAFile: k.CAFile, WWWAuthenticateURI: k.WWWAuthenticateURI, TokenCacheTime: k.TokenCacheTime,
	}
	file := k.PasswordFile
	if k.ApplicationCredentialID != "" {
		file = k.ApplicationCredentialSecretFile
	}
	if file != "" {
		c.Secret = func() (string, error) {
			secret, err := config.ReadSecret(file)
			return secret.Reveal(), err
		}
	}
	return c
}

// OpenAudit opens the audit log that [audit] configures. Close it after the services that use it.
// lazy is for a command on a database that no service has open: a file is made when the command
// changes something.
func OpenAudit(cfg *config.Config, lazy bool, log zerolog.Logger) (*auditlog.Log, error) {
	opts := auditlog.Options{
		File: cfg.AuditFile(), MaxSize: int64(cfg.Audit.MaxSize) << 20, Keep: cfg.Audit.Keep, Sync: cfg.Audit.Sync,
		Required: cfg.Audit.Required, Lazy: lazy && !cfg.Audit.Required, Logger: log,
	}
	if cfg.Audit.Journal {
		opts.Journal = systemd.JournalSocket
	}
	return auditlog.Open(opts)
}

// OpenDenyList opens the list of [deny_list]; nil if none is configured.
//
// Errors: [config.ErrInvalid].
func OpenDenyList(c config.DenyList, log zerolog.Logger) (*pki.DenyFile, error) {
	switch {
	case c.File == "":
		return nil, nil // none is configured
	case c.URL == "":
		denied, err := pki.OpenDenyFile(c.File, log)
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf(
				"%w: deny_list.file: %w; make an empty list with: compute-agent ca deny-list --create --file %s",
				config.ErrInvalid, err, c.File)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: deny_list.file: %w", config.ErrInvalid, err)
		}
		return denied.RefuseAfter(c.AgeLimit()), nil
	}
	transport, err := pki.ClientTLS{CAFile: c.CAFile, MinVersion: tls.VersionTLS13}.Transport(log, nil,
		func(trust *tls.Config) *http.Transport {
			return &http.Transport{
				TLSClientConfig: trust, DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
				TLSHandshakeTimeout:    5 * time.Second,
				MaxResponseHeaderBytes: 64 << 10, DisableKeepAlives: true,
			}
		})
	if err != nil {
		return nil, fmt.Errorf("%w: deny_list.ca_file: %w", config.ErrInvalid, err)
	}
	denied, err := pki.FollowDenyFile(c.File, pki.Source{URL: c.URL, Transport: transport}, log)
	if err != nil {
		return nil, fmt.Errorf("%w: deny_list.url: %w", config.ErrInvalid, err)
	}
	return denied.RefuseAfter(c.AgeLimit()), nil
}
