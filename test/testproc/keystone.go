// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	_ "embed"
	"testing"
)

//go:embed keystone.py
var keystoneScript []byte

// KeystonePassword is that of the user "admin" of the project "admin", both in the domain
// "Default".
const KeystonePassword = "not-a-secret"

// StartKeystone runs OpenStack's identity service (Debian's package python3-keystone) until the
// test ends and returns the endpoint of its API v3. Its only user is the admin. It takes some ten
// seconds. Without the package the test is skipped, or fails where CI is set.
func StartKeystone(t testing.TB) string {
	t.Helper()
	return "http://" + service{
		name: "Keystone", pkg: "python3-keystone", module: "keystone.server.wsgi", script: keystoneScript, args: []string{KeystonePassword},
	}.start(t) + "/v3"
}
