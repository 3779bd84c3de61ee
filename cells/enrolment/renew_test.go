// SPDX-License-Identifier: Apache-2.0

package enrolment_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRenew: with its certificate a host gets another one, for a new key. The old key is its own
// until the new one was shown, so that a lost answer does no harm.
func TestRenew(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newWorld(t, nil)
	first := w.joined("h1", enrolment.Node{UUID: nodeA})
	lost, second := newKeyPair(t, "h1"), newKeyPair(t, "h1")
	testproc.Try(w.renew(first, lost)).Or(t)
	answer := testproc.Try(w.renew(first, second)).Or(t)
	if id := identity(t, w.pair(answer, second)); id.Name != "h1" || !slices.Equal(id.Nodes, []string{nodeA}) {
		t.Errorf("the certificate is for %+v", id)
	}
	third := newKeyPair(t, "h1")
	answer = testproc.Try(w.renew(w.pair(answer, second), third)).Or(t)
	if n := strings.Count(w.log.String(), `"address":"127.0.0.1"`); n < 3 ||
		strings.Count(w.log.String(), "A host renewed its certificate.") != 3 {
		t.Errorf("the renewals are not logged with their address: %s", w.log)
	}
	// Now a copy of the first identity is of no use, and is noticed.
	_, err := w.renew(first, newKeyPair(t, "h1"))
	wantRefusal(t, "an old copy", err, enrolment.CodeKeyUnknown)
	if !strings.Contains(w.log.String(), "has shown a key that is not its own any more") {
		t.Error("the copy was not logged")
	}
	// An expired certificate is renewed within the grace.
	w.later.Add(int64(90 * time.Minute))
	answer = testproc.Try(w.renew(w.pair(answer, third), second)).Or(t)
	w.later.Add(int64(121 * time.Minute))
	_, err = w.renew(w.pair(answer, second), third)
	wantRefusal(t, "after the grace", err, enrolment.CodeUnauthorized)
}

// TestCertificatesNameTheCell: the certificates of joining and of renewals name the cell of the
// enrolment; that of before gets one with it. A host that is invited to another cell gets that one.
func TestCertificatesNameTheCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newWorld(t, nil)
	first := w.joined("h1", enrolment.Node{UUID: nodeA})
	second := newKeyPair(t, "h1")
	renewed := w.pair(testproc.Try(w.renew(first, second)).Or(t), second)
	for name, pair := range map[string]tls.Certificate{"joined": first, "renewed": renewed} {
		testproc.Equal(t, identity(t, pair).Cell, "cell1", "%s: for cell %q", name)
	}
	before := signed(t, w.ca, pki.Identity{Kind: pki.Host, Name: "h1", Names: []string{"h1"}}, true)
	der := testproc.Try(x509.MarshalPKIXPublicKey(before.Leaf.PublicKey)).Or(t)
	testproc.Try(w.store.ChangeEnrolment(t.Context(), "h1", func(e *apidb.Enrolment) error {
		e.KeyDigest, e.NextKeyDigest = fmt.Sprintf("%x", sha256.Sum256(der)), ""
		return nil
	})).Or(t)
	third := newKeyPair(t, "h1")
	testproc.Equal(t, identity(t, w.pair(testproc.Try(w.renew(before, third)).Or(t), third)).Cell,
		"cell1", "of before: for cell %q")

	other := testproc.Try(w.store.CreateCell(t.Context(),
		apidb.Cell{Name: "cell 2/b", URL: "https://cell2.example:8780"})).Or(t)
	_, token, err := enrolment.Invite(t.Context(), w.store, w.ca.Fingerprint(), enrolment.Invitation{
		Host: "h1", CellUUID: other.UUID, By: "root", TTL: time.Hour, Again: true, Now: w.now(),
	})
	must(t, err)
	fourth := newKeyPair(t, "h1")
	testproc.Equal(t, identity(t, w.pair(testproc.Try(w.join(token, fourth)).Or(t), fourth)).Cell,
		"cell 2/b", "elsewhere: for cell %q")
}

// TestConfirm: the key of before ends when the new certificate is confirmed, not a renewal later. A
// lost answer, and the same again, do no harm.
func TestConfirm(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newWorld(t, nil)
	first := w.joined("h1", enrolment.Node{UUID: nodeA})
	must(t, w.confirm(first)) // nothing was renewed yet
	lost, second := newKeyPair(t, "h1"), newKeyPair(t, "h1")
	lostAnswer := testproc.Try(w.renew(first, lost)).Or(t)
	must(t, w.confirm(first)) // the agent was restarted: it does not end what is on the way
	answer := testproc.Try(w.renew(first, second)).Or(t)
	if !strings.Contains(w.log.String(), "never confirmed the one before") {
		t.Error("the renewal that was never confirmed is not logged")
	}
	wantRefusal(t, "the certificate of the lost answer", w.confirm(w.pair(lostAnswer, lost)), enrolment.CodeKeyUnknown)
	for range 2 {
		must(t, w.confirm(w.pair(answer, second)))
	}
	_, err := w.renew(first, newKeyPair(t, "h1"))
	wantRefusal(t, "the key of before, after the confirmation", err, enrolment.CodeKeyUnknown)
	wantRefusal(t, "confirming it", w.confirm(first), enrolment.CodeKeyUnknown)
	if n := strings.Count(w.log.String(), "confirmed its renewed certificate"); n != 1 {
		t.Errorf("%d confirmations are logged", n)
	}
	// The clock of the service that signed it may be ahead of that which is asked.
	w.later.Store(int64(5 * time.Minute))
	third := newKeyPair(t, "h1")
	answer = testproc.Try(w.renew(w.pair(answer, second), third)).Or(t)
	w.later.Store(0)
	must(t, w.confirm(w.pair(answer, third)))
}

// TestTwoHolders: of two machines with one identity, the one that renewed second learns when and
// from where the other did, and an operator sees it, however often the copy is shown.
func TestTwoHolders(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	counted := &countedRefusals{}
	w := newWorld(t, func(c *enrolment.Config) { c.Observer = counted })
	host := w.joined("h417")
	thief := newKeyPair(t, "h417")
	answer := testproc.Try(w.renew(host, thief)).Or(t)
	must(t, w.confirm(w.pair(answer, thief)))
	before := testproc.Try(w.store.Enrolment(t.Context(), "h417")).Or(t)

	_, err := w.renew(host, newKeyPair(t, "h417"))
	wantRefusal(t, "the host", err, enrolment.CodeKeyUnknown)
	for _, part := range []string{"Another holder of the certificate of host h417 renewed it at " + before.Issued.UTC().
		Format(time.RFC3339) + " from 127.0.0.1", "cells manage evict-host h417", "add-host h417 --again"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the host is not told %q: %v", part, err)
		}
	}
	e := testproc.Try(w.store.Enrolment(t.Context(), "h417")).Or(t)
	if e.Conflict == nil || e.Conflict.From != "127.0.0.1" || e.Conflict.Key == "" || e.Conflict.Key == e.KeyDigest ||
		e.RenewedFrom != "127.0.0.1" {
		t.Fatalf("the enrolment is %+v, the conflict %+v", e, e.Conflict)
	}
	for _, part := range []string{`"level":"warn"`, "has shown a key that is not its own any more", e.Conflict.Key,
		e.KeyDigest, `"renewed_from":"127.0.0.1"`} {
		if !strings.Contains(w.log.String(), part) {
			t.Errorf("the log does not have %s", part)
		}
	}
	// The refused one costs reads, and after ten a minute not even these.
	for range 9 {
		wantRefusal(t, "again", w.confirm(host), enrolment.CodeKeyUnknown)
	}
	wantRefusal(t, "after ten", w.confirm(host), enrolment.CodeTooMany)
	if got := counted.of("/v1/renew key_unknown"); got != 1 || counted.of("/v1/confirm key_unknown") != 9 ||
		counted.of("/v1/confirm too_many") != 1 {
		t.Errorf("counted: %v", counted.all)
	}
	must(t, w.confirm(w.pair(answer, thief))) // another key of the same network is not bounded by that
	if again, err := w.store.Enrolment(t.Context(), "h417"); err != nil || !again.Conflict.At.Equal(e.Conflict.At) {
		t.Errorf("it was written %v again, %v", again.Conflict, err)
	}
	w.later.Add(int64(time.Minute))
	wantRefusal(t, "a minute later", w.confirm(host), enrolment.CodeKeyUnknown)

	// Inviting the host again ends both, and the conflict.
	w.invite("h417", true)
	if e, err := w.store.Enrolment(t.Context(), "h417"); err != nil || e.Conflict != nil || e.RenewedFrom != "" {
		t.Errorf("the enrolment after a new invitation: got %+v, %v, want no conflict", e, err)
	}
	wantRefusal(t, "the thief", w.confirm(w.pair(answer, thief)), enrolment.CodeNotEnrolled)
}

// TestRenewalRaces: a key that was received a moment ago is not replaced from another address, and
// one that was never confirmed is, with a conflict to see. A copy does not use up the renewals and
// refusals of the host.
func TestRenewalRaces(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newWorld(t, nil)
	w.stopClock(time.Now()) // requests are counted for a minute
	first := w.joined("h1")
	for range 40 { // of the same key, as the host has
		status, _ := w.send(&first, http.MethodPost, "/v1/renew", "application/json", strings.NewReader("{"))
		if status != http.StatusBadRequest {
			t.Fatalf("a malformed request is answered with %d", status)
		}
	}
	w.from = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}
	for range 30 {
		testproc.Try(w.renew(first, newKeyPair(t, "h1"))).Or(t)
	}
	_, err := w.renew(first, newKeyPair(t, "h1"))
	wantRefusal(t, "one more of the copy", err, enrolment.CodeTooMany)

	w.from = nil
	second := newKeyPair(t, "h1")
	_, err = w.renew(first, second)
	wantRefusal(t, "a moment later, from elsewhere", err, enrolment.CodeTooMany)
	if e, err := w.store.Enrolment(t.Context(), "h1"); err != nil || e.Conflict != nil {
		t.Errorf("the conflict of a refused renewal: got %+v, %v, want nil", e.Conflict, err)
	}
	w.later.Add(int64(time.Minute))
	answer := testproc.Try(w.renew(first, second)).Or(t)
	must(t, w.confirm(w.pair(answer, second)))
	e, err := w.store.Enrolment(t.Context(), "h1")
	if err != nil || e.Conflict == nil || e.Conflict.From != "127.0.0.2" || e.Conflict.Key == "" ||
		e.Conflict.Key == e.KeyDigest || e.RenewedFrom != "127.0.0.1" {
		t.Errorf("the enrolment of two holders: got %+v, %v, want a conflict from 127.0.0.2", e, err)
	}
}

// TestRefusalsTakeNoLock: a host that is refused changes nothing in the database, and does not wait
// for those that do.
func TestRefusalsTakeNoLock(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var store *countedStore
	w := newWorld(t, func(c *enrolment.Config) {
		store = &countedStore{Store: c.Store}
		c.Store = store
	})
	evicted, again, copied := w.joined("evicted"), w.joined("again"), w.joined("copied")
	testproc.Try(enrolment.Evict(t.Context(), w.store, "evicted", "", "", w.now())).Or(t)
	w.invite("again", true)
	k := newKeyPair(t, "copied")
	answer, err := w.renew(copied, k)
	must(t, err)
	renewed := w.pair(answer, k)
	must(t, w.confirm(renewed))
	wantRefusal(t, "the key of before", w.confirm(copied), enrolment.CodeKeyUnknown) // which is kept, once
	store.changes.Store(0)
	for range 5 {
		_, err = w.renew(evicted, newKeyPair(t, "evicted"))
		wantRefusal(t, "evicted", err, enrolment.CodeEvicted)
		wantRefusal(t, "invited again", w.confirm(again), enrolment.CodeNotEnrolled)
		wantRefusal(t, "the key of before", w.confirm(copied), enrolment.CodeKeyUnknown)
		must(t, w.confirm(renewed))
	}
	testproc.Equal(t, store.changes.Load(), 0, "refusals took the write lock %d times")
}

// TestRenewRefused: certificates of others, of hosts that are not enrolled any more, and of
// services renew nothing.
func TestRenewRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	denied := filepath.Join(t.TempDir(), "denied")
	must(t, os.WriteFile(denied, []byte("stolen "+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)+" rack 7\n"),
		0o600))
	file := testproc.Try(pki.OpenDenyFile(denied, zerolog.Nop())).Or(t)
	w := newWorld(t, func(c *enrolment.Config) { c.Denied = file })
	other := testproc.Try(pki.InitAuthority(filepath.Join(t.TempDir(), "ca"), "test-ca", time.Now())).Or(t)
	h1 := pki.Identity{Kind: pki.Host, Name: "h1", Names: []string{"h1"}}
	host := func(name string) tls.Certificate {
		return signed(t, w.ca, pki.Identity{Kind: pki.Host, Name: name, Names: []string{name}}, false)
	}
	service := func(name, names string, client bool) tls.Certificate {
		return signed(t, w.ca, pki.Identity{Kind: pki.Service, Name: name, Names: []string{names}}, client)
	}
	evicted, again := w.joined("evicted"), w.joined("again")
	testproc.Try(enrolment.Evict(t.Context(), w.store, "evicted", "", "sold  to\nothers", w.now())).Or(t)
	w.invite("again", true)
	w.joined("h1")
	for name, c := range map[string]struct {
		client tls.Certificate
		code   enrolment.Code
	}{
		"of another CA":         {signed(t, other, h1, false), enrolment.CodeUnauthorized},
		"of a service":          {service("compute-api", "h1", true), enrolment.CodeNotEnrolled},
		"of a server":           {service("cell1", "cell1", false), enrolment.CodeUnauthorized},
		"of a host unknown":     {host("h9"), enrolment.CodeNotEnrolled},
		"with another key":      {signed(t, w.ca, h1, false), enrolment.CodeKeyUnknown},
		"evicted":               {evicted, enrolment.CodeEvicted},
		"invited again":         {again, enrolment.CodeNotEnrolled},
		"on the list of a file": {host("Stolen"), enrolment.CodeEvicted},
	} {
		_, err := w.renew(c.client, newKeyPair(t, "h1"))
		wantRefusal(t, name, err, c.code)
	}
	status, text := w.send(nil, http.MethodGet, "/v1/denied", "", nil)
	list, err := pki.ParseDenyList(text, "denied")
	if must(t, err); status != http.StatusOK || len(list.Denials()) != 3 {
		t.Errorf("status %d, %s", status, text)
	}
	if err := list.CheckIdentity(identity(t, evicted)); !errors.Is(err, pki.ErrDenied) {
		t.Errorf("the deny list says of an evicted host: %v", err)
	}
	if strings.Contains(string(text), "sold") || strings.Contains(string(text), "rack") {
		t.Errorf("all who reach the service read why hosts are refused: %s", text)
	}
	if status, text := w.send(nil, http.MethodGet, "/v1/ca", "", nil); status != http.StatusOK ||
		!bytes.Equal(text, w.ca.PEM()) {
		t.Errorf("the CA: status %d, %s", status, text)
	}
}
