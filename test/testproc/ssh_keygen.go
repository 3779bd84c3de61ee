// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"os/exec"
	"testing"
)

// SSHKeygen runs ssh-keygen and returns what it says.
func SSHKeygen(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ssh-keygen", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ssh-keygen %v: %v\n%s", args, err, out)
	}
	return string(out)
}
