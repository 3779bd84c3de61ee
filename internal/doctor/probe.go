// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/access"
	"github.com/compute-agent/compute-agent/reportclient/keystone"
)

// probe is what Placement answered to two requests: its version document, which
// needs no token, and a query as the agent makes it, which does. Where Keystone
// is asked for the token, that comes first.
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

// maxDocument bounds the version document, in bytes.
const maxDocument = 64 << 10

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
	proof := http.Header{}
	if err := a.Authorize(ctx, proof); err != nil {
		return probe{setup: err}
	}
	base, err := a.Endpoint(ctx)
	if err != nil {
		return probe{setup: err}
	}
	base = strings.TrimSuffix(base, "/")
	p.base = base
	client := &http.Client{Transport: a.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	start := e.Now()
	status, header, body, err := get(ctx, client, base+"/", nil)
	p.received = e.Now()
	p.took = p.received.Sub(start)
	if err != nil {
		p.err = err
		return p
	}
	p.status = status
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		p.date = date
	}
	var doc struct {
		Versions []struct {
			MaxVersion string `json:"max_version"`
		} `json:"versions"`
	}
	if json.Unmarshal(body, &doc) == nil && len(doc.Versions) > 0 && doc.Versions[0].MaxVersion != "" {
		p.isAPI, p.max = true, doc.Versions[0].MaxVersion
	}
	if status == http.StatusOK && p.isAPI {
		p.auth, _, _, p.authErr = get(ctx, client, base+"/resource_providers?name="+url.QueryEscape(e.Config.Agent.Host), proof)
	}
	return p
}

func get(ctx context.Context, client *http.Client, address string, proof http.Header) (int, http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "compute-agent-doctor")
	if proof != nil {
		maps.Copy(req.Header, proof)
		req.Header.Set("OpenStack-API-Version", "placement 1.20")
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	return resp.StatusCode, resp.Header, body, err
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
