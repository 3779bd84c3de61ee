// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// newPlacement starts "compute-agent placement serve" with an empty database on a free port, until
// the test ends, and returns its endpoint.
func newPlacement(t *testing.T, args ...string) string {
	t.Helper()
	return launchService(t, nil, append([]string{"placement", "serve", "--listen", "127.0.0.1:0", "--state-dir", t.TempDir(), "--runtime-dir", t.TempDir()}, args...)...).endpoint
}

// service is a process of compute-agent that serves.
type service struct {
	*testproc.Process
	endpoint string
	killed   bool
}

// kill ends it in the way that it can do nothing about. Its port refuses connections from then on.
func (s *service) kill() {
	s.killed = true
	s.Kill()
}

// launchService starts compute-agent with more of an environment, until the test ends, and waits
// until it says where it serves.
func launchService(t *testing.T, env []string, args ...string) *service {
	t.Helper()
	cmd := binaries.Command("compute-agent", args...)
	cmd.Env = slices.Concat(cmd.Env, []string{"COMPUTE_AGENT_LOG_FORMAT=json"}, env)
	s := &service{Process: testproc.Start(t, "a service", cmd)}
	s.KilledBy(t)
	t.Cleanup(func() {
		if !s.killed {
			s.Stop(t)
		}
	})
	_, ok := s.Until(t, "that it serves", 0, func(text string) bool {
		var line struct{ Address, Auth string }
		err := json.Unmarshal([]byte(text), &line)
		s.endpoint = "http://" + line.Address
		return err == nil && line.Auth != ""
	})
	if !ok {
		t.Fatal("the service ended before it served")
	}
	return s
}

// tokenFile writes a token file with one token of the roles.
func tokenFile(t *testing.T, token, roles string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	line := fmt.Sprintf("%x %s operator operators\n", sha256.Sum256([]byte(token)), roles)
	check(t, os.WriteFile(path, []byte(line), 0o600))
	return path
}
