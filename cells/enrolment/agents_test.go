// SPDX-License-Identifier: Apache-2.0

package enrolment_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// machine is one that has the files of a host, and a run of its agent.
type machine struct {
	w      *world
	client enrolment.Client
	said   *agentruns.ProcessSender
}

// newMachine makes a machine with a certificate, whose agent has a token.
func newMachine(w *world, token string, pair tls.Certificate) *machine {
	w.t.Helper()
	dir := w.t.TempDir()
	m := &machine{w: w, said: &agentruns.ProcessSender{}}
	m.said.Begin(agentruns.Process{Token: token, Boot: "boot-" + token, Started: w.now()}, "h1", "")
	m.client = enrolment.Client{URL: w.url, CAFile: filepath.Join(dir, "ca.pem"),
		IdentityFile: filepath.Join(dir, "identity.pem"), Process: m.said}
	must(w.t, os.WriteFile(m.client.CAFile, w.ca.PEM(), 0o600))
	m.has(pair)
	return m
}

// has writes the certificate that the machine has from now on.
func (m *machine) has(pair tls.Certificate) {
	m.w.t.Helper()
	key := testproc.Try(x509.MarshalPKCS8PrivateKey(pair.PrivateKey)).Or(m.w.t)
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})...)
	must(m.w.t, os.WriteFile(m.client.IdentityFile, text, 0o600))
}

// confirms confirms the certificate, and says what the agent knows of others then.
func (m *machine) confirms() (several string, err error) {
	err = m.client.Confirm(m.w.t.Context())
	return m.said.SeveralAgents(), err
}

// live are the agents that the database has of host h1 now.
func (w *world) live() []agentruns.Process {
	w.t.Helper()
	return enrolment.LiveAgents(testproc.Try(w.store.Enrolment(w.t.Context(), "h1")).Or(w.t), w.now())
}

// TestTwoMachinesThatRenew: two machines with one certificate are found by the tokens of their
// agents, before one of them renews it and after that, when the other one is refused.
func TestTwoMachinesThatRenew(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newWorld(t, nil) // certificates are good for an hour: an agent counts for seven minutes and a half
	w.stopClock(time.Now())
	pair := w.joined("h1")
	a, b := newMachine(w, "a", pair), newMachine(w, "b", pair)
	tick := func() { w.later.Add(int64(150 * time.Second)) }
	for i, m := range []*machine{a, b, a, b} {
		several, err := m.confirms()
		if err != nil || several != "" {
			t.Fatalf("confirmation %d: got %q, %v, want no other agent", i, several, err)
		}
		tick()
	}
	if live := w.live(); live != nil {
		t.Fatalf("without proof: %v", live)
	}
	for _, m := range []*machine{a, b} {
		several, err := m.confirms()
		must(t, err)
		for _, part := range []string{"2 agents report as host h1: one that started at ",
			"reports from 127.0.0.1 (boot id boot-a", "(boot id boot-b"} {
			testproc.Contains(t, several, part, "the conflict: %q")
		}
		tick()
	}
	testproc.Equal(t, len(w.live()), 2, "%d agents")
	testproc.Equal(t, strings.Count(w.log.String(), "Two machines have the identity of a host"), 1,
		"%d lines of the log")

	// One renews, and the other one is refused from then on: it lives all the same.
	k := newKeyPair(t, "h1")
	answer, err := a.client.Renew(t.Context(), k.csr, nil)
	must(t, err)
	a.has(w.pair(answer, k))
	for range 4 {
		several, err := a.confirms()
		must(t, err)
		testproc.Contains(t, several, "2 agents", "the one that renewed: %q")
		several, err = b.confirms()
		wantRefusal(t, "the other one", err, enrolment.CodeKeyUnknown)
		testproc.Contains(t, several, "2 agents", "the one that is refused: %q")
		tick()
	}
	// The copy is switched off.
	for range 3 {
		tick()
		_, err := a.confirms()
		must(t, err)
	}
	several, err := a.confirms()
	if live := w.live(); several != "" || err != nil || live != nil {
		t.Errorf("after the end of the copy: %q, %v, %v", several, live, err)
	}
	// A new invitation forgets them.
	w.invite("h1", true)
	if e := testproc.Try(w.store.Enrolment(t.Context(), "h1")).Or(t); e.Agents.Turn != 0 {
		t.Errorf("the agents after a new invitation: got %+v, want no turn", e.Agents)
	}
}

// TestOneMachineThatRenews: an agent that is restarted, or whose state directory was restored, is
// no second one, and an agent that is alone costs no writes. Requests with new tokens are bounded.
func TestOneMachineThatRenews(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	counted := &countedStore{}
	w := newWorld(t, func(c *enrolment.Config) { counted.Store = c.Store; c.Store = counted })
	w.stopClock(time.Now())
	pair := w.joined("h1")
	for n, token := range []string{"a", "b", "c"} {
		m := newMachine(w, token, pair)
		before := counted.changes.Load()
		for range 4 {
			several, err := m.confirms()
			must(t, err)
			testproc.Equal(t, several, "", "run %d: %q", n)
			w.later.Add(int64(150 * time.Second))
		}
		if wrote := counted.changes.Load() - before; n == 0 && wrote != 1 {
			t.Errorf("%d writes of an agent that is alone", wrote)
		}
	}
	before := counted.changes.Load()
	for n := range 30 {
		_, err := newMachine(w, "thief-"+string(rune('a'+n)), pair).confirms()
		must(t, err)
	}
	if wrote := counted.changes.Load() - before; wrote > 10 {
		t.Errorf("%d writes in a minute", wrote)
	}
	e := testproc.Try(w.store.Enrolment(t.Context(), "h1")).Or(t)
	if live := w.live(); live != nil || len(e.Agents.All) > 8 || e.State != apidb.Enrolled {
		t.Errorf("the agents of one machine: conflict %v, enrolment %+v, want at most 8 of an enrolled host", live, e)
	}
}
