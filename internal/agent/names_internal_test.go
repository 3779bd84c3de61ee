// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestPlanWarnsOfUnknownNames: of those that a plan writes, in whatever kind of operation.
func TestPlanWarnsOfUnknownNames(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	got := unknownNames([]reportclient.Operation{
		{Kind: reportclient.SetInventories,
			Inventories: providertree.Inventories{"VCPUS": {Total: 1}, "VCPU": {Total: 1}}},
		{Kind: reportclient.SetTraits, Traits: []string{"CUSTOM_A", "HW_CPU_X86_AVX9"}},
		{Kind: reportclient.ReshapeTree, Reshape: &reportclient.Reshape{Providers: []reportclient.ReshapedProvider{
			{Before: providertree.Inventories{"OLD_NAME": {Total: 1}},
				After: providertree.Inventories{"MEMORYMB": {Total: 1}}},
		}}},
	})
	for i, name := range []string{"class MEMORYMB ", "class VCPUS ", "trait HW_CPU_X86_AVX9 "} {
		if len(got) != 3 || !strings.Contains(got[i], name) {
			t.Fatalf("warnings: %q", got)
		}
	}
}
