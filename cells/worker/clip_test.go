// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestClipMiddle: an error that is too long keeps its end, where the cause is.
func TestClipMiddle(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	long := "starting its domain: " + strings.Repeat("é", 3000) + ": Permission denied"
	got := clipMiddle(long)
	if len(got) > maxDetails || !utf8.ValidString(got) || !strings.HasPrefix(got, "starting its domain: é") ||
		!strings.HasSuffix(got, "é: Permission denied") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	testproc.Equal(t, clipMiddle("short"), "short", "clipMiddle: %q")
}
