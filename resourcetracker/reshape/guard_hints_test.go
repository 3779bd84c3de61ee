// SPDX-License-Identifier: Apache-2.0

package reshape

import (
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestHintsOfARefusedReshape: each kind of violation has its own hint, and only those that were
// found.
func TestHintsOfARefusedReshape(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		spoil func(*Draft)
		want  []string
	}{
		"a unit is lost": {func(r *Draft) { r.After[id(9, 1)].Resources[id(4, 0)]["VGPU"]-- }, []string{fixDriver}},
		"a consumer of another host is touched": {func(r *Draft) {
			r.After[id(9, 2)].Resources[gOtherHost]["VCPU"] = 1
		}, []string{fixDriver}},
		"empty resources": {func(r *Draft) { r.After[id(9, 1)].Resources[id(4, 1)] = map[string]int64{} },
			[]string{fixDriver}},
		"no capacity": {func(r *Draft) {
			must(r.Desired.SetInventory(id(4, 0), "VGPU", providertree.Inventory{Total: 4, Reserved: 3}))
		}, []string{freeCapacity}},
		"a step that does not fit": {func(r *Draft) {
			must(r.Desired.SetInventory(id(4, 0), "VGPU", providertree.Inventory{Total: 4, StepSize: 4}))
		}, []string{fitUnits}},
		"removed while it is allocated": {func(r *Draft) {
			must(r.Desired.RemoveInventory(id(4, 0), "VGPU"))
		}, []string{fixPlaces}},
		"two kinds": {func(r *Draft) {
			must(r.Desired.SetInventory(id(4, 0), "VGPU", providertree.Inventory{Total: 4, Reserved: 3}))
			r.After[id(9, 2)].Resources[gOtherHost]["VCPU"] = 1
		}, []string{fixDriver, freeCapacity}},
	} {
		t.Run(name, func(t *testing.T) {
			r := vgpus()
			c.spoil(&r)
			var got []string
			for _, o := range violationsOf(r) {
				if !slices.Contains(got, o.Hint) {
					got = append(got, o.Hint)
				}
			}
			slices.Sort(got)
			slices.Sort(c.want)
			testproc.EqualList(t, got, c.want, "hints: %q")
		})
	}
}

// TestAddedAmountsDoNotWrap: what a driver gives may be anything.
func TestAddedAmountsDoNotWrap(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	d := vgpus()
	d.After[id(9, 1)].Resources[id(4, 0)]["VGPU"] = -1 << 63
	violations := violationsOf(d)
	if len(violations) != 2 ||
		!strings.HasSuffix(violations[1].Problem,
			"it holds 2 on the providers of cn1 and would hold -9223372036854775808: 9223372036854775810 "+
				"would be lost") {
		t.Errorf("the violations: got %v, want two, the second one about the sum", violations)
	}
}
