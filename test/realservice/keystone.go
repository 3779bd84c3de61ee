// SPDX-License-Identifier: Apache-2.0

package realservice

import (
	_ "embed"
	"testing"
)

//go:embed keystone.py
var keystoneScript []byte

// Password is that of the user "admin" of the project "admin", both in the domain "Default".
const Password = "not-a-secret"

// Keystone is OpenStack's identity service, running (Debian's package python3-keystone).
type Keystone struct {
	*Server
	// URL is the endpoint of its API v3.
	URL string
}

// StartKeystone runs a Keystone that knows nobody but the admin until the test ends. It takes some ten seconds. Without the
// package the test is skipped, and fails under CI.
func StartKeystone(t testing.TB) *Keystone {
	t.Helper()
	s := Start(t, Service{
		Name: "Keystone", Package: "python3-keystone", Module: "keystone.server.wsgi", Script: keystoneScript, Args: []string{Password},
	})
	return &Keystone{Server: s, URL: "http://" + s.Address + "/v3"}
}
