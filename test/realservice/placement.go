// SPDX-License-Identifier: Apache-2.0

package realservice

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"testing"
)

//go:embed placement.py
var placementScript []byte

// Placement is OpenStack's own Placement, running (Debian's package python3-placement).
type Placement struct {
	*Server
	// URL is its endpoint.
	URL string
}

// StartPlacement runs a Placement with an empty database until the test ends. Without the packages the test is skipped, and fails
// under CI.
func StartPlacement(t testing.TB) *Placement {
	t.Helper()
	return startPlacement(t)
}

// KeystoneUser is who a Placement asks about tokens: the address, and a user of the project "service" with the role service, both in the
// domain "Default".
type KeystoneUser struct{ AuthURL, User, Password string }

// StartPlacementWithKeystone is StartPlacement of a Placement that asks Keystone about every token, each time.
func StartPlacementWithKeystone(t testing.TB, k KeystoneUser) *Placement {
	t.Helper()
	return startPlacement(t, k.AuthURL, k.User, k.Password)
}

func startPlacement(t testing.TB, args ...string) *Placement {
	t.Helper()
	s := Start(t, Service{Name: "Placement", Package: "python3-placement", Module: "placement.wsgi", Script: placementScript, Args: args})
	return &Placement{Server: s, URL: "http://" + s.Address}
}

// Reset deletes all that was written to the service. Its standard traits and resource classes stay.
func (s *Placement) Reset(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/-/reset", http.NoBody)
	if err != nil {
		return fmt.Errorf("empty the real Placement: %w", err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("empty the real Placement: %w", err)
	}
	_ = resp.Body.Close() // It is empty.
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("empty the real Placement: status %s", resp.Status)
	}
	return nil
}
