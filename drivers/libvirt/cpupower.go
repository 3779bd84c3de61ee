// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/discovery"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/instances"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// places remembers where CPUs are, for the driver's passes and for its look at the host.
type places struct {
	mu   sync.Mutex
	seen machine.Places
}

// count takes note of the CPUs that are online and returns the machine with those of a set as if
// they were; known is false if the core of one is not.
func (p *places) count(m machine.Machine, set []int) (counted machine.Machine, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.Observe(m)
	return p.seen.Count(m, set), len(p.seen.Unseen(m, set)) == 0
}

// readHost reads the kernel's files, and not while the driver switches CPUs.
func (d *Driver) readHost(ctx context.Context, cfg config) (h discovery.Host, err error) {
	if len(cfg.power.Switchable()) == 0 {
		return discovery.Read(cfg.Chroot, cfg.types.Enabled)
	}
	read := func() { h, err = discovery.Read(cfg.Chroot, cfg.types.Enabled) }
	if err := d.power.WhileUnswitched(ctx, read); err != nil {
		return discovery.Host{}, err
	}
	return h, err
}

// markPowered makes the dedicated CPUs that can be switched on count as online. Whether some core
// has several threads is the kernel's word while the core of one is unknown.
func (d *Driver) markPowered(cfg config, root discovery.Root, f *facts) error {
	if err := d.checkPower(cfg, root, f.machine); err != nil {
		return err
	}
	if !cfg.Management {
		return nil
	}
	counted, known := d.places.count(f.machine, cfg.power.Switchable())
	f.machine = counted
	f.threaded = threaded(f.machine) || !known && root.SMT()
	d.discrepancies.add(cfg.power.Discrepancies())
	d.warnOfPower(cfg)
	return nil
}

// powerSetup is what CPUs are switched with; nil if that is not configured.
func (d *Driver) powerSetup(cfg config, read *hypervisor.Link) *instances.PowerSetup {
	if !cfg.Management {
		return nil
	}
	return &instances.PowerSetup{Power: cfg.power,
		Chroot: cfg.Chroot, Discover: func() ([]int, error) { return d.unseenCPUs(cfg) }, Read: read}
}

// unseenCPUs takes note of the CPUs that are online, and returns those whose place is unknown.
func (d *Driver) unseenCPUs(cfg config) (unknown []int, err error) {
	r, err := discovery.Open(cfg.Chroot)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	t, err := r.Topology()
	if err != nil {
		return nil, err
	}
	m := discovery.Host{Topology: t}.Machine("")
	d.places.mu.Lock()
	defer d.places.mu.Unlock()
	d.places.seen.Observe(m)
	return d.places.seen.Unseen(m, cfg.power.Switchable()), nil
}

// warnOfPower notes why CPUs are not switched that should be.
func (d *Driver) warnOfPower(cfg config) {
	setup := d.powerSetup(cfg, nil)
	if setup == nil || cfg.Instances == nil {
		return
	}
	problem := setup.Closed()
	if problem == "" {
		problem = d.power.Problem()
	}
	d.discrepancies.addIf(problem != "", "cpu-power",
		"%s. Guests cannot start on dedicated CPUs that are off, and idle ones stay on", problem)
}

// checkPower finds what Nova refuses to start with, once for each configuration.
func (d *Driver) checkPower(cfg config, root discovery.Root, m machine.Machine) error {
	if !cfg.Management || d.powerChecked == cfg.number && !cfg.power.ByGovernor() {
		return nil
	}
	var governors map[int]string
	if !cfg.power.ByGovernor() {
		governors = root.Governors(cfg.power.Managed)
	}
	if err := cfg.power.Check(m, governors); err != nil {
		return err
	}
	d.powerChecked = cfg.number
	return nil
}

// unmanaged are the CPUs of a list that the driver does not take offline.
func (c config) unmanaged(cpus []int) []int {
	return slices.DeleteFunc(slices.Clone(cpus),
		func(cpu int) bool { _, is := slices.BinarySearch(c.power.Switchable(), cpu); return is })
}
