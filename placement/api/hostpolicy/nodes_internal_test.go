// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestExpiredReservationsGo: nodes of expired certificates are dropped, however many nodes each
// certificate names, and those of valid ones stay.
func TestExpiredReservationsGo(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := &reservedNodes{now: func() time.Time { return now }, nodes: map[string]reservation{}}
	lasting := &pki.Identity{Name: "lasting", Nodes: []string{uuid.NewString()}, Expires: now.AddDate(1, 0, 0)}
	r.reserve(lasting)
	most := 0
	for range 5 * minSweep {
		now = now.Add(time.Minute)
		nodes := make([]string, 7)
		for i := range nodes {
			nodes[i] = uuid.NewString()
		}
		r.reserve(&pki.Identity{Name: "h", Nodes: nodes, Expires: now.Add(time.Hour)})
		most = max(most, len(r.nodes))
	}
	if want := minSweep + 7; most > want { // 420 of them are valid at a time
		t.Errorf("%d nodes were kept at a time, want at most %d", most, want)
	}
	testproc.Equal(t, r.host(lasting.Nodes[0]), "lasting", "the host of a node with a valid certificate: %q")
}

// TestFullAllowancesGo: the buckets of hosts that have got back all that they took are dropped, and
// those of others stay.
func TestFullAllowancesGo(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a := &allowances{now: func() time.Time { return now }, limit: 1_000_000, every: time.Hour,
		used: map[string]*allowance{}}
	a.spend("lasting", a.limit)
	most := 0
	for range 5 * minSweep {
		now = now.Add(time.Hour)
		a.spend(uuid.NewString(), 10)
		most = max(most, len(a.used))
	}
	testproc.Equal(t, most, minSweep, "the buckets that were kept at a time: %d") // 11 of them are not full
	if wait := a.spend("lasting", a.limit); wait <= 0 {
		t.Error("a host has twice what it may take")
	}
}
