// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent/access"
	"github.com/compute-agent/compute-agent/internal/keystone"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/reportclient"
)

// probe is Placement's answer to two requests: for its version document, without a token, and a
// query of the agent, with one. A login at Keystone, if configured, comes first.
type probe struct {
	setup    error             // creating the client failed: invalid certificate or token
	login    error             // Keystone issued no token, or has no endpoint of Placement
	identity keystone.Identity // the agent's identity in Keystone
	base     string            // Placement's URL, without a trailing slash
	err      error             // no answer to the version document
	status   int               // of the version document
	max      string
	isAPI    bool   // the document is Placement's
	service  string // that answers, if it is known to be another one
	authErr  error
	auth     int   // status of the query
	refused  error // the answer to it, if it is an error
	took     time.Duration
	date     time.Time // from the answer; zero if it has none
	received time.Time // this host's time of the answer
}

func probePlacement(ctx context.Context, e *Env) probe {
	a, err := e.access()
	if err != nil {
		return probe{setup: err}
	}
	defer a.CloseIdle()
	var p probe
	if a.Keystone != nil {
		if p.identity, p.login = a.Keystone.Identify(ctx); p.login != nil {
			return p
		}
	}
	if a.Authorize != nil {
		if err := a.Authorize(ctx, http.Header{}); err != nil {
			return probe{setup: err}
		}
	}
	// No retries and no new token, so that problems are visible.
	a.Retries, a.Reauthorize, a.Microversion = 0, nil, reportclient.Microversion
	client, err := placementclient.New(a.Config)
	if err != nil {
		return probe{setup: err}
	}
	var doc wire.Versions
	versions := &placementclient.Call{Method: http.MethodGet, Path: "/", Out: &doc}
	start := e.Now()
	err = client.Send(ctx, versions)
	p.status, p.err = answered(err)
	if failed := (*placementclient.Error)(nil); errors.As(err, &failed) {
		p.service = failed.Service
	}
	p.received = e.Now()
	p.took = p.received.Sub(start)
	p.base = client.Endpoint()
	if p.err != nil {
		return p
	}
	if date, err := http.ParseTime(versions.Header.Get("Date")); err == nil {
		p.date = date
	}
	if len(doc.Versions) > 0 && doc.Versions[0].MaxVersion != "" {
		p.isAPI, p.max = true, doc.Versions[0].MaxVersion
	}
	if p.status == http.StatusOK && p.isAPI {
		_, err := client.Providers(ctx, url.Values{"name": {e.Config.Agent.Host}})
		p.auth, p.authErr = answered(err)
		p.refused = err
	}
	return p
}

// answered returns the status of an answer, or the error of a request without one.
func answered(err error) (status int, unanswered error) {
	var failed *placementclient.Error
	switch {
	case err == nil:
		return http.StatusOK, nil
	case errors.As(err, &failed) && failed.Status != 0:
		return failed.Status, nil
	}
	return 0, err
}

// errNotRead: root does not read a file of the agent, which the agent may well use.
var errNotRead = errors.New("is not read")

// access returns the agent's access to Placement.
func (e *Env) access() (*access.Access, error) {
	c := e.Config.PlacementClient
	for _, file := range []*string{&c.TokenFile, &c.CAFile,
		&c.CertFile, &c.KeyFile, &c.Keystone.PasswordFile, &c.Keystone.ApplicationCredentialSecretFile} {
		if *file == "" {
			continue
		}
		if link := e.foreign(*file); link != "" {
			return nil, fmt.Errorf("%s %w: root does not follow the symbolic link %s, which another user can have made",
				*file, errNotRead, link)
		}
		*file = e.path(*file)
	}
	return access.New(c, e.HTTP, zerolog.Nop())
}

// tooOld reports whether a microversion such as "1.36" is below the one that the agent asks for. It
// is false for an invalid one.
func tooOld(version string) bool {
	v, err := wire.ParseVersion(version)
	needed, err2 := wire.ParseVersion(reportclient.Microversion)
	return errors.Join(err, err2) == nil && v < needed
}

// tlsProblem describes a TLS error.
func tlsProblem(err error) (string, bool) {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		_, which, _ := strings.Cut(err.Error(), unknown.Error()) // package pki says which
		return "its certificate is signed by an authority that this host does not trust" + which, true
	case errors.As(err, &name):
		return "its certificate is for another name: " + name.Error(), true
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate is expired or not yet valid (or this host's clock is wrong)", true
	case errors.As(err, &invalid):
		return "its certificate is invalid: " + invalid.Error(), true
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, &record):
		return "it does not use TLS; the URL should begin with http://", true
	}
	// crypto/tls reports the peer's alerts as this operation of net.OpError.
	var refused *net.OpError
	if errors.As(err, &refused) && refused.Op == "remote error" {
		return fmt.Sprintf(
			"it refused the TLS connection (%v); it may require a client certificate (cert_file, key_file)",
			refused.Err), true
	}
	return "", false
}
