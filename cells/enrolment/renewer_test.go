// SPDX-License-Identifier: Apache-2.0

package enrolment_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// renewal is a renewer with a CA in the place of the service.
type renewal struct {
	t     *testing.T
	ca    *pki.Authority
	dir   string
	nodes []enrolment.Node
	mu    sync.Mutex
	at    []time.Duration // of the attempts, since the start
	fail  error
	start time.Time
	// confirm answers to confirmations, which are at the times of confirmed.
	confirm   error
	confirmed []time.Duration
	ahead     time.Duration // of the clock that certificates are issued by
}

func newRenewal(t *testing.T) *renewal {
	t.Helper()
	r := &renewal{t: t, dir: t.TempDir(), start: time.Now()}
	var err error
	r.ca, err = pki.InitAuthority(filepath.Join(r.dir, "ca"), "test-ca", time.Now())
	must(t, err)
	return r
}

func (r *renewal) sign(csr []byte, nodes []enrolment.Node) []byte {
	request := testproc.Try(pki.ParseRequest(csr)).Or(r.t)
	id := pki.Identity{Kind: pki.Host, Name: "h1", Names: []string{"h1"}}
	for _, n := range nodes {
		id.Nodes = append(id.Nodes, n.UUID)
	}
	o := pki.SignOptions{Lifetime: 24 * time.Hour, Now: time.Now().Add(r.ahead)}
	return testproc.Try(r.ca.Sign(request, id, o)).Or(r.t)
}

// joined writes an identity file.
func (r *renewal) joined(nodes ...enrolment.Node) string {
	r.t.Helper()
	k := newKeyPair(r.t, "h1")
	content, _, err := enrolment.NewIdentity(k.key, r.sign(k.csr, nodes), time.Now())
	must(r.t, err)
	path := filepath.Join(r.dir, enrolment.IdentityFile)
	must(r.t, os.WriteFile(path, content, 0o600))
	return path
}

// Renew answers as the service does.
func (r *renewal) Renew(_ context.Context, csr []byte, nodes []enrolment.Node) (*enrolment.Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = append(r.at, time.Since(r.start))
	if r.fail != nil {
		return nil, r.fail
	}
	return &enrolment.Answer{Certificate: string(r.sign(csr, nodes))}, nil
}

// Confirm answers as the service does.
func (r *renewal) Confirm(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.confirmed = append(r.confirmed, time.Since(r.start))
	return r.confirm
}

// confirmations are the times of those since the last call; err answers to those that follow.
func (r *renewal) confirmations(err error) []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.confirmed
	r.confirmed, r.confirm = nil, err
	return out
}

func (r *renewal) setFailure(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}

func (r *renewal) attempts() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.at
	r.at = nil
	return out
}

func (r *renewal) renewer(path string) *enrolment.Renewer {
	return enrolment.NewRenewer(enrolment.RenewerConfig{
		CertFile: path, KeyFile: path, Renew: r.Renew, Confirm: r.Confirm, Logger: zerolog.Nop(),
		Jitter: func() float64 { return 0 },
		Nodes: func() []enrolment.Node {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.nodes
		},
	})
}

// run runs f with a clock of its own, and the renewer beside it.
func (r *renewal) run(n *enrolment.Renewer, f func()) {
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { n.Run(ctx) })
	f()
	stop()
	all.Wait()
}

// TestRenewerRenewsAtAThird: with a new key each time, and one file that always fits together.
func TestRenewerRenewsAtAThird(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRenewal(t)
		path := r.joined(enrolment.Node{UUID: nodeA})
		n := r.renewer(path)
		r.nodes = []enrolment.Node{{UUID: nodeA}}
		before := testproc.Try(enrolment.ReadIdentity(path, path)).Or(t)
		r.run(n, func() {
			time.Sleep(7 * time.Hour)
			synctest.Wait()
			if got := r.attempts(); len(got) != 0 {
				t.Errorf("renewed after %v", got)
			}
			time.Sleep(18 * time.Hour)
			synctest.Wait()
			if got := r.attempts(); len(got) != 3 || got[0].Round(time.Hour) != 8*time.Hour {
				t.Errorf("renewed after %v", got)
			}
		})
		after := testproc.Try(enrolment.ReadIdentity(path, path)).Or(t)
		if after.Key == before.Key || !after.Expires.After(before.Expires.Add(23*time.Hour)) ||
			!slices.Equal(after.Nodes, []string{nodeA}) {
			t.Errorf("before %+v, after %+v", before, after)
		}
		if s := n.Status(); s.Host != "h1" || s.Error != "" || !s.Expires.Equal(after.Expires) || !s.Renews ||
			s.Succeeded != 3 || s.Failed != 0 {
			t.Errorf("the status is %+v", s)
		}
	})
}

// TestRenewerReplacesCertificateOfAFastClock: a certificate that was issued by a clock a year ahead
// is of no use until then, and is not kept for so long.
func TestRenewerReplacesCertificateOfAFastClock(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRenewal(t)
		r.ahead = 365 * 24 * time.Hour
		path := r.joined(enrolment.Node{UUID: nodeA})
		r.ahead = 0
		r.run(r.renewer(path), func() {
			time.Sleep(9 * time.Hour)
			synctest.Wait()
			if got := r.attempts(); len(got) != 1 {
				t.Errorf("renewed after %v", got)
			}
		})
		if id := testproc.Try(enrolment.ReadIdentity(path, path)).Or(t); id.Since.After(time.Now()) {
			t.Errorf("the certificate is still that of %v", id.Since)
		}
	})
}

// TestRenewerBacksOff: failures are retried soon and then less often, so that there are many
// attempts before the certificate expires; a refusal less often; and success ends it.
func TestRenewerBacksOff(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRenewal(t)
		path := r.joined(enrolment.Node{UUID: nodeA})
		n := r.renewer(path)
		r.fail = errors.New("connection refused")
		r.run(n, func() {
			time.Sleep(23 * time.Hour)
			synctest.Wait()
			got := r.attempts()
			if len(got) < 15 || len(got) > 40 || got[1]-got[0] > 2*time.Minute {
				t.Errorf("attempts after %v", got)
			}
			if s := n.Status(); s.Refused || !strings.Contains(s.Error, "connection refused") {
				t.Errorf("the status is %+v", s)
			}
			r.setFailure(&enrolment.Refusal{Status: http.StatusForbidden, Code: enrolment.CodeEvicted,
				Message: "Host h1 was evicted."})
			time.Sleep(5 * time.Hour)
			synctest.Wait()
			if got := r.attempts(); len(got) < 4 || len(got) > 6 {
				t.Errorf("attempts of a refused host after %v", got)
			}
			if s := n.Status(); !s.Refused || !strings.Contains(s.Error, "evicted") {
				t.Errorf("the status is %+v", s)
			}
			r.setFailure(nil)
			time.Sleep(2 * time.Hour)
			synctest.Wait()
			if s := n.Status(); s.Error != "" || s.Refused || time.Until(s.Expires) < 20*time.Hour {
				t.Errorf("the status is %+v", s)
			}
		})
	})
}

// TestRenewerConfirms: at the start, since the agent may have died after a renewal, and at once
// after each renewal; until it is done; and again each hour, so that a host whose identity was
// copied learns that another machine renewed it.
func TestRenewerConfirms(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRenewal(t)
		path := r.joined(enrolment.Node{UUID: nodeA})
		n := r.renewer(path)
		r.run(n, func() {
			time.Sleep(7*time.Hour + 30*time.Minute)
			synctest.Wait()
			if got := r.confirmations(errors.New("connection refused")); len(got) != 8 || got[0] > time.Second ||
				got[1].Round(time.Minute) != time.Hour {
				t.Errorf("confirmed after %v", got)
			}
			// The renewal, whose confirmation is retried; it is no failure of the renewal.
			time.Sleep(2 * time.Hour)
			synctest.Wait()
			renewed, got := r.attempts(), r.confirmations(nil)
			if len(renewed) != 1 || len(got) < 6 || len(got) > 20 {
				t.Errorf("renewed after %v, confirmed after %v", renewed, got)
			}
			if at := slices.IndexFunc(got, func(d time.Duration) bool { return d >= renewed[0] }); at < 0 ||
				got[at]-renewed[0] > time.Second || got[at+1]-got[at] > time.Minute+time.Second {
				t.Errorf("renewed after %v, confirmed after %v", renewed, got)
			}
			if s := n.Status(); s.Error != "" || s.Refused {
				t.Errorf("the status is %+v", s)
			}
			time.Sleep(2 * time.Hour)
			synctest.Wait()
			if got := r.confirmations(&enrolment.Refusal{Status: http.StatusForbidden, Code: enrolment.CodeKeyUnknown,
				Message: "Another holder."}); len(got) < 1 || len(got) > 3 {
				t.Errorf("confirmed after %v", got)
			}
			// Another machine has renewed the certificate.
			time.Sleep(time.Hour + time.Minute)
			synctest.Wait()
			if s := n.Status(); !s.Refused || !s.RenewedElsewhere || !strings.Contains(s.Error, "Another holder.") {
				t.Errorf("the status is %+v", s)
			}
			// A service of before does not know confirmations.
			r.confirmations(&enrolment.Refusal{Status: http.StatusNotFound,
				Code: enrolment.CodeNotFound, Message: "no such path"})
			time.Sleep(time.Hour + time.Minute)
			synctest.Wait()
			if s := n.Status(); s.Refused || s.RenewedElsewhere || s.Error != "" {
				t.Errorf("the status is %+v", s)
			}
			if got := r.confirmations(nil); len(got) < 1 || len(got) > 2 {
				t.Errorf("a service of before is asked after %v", got)
			}
		})
	})
}

// TestRenewerFollowsTheHost: nodes that become known after the join are bound at once, and a host
// that joins again is renewed without a restart.
func TestRenewerFollowsTheHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRenewal(t)
		path := r.joined()
		n := r.renewer(path)
		r.run(n, func() {
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			r.mu.Lock()
			r.nodes = []enrolment.Node{{UUID: nodeA}}
			r.mu.Unlock()
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if got, s := r.attempts(), n.Status(); len(got) != 1 || !slices.Equal(s.Nodes, []string{nodeA}) {
				t.Errorf("after the driver named a node: attempts after %v, status %+v", got, s)
			}
			must(t, os.Remove(path))
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if s := n.Status(); s.Error == "" || s.Host != "" {
				t.Errorf("without a file: %+v", s)
			}
			r.joined(enrolment.Node{UUID: nodeB})
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if s := n.Status(); s.Error != "" || !slices.Equal(s.Nodes, []string{nodeB}) {
				t.Errorf("after joining again: %+v", s)
			}
		})
	})
}

// TestIdentityRefused: what does not fit together is not written.
func TestIdentityRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRenewal(t)
	k, other := newKeyPair(t, "h1"), newKeyPair(t, "h1")
	good := r.sign(k.csr, nil)
	request := testproc.Try(pki.ParseRequest(k.csr)).Or(t)
	server, err := r.ca.Sign(request, pki.Identity{Kind: pki.Service, Name: "s", Names: []string{"s"}},
		pki.SignOptions{Lifetime: time.Hour, Now: time.Now()})
	must(t, err)
	for name, c := range map[string]struct {
		key, certificates []byte
		now               time.Time
	}{
		"another key":         {other.key, good, time.Now()},
		"nothing":             {k.key, nil, time.Now()},
		"a key in it":         {k.key, append(slices.Clone(good), k.key...), time.Now()},
		"of a server":         {k.key, server, time.Now()},
		"expired":             {k.key, good, time.Now().Add(25 * time.Hour)},
		"without end":         {k.key, slices.Repeat(good, 17), time.Now()},
		"another one's first": {k.key, append(slices.Clone(r.ca.PEM()), good...), time.Now()},
	} {
		if _, _, err := enrolment.NewIdentity(c.key, c.certificates, c.now); err == nil {
			t.Errorf("%s is an identity", name)
		}
	}
	content, id, err := enrolment.NewIdentity(k.key, append(slices.Clone(good), r.ca.PEM()...), time.Now())
	if must(t, err); id.Name != "h1" || len(content) == 0 {
		t.Errorf("NewIdentity: got %+v, want h1 with content", id)
	}
}
