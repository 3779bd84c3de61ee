// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestUnknownStandardNames(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	got := agent.UnknownStandardNames([]string{"VCPUS", "VCPU", "CUSTOM_VCPUS", "ZZZ", "VCPUS"},
		[]string{"HW_CPU_X86_AVX9", "CUSTOM_X", "COMPUTE_NODE", "XYZZY_PLUGH"})
	want := []string{
		"the resource class VCPUS is not in os-resource-classes 1.1.0, and a Placement without it rejects the " +
			"provider's inventory; did you mean VCPU?",
		"the resource class ZZZ is not in os-resource-classes 1.1.0, and a Placement without it rejects the " +
			"provider's inventory; custom names begin with CUSTOM_",
		"the trait HW_CPU_X86_AVX9 is not in os-traits 3.9.0, and it is omitted if Placement does not have it; did " +
			"you mean HW_CPU_X86_AVX?",
		"the trait XYZZY_PLUGH is not in os-traits 3.9.0, and it is omitted if Placement does not have it; custom " +
			"names begin with CUSTOM_",
	}
	testproc.Same(t, cmp.Diff(want, got))
	if got := agent.UnknownStandardNames(ledger.StandardClasses(), ledger.StandardTraits()); len(got) > 0 {
		t.Errorf("standard names: %v", got)
	}
}
