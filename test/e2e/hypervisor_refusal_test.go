// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// unknownConsumers: two consumers hold virtual GPUs, and libvirt has no domains of them. Nothing
// happens until an operator allows a guess.
func unknownConsumers(r *residence, _ func() *residence) {
	r.others(r.host.novasFlat("PCPU"))
	r.others([]string{
		"claim ghost cn1:VCPU=1 cn1:MEMORY_MB=32 cn1:VGPU=1", // a stale allocation
		"claim migration cn1:VCPU=2 cn1:MEMORY_MB=48 cn1:VGPU=1",
	})
	before := r.see()
	r.configure(novasOptions, withVFs, withGPUs)
	agent := r.run()
	testproc.Equal(r.t, agent.exit(), 3, "exit code %d")
	r.checkRefusal(agent, map[string][]string{"ghost": {"VGPU"}, "migration": {"VGPU"}})
	testproc.Samef(r.t, cmp.Diff(before, r.look()), "something was written")

	r.configure(novasOptions, withVFs, withGPUs, `unplaced_consumers = "guess"`)
	r.reshape(nil)
	got := r.sketch()
	for _, line := range r.host.possible(flatGuests) {
		if !slices.Contains(got, line) {
			r.t.Errorf("those that are known are elsewhere than they should be: no %q", line)
		}
	}
	for _, line := range []string{
		"ghost cn1:MEMORY_MB=32 cn1:VCPU=1 cn1_pci_0000_05_00_0:VGPU=1",
		"migration cn1:MEMORY_MB=48 cn1:VCPU=2 cn1_pci_0000_82_00_0:VGPU=1",
	} {
		if !slices.Contains(got, line) {
			r.t.Errorf("no %q in\n%s", line, strings.Join(got, "\n"))
		}
	}

	r.configure(novasOptions, withVFs, withGPUs, nested)
	before = r.look()
	agent = r.run()
	testproc.Equal(r.t, agent.exit(), 3, "to cells: exit code %d")
	r.checkRefusal(agent, map[string][]string{"ghost": {"MEMORY_MB", "VCPU"}, "migration": {"MEMORY_MB", "VCPU"}})
	testproc.Samef(r.t, cmp.Diff(before, r.look()), "to cells: something was written")
	r.configure(novasOptions, withVFs, withGPUs, nested, `unplaced_consumers = "guess"`)
	r.reshape(nil)
	got = r.sketch()
	for _, want := range r.host.possible([]string{nestedGuests[0], nestedGuests[4], nestedGuests[5], nestedGuests[6]}) {
		if !slices.Contains(got, want) {
			r.t.Errorf("those that are bound are elsewhere than they should be: no %q in\n%s",
				want, strings.Join(got, "\n"))
		}
	}
}

// checkRefusal checks that an agent that ended named these consumers, with these classes and with
// what can be done, and no others.
func (r *residence) checkRefusal(agent *process, want map[string][]string) {
	r.t.Helper()
	got := map[string][]string{}
	told := false
	var rest []string
	for _, line := range agent.Lines() {
		if told = told || strings.HasPrefix(line, "refused: "); !told { // what comes before is the log
			continue
		}
		what, is := strings.CutPrefix(strings.TrimPrefix(strings.TrimSpace(line), "- "), "consumer ")
		if !is {
			rest = append(rest, line)
			continue
		}
		consumer, what, _ := strings.Cut(what, ", ")
		what, _, _ = strings.Cut(what, ":")
		for part := range strings.SplitSeq(strings.NewReplacer(" of cn1", "", " and ", ", ").Replace(what), ", ") {
			_, class, _ := strings.Cut(part, " ")
			got[r.names[consumer]] = append(got[r.names[consumer]], class)
		}
	}
	text := strings.Join(rest, "\n")
	for _, once := range []string{"no domain", "allocation show CONSUMER", "allocation delete CONSUMER",
		`unplaced_consumers = "guess"`} {
		if n := strings.Count(text, once); n != 1 {
			r.t.Errorf("%q is printed %d times:\n%s", once, n, text)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("violations (-want +got):\n%s\n%s", diff, strings.Join(agent.Lines(), "\n"))
	}
}

// goneAndBack: a GPU that guests use is removed while the agent runs. It stays in Placement, closed
// for others; when it is back, all is as before.
func goneAndBack(r *residence, _ func() *residence) {
	r.others(r.host.novasFlat("PCPU"))
	r.configure(novasOptions, withVFs, withGPUs)
	r.reshape(nil)
	before := r.seen
	agent := r.run()
	agent.awaitAny(passDone)

	mark := agent.Mark()
	check(r.t, r.host.Unplug(r.t.Context(), gpu1))
	plug := func() {
		host := machineOfGuests()
		check(r.t, r.host.Plug(r.t.Context(), *host.Device(gpu1)))
	}
	defer func() {
		if plug != nil {
			plug()
		}
	}()
	agent.await(mark, wrote, "cn1_pci_0000_82_00_0", "reserved")
	gone := slices.Clone(flatTree)
	// as much as is in use, and all of that reserved
	gone[len(gone)-1] = "  cn1_pci_0000_82_00_0 VGPU=2-2/16 +OWNER_NOVA"
	r.see()
	r.compare("gone", gone, flatGuests)
	if draining := strings.Join(r.status().Drivers[0].Report.Nodes[0].Draining,
		"\n"); !strings.Contains(draining, "cn1_pci_0000_82_00_0") {
		r.t.Errorf("the status does not say that it was removed: %q", draining)
	}
	agent.stop()
	r.quiet("without the GPU")

	agent = r.run()
	agent.awaitAny(passDone)
	mark = agent.Mark()
	plug()
	plug = nil
	agent.await(mark, wrote, "cn1_pci_0000_82_00_0", "reserved")
	agent.stop()
	if diff := cmp.Diff(before.Inventories, r.see().Inventories); diff != "" {
		r.t.Errorf("inventories before it went and when it is back: %s", diff)
	}
	r.compare("back", flatTree, flatGuests)
	r.quiet("with the GPU again")
}

// adoptedFromNova: the tree that Nova's driver makes of this machine, whatever uuids it gave, stays
// as it is, without a write.
func adoptedFromNova(r *residence, another func() *residence) {
	r.configure(novasOptions, withVFs, withGPUs)
	r.settle()
	traits := slices.DeleteFunc(r.look().Traits["cn1"],
		func(trait string) bool { return strings.HasPrefix(trait, "CUSTOM_") })

	r = another()
	tree := r.host.novasFlat("PCPU")
	tree[0] = strings.NewReplacer(" VGPU=32/32", "", " MEM_ENCRYPTION_CONTEXT=16/1", "").Replace(tree[0]) +
		" +" + strings.Join(traits, " +") +
		" +COMPUTE_VOLUME_EXTEND +COMPUTE_VOLUME_ATTACH_WITH_TAG +COMPUTE_IMAGE_TYPE_QCOW2 +COMPUTE_TRUSTED_CERTS"
	r.others(slices.Concat(tree[:3], novasGPUs,
		r.host.possible([]string{"cn1_amd_sev <cn1 MEM_ENCRYPTION_CONTEXT=16/1 +HW_CPU_X86_AMD_SEV"})))
	for _, line := range r.host.possible(flatGuests) {
		r.others([]string{"claim " + line})
	}
	r.configure(novasOptions, withVFs, withGPUs)
	r.see()
	r.quiet("at the first start")
	r.quiet("at the second start")
}
