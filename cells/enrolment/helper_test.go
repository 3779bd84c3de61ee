// SPDX-License-Identifier: Apache-2.0

package enrolment_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var must = testproc.Check

const (
	cell1 = "00000001-0000-0000-0000-000000000000"
	nodeA = "aaaaaaaa-0000-4000-8000-000000000001"
	nodeB = "bbbbbbbb-0000-4000-8000-000000000002"
)

// world is an enrolment service on a listener, with its database and CA.
type world struct {
	t     *testing.T
	store *apidb.DB
	ca    *pki.Authority
	url   string
	log   *testproc.Buffer
	later atomic.Int64 // how far the clock of the service is ahead
	stop  atomic.Pointer[time.Time]
	from  net.Addr // where requests come from; nil for 127.0.0.1
}

func (w *world) now() time.Time {
	at := time.Now()
	if stopped := w.stop.Load(); stopped != nil {
		at = *stopped
	}
	return at.Add(time.Duration(w.later.Load()))
}

// stopClock sets the clock of the service, which goes on only with later.
func (w *world) stopClock(at time.Time) { w.stop.Store(&at) }

// template is what API databases begin as.
var template = dbservers.NewTemplate(func(dsn string) (*apidb.DB, error) {
	return apidb.Open(context.Background(), dsn, apidb.Options{})
})

func newWorld(t *testing.T, change func(*enrolment.Config)) *world {
	t.Helper()
	w := &world{t: t, log: &testproc.Buffer{}}
	var err error
	w.ca, err = pki.InitAuthority(filepath.Join(t.TempDir(), "ca"), "test-ca", time.Now())
	must(t, err)
	database := filepath.Join(dbservers.Memory(t), "api.db")
	must(t, template.Copy(database))
	w.store, err = apidb.Open(t.Context(), database, apidb.Options{})
	must(t, err)
	_, err = w.store.CreateCell(t.Context(), apidb.Cell{UUID: cell1, Name: "cell1", URL: "https://cell1.example:8780"})
	must(t, err)
	config := enrolment.Config{
		Store: w.store, Authority: w.ca, Names: []string{"localhost", "127.0.0.1"},
		Lifetime: time.Hour, RenewalGrace: time.Hour,
		Placement: enrolment.PlacementPlace{URL: "https://placement.example:8778"},
		Now:       w.now, Logger: zerolog.New(w.log),
	}
	if change != nil {
		change(&config)
	}
	service, err := enrolment.New(config)
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w.url = "https://" + l.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- service.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
		must(t, w.store.Close())
	})
	return w
}

// invite makes a token for a host.
func (w *world) invite(host string, again bool, nodes ...enrolment.Node) enrolment.Token {
	w.t.Helper()
	_, token, err := enrolment.Invite(w.t.Context(), w.store, w.ca.Fingerprint(), enrolment.Invitation{
		Host: host, CellUUID: cell1, Nodes: nodes, By: "root", TTL: time.Hour, Again: again, Now: w.now(),
	})
	must(w.t, err)
	return token
}

// keyPair is a key of a host, with a request for a certificate.
type keyPair struct{ key, csr []byte }

func newKeyPair(t *testing.T, name string) keyPair {
	t.Helper()
	key, keyPEM, err := pki.NewKey()
	must(t, err)
	csr := testproc.Try(pki.NewRequest(key, name)).Or(t)
	return keyPair{keyPEM, csr}
}

func (w *world) join(token enrolment.Token, k keyPair, nodes ...enrolment.Node) (*enrolment.Answer, error) {
	return enrolment.Join(w.t.Context(), w.url, token, k.csr, nodes)
}

// joined is a host that has joined: its client certificate.
func (w *world) joined(host string, nodes ...enrolment.Node) tls.Certificate {
	w.t.Helper()
	k := newKeyPair(w.t, host)
	answer := testproc.Try(w.join(w.invite(host, false), k, nodes...)).Or(w.t)
	return w.pair(answer, k)
}

func (w *world) pair(a *enrolment.Answer, k keyPair) tls.Certificate {
	w.t.Helper()
	return testproc.Try(tls.X509KeyPair([]byte(a.Certificate), k.key)).Or(w.t)
}

// signed is a client certificate that a CA has signed without the service.
func signed(t *testing.T, ca *pki.Authority, id pki.Identity, client bool) tls.Certificate {
	t.Helper()
	k := newKeyPair(t, id.Name)
	request := testproc.Try(pki.ParseRequest(k.csr)).Or(t)
	certificate, err := ca.Sign(request, id, pki.SignOptions{Lifetime: time.Hour, Now: time.Now(), Client: client})
	must(t, err)
	return testproc.Try(tls.X509KeyPair(certificate, k.key)).Or(t)
}

// send sends a request as any client can; client may be nil.
func (w *world) send(
	client *tls.Certificate, method, path, contentType string, body io.Reader,
) (status int, answer []byte) {
	w.t.Helper()
	config := &tls.Config{InsecureSkipVerify: true}
	if client != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return client, nil }
	}
	request := testproc.Try(http.NewRequestWithContext(w.t.Context(), method, w.url+path, body)).Or(w.t)
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	request.Header.Set("Expect", "100-continue") // a server that refuses the size closes the connection
	dialer := &net.Dialer{LocalAddr: w.from}
	transport := &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: config, DisableKeepAlives: true,
		ExpectContinueTimeout: time.Minute}
	response := testproc.Try((&http.Client{Transport: transport}).Do(request)).Or(w.t)
	defer func() { _ = response.Body.Close() }()
	answer = testproc.Try(io.ReadAll(response.Body)).Or(w.t)
	return response.StatusCode, answer
}

// renew renews a certificate, with a key of a request.
func (w *world) renew(client tls.Certificate, k keyPair, nodes ...enrolment.Node) (*enrolment.Answer, error) {
	w.t.Helper()
	answer := &enrolment.Answer{}
	if err := w.post(client, "/v1/renew", enrolment.RenewRequest{CSR: string(k.csr), Nodes: nodes},
		answer); err != nil {
		return nil, err
	}
	return answer, nil
}

// confirm confirms a certificate.
func (w *world) confirm(client tls.Certificate) error {
	w.t.Helper()
	return w.post(client, "/v1/confirm", enrolment.ConfirmRequest{}, &enrolment.Confirmation{})
}

// post sends a request with a certificate; the error is the refusal.
func (w *world) post(client tls.Certificate, path string, request, answer any) error {
	w.t.Helper()
	body := testproc.Try(json.Marshal(request)).Or(w.t)
	status, text := w.send(&client, http.MethodPost, path, "application/json", bytes.NewReader(body))
	if status != http.StatusOK {
		refused := &enrolment.Refusal{Status: status}
		must(w.t, json.Unmarshal(text, refused))
		return refused
	}
	must(w.t, json.Unmarshal(text, answer))
	return nil
}

// countedRefusals counts refusals by path and code.
type countedRefusals struct {
	mu  sync.Mutex
	all map[string]int
}

func (c *countedRefusals) Answered(osapi.Answer) {}

func (c *countedRefusals) EnrolmentRefused(route, code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[string]int{}
	}
	c.all[route+" "+code]++
}

func (c *countedRefusals) of(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[what]
}

// countedStore counts the changes of enrolments, and the lists of all.
type countedStore struct {
	apidb.Store
	changes, lists atomic.Int64
}

func (s *countedStore) ChangeEnrolment(
	ctx context.Context, host string, change func(*apidb.Enrolment) error,
) (apidb.Enrolment, error) {
	s.changes.Add(1)
	return s.Store.ChangeEnrolment(ctx, host, change)
}

func (s *countedStore) Enrolments(ctx context.Context) ([]apidb.Enrolment, error) {
	s.lists.Add(1)
	return s.Store.Enrolments(ctx)
}

// wantRefusal checks the code of a refusal.
func wantRefusal(t *testing.T, what string, err error, code enrolment.Code) {
	t.Helper()
	refused := new(enrolment.Refusal)
	if !errors.As(err, &refused) || refused.Code != code {
		t.Errorf("%s: %v, want %s", what, err, code)
	}
}

// identity is whom a certificate is for.
func identity(t *testing.T, c tls.Certificate) pki.Identity {
	t.Helper()
	return testproc.Try(pki.IdentityOf(c.Leaf)).Or(t)
}
