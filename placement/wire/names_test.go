// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/placement/wire"
)

func TestParseUUID(t *testing.T) {
	const usual = "4e8e5957-649f-477b-9e5b-f1f75b21c03c"
	for _, spelling := range []string{
		usual,
		strings.ToUpper(usual),
		strings.ReplaceAll(usual, "-", ""),
		"{" + usual + "}",
		"urn:uuid:" + usual,
		"4e8e-5957649f477b9e5bf1f75b21c03c",
	} {
		if got, ok := wire.ParseUUID(spelling); !ok || got != usual {
			t.Errorf("ParseUUID(%q) = %q, %v", spelling, got, ok)
		}
	}
	for _, bad := range []string{"", "x", usual[1:], usual + "0", strings.Replace(usual, "4", "g", 1), usual + "\n"} {
		if got, ok := wire.ParseUUID(bad); ok {
			t.Errorf("ParseUUID(%q) = %q, want it refused", bad, got)
		}
	}
}

func TestNames(t *testing.T) {
	long := wire.CustomPrefix + strings.Repeat("A", wire.MaxName-len(wire.CustomPrefix))
	for _, c := range []struct {
		name         string
		is, isCustom bool
	}{
		{"VCPU", true, false},
		{"CUSTOM_A", true, true},
		{"CUSTOM_", true, false},
		{long, true, true},
		{long + "A", true, false},
		{"custom_a", false, false},
		{"CUSTOM_a", false, false},
		{"CUSTOM_A\n", false, false},
		{"", false, false},
	} {
		if got := wire.IsName(c.name); got != c.is {
			t.Errorf("IsName(%q) = %v", c.name, got)
		}
		if got := wire.IsCustomName(c.name); got != c.isCustom {
			t.Errorf("IsCustomName(%q) = %v", c.name, got)
		}
	}
}
