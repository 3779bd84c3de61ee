// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/capabilities"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// milan is a host with AMD's encryption, all of it.
func milan() HostTraits {
	return HostTraits{
		Arch: "x86_64", KernelAsked: true,
		Domains: []capabilities.Domain{{
			Type: "kvm", Arch: "x86_64", Machine: "pc-q35-9.2", Security: []string{"sev", "sev-snp"},
			SEV: capabilities.SEV{Supported: true, MaxGuests: 493, MaxESGuests: 16},
		}},
	}
}

// TestRootHasNoEncryptionTraits: what an older Nova put there goes, once it is known what
// there is.
func TestRootHasNoEncryptionTraits(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	judged := func(h HostTraits) (all, has int) {
		verdicts := h.Verdicts()
		for _, trait := range []string{"HW_CPU_X86_AMD_SEV", "HW_CPU_X86_AMD_SEV_ES", "HW_CPU_X86_AMD_SEV_SNP"} {
			is, judged := verdicts[trait]
			if judged {
				all++
			}
			if is {
				has++
			}
		}
		return all, has
	}
	for name, tc := range map[string]struct {
		change func(*HostTraits)
		judged int
	}{
		"a host that has it": {func(*HostTraits) {}, 3},
		"a host that has none": {func(h *HostTraits) {
			h.Domains[0].SEV,
				h.Domains[0].Security = capabilities.SEV{}, nil
		}, 3},
		"the kernel was not asked":   {func(h *HostTraits) { h.KernelAsked = false }, 0},
		"libvirt said nothing of it": {func(h *HostTraits) { h.Domains = nil }, 0},
	} {
		h := milan()
		tc.change(&h)
		if all, has := judged(h); all != tc.judged || has > 0 {
			t.Errorf("%s: %d are judged, and the host has %d", name, all, has)
		}
	}
}

func TestDiscrepancies(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := milan()
	if got := h.Discrepancies(); got != nil {
		t.Errorf("%v", got)
	}
	h.Config.SWTPM = true
	var keys []string
	for _, d := range h.Discrepancies() {
		keys = append(keys, d.Key)
		testproc.Contains(t, d.Text, "libvirt says", "%v")
	}
	testproc.Same(t, cmp.Diff([]string{"traits-swtpm"}, keys))
}
