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
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/config"
)

// probe is what Placement answered to two requests: its version document, which
// needs no token, and a query as the agent makes it, which does.
type probe struct {
	setup    error // The client could not be made: a certificate or token is at fault.
	err      error // No answer to the version document.
	status   int   // Of the version document.
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
	transport, token, err := e.client()
	if err != nil {
		return probe{setup: err}
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	base := strings.TrimSuffix(e.Config.PlacementClient.URL, "/")

	var p probe
	start := e.Now()
	status, header, body, err := get(ctx, client, base+"/", "")
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
		p.auth, _, _, p.authErr = get(ctx, client, base+"/resource_providers?name="+url.QueryEscape(e.Config.Agent.Host), token)
	}
	return p
}

func get(ctx context.Context, client *http.Client, address, token string) (int, http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "compute-agent-doctor")
	if token != "" {
		req.Header.Set("X-Auth-Token", token)
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

// client makes a transport as the agent would, and reads the token.
func (e *Env) client() (http.RoundTripper, string, error) {
	c := e.Config.PlacementClient
	token := "admin"
	if c.Auth == config.AuthToken {
		read := e.Token
		if read == nil {
			read = func() (string, error) { s, err := config.ReadSecret(e.path(c.TokenFile)); return s.Reveal(), err }
		}
		var err error
		if token, err = read(); err != nil {
			return nil, "", fmt.Errorf("placement_client.token_file: %w", err)
		}
	}
	if e.HTTP != nil {
		return e.HTTP, token, nil
	}
	t := &http.Transport{
		DialContext:           (&net.Dialer{Timeout: c.ConnectTimeout}).DialContext,
		TLSHandshakeTimeout:   c.ConnectTimeout,
		ResponseHeaderTimeout: c.Timeout,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if c.UseProxy {
		t.Proxy = http.ProxyFromEnvironment
	}
	if c.CAFile != "" {
		pem, err := os.ReadFile(e.path(c.CAFile))
		if err != nil {
			return nil, "", fmt.Errorf("placement_client.ca_file: %w", err)
		}
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, "", fmt.Errorf("placement_client.ca_file: %s holds no certificate in PEM", c.CAFile)
		}
	}
	if c.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(e.path(c.CertFile), e.path(c.KeyFile))
		if err != nil {
			return nil, "", fmt.Errorf("placement_client.cert_file and key_file: %w", err)
		}
		t.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	return t, token, nil
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
