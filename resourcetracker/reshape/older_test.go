// SPDX-License-Identifier: Apache-2.0

package reshape

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestOlderDriverError says what it is known by, and what helps.
func TestOlderDriverError(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const install, docs = "install a version of the driver with layout version 4 again",
		"; docs/upgrading-drivers.md explains how to go back to the older one"
	for _, c := range []struct {
		err         OlderDriverError
		error, hint string
	}{
		{OlderDriverError{Recorded: 4, Driver: 3},
			"the provider tree has layout version 4, but this driver has layout version 3; ", install + docs},
		{OlderDriverError{Recorded: 4, Reshape: 7},
			"the provider tree has layout version 4, but this driver has no layout version; ",
			install + "; or, to stay with this one, undo the reshape: `compute-agent reshape undo 7`"},
		{OlderDriverError{Reshape: 7, Returned: []string{"a", "b"}},
			"the driver reports inventory in the place from which reshape 7 moved it, without asking for a " +
				"reshape, so it would be counted twice: a; b; ",
			"install the newer version of the driver again; or, to stay"},
		{OlderDriverError{}, "the driver reports", "install the newer version of the driver again" + docs},
	} {
		if got := c.err.Error(); !strings.HasPrefix(got, c.error) ||
			!strings.HasSuffix(got, "nothing is written for the node") {
			t.Errorf("%s\nwant %s", got, c.error)
		}
		if got := c.err.Hint(); !strings.HasPrefix(got, c.hint) {
			t.Errorf("%s\nwant %s", got, c.hint)
		}
	}
}

// TestMovedAway follows inventory through the journal: only reshapes that happened, or may have,
// moved something; what came back was not moved.
func TestMovedAway(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inventories := func(classes ...string) providertree.Inventories {
		out := providertree.Inventories{}
		for _, class := range classes {
			out[class] = providertree.Inventory{Total: 1}
		}
		return out
	}
	n := int64(0)
	move := func(outcome reportclient.ReshapeOutcome, from, to string) journal.Entry {
		n++
		return journal.Entry{ID: n, Outcome: outcome,
			Reshape: &reportclient.Reshape{Providers: []reportclient.ReshapedProvider{
				{UUID: from, Before: inventories("VCPU", "VGPU"), After: inventories("VCPU")},
				{UUID: to, Before: inventories("PGPU"), After: inventories("PGPU", "VGPU")},
			}}}
	}
	at := func(provider string) plugins.Place { return plugins.Place{Provider: provider, Class: "VGPU"} }
	lost := move(reportclient.ReshapeHappened, "a", "b")
	lost.Reshape.Providers[1].After = inventories("PGPU")
	renamed := move(reportclient.ReshapeHappened, "a", "b")
	renamed.Reshape.Providers[1].After, renamed.Renames =
		inventories("PGPU", "CUSTOM_SLICE"), map[string]string{"VGPU": "CUSTOM_SLICE"}
	for name, c := range map[string]struct {
		history []journal.Entry
		want    map[plugins.Place][]plugins.Place
	}{
		"nothing":         {nil, nil},
		"one that cannot": {[]journal.Entry{{ID: 9, Outcome: reportclient.ReshapeHappened}}, nil},
		"refused":         {[]journal.Entry{move(reportclient.ReshapeRefused, "a", "b")}, nil},
		"open":            {[]journal.Entry{move("", "a", "b")}, nil},
		"happened": {[]journal.Entry{move(reportclient.ReshapeHappened, "a", "b")},
			map[plugins.Place][]plugins.Place{at("a"): {at("b")}}},
		"perhaps": {[]journal.Entry{move(reportclient.ReshapeUnknown, "a", "b")},
			map[plugins.Place][]plugins.Place{at("a"): {at("b")}}},
		"and on": {[]journal.Entry{move(reportclient.ReshapeHappened, "a", "b"),
			move(reportclient.ReshapeHappened, "b", "c")},
			map[plugins.Place][]plugins.Place{at("a"): {at("b")}, at("b"): {at("c")}}},
		"and back": {[]journal.Entry{move(reportclient.ReshapeHappened, "a", "b"),
			move(reportclient.ReshapeHappened, "b", "a")}, map[plugins.Place][]plugins.Place{at("b"): {at("a")}}},
		"to nowhere": {[]journal.Entry{lost}, map[plugins.Place][]plugins.Place{at("a"): nil}},
		"renamed": {[]journal.Entry{renamed},
			map[plugins.Place][]plugins.Place{at("a"): {{Provider: "b", Class: "CUSTOM_SLICE"}}}},
	} {
		got := map[plugins.Place][]plugins.Place{}
		for place, r := range movedAway(c.history) {
			got[place] = r.to
		}
		if c.want == nil {
			c.want = map[plugins.Place][]plugins.Place{}
		}
		testproc.Samef(t, cmp.Diff(c.want, got), "%s", name)
	}
}

// TestToUndo: an undo is recommended only if the driver can go on after it, perhaps after
// others.
func TestToUndo(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	made := func(id int64, from, to int) journal.Entry {
		return journal.Entry{ID: id, FromLayout: from, ToLayout: to, Outcome: reportclient.ReshapeHappened}
	}
	undo := made(9, 2, 1)
	undo.Undoes = 2
	lost := made(3, 0, 2)
	lost.Outcome = reportclient.ReshapeConflict
	for name, c := range map[string]struct {
		history []journal.Entry
		driver  int
		want    int64
	}{
		"nothing happened":                       {nil, 0, 0},
		"from no version, to a driver with none": {[]journal.Entry{made(1, 0, 2)}, 0, 1},
		"from 1, to a driver with 1":             {[]journal.Entry{made(2, 1, 2)}, 1, 2},
		"from 1, to a driver with none":          {[]journal.Entry{made(2, 1, 2)}, 0, 0},
		"one after the other":                    {[]journal.Entry{made(1, 0, 1), made(2, 1, 2)}, 0, 2},
		"the last one undone":                    {[]journal.Entry{made(1, 0, 1), made(2, 1, 2), undo}, 0, 1},
		"the only one undone":                    {[]journal.Entry{made(2, 1, 2), undo}, 0, 0},
		"one that did not happen":                {[]journal.Entry{lost}, 0, 0},
	} {
		testproc.Equal(t, ToUndo(c.history, c.driver), c.want, "%s: %d", name)
	}
}

// TestInventoryThatAReshapeMovedMustNotReturn while it is where the reshape put it.
func TestInventoryThatAReshapeMovedMustNotReturn(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	vgpu := providertree.Inventories{"VGPU": {Total: 8}}
	history := []journal.Entry{{ID: 7, Outcome: reportclient.ReshapeHappened,
		Reshape: &reportclient.Reshape{Providers: []reportclient.ReshapedProvider{
			{UUID: gNode.UUID, Before: vgpu}, {UUID: id(4, 0), After: vgpu}, {UUID: id(4, 1), After: vgpu}}}}}
	d := vgpus()
	d.Known, d.Answer = d.Desired, d.Desired.Clone()
	if back := d.Returned(); len(back) > 0 {
		t.Errorf("of an answer without a change return %v", back)
	}
	must(d.Answer.SetInventory(gNode.UUID, "VGPU", vgpu["VGPU"]))
	d.Desired = d.Answer
	back := d.Returned()
	testproc.Same(t, cmp.Diff([]plugins.Place{{Provider: gNode.UUID, Class: "VGPU"}}, back))
	testproc.NoError(t, d.CheckReturned(back, nil))
	var older *OlderDriverError
	if err := d.CheckReturned(back, history); !errors.As(err, &older) {
		t.Fatalf("an older driver: got %v, want an OlderDriverError", err)
	}
	testproc.Same(t, cmp.Diff(OlderDriverError{Reshape: 7, Returned: []string{
		"VGPU on cn1, which was moved to VGPU on cn1_gpu_0 and VGPU on cn1_gpu_1"}}, *older))
	d.Desired = d.Answer.Clone()
	for n := range 2 {
		must(d.Desired.RemoveInventory(id(4, n), "VGPU"))
	}
	testproc.NoError(t, d.CheckReturned(back, history)) // it has only moved back
}
