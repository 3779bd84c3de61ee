// SPDX-License-Identifier: Apache-2.0

package enrolment_test

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestJoin: a host gets a certificate for what the operator said, and learns where its cell and
// Placement are. Whatever its request says of it counts nothing.
func TestJoin(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newWorld(t, nil)
	token := w.invite("h1", false, enrolment.Node{UUID: nodeA, Name: "h1.example.com"})
	key, keyPEM, err := pki.NewKey()
	must(t, err)
	other := testproc.Try(url.Parse("urn:compute-agent:host:h2")).Or(t)
	der := testproc.Try(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "compute-api"}, DNSNames: []string{"compute-api", "h2"}, URIs: []*url.URL{other},
	}, key)).Or(t)
	k := keyPair{keyPEM, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}
	answer := testproc.Try(w.join(token, k)).Or(t)
	id := identity(t, w.pair(answer, k))
	if id.Kind != pki.Host || id.Name != "h1" || !slices.Equal(id.Names, []string{"h1", "h1.example.com"}) ||
		!slices.Equal(id.Nodes, []string{nodeA}) {
		t.Errorf("the certificate is for %+v", id)
	}
	if answer.Host != "h1" || answer.Cell.Name != "cell1" ||
		!slices.Equal(answer.Cell.URLs, []string{"https://cell1.example:8780"}) ||
		answer.Placement.URL != "https://placement.example:8778" || answer.CA != string(w.ca.PEM()) ||
		answer.Expires.Before(time.Now().Add(59*time.Minute)) {
		t.Errorf("the answer is %+v", answer)
	}
	e, err := w.store.EnrolmentOfToken(t.Context(), token.ID)
	if must(t, err); e.State != apidb.Enrolled || e.EnrolledFrom != "127.0.0.1" || e.Serial == "" ||
		e.ExpiresAt != answer.Expires || e.KeyDigest == "" {
		t.Errorf("the enrolment is %+v", e)
	}
	if strings.Contains(w.log.String(), strings.Split(token.Reveal(), ".")[3]) {
		t.Error("the log has the token")
	}
}

// TestTheFirstNodesThatAHostNamesAreItsOwn: an operator who named none trusts the one-time token
// for them, once.
func TestTheFirstNodesThatAHostNamesAreItsOwn(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newWorld(t, nil)
	c := w.joined("h1", enrolment.Node{UUID: strings.ToUpper(nodeA)})
	if id := identity(t, c); !slices.Equal(id.Nodes, []string{nodeA}) {
		t.Errorf("the certificate is for %+v", id)
	}
	k := newKeyPair(t, "h1")
	answer, err := w.renew(c, k, enrolment.Node{UUID: nodeA}, enrolment.Node{UUID: nodeB})
	must(t, err)
	if len(answer.Nodes) != 1 || len(answer.Refused) != 1 || !strings.Contains(answer.Refused[0], nodeB) {
		t.Errorf("another node: %+v", answer)
	}
	testproc.Try(enrolment.EnrolNode(t.Context(), w.store, "h1", enrolment.Node{UUID: nodeB})).Or(t)
	answer, err = w.renew(w.pair(answer, k), newKeyPair(t, "h1"), enrolment.Node{UUID: nodeB})
	if must(t, err); len(answer.Nodes) != 2 || len(answer.Refused) != 0 {
		t.Errorf("after an operator enrolled it: %+v", answer)
	}

	// A host that knew none when it joined binds them with its first renewal.
	h2 := w.joined("h2")
	_, err = w.renew(h2, newKeyPair(t, "h2"), enrolment.Node{UUID: nodeA})
	wantRefusal(t, "the node of another host", err, enrolment.CodeNodeTaken)
	if !strings.Contains(err.Error(), "h1") {
		t.Errorf("the error does not name the host: %v", err)
	}
	const own = "cccccccc-0000-4000-8000-000000000003"
	answer, err = w.renew(h2, newKeyPair(t, "h2"), enrolment.Node{UUID: own, Name: "h2"})
	if must(t, err); len(answer.Nodes) != 1 || answer.Nodes[0].UUID != own {
		t.Errorf("its own node: %+v", answer)
	}
}

// TestAHostDoesNotChooseForeignNames: what a host calls its nodes gives it no right to the trees of
// other hosts. Operators give other names, and none that is another host's.
func TestAHostDoesNotChooseForeignNames(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newWorld(t, nil)
	w.joined("victim")
	others := []string{"victim", "victim.example.com", "h417x", "compute-api", "later"}
	nodes := make([]enrolment.Node, 0, len(others)+1)
	for i, name := range append(others, "h417.example.com") {
		nodes = append(nodes, enrolment.Node{UUID: fmt.Sprintf("cccccccc-0000-4000-8000-%012d", i), Name: name})
	}
	check := func(what string, c tls.Certificate) {
		t.Helper()
		id := identity(t, c)
		if len(id.Nodes) != len(nodes) || !slices.Equal(id.Names, []string{"h417", "h417.example.com"}) {
			t.Errorf("%s: the certificate is for %+v", what, id)
		}
		for _, name := range others {
			if id.HasName(name) {
				t.Errorf("%s: it has the name %s", what, name)
			}
		}
	}
	thief := w.joined("h417", nodes...)
	check("join", thief)
	answer := testproc.Try(w.renew(thief, newKeyPair(t, "h417"), nodes...)).Or(t)
	for _, n := range answer.Nodes {
		if slices.Contains(others, n.Name) {
			t.Errorf("renewed with its nodes: %+v", n)
		}
	}
	late := w.joined("h9")
	k := newKeyPair(t, "h9")
	answer = testproc.Try(w.renew(late, k, enrolment.Node{UUID: nodeA, Name: "victim"})).Or(t)
	if id := identity(t, w.pair(answer, k)); !slices.Equal(id.Names, []string{"h9"}) ||
		!slices.Equal(id.Nodes, []string{nodeA}) {
		t.Errorf("a first node with a renewal: %+v", id)
	}

	// Operators may give other names, but not those of hosts.
	taken := new(apidb.NodeTakenError)
	for _, name := range []string{"victim", "victim.example.com", "Victim"} {
		if _, err := enrolment.EnrolNode(t.Context(), w.store,
			"h9", enrolment.Node{UUID: nodeB, Name: name}); !errors.As(err, &taken) || taken.Host != "victim" {
			t.Errorf("an operator gives the name %s: %v", name, err)
		}
	}
	_, err := enrolment.EnrolNode(t.Context(), w.store, "h9", enrolment.Node{UUID: nodeB, Name: "hypervisor-9"})
	must(t, err)
	_, _, err = enrolment.Invite(t.Context(), w.store,
		"", enrolment.Invitation{Host: "hypervisor-9", CellUUID: cell1, Now: w.now()})
	if !errors.As(err, &taken) || taken.Host != "h9" {
		t.Errorf("a host with the name of another one's node: %v", err)
	}

	for host, owner := range map[string]string{"victim.example.com": "victim", "Victim_b": "victim",
		"hypervisor-9.example.com": "h9"} {
		_, _, err := enrolment.Invite(t.Context(), w.store,
			"", enrolment.Invitation{Host: host, CellUUID: cell1, Now: w.now()})
		if !errors.As(err, &taken) || taken.Host != owner ||
			!strings.Contains(err.Error(), "overlaps with those of host "+owner) {
			t.Errorf("a host %s: %v", host, err)
		}
	}

	// An earlier name that the host may not choose stays only if the operator repeats it.
	for _, repeated := range [][]enrolment.Node{{{UUID: nodeB, Name: "hypervisor-9"}}, nil} {
		k := newKeyPair(t, "h9")
		answer := testproc.Try(w.join(w.invite("h9", true, repeated...), k)).Or(t)
		id := identity(t, w.pair(answer, k))
		if len(id.Nodes) != 2 || slices.Contains(id.Names, "hypervisor-9") != (repeated != nil) {
			t.Errorf("invited again with %v: %+v", repeated, id)
		}
	}
}

// TestNoReasonStopsTheDenyList: a text for people does not keep the list from being published.
func TestNoReasonStopsTheDenyList(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newWorld(t, nil)
	h1, h2 := w.joined("h1"), w.joined("h2")
	_, err := enrolment.Evict(t.Context(), w.store, "h1", "", strings.Repeat("x", 501), w.now())
	testproc.ErrorIs(t, err, apidb.ErrInvalid, "a reason of 501 bytes: %v")
	list, err := enrolment.Denied(t.Context(), w.store, nil)
	if must(t, err); len(list.Denials()) != 0 {
		t.Errorf("the refused eviction changed %+v", list.Denials())
	}
	testproc.Try(enrolment.Evict(t.Context(), w.store, "h2", "", "short", w.now())).Or(t)
	_, err = w.store.ChangeEnrolment(t.Context(), "h1", func(e *apidb.Enrolment) error { // an older process
		e.State, e.DeniedBefore, e.Reason = apidb.Evicted, w.now().Add(time.Second), strings.Repeat("é", 500)
		return nil
	})
	must(t, err)
	status, text := w.send(nil, http.MethodGet, "/v1/denied", "", nil)
	list, err = pki.ParseDenyList(text, "denied")
	if must(t, err); status != http.StatusOK || list.CheckIdentity(identity(t, h1)) == nil ||
		list.CheckIdentity(identity(t, h2)) == nil {
		t.Errorf("status %d, %.200s", status, text)
	}
}

// TestEvictionCoversCertificatesOfAFastClock: the machine of the operator may be behind.
func TestEvictionCoversCertificatesOfAFastClock(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newWorld(t, nil)
	w.later.Store(int64(5 * time.Minute))
	c := w.joined("h1")
	testproc.Try(enrolment.Evict(t.Context(), w.store, "h1", "", "stolen", time.Now())).Or(t)
	list, err := enrolment.Denied(t.Context(), w.store, nil)
	if must(t, err); list.CheckIdentity(identity(t, c)) == nil {
		t.Errorf("%+v does not refuse a certificate of %v", list.Denials(), identity(t, c).Issued)
	}
}

// TestEvictedByAFastClock: a host that was evicted, got its certificate or was invited while the
// clock was a year ahead is refused for good, with the reason, and an operator can end that.
func TestEvictedByAFastClock(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	year := 365 * 24 * time.Hour
	for name, during := range map[string]func(*world, *tls.Certificate){
		"evicted then": func(w *world, _ *tls.Certificate) {
			testproc.Try(enrolment.Evict(w.t.Context(), w.store, "h1", "", "stolen", w.now())).Or(w.t)
		},
		"renewed then, evicted later": func(w *world, c *tls.Certificate) {
			k := newKeyPair(w.t, "h1")
			*c = w.pair(testproc.Try(w.renew(*c, k)).Or(w.t), k)
			w.later.Store(0)
			testproc.Try(enrolment.Evict(w.t.Context(), w.store, "h1", "", "stolen", w.now())).Or(w.t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *enrolment.Config) { c.RenewalGrace = 2 * year })
			c := w.joined("h1")
			w.later.Store(int64(year))
			during(w, &c)
			w.later.Store(0)
			again := enrolment.Invitation{
				Host: "h1", CellUUID: cell1, By: "root", TTL: time.Hour, Again: true, Now: w.now(),
			}
			_, _, err := enrolment.Invite(t.Context(), w.store, w.ca.Fingerprint(), again)
			testproc.ErrorIs(t, err, enrolment.ErrAhead, "invited: %v")
			e, ahead, err := enrolment.Allow(t.Context(), w.store, "h1", w.now())
			must(t, err)
			off := e.DeniedBefore.Sub(w.now()).Abs()
			if e.State != apidb.Evicted || off > time.Minute || e.EvictedAt.After(w.now()) ||
				ahead.From.IsZero() != (name == "evicted then") {
				t.Errorf("Allow of an eviction by a fast clock: got %+v, %+v", e, ahead)
			}
			_, _, err = enrolment.Allow(t.Context(), w.store, "h1", w.now())
			testproc.ErrorIs(t, err, enrolment.ErrNotAhead, "allowed again: %v")
			k := newKeyPair(t, "h1")
			answer := testproc.Try(w.join(w.invite("h1", true), k)).Or(t)
			must(t, w.confirm(w.pair(answer, k)))
			list, err := enrolment.Denied(t.Context(), w.store, nil)
			must(t, err)
			if list.CheckIdentity(identity(t, w.pair(answer, k))) != nil ||
				name == "evicted then" && list.CheckIdentity(identity(t, c)) == nil {
				t.Errorf("the denials after a new enrolment: got %+v", list.Denials())
			}
		})
	}
	_, _, err := enrolment.Allow(t.Context(), newWorld(t, nil).store, "h1", time.Now())
	testproc.ErrorIs(t, err, apidb.ErrNotFound, "no such host: %v")
}

// TestJoinWhileDeniedAhead: a token of a host that is denied beyond the present, by the database or
// by the file, is answered with the reason and not with "again"; so is one of a clock that was
// ahead.
func TestJoinWhileDeniedAhead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "denied")
	must(t, os.WriteFile(path, []byte("FILED "+time.Now().Add(48*time.Hour).UTC().Format(time.RFC3339)+"\n"), 0o600))
	file := testproc.Try(pki.OpenDenyFile(path, zerolog.Nop())).Or(t)
	w := newWorld(t, func(c *enrolment.Config) { c.Denied = file })
	inDatabase, inFile := w.invite("h1", false), w.invite("filed", false)
	testproc.Try(w.store.ChangeEnrolment(t.Context(), "h1", func(e *apidb.Enrolment) error {
		// As an older process has invited it.
		e.DeniedBefore = time.Now().Add(48 * time.Hour)
		return nil
	})).Or(t)
	w.later.Store(int64(48 * time.Hour))
	ofLater := w.invite("h2", false)
	w.later.Store(0)
	for name, c := range map[string]struct {
		token enrolment.Token
		code  enrolment.Code
		text  string
	}{
		"by the database": {inDatabase, enrolment.CodeEvicted, "cells manage allow-host h1"},
		"by the file":     {inFile, enrolment.CodeEvicted, "ca allow FILED"},
		"a future token":  {ofLater, enrolment.CodeTokenExpired, "by a clock that was ahead"},
	} {
		_, err := w.join(c.token, newKeyPair(t, "x"))
		wantRefusal(t, name, err, c.code)
		refused := new(enrolment.Refusal)
		if !errors.As(err, &refused) || !strings.Contains(refused.Message, c.text) || !refused.Final() {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, _, err := enrolment.Allow(t.Context(), w.store, "h1", w.now())
	must(t, err)
	testproc.Try(w.join(inDatabase, newKeyPair(t, "h1"))).Or(t)
}

// TestDamagedFile: while the list of the file is not known no host joins or renews, and nothing is
// published that would let the hosts in which it had.
func TestDamagedFile(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "denied")
	must(t, os.WriteFile(path, nil, 0o600))
	file := testproc.Try(pki.OpenDenyFile(path, zerolog.Nop())).Or(t)
	w := newWorld(t, func(c *enrolment.Config) { c.Denied = file })
	token, k := w.invite("h1", false), newKeyPair(t, "h1")
	_, err := w.join(token, k)
	wantRefusal(t, "join", err, enrolment.CodeUnavailable)
	c := signed(t, w.ca, pki.Identity{Kind: pki.Host, Name: "h1", Names: []string{"h1"}}, false)
	_, err = w.renew(c, k)
	wantRefusal(t, "renew", err, enrolment.CodeUnavailable)
	if status, text := w.send(nil, http.MethodGet, "/v1/denied", "", nil); status != http.StatusServiceUnavailable {
		t.Errorf("published: %d, %s", status, text)
	}
}

// TestJoinAfterRevocationByFile: the certificate begins when the denial of the file ends.
func TestJoinAfterRevocationByFile(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "denied")
	must(t, os.WriteFile(path, []byte("h1 "+time.Now().UTC().Format(time.RFC3339)+" lost\n"), 0o600))
	file := testproc.Try(pki.OpenDenyFile(path, zerolog.Nop())).Or(t)
	w := newWorld(t, func(c *enrolment.Config) { c.Denied = file })
	if c := w.joined("h1"); file.Get().CheckIdentity(identity(t, c)) != nil {
		t.Errorf("the new certificate of %v is refused: %+v", identity(t, c).Issued, file.Get().Denials())
	}
}

// TestJoinRefused: wrong tokens, requests and nodes change nothing, and each is named.
func TestJoinRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newWorld(t, nil)
	w.joined("owner", enrolment.Node{UUID: nodeA})
	token := w.invite("h1", false)
	parts := strings.Split(token.Reveal(), ".")
	text := func(at int, part string) string {
		changed := slices.Clone(parts)
		changed[at] = part
		return strings.Join(changed, ".")
	}
	otherKey := newKeyPair(t, "x")
	good := string(otherKey.csr)
	block, _ := pem.Decode(otherKey.csr)
	forged := slices.Clone(block.Bytes)
	forged[len(forged)-1] ^= 1
	replaced := w.invite("h2", false)
	w.invite("h2", false)
	many := make([]enrolment.Node, apidb.MaxEnrolledNodes+1)
	for i := range many {
		many[i].UUID = fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
	}
	ca := testproc.Try(pki.InitAuthority(filepath.Join(t.TempDir(), "ca"), "other", time.Now())).Or(t)
	for name, c := range map[string]struct {
		token, csr string
		nodes      []enrolment.Node
		code       enrolment.Code
	}{
		"no token":            {"", good, nil, enrolment.CodeBadRequest},
		"another text":        {"secret", good, nil, enrolment.CodeBadRequest},
		"another version":     {text(0, "join2"), good, nil, enrolment.CodeBadRequest},
		"of another CA":       {text(1, ca.Fingerprint()), good, nil, enrolment.CodeTokenUnknown},
		"of no host":          {text(2, "0123456789abcdef"), good, nil, enrolment.CodeTokenUnknown},
		"guessed":             {text(3, strings.Repeat("A", 43)), good, nil, enrolment.CodeTokenUnknown},
		"replaced by another": {replaced.Reveal(), good, nil, enrolment.CodeTokenUnknown},
		"no request":          {token.Reveal(), "", nil, enrolment.CodeBadRequest},
		"a certificate":       {token.Reveal(), string(w.ca.PEM()), nil, enrolment.CodeBadRequest},
		"a forged request": {token.Reveal(),
			string(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: forged})), nil, enrolment.CodeBadRequest},
		"a huge request": {token.Reveal(), strings.Repeat("x", 100<<10), nil, enrolment.CodeBadRequest},
		"no uuid":        {token.Reveal(), good, []enrolment.Node{{UUID: "h1"}}, enrolment.CodeBadRequest},
		"a name with a path": {token.Reveal(), good,
			[]enrolment.Node{{UUID: nodeB, Name: "../h"}}, enrolment.CodeBadRequest},
		"too many nodes": {token.Reveal(), good, many, enrolment.CodeBadRequest},
		"the node of another one": {token.Reveal(), good,
			[]enrolment.Node{{UUID: nodeB}, {UUID: nodeA}}, enrolment.CodeNodeTaken},
	} {
		body := testproc.Try(json.Marshal(enrolment.JoinRequest{Token: c.token, CSR: c.csr, Nodes: c.nodes})).Or(t)
		w.later.Add(int64(time.Minute)) // the bound of failures is not what this is about
		status, answer := w.send(nil, http.MethodPost, "/v1/join", "application/json", bytes.NewReader(body))
		var refused enrolment.Refusal
		if err := json.Unmarshal(answer, &refused); err != nil || refused.Code != c.code ||
			status < 400 || status > 499 {
			t.Errorf("%s: status %d, %s", name, status, answer)
		}
		if strings.Count(refused.Message, "cannot be used") > 1 {
			t.Errorf("%s: the reason says it twice: %s", name, refused.Message)
		}
	}
	for name, c := range map[string]struct {
		method, path, kind, body string
		status                   int
	}{
		"huge": {http.MethodPost, "/v1/join", "application/json", `{"token": "` +
			strings.Repeat("x", 300<<10) + `"}`, http.StatusRequestEntityTooLarge},
		"not JSON":     {http.MethodPost, "/v1/join", "application/json", `token`, http.StatusBadRequest},
		"another type": {http.MethodPost, "/v1/join", "text/plain", `{}`, http.StatusBadRequest},
		"an unknown field": {http.MethodPost, "/v1/join", "application/json",
			`{"host": "h1"}`, http.StatusBadRequest},
		"no certificate":      {http.MethodPost, "/v1/renew", "application/json", `{}`, http.StatusUnauthorized},
		"another method":      {http.MethodGet, "/v1/join", "", "", http.StatusMethodNotAllowed},
		"another path":        {http.MethodGet, "/v1/hosts", "", "", http.StatusNotFound},
		"a path with a slash": {http.MethodGet, "/v1//denied", "", "", http.StatusNotFound},
	} {
		if status, answer := w.send(nil, c.method, c.path, c.kind, strings.NewReader(c.body)); status != c.status ||
			!json.Valid(answer) {
			t.Errorf("%s: status %d, %s", name, status, answer)
		}
	}
	e, err := w.store.EnrolmentOfToken(t.Context(), token.ID)
	if must(t, err); e.State != apidb.Invited || len(e.Nodes) != 0 {
		t.Errorf("something was changed: %+v", e)
	}
	w.later.Add(int64(time.Hour))
	_, err = w.join(token, otherKey)
	wantRefusal(t, "an expired token", err, enrolment.CodeTokenExpired)
	// Nothing of this kept the host out for good.
	testproc.Try(w.join(w.invite("h1", false), otherKey, enrolment.Node{UUID: nodeB})).Or(t)
}

// TestATokenIsGoodOnce: for one key. The same request again is answered, because an answer may be
// lost; two machines with one token do not both join.
func TestATokenIsGoodOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newWorld(t, nil)
	token, k := w.invite("h1", false), newKeyPair(t, "h1")
	first := testproc.Try(w.join(token, k, enrolment.Node{UUID: nodeA})).Or(t)
	again := testproc.Try(w.join(token, k, enrolment.Node{UUID: nodeA})).Or(t)
	if a, b := identity(t, w.pair(first, k)), identity(t, w.pair(again, k)); a.Name != b.Name ||
		!slices.Equal(a.Nodes, b.Nodes) {
		t.Errorf("%+v, then %+v", a, b)
	}
	_, err := w.join(token, newKeyPair(t, "h1"))
	wantRefusal(t, "with another key", err, enrolment.CodeTokenUsed)
	_, err = w.join(token, k, enrolment.Node{UUID: nodeB})
	wantRefusal(t, "with another node", err, enrolment.CodeNodeTaken)
	w.later.Add(int64(time.Hour))
	_, err = w.join(token, k)
	wantRefusal(t, "after its time", err, enrolment.CodeTokenExpired)

	token = w.invite("h2", false)
	keys := []keyPair{newKeyPair(t, "h2"), newKeyPair(t, "h2"), newKeyPair(t, "h2")}
	errs := make([]error, len(keys))
	var all sync.WaitGroup
	for i, k := range keys {
		all.Go(func() { _, errs[i] = w.join(token, k) })
	}
	all.Wait()
	got := 0
	for _, err := range errs {
		if err == nil {
			got++
			continue
		}
		wantRefusal(t, "at once", err, enrolment.CodeTokenUsed)
	}
	testproc.Equal(t, got, 1, "%d machines joined with one token")
}

// TestFailedJoinsAreBounded: guesses of one network are refused for a while. A host with a good
// token joins: it may share the address with them.
func TestFailedJoinsAreBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newWorld(t, nil)
	token, k := w.invite("h1", false), newKeyPair(t, "h1")
	wrong := enrolment.NewToken(w.ca.Fingerprint())
	for range 10 {
		_, err := w.join(wrong, k)
		wantRefusal(t, "a wrong token", err, enrolment.CodeTokenUnknown)
	}
	_, err := w.join(wrong, k)
	wantRefusal(t, "after ten", err, enrolment.CodeTooMany)
	used := w.invite("h2", false)
	testproc.Try(w.join(used, newKeyPair(t, "h2"))).Or(t)
	for range 11 { // it is no guess, so it is not counted, and keeps its reason
		_, err = w.join(used, newKeyPair(t, "h2"))
		wantRefusal(t, "a known token, used before", err, enrolment.CodeTokenUsed)
	}
	testproc.Try(w.join(token, k)).Or(t)
	w.later.Add(int64(time.Minute))
	_, err = w.join(wrong, k)
	wantRefusal(t, "a minute later", err, enrolment.CodeTokenUnknown)
	if n := strings.Count(w.log.String(), "A host was not let join"); n != 2 {
		t.Errorf("%d failures were logged in two minutes", n)
	}
}

// TestJoinTrustsTheCAOfTheToken: the token is given to no other server.
func TestJoinTrustsTheCAOfTheToken(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w, other := newWorld(t, nil), newWorld(t, nil)
	_, err := enrolment.Join(t.Context(), other.url, w.invite("h1", false), newKeyPair(t, "h1").csr, nil)
	testproc.ErrorIs(t, err, enrolment.ErrOtherCA, "the service of another CA: %v")
	if strings.Contains(other.log.String(), "/v1/join") {
		t.Error("the other service got the request")
	}
	named := newWorld(t, func(c *enrolment.Config) { c.Names = []string{"api.example"} })
	var wrong x509.HostnameError
	if _, err := enrolment.Join(t.Context(), named.url, named.invite("h1", false), newKeyPair(t, "h1").csr,
		nil); !errors.As(err, &wrong) {
		t.Errorf("a service of another name: %v", err)
	}
	for _, bad := range []string{"", "http://api.example",
		"https://", "https://a@api.example", "https://api.example/x", "://"} {
		if _, err := enrolment.Join(t.Context(), bad, w.invite("h1", false), nil, nil); err == nil {
			t.Errorf("%q is a URL", bad)
		}
	}
}

// TestDenyListIsReadOnce: clients of which none is known cost one read of the database in a second,
// however many they are. What this service's file denies shows at once, evictions after a second.
func TestDenyListIsReadOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var store *countedStore
	path := filepath.Join(t.TempDir(), "denied")
	must(t, os.WriteFile(path, []byte("filed "+time.Now().UTC().Format(time.RFC3339)+"\n"), 0o600))
	file := testproc.Try(pki.OpenDenyFile(path, zerolog.Nop())).Or(t)
	w := newWorld(t, func(c *enrolment.Config) {
		store = &countedStore{Store: c.Store}
		c.Store, c.Denied = store, file
	})
	at := time.Now()
	w.stopClock(at)
	w.joined("h1")
	denied := func() string {
		status, text := w.send(nil, http.MethodGet, "/v1/denied", "", nil)
		if status != http.StatusOK || !strings.Contains(string(text), "filed ") {
			t.Errorf("status %d, %s", status, text)
		}
		return string(text)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { denied() })
	}
	all.Wait()
	testproc.Equal(t, store.lists.Load(), 1, "the database was read %d times")
	testproc.Try(enrolment.Evict(t.Context(), w.store, "h1", "", "stolen", at)).Or(t)
	w.stopClock(at.Add(time.Second))
	if !strings.Contains(denied(), "h1 ") || store.lists.Load() != 2 {
		t.Errorf("after a second the eviction does not show; the database was read %d times", store.lists.Load())
	}
}

// TestEnrolledAgain: a new token ends the identity of before, within the same second too.
func TestEnrolledAgain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newWorld(t, nil)
	var old []tls.Certificate
	for range 4 {
		k := newKeyPair(t, "h1")
		answer := testproc.Try(w.join(w.invite("h1", len(old) > 0), k, enrolment.Node{UUID: nodeA})).Or(t)
		old = append(old, w.pair(answer, k))
	}
	list := testproc.Try(enrolment.Denied(t.Context(), w.store, nil)).Or(t)
	for i, c := range old {
		if denied := list.CheckIdentity(identity(t, c)) != nil; denied != (i < len(old)-1) {
			t.Errorf("identity %d of %d: denied %v", i, len(old), denied)
		}
	}
	_, _, err := enrolment.Invite(t.Context(), w.store,
		"", enrolment.Invitation{Host: "h1", CellUUID: cell1, Now: w.now()})
	testproc.ErrorIs(t, err, enrolment.ErrAlreadyInvited, "without --again: %v")
	if _, err := enrolment.Evict(t.Context(), w.store, "none", "", "", w.now()); !errors.Is(err, apidb.ErrNotFound) {
		t.Errorf("evicting a host that was never invited: %v", err)
	}
}

// FuzzParseToken: what is read as a token is written so.
func FuzzParseToken(f *testing.F) {
	f.Add(enrolment.NewToken(strings.Repeat("0f", 32)).Reveal())
	f.Add("join1...")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := enrolment.ParseToken(text)
		if err == nil && token.Reveal() != strings.TrimSpace(text) {
			t.Errorf("%q is read as %q", text, token.Reveal())
		}
		if secret := fmt.Sprintf("%v %#v", token, token); err == nil &&
			strings.Contains(secret, strings.Split(text, ".")[3]) {
			t.Error("it is printed")
		}
	})
}
