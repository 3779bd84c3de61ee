// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestExplanation(t *testing.T) {
	e := &candidates.Explanation{
		Verdict: `No candidates. Each group has providers, but no tree has one for each. The nearest miss: 17 of ` +
			`1000 trees serve all but group _FPGA (FPGA:1). There (such as in cn0611), no provider has trait CUSTOM_X.`,
		Groups: []candidates.GroupExplanation{
			{Suffix: "_COMPUTE", Resources: map[string]int64{"VCPU": 8, "MEMORY_MB": 512},
				Steps: []candidates.ProviderStep{
					{Kind: candidates.StepInventory, Condition: "has an inventory of VCPU and MEMORY_MB", Removed: 5000,
						Providers: 2000, Trees: 1000},
					{Kind: candidates.StepUnits, Condition: "gives 8 VCPU in one piece", Removed: 4, Providers: 1996,
						Trees: 998, Note: "max_unit is smaller"},
					{Kind: candidates.StepFree, Condition: "has 8 VCPU free", Removed: 12, Providers: 1984, Trees: 992,
						Note: "the largest free amount of the others is 3"},
					{Kind: candidates.StepUnits, Condition: "gives 512 MEMORY_MB in one piece",
						Providers: 1984, Trees: 992},
					{Kind: candidates.StepFree, Condition: "has 512 MEMORY_MB free", Providers: 1984, Trees: 992},
				}},
			{Suffix: "_FPGA", Resources: map[string]int64{"FPGA": 1}, Steps: []candidates.ProviderStep{
				{Kind: candidates.StepInventory, Condition: "has an inventory of FPGA",
					Removed: 6980, Providers: 20, Trees: 20},
				{Kind: candidates.StepRequired, Condition: "has trait CUSTOM_X", Removed: 17, Providers: 3, Trees: 3},
			}},
			{Suffix: "_NUMA",
				Steps: []candidates.ProviderStep{{Kind: candidates.StepInventory, Condition: "all providers",
					Providers: 7000, Trees: 1000}}},
		},
		Trees: []candidates.TreeStep{
			{Kind: candidates.StepAll, Condition: "all trees", Trees: 1000},
			{Kind: candidates.StepRootRequired, Condition: "the root has trait COMPUTE_NODE", Trees: 1000},
			{Kind: candidates.StepGroup, Condition: "group _COMPUTE (VCPU:8, MEMORY_MB:512) has a provider", Removed: 8,
				Trees: 992},
			{Kind: candidates.StepGroup, Condition: "group _FPGA (FPGA:1) has a provider", Removed: 992},
		},
		Hosts: []candidates.HostExplanation{{Host: "cn0611",
			Verdict: "none of its 2 NUMA cells can serve group _COMPUTE (VCPU:8, MEMORY_MB:512) and group _FPGA " +
				"(FPGA:1) together (same_subtree)", Cells: []candidates.CellExplanation{
				{Provider: "cn0611_numa_0", Free: map[string]int64{"VCPU": 3, "MEMORY_MB": 8192, "FPGA": 1},
					Lacks: []candidates.CellLack{{Suffix: "_COMPUTE", Reason: "3 of 8 VCPU free"},
						{Suffix: "_FPGA", Reason: "no provider has trait CUSTOM_X"}}},
				{Provider: "cn0611_numa_1", Free: map[string]int64{},
					Lacks: []candidates.CellLack{{Reason: "no provider has an inventory of VCPU"}}},
			}}, {Host: "cn0612", Verdict: "each group can be served, but not all at once"}},
	}
	var out bytes.Buffer
	testproc.Check(t, render.Explanation(&out, e))
	golden.Text(t, "testdata/explain.txt", out.String())
	out.Reset()
	if err := render.Explanation(&out, &candidates.Explanation{Verdict: "a\x1b[2Jb"}); err != nil ||
		strings.Contains(out.String(), "\x1b") {
		t.Errorf("what a server says reaches the terminal as it is: %q, %v", out.String(), err)
	}
}
