// SPDX-License-Identifier: Apache-2.0

package realplacement

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"testing"

	"github.com/compute-agent/compute-agent/internal/realservice"
)

//go:embed serve.py
var script []byte

// Server is a running Placement.
type Server struct {
	*realservice.Server
	// URL is its endpoint.
	URL string
}

// Start runs a Placement with an empty database until the test ends. Without the packages the test is skipped, and fails
// under CI.
func Start(t testing.TB) *Server {
	t.Helper()
	return start(t)
}

// Keystone is who a Placement asks about tokens: the address, and a user of the project "service" with the role service, both in the
// domain "Default".
type Keystone struct{ AuthURL, User, Password string }

// StartWithKeystone is Start of a Placement that asks Keystone about every token, each time.
func StartWithKeystone(t testing.TB, k Keystone) *Server {
	t.Helper()
	return start(t, k.AuthURL, k.User, k.Password)
}

func start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := realservice.Start(t, realservice.Service{Name: "Placement", Package: "python3-placement", Module: "placement.wsgi", Script: script, Args: args})
	return &Server{Server: s, URL: "http://" + s.Address}
}

// Reset deletes all that was written to the service. Its standard traits and resource classes stay.
func (s *Server) Reset(ctx context.Context) error {
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
