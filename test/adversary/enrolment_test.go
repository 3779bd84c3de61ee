// SPDX-License-Identifier: Apache-2.0

package adversary

import (
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

// TestEnrolmentService makes each call of the enrolment service as each identity, none of which it
// has enrolled. All who reach it get the CA and the deny list, which does not say why a host is
// refused.
func TestEnrolmentService(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	store := testproc.Try(apidb.Open(t.Context(), filepath.Join(t.TempDir(), "api.db"), apidb.Options{})).Or(t)
	t.Cleanup(func() { check(t, store.Close()) })
	testproc.Try(store.CreateCell(t.Context(), apidb.Cell{UUID: someCell, Name: "cell1", URL: "https://cell1.example:8780"})).Or(t)
	_, _, err := enrolment.Invite(t.Context(), store, s.ca.Fingerprint(), enrolment.Invitation{Host: evictee, CellUUID: someCell, By: "root", TTL: time.Hour, Now: time.Now()})
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
		service := testproc.Try(enrolment.New(enrolment.Config{
			Store: store, Authority: s.ca, Names: []string{"127.0.0.1"}, Lifetime: time.Hour, RenewalGrace: time.Hour, Denied: denied, Logger: nopLog,
		})).Or(t)
		url, c := serve(t, service.Serve, func() error { return nil }), s.client(i)
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
