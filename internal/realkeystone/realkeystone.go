// SPDX-License-Identifier: Apache-2.0

package realkeystone

import (
	_ "embed"
	"testing"

	"github.com/compute-agent/compute-agent/internal/realservice"
)

//go:embed serve.py
var script []byte

// Password is that of the user "admin" of the project "admin", both in the domain "Default".
const Password = "not-a-secret"

// Server is a running Keystone.
type Server struct {
	*realservice.Server
	// URL is the endpoint of its API v3.
	URL string
}

// Start runs a Keystone that knows nobody but the admin until the test ends. It takes some ten seconds. Without the
// package the test is skipped, and fails under CI.
func Start(t testing.TB) *Server {
	t.Helper()
	s := realservice.Start(t, realservice.Service{
		Name: "Keystone", Package: "python3-keystone", Module: "keystone.server.wsgi", Script: script, Args: []string{Password},
	})
	return &Server{Server: s, URL: "http://" + s.Address + "/v3"}
}
