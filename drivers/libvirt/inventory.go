// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/inventory"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/selection"
	"github.com/compute-agent/compute-agent/providertree"
)

const bytesPerGiB = 1 << 30

// choice is what is decided about the host: what of it is for guests, and as what.
type choice struct {
	facts
	cpus selection.CPUs
	host inventory.Host
}

// choose applies the configuration to the facts. tree is the node's as it is.
func (d *Driver) choose(cfg config, f facts, tree *providertree.Tree, root, node string) (choice, error) {
	c := choice{facts: f}
	var odd []machine.Discrepancy
	var err error
	if c.cpus, odd, err = cfg.sets.Choose(f.machine); err != nil {
		return choice{}, err
	}
	d.discrepancies.add(odd)
	d.discrepancies.add(f.machine.PartialCells())
	c.host = inventory.Host{
		Node: node, Cells: f.machine.Cells, Shared: c.cpus.VCPU, Dedicated: c.cpus.PCPU, MemoryKiB: f.memoryKiB,
		DiskGB: int64(f.disk.Bytes / bytesPerGiB), SharedDisk: cfg.SharedDisk, Taken: takenDevices(f),
	}
	c.host.Memory, odd = cfg.pages.Choose(f.machine)
	d.discrepancies.add(odd)
	held := inventory.Held(tree, root)
	c.host.Mdevs, odd = cfg.types.Choose(f.machine, held)
	d.discrepancies.add(odd)
	keepUncertain(&c.host, cfg.specs, cfg.types, f.machine, held)
	if cfg.TypeTraits {
		describe(&c.host, f.machine)
	}
	if c.host.PCI, odd, err = cfg.specs.Select(f.machine); err != nil {
		return choice{}, err
	}
	d.discrepancies.add(odd)
	if c.host.Encryption, odd, err = cfg.encryption(f, tree, root, node); err != nil {
		return choice{}, err
	}
	d.discrepancies.add(odd)
	pools, odd := cfg.pmem.Choose(f.pmem)
	c.host.PMEM = selection.PMEMTotals(pools)
	d.discrepancies.add(odd)
	d.discrepancies.addIf(cfg.SharedDisk && !tree.HasSharingProvider("DISK_GB"), "shared-disk",
		"shared_disk is set, but no sharing provider in the node's aggregates has DISK_GB, so nothing reports disk "+
			"space for this node; put the node into the aggregate of the storage's provider")
	traits := f.traits(cfg)
	d.discrepancies.add(traits.Discrepancies())
	d.setCapabilities(traits.Capabilities())
	for trait, has := range traits.Verdicts() {
		c.host.OwnedTraits = append(c.host.OwnedTraits, trait)
		if has {
			c.host.Traits = append(c.host.Traits, trait)
		}
	}
	slices.Sort(c.host.OwnedTraits)
	slices.Sort(c.host.Traits)
	return c, nil
}

// keepUncertain has the providers of devices that cannot be read stay as they are. Such a device is
// not offered where it was not.
func keepUncertain(
	h *inventory.Host, specs selection.PCISpecs, types selection.MdevTypes, m machine.Machine, held map[string]bool,
) {
	h.Uncertain = machine.SetOf(specs.Uncertain(m))
	unread := machine.UnreadAddresses(m.Unread)
	h.Mdevs = slices.DeleteFunc(h.Mdevs, func(p selection.MdevProvider) bool {
		if p.Address == nil || !unread[*p.Address] {
			return false
		}
		h.Uncertain[p.Device] = true
		return !held[p.Device]
	})
	for _, p := range m.Parents {
		if p.Problem != "" && types.Makes(p.Name) {
			h.Uncertain[p.Name] = true
		}
	}
}

// describe gives the providers of mediated devices the traits that follow from their types, and has
// those of former types removed. A type that the vendor's driver no longer knows is not known as a
// former one.
func describe(h *inventory.Host, m machine.Machine) {
	for i, p := range h.Mdevs {
		h.Mdevs[i].Traits = append(slices.Clip(p.Traits), inventory.GPUTraits(p.Description)...)
	}
	h.MdevTraits = append(selection.MdevTypeTraits(m), inventory.OwnedGPUTraits()...)
}

// takenDevices are the PCI devices that some domain has.
func takenDevices(f facts) map[machine.Address]bool {
	out := map[machine.Address]bool{}
	for _, d := range f.domains {
		for _, device := range d.PCI {
			out[device.Address] = true
		}
	}
	return out
}

// traits returns the facts and options that the root's traits follow from.
func (f facts) traits(cfg config) inventory.HostTraits {
	return inventory.HostTraits{
		Arch: f.caps.Arch, Features: f.features, FeaturesUnknown: f.featuresUnknown, Threaded: f.threaded,
		GuestArches: f.caps.GuestArches,
		Domains:     f.guests.domains, Libvirt: f.guests.libvirt, QEMU: f.guests.emulator, KernelAsked: f.sev != nil ||
			f.hypervisor != testDriver, Config: cfg.TraitConfig,
	}
}

// encryption is the memory encryption for guests. While libvirt does not report what guests can
// have, it is what the tree has already.
func (c config) encryption(
	f facts, tree *providertree.Tree, root, node string,
) ([]selection.EncryptionProvider, []machine.Discrepancy, error) {
	if !f.guests.failed {
		providers, odd := c.sev.Choose(f.encryption(), f.domains)
		return providers, odd, nil
	}
	if _, has := tree.Inventory(root, selection.EncryptionClass); has {
		return nil, nil, &notReadyError{
			fmt.Errorf("the node has %s, but libvirt does not report whether the host still has it: %s",
				selection.EncryptionClass, f.guests.discrepancies[0].Text),
		}
	}
	return selection.HeldEncryption(func(suffix string) (providertree.Inventory, bool) {
		view, found := tree.ProviderByName(node + "_" + suffix)
		if !found {
			return providertree.Inventory{}, false
		}
		inv, found := view.Inventories[selection.EncryptionClass]
		return inv, found
	}), nil, nil
}

// encryption returns what libvirt and the kernel answer about memory encryption.
func (f facts) encryption() selection.EncryptionHost {
	h := selection.EncryptionHost{}
	if f.sev != nil {
		kernel := selection.EncryptionByKernel(*f.sev)
		h.Kernel = &kernel
	}
	for _, c := range f.guests.domains {
		h.Libvirt.SEV = h.Libvirt.SEV || c.SEV.Supported
		h.Libvirt.SNP = h.Libvirt.SNP || slices.Contains(c.Security, "sev-snp")
		if c.SEV.MaxGuests > 0 {
			n := uint(c.SEV.MaxGuests)
			h.Libvirt.Capabilities.Guests = &n
		}
		if c.SEV.MaxESGuests > 0 {
			n := uint(c.SEV.MaxESGuests)
			h.Libvirt.Capabilities.ESGuests = &n
		}
	}
	if sev := f.guests.sev; sev != nil {
		if sev.MaxGuests > 0 {
			h.Libvirt.Node.Guests = &sev.MaxGuests
		}
		if sev.MaxESGuests > 0 {
			h.Libvirt.Node.ESGuests = &sev.MaxESGuests
		}
	}
	return h
}

// settings returns the configuration as package inventory has it, for a nested or a flat tree.
func (c config) settings(nested bool) inventory.Settings {
	return inventory.Settings{
		Nested: nested, TiersInRoot: c.TiersInRoot, TypeTraits: c.TypeTraits,
		ReservedCPUs: c.ReservedCPUs, ReservedMemoryMB: c.ReservedMemoryMB, ReservedDiskMB: c.ReservedDiskMB,
		CPURatio: c.CPURatio, RAMRatio: c.RAMRatio, DiskRatio: c.DiskRatio,
		InitialCPURatio: c.InitialCPURatio, InitialRAMRatio: c.InitialRAMRatio, InitialDiskRatio: c.InitialDiskRatio,
	}
}

// setCapabilities stores the result of Capabilities.
func (d *Driver) setCapabilities(capabilities map[string]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.capabilities = maps.Clone(capabilities)
}
