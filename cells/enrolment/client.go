// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/lib/wait"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/internal/tracing"
)

const (
	// clientTime is how long a request may take.
	clientTime = 30 * time.Second
	// maxAnswer is the largest answer, in bytes.
	maxAnswer = 1 << 20
)

// ErrOtherCA says that what answers is not the service that the token is for.
var ErrOtherCA = errors.New("the server does not belong to the CA of the token")

// CheckURL returns an error for a URL that cannot be that of an enrolment service.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return fmt.Errorf("%.300q is not the URL of an enrolment service, such as https://api.example:8775", text)
	}
	return nil
}

// Join asks the service at a URL for a certificate. The service has to show that it belongs to the
// CA of the token, before it gets the token. A *Refusal is its answer; the same request may be sent
// again after all other errors.
func Join(ctx context.Context, base string, token Token, csr []byte, nodes []Node) (*Answer, error) {
	if err := CheckURL(base); err != nil {
		return nil, err
	}
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	trust := &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // the CA is known by its fingerprint, which verified checks
		VerifyConnection: func(state tls.ConnectionState) error {
			return verified(state, u.Hostname(), token.Fingerprint)
		},
	}
	answer := &Answer{}
	err = post(ctx, trust, nil, nil, base,
		"/v1/join", JoinRequest{Token: token.Reveal(), CSR: string(csr), Nodes: nodes}, answer)
	if err != nil {
		return nil, err
	}
	cas, err := parseCertificates([]byte(answer.CA))
	if err == nil && !slices.ContainsFunc(cas,
		func(c *x509.Certificate) bool { return pki.Fingerprint(c) == token.Fingerprint }) {
		err = ErrOtherCA
	}
	return answer, err
}

// joinAttempts is how often a join is sent.
const joinAttempts = 5

// Join is the join of this host. It is repeated without an answer, which may have been lost, after
// a pause that is reported. If the token is refused, the key is forgotten.
func (h Host) Join(
	ctx context.Context, base string, token Token, csr []byte, nodes []Node, repeated func(error, time.Duration),
) (*Answer, error) {
	for attempt, pause := 1, time.Second; ; attempt, pause = attempt+1, 2*pause {
		answer, err := Join(ctx, base, token, csr, nodes)
		refused := new(Refusal)
		if errors.As(err, &refused) && refused.Final() {
			return answer, errors.Join(err, h.Abandon())
		}
		if err == nil || attempt == joinAttempts || errors.Is(err, ErrOtherCA) {
			return answer, err
		}
		repeated(err, pause)
		if !wait.For(ctx, pause) {
			return nil, ctx.Err()
		}
	}
}

// verified checks a server by the fingerprint of its CA, and its name.
func verified(state tls.ConnectionState, name, fingerprint string) error {
	at := slices.IndexFunc(state.PeerCertificates,
		func(c *x509.Certificate) bool { return c.IsCA && pki.Fingerprint(c) == fingerprint })
	if at < 0 {
		return fmt.Errorf("%w: it has shown another one, or none", ErrOtherCA)
	}
	roots := x509.NewCertPool()
	roots.AddCert(state.PeerCertificates[at])
	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, DNSName: name})
	return err
}

// Client renews and confirms the certificate of a host.
type Client struct {
	// URL is the URL of the service, CAFile the certificates that it is trusted by, IdentityFile
	// the identity of the host. Both files are read for each request.
	URL, CAFile, IdentityFile string
	// Process says in each request which run of the agent asks; nil: nothing does.
	Process *agentruns.ProcessSender
	// Tracing returns what makes a trace of each request. None if it is nil, or returns nil.
	Tracing func() *tracing.Tracing
}

// Renew asks for a new certificate. Errors are as those of Join.
func (c *Client) Renew(ctx context.Context, csr []byte, nodes []Node) (*Answer, error) {
	answer := &Answer{}
	if err := c.post(ctx, "/v1/renew", RenewRequest{CSR: string(csr), Nodes: nodes}, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

// Confirm says that the host has the certificate of the identity file. Errors are as those of Join.
func (c *Client) Confirm(ctx context.Context) error {
	return c.post(ctx, "/v1/confirm", ConfirmRequest{}, &Confirmation{})
}

// post sends a request with the certificate of the host.
func (c *Client) post(ctx context.Context, path string, body, answer any) error {
	if err := CheckURL(c.URL); err != nil {
		return err
	}
	pool, err := pki.CertPool(c.CAFile)
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(c.IdentityFile, c.IdentityFile)
	if err != nil {
		return files.Denied(err)
	}
	// Which CAs the service names does not matter: it has asked for the certificate of this host.
	trust := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}
	var spans *tracing.Tracing
	if c.Tracing != nil {
		spans = c.Tracing()
	}
	return post(ctx, trust, c.Process, spans, c.URL, path, body, answer)
}

// post sends one request on a connection of its own: there are hours between them.
func post(
	ctx context.Context, trust *tls.Config, process *agentruns.ProcessSender, spans *tracing.Tracing, base,
	path string, body, answer any,
) (err error) {
	ctx, cancel := context.WithTimeout(ctx, clientTime)
	defer cancel()
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx,
		http.MethodPost, strings.TrimSuffix(base, "/")+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", osapi.MediaJSON)
	client := &http.Client{
		Transport: process.Transport(
			&http.Transport{TLSClientConfig: trust, DisableKeepAlives: true, ForceAttemptHTTP2: true}),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	status, ended := 0, spans.Request(ctx, request, path)
	defer func() { ended(status, err) }()
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	status = response.StatusCode
	data, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("read the answer of %s: %w", base, err)
	case len(data) > maxAnswer:
		return fmt.Errorf("the answer of %s has more than %d bytes", base, maxAnswer)
	case status != http.StatusOK:
		refused := &Refusal{Status: status}
		if err := json.Unmarshal(data, refused); err != nil || refused.Code == "" {
			return fmt.Errorf("%s is not an enrolment service: it answers with status %d", base, status)
		}
		return refused
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("the answer of %s: %w", base, err)
	}
	return nil
}
