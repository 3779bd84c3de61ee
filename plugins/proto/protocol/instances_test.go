// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
)

// TestCheckedSpecsStayAsTheyAre: what one side lets through is let through by the other, with the
// same meaning.
func TestCheckedSpecsStayAsTheyAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := &providertree.Tree{}
		must(t, tree.AddRoot(someUUID, "cn1"))
		m := &driverv1.InstanceSpec{
			Uuid: rapid.SampledFrom([]string{someUUID,
				strings.ToUpper(someUUID), strings.ReplaceAll(someUUID, "-", ""), "", "web"}).Draw(t, "uuid"),
			Name: rapid.StringN(0, 300, -1).Draw(t, "name"), ProjectId: rapid.StringN(0, 100, -1).Draw(t, "project"),
			Flavor:      &driverv1.Flavor{Vcpus: rapid.Int64Range(-1, 1<<31).Draw(t, "vcpus")},
			Allocations: map[string]*driverv1.Resources{},
			UserData:    make([]byte, rapid.IntRange(0, MaxUserData+1).Draw(t, "user data")),
		}
		if rapid.Bool().Draw(t, "granted") {
			m.Allocations[strings.ToUpper(someUUID)] = &driverv1.Resources{
				Amounts: rapid.MapOfN(rapid.SampledFrom([]string{"VCPU", "MEMORY_MB", "vcpu"}),
					rapid.Int64Range(0, 3), 0, 2).Draw(t, "amounts")}
		}
		uuid, granted, err := CheckSpec(m, tree)
		if err != nil {
			if uuid != "" || granted != nil {
				t.Fatal("something came with an error")
			}
			return
		}
		if uuid != someUUID || len(granted) != len(m.Allocations) {
			t.Fatalf("got %s, %v", uuid, granted)
		}
		m.Uuid, m.Allocations = uuid, FromResources(granted)
		again, same, err := CheckSpec(overTheWire(t, m, &driverv1.InstanceSpec{}), tree)
		must(t, err)
		if diff := cmp.Diff(granted, same); diff != "" || again != uuid {
			t.Fatal(again, diff)
		}
	})
	if _, _, err := CheckSpec(nil, &providertree.Tree{}); err == nil {
		t.Error("nothing at all was let through")
	}
}

// TestPowerStates: every number of Nova's comes back, and no other becomes one of them.
func TestPowerStates(t *testing.T) {
	for n := range 10 {
		_, known := driverv1.PowerState_name[int32(n)]
		if err := CheckPower(FromPower(n)); (err == nil) != known || int(FromPower(n)) != n {
			t.Errorf("%d became %v: %v", n, FromPower(n), err)
		}
		if err := CheckTargetPower(FromPower(n)); (err == nil) != (n == 1 || n == 4) {
			t.Errorf("to %d: %v", n, err)
		}
	}
	for _, n := range []int{-1, 1 << 32, 1<<32 + 1, -1 << 33} {
		if CheckPower(FromPower(n)) == nil {
			t.Errorf("%d became %v", n, FromPower(n))
		}
	}
}

func TestCheckNode(t *testing.T) {
	for name, good := range map[string]bool{"cn1": true, "": false, "\xff": false, strings.Repeat("n", 201): false} {
		if err := CheckNode(name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}
