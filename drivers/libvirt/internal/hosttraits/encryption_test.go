// SPDX-License-Identifier: Apache-2.0

package hosttraits

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domcaps"
)

// milan is a host with AMD's encryption, all of it.
func milan() Host {
	return Host{
		Arch: "x86_64", Kernel: &Kernel{SEV: true, SEVES: true, SEVSNP: true},
		Domains: []domcaps.Capabilities{{
			Type: "kvm", Arch: "x86_64", Machine: "pc-q35-9.2", Security: []string{"sev", "sev-snp"},
			SEV: domcaps.SEV{Supported: true, MaxGuests: 493, MaxESGuests: 16},
		}},
	}
}

func TestEncryptions(t *testing.T) {
	es, snp := Encryption{"amd_sev_es", "HW_CPU_X86_AMD_SEV_ES", 16}, Encryption{"amd_sev_snp", "HW_CPU_X86_AMD_SEV_SNP", 16}
	sev := Encryption{"amd_sev", "HW_CPU_X86_AMD_SEV", 493}
	for name, tc := range map[string]struct {
		change func(*Host)
		want   []Encryption
	}{
		"all":                           {func(*Host) {}, []Encryption{sev, es, snp}},
		"the kernel may not":            {func(h *Host) { h.Kernel.SEV = false }, nil},
		"the kernel may not use ES":     {func(h *Host) { h.Kernel.SEVES = false }, []Encryption{sev, snp}},
		"the kernel may not use SNP":    {func(h *Host) { h.Kernel.SEVSNP = false }, []Encryption{sev, es}},
		"libvirt does not":              {func(h *Host) { h.Domains[0].SEV = domcaps.SEV{} }, nil},
		"libvirt knows no SNP":          {func(h *Host) { h.Domains[0].Security = nil }, []Encryption{sev, es}},
		"no places for ES":              {func(h *Host) { h.Domains[0].SEV.MaxESGuests = 0; h.Kernel.SEVSNP = false }, []Encryption{sev}},
		"libvirt does not say how many": {func(h *Host) { h.Domains[0].SEV = domcaps.SEV{Supported: true}; h.Kernel.SEVSNP = false }, []Encryption{{"amd_sev", "HW_CPU_X86_AMD_SEV", 0}}},
		"another architecture":          {func(h *Host) { h.Arch = "aarch64" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := milan()
			tc.change(&h)
			got, known := h.Encryptions()
			if diff := cmp.Diff(tc.want, got); diff != "" || !known {
				t.Errorf("known %v %s", known, diff)
			}
		})
	}
	h := milan()
	h.Kernel = nil
	if ways, known := h.Encryptions(); ways != nil || known {
		t.Errorf("nothing is known without the kernel: %v", ways)
	}
}

func TestEncryptionOnTheRoot(t *testing.T) {
	h := milan()
	h.EncryptionOnRoot = true
	got := h.Verdicts()
	if !got["HW_CPU_X86_AMD_SEV"] || got["HW_CPU_X86_AMD_SEV_ES"] || got["HW_CPU_X86_AMD_SEV_SNP"] {
		t.Error("on the root there is only SEV, as older Novas had it")
	}
	h.EncryptionOnRoot = false
	if has, named := h.Verdicts()["HW_CPU_X86_AMD_SEV"]; has || !named {
		t.Error("the trait goes from the root when it is on children")
	}
}

func TestDoubts(t *testing.T) {
	h := milan()
	if got := h.Doubts(); got != nil {
		t.Errorf("%v", got)
	}
	h.Config.SWTPM = true
	h.Domains[0].SEV.Supported = false
	var keys []string
	for _, d := range h.Doubts() {
		keys = append(keys, d.Key)
		if !strings.Contains(d.Text, "libvirt says") {
			t.Error(d.Text)
		}
	}
	if diff := cmp.Diff([]string{"traits-swtpm", "traits-sev"}, keys); diff != "" {
		t.Error(diff)
	}
}
