// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	evictee, evicteeNode = "h3", "33333333-3333-4333-8333-333333333333"
	someCell             = "00000001-0000-0000-0000-000000000000"
)

// TestEvictedByAFastClock: an attacker who moves the clock of the compute API a year ahead has a
// host evicted then. When the clock is right the host is refused by Placement, which fetches the
// deny list, and others are not. The answer has the reason, and does not ask to try again. It
// comes back as soon as an operator says so, not after a year; its old certificate does not.
func TestEvictedByAFastClock(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	store := openAPI(t)
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	url := s.serveEnrolment(t, store, nil, now)

	// Placement, which follows the list.
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.ca.PEM())
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots}}
	denied := testproc.Try(pki.FollowDenyFile(filepath.Join(s.dir, "denied"),
		pki.Source{URL: url, Transport: transport, Interval: 50 * time.Millisecond}, nopLog)).Or(t)
	ctx, stop := context.WithCancel(t.Context())
	followed := make(chan struct{})
	go func() { defer close(followed); denied.Run(ctx) }()
	t.Cleanup(func() { stop(); <-followed; transport.CloseIdleConnections() })
	p := s.servePlacementWith(t, denied)
	victims := s.as("host")
	knows := func(i identity) bool {
		t.Helper()
		got, _ := send(t, s.client(i), p.url, i, get("/resource_providers?in_tree="+evicteeNode))
		return got == answered || got == forbidden
	}
	until := func(what string, i identity, want bool) {
		t.Helper()
		testproc.Eventually(t, testproc.Patience, what, func() error {
			if got := knows(i); got != want {
				return fmt.Errorf("let in: %v", got)
			}
			return nil
		})
	}

	// The host joins as one does, with a token of an operator.
	invite := func() (enrolment.Token, error) { return s.invite(t, store, evictee, evicteeNode, now()) }
	old := testproc.Try(join(t, url, evictee, testproc.Try(invite()).Or(t))).Or(t)
	until("the host is let in", old, true)

	// The attack.
	ahead.Store(int64(365 * 24 * time.Hour))
	testproc.Try(enrolment.Evict(t.Context(), store, evictee, "", "stolen", now())).Or(t)
	ahead.Store(0)
	until("the host is refused", old, false)
	if !knows(victims) {
		t.Error("another host is refused, too")
	}
	if got, answer := send(t, s.client(old), url, old, renewal(t, evictee)); got != forbidden ||
		!strings.Contains(string(answer.Raw), "evicted") {
		t.Errorf("the host renews its certificate: %s", answer)
	}
	if _, err := invite(); !errors.Is(err, enrolment.ErrAhead) {
		t.Errorf("it is invited: %v", err)
	}

	// The way out.
	if _, _, err := enrolment.Allow(t.Context(), store, evictee, now()); err != nil {
		t.Fatal(err)
	}
	until("the host stays refused until it is invited", old, false)
	returned := testproc.Try(join(t, url, evictee, testproc.Try(invite()).Or(t))).Or(t)
	until("the host is let in again", returned, true)
	if knows(old) || !knows(victims) {
		t.Error("its old certificate is accepted, or another host is refused")
	}
}
