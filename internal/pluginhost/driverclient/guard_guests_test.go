// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"fmt"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestCheckGuests(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const a = "aaaaaaaa-0000-0000-0000-000000000000"
	with := func(provider, class string, n int64) *driverv1.Guest {
		return &driverv1.Guest{Uuid: a, Name: "web", Resources: &driverv1.GuestResources{
			Resources: map[string]*driverv1.Resources{provider: {Amounts: map[string]int64{class: n}}}}}
	}
	for _, c := range []struct {
		name   string
		guests []*driverv1.Guest
		want   string // in the error; "" is good
	}{
		{"none", nil, ""},
		{"not known what they have", []*driverv1.Guest{{Uuid: a}}, ""},
		{"with something", []*driverv1.Guest{with(rootUUID, "VCPU", 1)}, ""},
		{"with nothing", []*driverv1.Guest{{Uuid: a, Resources: &driverv1.GuestResources{}}}, ""},
		{"no uuid", []*driverv1.Guest{{Uuid: a}, {Name: "web"}}, `guest 1 (uuid "", name "web")`},
		{"nothing at all", []*driverv1.Guest{nil}, "guest 0"},
		{"not a uuid", []*driverv1.Guest{{Uuid: "web-1"}}, "web-1"},
		{"twice", []*driverv1.Guest{{Uuid: a}, {Uuid: rootUUID}, {Uuid: strings.ToUpper(a)}},
			"guests 0 and 2 are both " + a},
		{"of no amount", []*driverv1.Guest{with(rootUUID, "VCPU", 0)}, "must be between 1"},
		{"of too much", []*driverv1.Guest{with(rootUUID, "VCPU", 1<<31)}, "must be between 1"},
		{"of no class", []*driverv1.Guest{with(rootUUID, "vcpu", 1)}, "vcpu"},
		{"of no provider", []*driverv1.Guest{with("x", "VCPU", 1)}, "resource provider"},
		{"of a provider elsewhere", []*driverv1.Guest{with(a, "VCPU", 1)}, "which is not in the tree"},
		{"of a provider without amounts", []*driverv1.Guest{{Uuid: a, Resources: &driverv1.GuestResources{
			Resources: map[string]*driverv1.Resources{rootUUID: {}}}}}, "it lists provider"},
		{"with an owner that cannot be", []*driverv1.Guest{{Uuid: a, ProjectId: strings.Repeat("p", 256)}},
			"project or user"},
		{"too many", make([]*driverv1.Guest, protocol.MaxGuests+1), "at most 100000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := checkGuests(oneNode(t), c.guests)
			if (c.want == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), c.want) || got != nil) {
				t.Errorf("want %q, got %v", c.want, err)
			}
			if err == nil && len(got) != len(c.guests) {
				t.Errorf("%d of %d guests", len(got), len(c.guests))
			}
		})
	}
	got, err := checkGuests(oneNode(t), []*driverv1.Guest{{Uuid: strings.ToUpper(a), Name: strings.Repeat("n", 1000)}})
	if err != nil || got[0].UUID != a || len(got[0].Name) > maxOwner+3 || got[0].Resources != nil {
		t.Errorf("got %+v, %v", got, err)
	}
}

// BenchmarkCheckGuests is the border for a host with very many guests.
func BenchmarkCheckGuests(b *testing.B) {
	tree := oneNode(b)
	guests := make([]*driverv1.Guest, 10_000)
	for i := range guests {
		id := testproc.Try(providertree.ChildUUID(rootUUID, fmt.Sprint(i))).Or(b)
		guests[i] = &driverv1.Guest{Uuid: id, Resources: &driverv1.GuestResources{Resources: protocol.FromResources(
			providertree.ProviderResources{rootUUID: {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 10}})}}
	}
	b.ReportAllocs()
	var got []plugins.Guest
	for b.Loop() {
		var err error
		if got, err = checkGuests(tree, guests); err != nil {
			b.Fatal(err)
		}
	}
	if len(got) != len(guests) {
		b.Fatal("some are missing")
	}
}
