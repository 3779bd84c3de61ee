// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// TestCapabilitiesHaveFormerNames: each side works with the last release of the other.
func TestCapabilitiesHaveFormerNames(t *testing.T) {
	t.Parallel()
	for names, want := range map[string]string{"": "",
		"guests watch": "guests watch", "guests layouts watch": "guests layouts watch shapes"} {
		given := strings.Fields(names)
		if got := strings.Join(protocol.AnnouncedCapabilities(given), " "); got != want ||
			strings.Join(given, " ") != names {
			t.Errorf("%q is announced as %q, want %q", names, got, want)
		}
	}
	for announced, want := range map[string]string{
		"": "", "guests watch": "guests watch", "layouts watch": "layouts watch",
		"guests shapes watch":  "guests layouts watch",
		"layouts watch shapes": "layouts watch", "shapes layouts": "layouts", "shapes shapes": "layouts",
		"shapes layouts shapes": "layouts",
	} {
		given := strings.Fields(announced)
		if got := strings.Join(protocol.CurrentCapabilities(slices.Clone(given)), " "); got != want {
			t.Errorf("%q is %q, want %q", announced, got, want)
		}
	}
}
