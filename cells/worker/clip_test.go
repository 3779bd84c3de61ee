// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestClipMiddle: an error that is too long keeps its end, where the cause is.
func TestClipMiddle(t *testing.T) {
	long := "starting its domain: " + strings.Repeat("é", 3000) + ": Permission denied"
	got := clipMiddle(long, 2000)
	if len(got) > 2000 || !utf8.ValidString(got) || !strings.HasPrefix(got, "starting its domain: é") || !strings.HasSuffix(got, "é: Permission denied") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	if got := clipMiddle("short", 2000); got != "short" {
		t.Errorf("%q", got)
	}
}
