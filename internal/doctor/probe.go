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
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent/access"
	"github.com/compute-agent/compute-agent/internal/keystone"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// probe is what Placement answered to two requests: for its version document, for
// which it needs no token, and a query as the agent makes it, for which it does.
// Where Keystone gives the token, that comes first.
type probe struct {
	setup    error             // The client could not be made: a certificate or token is at fault.
	login    error             // Keystone gave no token, or no address of Placement.
	who      keystone.Identity // What Keystone says of the agent.
	base     string            // Placement's address, without a slash at its end.
	err      error             // No answer to the version document.
	status   int               // Of the version document.
	max      string
	isAPI    bool // The document is that of Placement.
	authErr  error
	auth     int // Status of the query.
	took     time.Duration
	date     time.Time // From the answer; zero when it has none.
	received time.Time // This host's time when the answer came.
}

func probePlacement(ctx context.Context, e *Env) probe {
	a, err := e.access()
	if err != nil {
		return probe{setup: err}
	}
	defer a.CloseIdle()
	var p probe
	if a.Keystone != nil {
		if p.who, p.login = a.Keystone.Identify(ctx); p.login != nil {
			return p
		}
	}
	if err := a.Authorize(ctx, http.Header{}); err != nil {
		return probe{setup: err}
	}
	// One try of each request, and no other token: what is wrong is to be seen.
	a.Retries, a.Reauthorize, a.Microversion = 0, nil, fmt.Sprintf("1.%d", leastMinor)
	client, err := placementclient.New(a.Config)
	if err != nil {
		return probe{setup: err}
	}
	var doc wire.Versions
	versions := &placementclient.Call{Method: http.MethodGet, Path: "/", Out: &doc}
	start := e.Now()
	p.status, p.err = answered(client.Send(ctx, versions))
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
	}
	return p
}

// answered is the status of an answer, or the error of a request that has none.
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

// access reaches Placement as the agent would.
func (e *Env) access() (*access.Access, error) {
	c := e.Config.PlacementClient
	for _, file := range []*string{&c.TokenFile, &c.CAFile, &c.CertFile, &c.KeyFile, &c.Keystone.PasswordFile, &c.Keystone.ApplicationCredentialSecretFile} {
		if *file != "" {
			*file = e.path(*file)
		}
	}
	return access.New(c, e.HTTP, zerolog.Nop())
}

// tooOld tells whether a microversion such as "1.36" lies below the least that
// the agent can work with; it is false for what is not a microversion.
func tooOld(version string, least int) bool {
	major, minor, ok := strings.Cut(version, ".")
	m, err := strconv.Atoi(minor)
	return ok && err == nil && major == "1" && m < least
}

// tlsTrouble says what is wrong with a connection's TLS, in words.
func tlsTrouble(err error) (string, bool) {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		return "its certificate is signed by an authority that this host does not trust", true
	case errors.As(err, &name):
		return "its certificate is for another name: " + name.Error(), true
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate is expired or not yet valid (or this host's clock is wrong)", true
	case errors.As(err, &invalid):
		return "its certificate is not acceptable: " + invalid.Error(), true
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, &record):
		return "it does not speak TLS; the address should begin with http://", true
	}
	// The other side's refusals are a net.OpError of this operation (crypto/tls).
	var refused *net.OpError
	if errors.As(err, &refused) && refused.Op == "remote error" {
		return fmt.Sprintf("it refused the TLS connection (%v); it may ask for a certificate of the agent (cert_file, key_file)", refused.Err), true
	}
	return "", false
}
