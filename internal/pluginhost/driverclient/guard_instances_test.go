// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestCheckInstances(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const a = "aaaaaaaa-0000-0000-0000-000000000000"
	for _, c := range []struct {
		name      string
		instances []*driverv1.Instance
		want      string // in the error; "" is good
	}{
		{"none", nil, ""},
		{"of all states", []*driverv1.Instance{{Uuid: a}, {Uuid: rootUUID, PowerState: 7}}, ""},
		{"no uuid", []*driverv1.Instance{{Uuid: a}, {Name: "web"}},
			`instance 1 (uuid "", name "web"): its uuid "" is invalid`},
		{"nothing at all", []*driverv1.Instance{nil}, "instance 0"},
		{"not a uuid", []*driverv1.Instance{{Uuid: "instance-0000002a"}}, "the one that Spawn was given"},
		{"twice", []*driverv1.Instance{{Uuid: a}, {Uuid: rootUUID}, {Uuid: strings.ToUpper(a)}},
			"instances 0 and 2 are both " + a},
		{"an unknown state", []*driverv1.Instance{{Uuid: a, PowerState: 2}},
			"power state 2: must be one of NOSTATE (0), RUNNING (1)"},
		{"a negative one", []*driverv1.Instance{{Uuid: a, PowerState: -1}}, "power state -1"},
		{"several defects", []*driverv1.Instance{{Uuid: a, PowerState: 9}, {Uuid: "x"}}, "2 defects"},
		{"too many", make([]*driverv1.Instance, protocol.MaxInstances+1), "at most 100000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := checkInstances(c.instances)
			if (c.want == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), c.want) || got != nil) {
				t.Errorf("want %q, got %v", c.want, err)
			}
			if err == nil && len(got) != len(c.instances) {
				t.Errorf("%d of %d instances", len(got), len(c.instances))
			}
		})
	}
}

func TestCheckInstance(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	long := strings.Repeat("n", 5000)
	got, err := checkInstance(rootUUID, &driverv1.Instance{
		Uuid: strings.ToUpper(rootUUID), Name: "web\x1b[2J",
		PowerState: driverv1.PowerState_POWER_STATE_CRASHED, HypervisorName: long})
	if err != nil || got.UUID != rootUUID || got.Power != plugins.PowerCrashed || strings.Contains(got.Name, "\x1b") ||
		len(got.HypervisorName) > protocol.MaxName+3 {
		t.Errorf("got %+v, %v", got, err)
	}
	for want, m := range map[string]*driverv1.Instance{
		"it has no instance":              nil,
		"its uuid":                        {},
		"the request was for " + rootUUID: {Uuid: "aaaaaaaa-0000-0000-0000-000000000000"},
		"power state 5":                   {Uuid: rootUUID, PowerState: 5},
	} {
		if got, err := checkInstance(rootUUID, m); err == nil || !strings.Contains(err.Error(), want) ||
			got != (plugins.Instance{}) {
			t.Errorf("want %q, got %v, %v", want, got, err)
		}
	}
}

func TestEventsThatSayTooLittleStandForAll(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var got [][2]string
	for _, e := range []*driverv1.InstanceEvent{
		{Node: "cn1", Uuid: strings.ToUpper(rootUUID)}, {Node: "cn1"}, {Node: "cn1", Uuid: "web"}, {Uuid: rootUUID},
		{Node: "\x1b", Uuid: rootUUID}, nil,
	} {
		node, uuid := changedInstance(e)
		got = append(got, [2]string{node, uuid})
	}
	testproc.Same(t, cmp.Diff([][2]string{{"cn1", rootUUID}, {"cn1", ""}, {"cn1", ""}, {}, {}, {}}, got))
}

// BenchmarkCheckInstances is the border for a host with very many instances.
func BenchmarkCheckInstances(b *testing.B) {
	msgs := make([]*driverv1.Instance, 10_000)
	for i := range msgs {
		id := testproc.Try(providertree.ChildUUID(rootUUID, fmt.Sprint(i))).Or(b)
		msgs[i] = &driverv1.Instance{Uuid: id, Name: "web", PowerState: 1, HypervisorName: "instance-0000002a"}
	}
	b.ReportAllocs()
	for b.Loop() {
		if got, err := checkInstances(msgs); err != nil || len(got) != len(msgs) {
			b.Fatal(err)
		}
	}
}
