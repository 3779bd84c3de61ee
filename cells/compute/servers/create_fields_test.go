// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestHostNames of servers are made as Nova makes them.
func TestHostNames(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, want := range map[string]string{
		"web1": "web1", "Web 1": "web-1", "a_b.c": "a-b-c", "é1": "é1", "日本": "", "-.x.-": "x", "a/b!c": "abc",
		strings.Repeat("x", 70): strings.Repeat("x", 63), strings.Repeat("日", 70) + "y": "y", "..": "",
	} {
		testproc.Equal(t, hostName(name), want, "%q: %q", name)
	}
}
