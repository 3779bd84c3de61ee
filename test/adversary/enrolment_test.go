// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"crypto/tls"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// openAPI opens the database of a compute API with a cell until the test ends.
func openAPI(t testing.TB) apidb.Store {
	t.Helper()
	store := testproc.Try(apidb.Open(t.Context(), filepath.Join(t.TempDir(), "api.db"), apidb.Options{})).Or(t)
	t.Cleanup(func() { check(t, store.Close()) })
	testproc.Try(store.CreateCell(t.Context(),
		apidb.Cell{UUID: someCell, Name: "cell1", URL: "https://cell1.example:8780"})).Or(t)
	return store
}

// serveEnrolment serves the enrolment service of the site until the test ends, and returns its URL.
func (s *site) serveEnrolment(t testing.TB, store apidb.Store, denied *pki.DenyFile, now func() time.Time) string {
	t.Helper()
	service := testproc.Try(enrolment.New(enrolment.Config{
		Store: store, Authority: s.ca, Names: []string{"127.0.0.1"}, Lifetime: time.Hour, RenewalGrace: time.Hour,
		Placement: enrolment.PlacementPlace{URL: "https://placement.example:8778"},
		Denied:    denied, Now: now, Logger: nopLog,
	})).Or(t)
	return serve(t, service.Serve, func() error { return nil })
}

// invite invites a host with one node, as an operator does.
func (s *site) invite(t testing.TB, store apidb.Store, host, node string, now time.Time) (enrolment.Token, error) {
	t.Helper()
	_, token, err := enrolment.Invite(t.Context(), store, s.ca.Fingerprint(), enrolment.Invitation{
		Host: host, CellUUID: someCell, Nodes: []enrolment.Node{{UUID: node, Name: host}}, By: "root",
		TTL: time.Hour, Again: true, Now: now,
	})
	return token, err
}

// join has a host join with its token.
func join(t testing.TB, url, host string, token enrolment.Token) (identity, error) {
	t.Helper()
	private, key, err := pki.NewKey()
	check(t, err)
	answer, err := enrolment.Join(t.Context(), url, token, testproc.Try(pki.NewRequest(private, host)).Or(t), nil)
	if err != nil {
		return identity{}, err
	}
	pair := testproc.Try(tls.X509KeyPair([]byte(answer.Certificate), key)).Or(t)
	return identity{name: host, pair: &pair, host: host}, nil
}

// renewal asks for the next certificate of a host.
func renewal(t testing.TB, host string) asked {
	t.Helper()
	private, _, err := pki.NewKey()
	check(t, err)
	return post("/v1/renew", enrolment.RenewRequest{CSR: string(testproc.Try(pki.NewRequest(private, host)).Or(t))})
}

// TestEnrolmentService makes each call of the enrolment service as each identity, none of which it
// has enrolled. All who reach it get the CA and the deny list, which does not say why a host is
// refused.
func TestEnrolmentService(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	store := openAPI(t)
	_, _, err := enrolment.Invite(t.Context(), store, s.ca.Fingerprint(),
		enrolment.Invitation{Host: evictee, CellUUID: someCell, By: "root", TTL: time.Hour, Now: time.Now()})
	check(t, err)
	testproc.Try(enrolment.Evict(t.Context(), store, evictee, "", "sold to a rival", time.Now())).Or(t)
	denied := s.denied()
	private, _, err := pki.NewKey()
	check(t, err)
	csr := string(testproc.Try(pki.NewRequest(private, victim)).Or(t))
	bodies := map[string]any{
		"/v1/join":    enrolment.JoinRequest{Token: enrolment.NewToken(s.ca.Fingerprint()).Reveal(), CSR: csr},
		"/v1/renew":   enrolment.RenewRequest{CSR: csr},
		"/v1/confirm": enrolment.ConfirmRequest{},
	}
	out := table{{"CALL"}}
	for _, call := range enrolment.Calls() {
		out = append(out, []string{call.Method + " " + call.Path})
	}
	for _, i := range s.identities() {
		// Each has a service of its own: what others were refused does not count.
		url, c := s.serveEnrolment(t, store, denied, time.Now), s.client(i)
		out[0] = append(out[0], i.name)
		for n, call := range enrolment.Calls() {
			got, answer := send(t, c, url, i, asked{method: call.Method, path: call.Path, body: bodies[call.Path]})
			out[n+1] = append(out[n+1], string(got))
			if want := ruleOfEnrolment(i, call); got != want || got == answered && answer.Code != http.StatusOK {
				t.Errorf("%s %s as %s: %s, want %s: %s", call.Method, call.Path, i.name, got, want, answer)
			}
			if text := string(answer.Raw); call.Path == pki.DeniedPath {
				for _, host := range []string{stolen, evictee} {
					testproc.Contains(t, text, "\n"+host+" ", "the list lacks %s: %s", host)
				}
				if strings.Contains(text, "sold to a rival") || strings.Contains(text, "stolen") {
					t.Errorf("as %s: the list says why hosts are refused: %s", i.name, text)
				}
			}
		}
	}
	out.compare(t, "enrolment.txt")
}

// ruleOfEnrolment is what the rules of the enrolment service say of an identity that is not
// enrolled, and a call.
func ruleOfEnrolment(i identity, call enrolment.Call) outcome {
	switch {
	case call.Method == http.MethodGet:
		return answered // public
	case call.Path == "/v1/join":
		return forbidden // the token is what counts
	case i.name == "not valid yet":
		return forbidden // known: the clock of the service that signed it may have been ahead
	case i.pair == nil, i.handshake:
		return unknown // no certificate, one of another CA or of a server, or one that ended long ago
	}
	return forbidden
}
