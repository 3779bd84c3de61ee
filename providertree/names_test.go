// SPDX-License-Identifier: Apache-2.0

package providertree_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/providertree"
)

// TestCanonicalUUID: what oslo_utils.uuidutils takes for a uuid is one.
func TestCanonicalUUID(t *testing.T) {
	t.Parallel()
	const usual = "4e8e5957-649f-477b-9e5b-f1f75b21c03c"
	for _, spelling := range []string{
		usual,
		strings.ToUpper(usual),
		strings.ReplaceAll(usual, "-", ""),
		"{" + usual + "}",
		"urn:uuid:" + usual,
		"4e8e-5957649f477b9e5bf1f75b21c03c",
	} {
		if got, err := providertree.CanonicalUUID(spelling); err != nil || got != usual ||
			!providertree.IsUUID(spelling) {
			t.Errorf("CanonicalUUID(%q) = %q, %v", spelling, got, err)
		}
	}
	for _, bad := range []string{
		"", "x", usual[1:], usual + "0", strings.Replace(usual, "4", "g", 1), usual + "\n", "URN:UUID:" + usual,
		"(" + usual + ")", " " + usual,
	} {
		if got, err := providertree.CanonicalUUID(bad); err == nil || providertree.IsUUID(bad) {
			t.Errorf("CanonicalUUID(%q) = %q, want it refused", bad, got)
		}
	}
}

// TestIsCanonicalUUID changes each byte of a canonical uuid to each other one.
func TestIsCanonicalUUID(t *testing.T) {
	t.Parallel()
	canonical := regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	for at := range 36 {
		for c := range 256 {
			s := []byte("4e8e5957-649f-477b-9e5b-f1f75b21c03c")
			s[at] = byte(c)
			if got := providertree.IsCanonicalUUID(string(s)); got != canonical.Match(s) {
				t.Fatalf("%q is canonical: %v", s, got)
			}
		}
	}
}

// TestViolationsNameTheirProvider, as far as it has a name: what is quoted may come from another
// process, and is cut.
func TestViolationsNameTheirProvider(t *testing.T) {
	t.Parallel()
	name, uuid := strings.Repeat("n", 80), strings.Repeat("u", 64)
	for _, c := range []struct{ name, uuid, want string }{
		{"", "", ""},
		{"cn1", "", `resource provider "cn1" (): `},
		{"", "x\n", `resource provider "" (x\n): `},
		{name, uuid, `resource provider "` + name + `" (` + uuid + `): `},
		{name + "x", uuid + "x", `resource provider "` + name + `..." (` + uuid + `...): `},
		{"n" + strings.Repeat("é", 40), "u" + strings.Repeat("é", 32), // the bound is in the middle of an é
			`resource provider "n` + strings.Repeat("é", 39) + `..." (u` + strings.Repeat("é", 31) + `...): `},
	} {
		if got := (providertree.Violation{Name: c.name, UUID: c.uuid}).Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	long := providertree.CustomPrefix + strings.Repeat("A", 255-len(providertree.CustomPrefix))
	for _, c := range []struct {
		name         string
		is, isCustom bool
	}{
		{"VCPU", true, false},
		{"CUSTOM_A", true, true},
		{"CUSTOM_", true, false},
		{"XCUSTOM_A", true, false},
		{long, true, true},
		{long + "A", false, false},
		{"custom_a", false, false},
		{"CUSTOM_a", false, false},
		{"CUSTOM_A\n", false, false},
		{"", false, false},
	} {
		valid := providertree.ValidateClass(c.name) == nil && providertree.ValidateTrait(c.name) == nil
		if got := providertree.IsSymbol(c.name); got != c.is || valid != (c.is && c.name != providertree.CustomPrefix) {
			t.Errorf("IsSymbol(%q) = %v, valid %v", c.name, got, valid)
		}
		if got := providertree.IsCustomName(c.name); got != c.isCustom {
			t.Errorf("IsCustomName(%q) = %v, want %+v", c.name, got, c.isCustom)
		}
	}
}
