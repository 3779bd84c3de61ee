// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"testing"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestWhatComesBetweenIsNoticed: the list of guests from right before a write decides, on whichever
// node the guest is.
func TestWhatComesBetweenIsNoticed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const root, other, guest = "root", "other", "guest"
	has := providertree.ProviderResources{root: {"VCPU": 1}}
	in := Input{Node: plugins.Node{Name: "cn1", UUID: root},
		Guests: []plugins.Guest{{UUID: guest, ProjectID: "p", UserID: "u", Resources: has}}}
	in.Holdings.Providers = []reportclient.HeldProvider{{UUID: root, Name: "cn1"}}
	node := Compare(in, Proof{}, Owner{})
	node.Orphans = []Orphan{{Consumer: guest}, {Consumer: "kept", Kept: "because"}}
	gone, made := orphans(&node, nil), missing(&node, nil)
	if len(gone) != 1 || len(made) != 1 {
		t.Fatalf("%d and %d can be fixed", len(gone), len(made))
	}
	for name, tc := range map[string]struct {
		root           string
		guests         []plugins.Guest
		deletes, makes bool
	}{
		"no guest is there":     {root, nil, true, false},
		"it is there":           {root, in.Guests, false, true},
		"it is on another node": {other, in.Guests, false, false},
		"it has something else": {root,
			[]plugins.Guest{{UUID: guest, Resources: providertree.ProviderResources{root: {"VCPU": 2}}}}, false, false},
		"another guest is there":   {root, []plugins.Guest{{UUID: "x"}}, true, false},
		"what it has is not known": {root, []plugins.Guest{{UUID: guest}}, false, false},
	} {
		now := discovery{nodes: []discovered{{node: plugins.Node{Name: "n", UUID: tc.root}, guests: tc.guests}}}
		if err := gone[0].still(now); (err == nil) != tc.deletes {
			t.Errorf("%s: deleting: %v", name, err)
		}
		if err := made[0].still(now); (err == nil) != tc.makes {
			t.Errorf("%s: making: %v", name, err)
		}
	}
}
