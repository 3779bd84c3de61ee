// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"strings"
)

// diedBeforeNesting: a GPU that guests hold died while nothing ran. The agent still takes over the
// host and nests its tree: the allocations stay, on inventory that is closed for others.
func diedBeforeNesting(r *residence, _ func() *residence) {
	tree := r.host.novasFlat("PCPU")
	tree[0] = strings.NewReplacer(" VGPU=32/32", "", " MEM_ENCRYPTION_CONTEXT=16/1", "").Replace(tree[0])
	r.others(slices.Concat(tree[:3], novasGPUs,
		r.host.possible([]string{"cn1_amd_sev <cn1 MEM_ENCRYPTION_CONTEXT=16/1 +HW_CPU_X86_AMD_SEV +OWNER_NOVA"})))
	for _, line := range r.host.possible(flatGuests) {
		r.others([]string{"claim " + line})
	}
	check(r.t, r.host.Unplug(r.t.Context(), gpu1))
	defer func() {
		host := machineOfGuests()
		check(r.t, r.host.Plug(r.t.Context(), *host.Device(gpu1)))
	}()
	const closed = "cn1_pci_0000_82_00_0 VGPU=2-2/16 +CUSTOM_NVIDIA_222 +OWNER_NOVA"
	r.configure(novasOptions, withVFs, withGPUs)
	r.settle()
	r.settle() // what stays behind in a reshape is closed by the next pass
	r.see()
	gone := slices.Clone(flatTree)
	gone[len(gone)-1] = "  " + closed
	r.compare("taken over", gone, flatGuests)
	r.quiet("after it was taken over")

	r.configure(novasOptions, withVFs, withGPUs, nested)
	r.settle()
	r.settle()
	r.see()
	cells := slices.DeleteFunc(slices.Clone(nestedTree),
		func(line string) bool { return strings.Contains(line, "cn1_pci_0000_82_00_0") })
	r.compare("nested", append(cells, "  "+closed), nestedGuests)
	r.quiet("after it was nested")
}
