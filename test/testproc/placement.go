// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"
)

//go:embed placement.py
var placementScript []byte

// Placement is a running Placement of OpenStack's (Debian's package python3-placement).
type Placement struct {
	// URL is its endpoint.
	URL string
}

// KeystoneUser is the account with which a Placement validates tokens: a user of the project
// "service" with the role service, both in the domain "Default".
type KeystoneUser struct{ AuthURL, User, Password string }

// StartPlacement runs a Placement with an empty database until the test ends. Without the package
// the test is skipped, or fails where CI is set.
//
// A start takes seconds: one that a former test of this process has used is emptied and used again.
func StartPlacement(t testing.TB) *Placement {
	t.Helper()
	s := takeIdle()
	if s == nil {
		dir, err := os.MkdirTemp("", "placement")
		if err != nil {
			t.Fatal(err)
		}
		// It ends, and removes its directory, when this process ends.
		_, _, address := openstackPlacement().run(t, dir)
		s = &Placement{URL: "http://" + address}
	} else if err := s.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		idle.Lock()
		defer idle.Unlock()
		idle.servers = append(idle.servers, s)
	})
	return s
}

// idle are the Placements that no test uses now.
var idle struct {
	sync.Mutex
	servers []*Placement
}

func takeIdle() *Placement {
	idle.Lock()
	defer idle.Unlock()
	last := len(idle.servers) - 1
	if last < 0 {
		return nil
	}
	s := idle.servers[last]
	idle.servers = idle.servers[:last]
	return s
}

// StartPlacementOn is StartPlacement on a database of package dbservers. Its tables are made where
// there are none. It cannot be Reset.
func StartPlacementOn(t testing.TB, dsn string) *Placement {
	t.Helper()
	return startPlacement(t, dsn)
}

// StartPlacementWithKeystone is StartPlacement of one that asks Keystone about every token, each
// time.
func StartPlacementWithKeystone(t testing.TB, k KeystoneUser) *Placement {
	t.Helper()
	return startPlacement(t, k.AuthURL, k.User, k.Password)
}

func startPlacement(t testing.TB, args ...string) *Placement {
	t.Helper()
	return &Placement{URL: "http://" + openstackPlacement(args...).start(t)}
}

func openstackPlacement(args ...string) service {
	return service{name: "Placement", pkg: "python3-placement", module: "placement.wsgi", script: placementScript, args: args}
}

// Reset deletes all that was written to the service. Its standard traits and resource classes stay.
func (s *Placement) Reset(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/-/reset", http.NoBody)
	if err != nil {
		return fmt.Errorf("empty OpenStack's Placement: %w", err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("empty OpenStack's Placement: %w", err)
	}
	_ = resp.Body.Close() // It is empty.
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("empty OpenStack's Placement: status %s", resp.Status)
	}
	return nil
}
