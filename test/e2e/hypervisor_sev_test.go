// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// encrypted is the guest with encrypted memory.
const encrypted = "grace"

// encrypt has libvirt believe that the emulators can encrypt memory, which needs AMD's firmware: it
// caches their capabilities in files. It reports whether libvirt believes it; a later version may
// cache them otherwise.
func (h *hypervisor) encrypt(t *testing.T, cache string) bool {
	t.Helper()
	believes := func() bool {
		t.Helper()
		text := testproc.Try(h.Virsh(t.Context(), "domcapabilities", "--arch", "x86_64")).Or(t)
		return strings.Contains(text, "<sev supported='yes'>")
	}
	if believes() {
		return true
	}
	check(t, h.Stop(t.Context()))
	notes := testproc.Try(filepath.Glob(filepath.Join(cache, "qemu", "capabilities", "*.xml"))).Or(t)
	for _, file := range notes {
		text := testproc.Try(os.ReadFile(file)).Or(t)
		noted := strings.Replace(string(text), "  <flag name=", "  <flag name='sev-guest'/>\n  <flag name=", 1)
		noted = strings.Replace(noted, "</qemuCaps>",
			"<sev><cbitpos>47</cbitpos><reducedPhysBits>1</reducedPhysBits><pdh>AA==</pdh><certChain>AA==</"+
				"certChain><cpu0Id>AA==</cpu0Id></sev></qemuCaps>", 1)
		check(t, os.WriteFile(file, []byte(noted), 0o600))
	}
	check(t, h.Launch(t.Context()))
	if believes() {
		return true
	}
	return false // this libvirt notes what emulators can do in another form: encryptionContexts says so
}

// possible are the lines without those of encrypted memory, where libvirt does not believe in that.
func (h *hypervisor) possible(lines []string) []string {
	if h.encrypts {
		return lines
	}
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		return strings.Contains(line, "memory_encrypted") || strings.Contains(line, "cn1_amd_sev") ||
			strings.HasPrefix(strings.TrimPrefix(line, "claim "), encrypted+" ")
	})
}

// encryptionContexts: Nova had the contexts on the root until 2025.2, long after it had moved the
// virtual GPUs. The trait beside them moves with them, though it was Nova that wrote it: it is not
// reported in both places.
func encryptionContexts(r *residence, _ func() *residence) {
	if !r.host.encrypts {
		testproc.NotRun(r.t, "contexts of memory encryption: libvirt does not believe in them")
	}
	const trait = "HW_CPU_X86_AMD_SEV"
	tree := r.host.novasFlat("PCPU")
	tree[0] = strings.Replace(tree[0], " VGPU=32/32", " +"+trait, 1)
	r.others(slices.Concat(tree[:3], novasGPUs))
	for _, line := range flatGuests {
		r.others([]string{"claim " + strings.ReplaceAll(line, "cn1_amd_sev:", "cn1:")})
	}
	// Of this one libvirt knows nothing; but there is one place only where its context can be.
	r.others([]string{"claim migration cn1:VCPU=1 cn1:MEM_ENCRYPTION_CONTEXT=1"})
	r.configure(novasOptions, withVFs, withGPUs)
	r.reshape(nil)
	want := slices.Clone(flatTree)
	want[len(want)-1] = strings.Replace(want[len(want)-1], "+OWNER", "+CUSTOM_NVIDIA_222 +OWNER", 1)
	r.compare("contexts", want, flatGuests, []string{"migration cn1:VCPU=1 cn1_amd_sev:MEM_ENCRYPTION_CONTEXT=1"})
	agent := r.run()
	agent.awaitAny(passDone)
	node := r.status().Drivers[0].Report.Nodes[0]
	testproc.Equal(r.t, node.Layout, 2, "the status has layout version %d")
	if kept := strings.Join(node.Kept, "\n"); strings.Contains(kept, trait) {
		r.t.Errorf("the status tells that the trait of the root was kept: %q", kept)
	}
	agent.stop()
}
