// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// newPlacement starts "compute-agent placement serve" with an empty database on a free port, until
// the test ends, and returns its endpoint.
func newPlacement(t *testing.T, args ...string) string {
	t.Helper()
	cmd := binaries.Command(
		"compute-agent",
		append([]string{"placement", "serve", "--listen",
			"127.0.0.1:0", "--state-dir", t.TempDir(), "--runtime-dir", t.TempDir()}, args...)...)
	cmd.Env = append(cmd.Env, "COMPUTE_AGENT_LOG_FORMAT=json")
	p := launch(t, "placement", cmd)
	var line struct{ Address, Auth string }
	_, ok := p.Until(t, "that it serves", 0, func(text string) bool {
		return json.Unmarshal([]byte(text), &line) == nil && line.Auth != ""
	})
	if !ok {
		t.Fatal("Placement ended before it served")
	}
	t.Cleanup(p.stop)
	return "http://" + line.Address
}

// tokenFile writes a token file with one token of the roles.
func tokenFile(t *testing.T, token, roles string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	line := fmt.Sprintf("%x %s operator operators\n", sha256.Sum256([]byte(token)), roles)
	check(t, os.WriteFile(path, []byte(line), 0o600))
	return path
}
