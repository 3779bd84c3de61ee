// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"strings"
	"testing"
)

// TestConsoleLogIsBounded: the end of what a machine wrote is kept.
func TestConsoleLogIsBounded(t *testing.T) {
	m := machine{UUID: "u", Name: "web"}
	for range 10_000 {
		m.boots()
		m.halts()
	}
	if len(m.Log) != maxLog || !strings.HasSuffix(m.Log, "web login: \r\nSystem halted.\r\n") {
		t.Errorf("%d bytes, ending with %q", len(m.Log), m.Log[len(m.Log)-50:])
	}
}
