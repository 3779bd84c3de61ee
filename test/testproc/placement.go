// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
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
func StartPlacement(t testing.TB) *Placement {
	t.Helper()
	return startPlacement(t)
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
	s := service{name: "Placement", pkg: "python3-placement", module: "placement.wsgi", script: placementScript, args: args}
	return &Placement{URL: "http://" + s.start(t)}
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
