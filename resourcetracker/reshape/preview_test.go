// SPDX-License-Identifier: Apache-2.0

package reshape

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestPlanShowsWhatIsOverCommitted: an older Placement refuses to move consumers that hold some of
// what is allocated beyond its capacity.
func TestPlanShowsWhatIsOverCommitted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for total, want := range map[int64][]string{2: nil, 1: {"VCPU on cn1: 8 allocated, capacity 4"}} {
		d := vgpus()
		for _, tree := range []*providertree.Tree{d.Known, d.Desired} {
			must(tree.SetInventory(gNode.UUID, "VCPU", providertree.Inventory{Total: total, AllocationRatio: 4}))
		}
		testproc.Same(t, cmp.Diff(want, d.Preview(reportclient.Plan{}).OverCommitted))
	}
}
