// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// noKVM is what helps where /dev/kvm is there and guests cannot run on it, which libvirt finds out
// by starting one.
const noKVM = `see the error and the guest's log in /var/log/libvirt/qemu; if KVM does not work on this machine, as ` +
	`in many virtual machines, set virt_type = "qemu" in [drivers.libvirt.config.instances] (docs/libvirt.md, ` +
	`"Instances"): guests are emulated then, which is slow`

// failure means that something cannot be done with an instance; a failed creation must be removed.
type failure struct {
	reason string // for its owner
	err    error  // for the operator
	// accelerated says that it was to run on KVM, which may be why it does not.
	accelerated bool
}

func (f *failure) Error() string { return f.reason + ": " + f.err.Error() }

// Unwrap is the cause.
func (f *failure) Unwrap() error { return f.err }

// Spawn makes an instance and starts it, as [plugins.InstanceManager] says.
//
// Cost: about ten calls of libvirt, a look at the host, and a copy of the image where disks are
// copies.
func (m *Manager) Spawn(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) (plugins.Instance, error) {
	j, err := m.begin(ctx, node, spec.UUID)
	if err != nil {
		return plugins.Instance{}, err
	}
	is, err := j.spawn(ctx, spec, tree)
	m.forget(spec.UUID)
	if err != nil {
		m.power.reconcileLater(ctx)
	}
	return is, j.agentError(err)
}

func (j *job) spawn(ctx context.Context, spec plugins.InstanceSpec, tree *providertree.Tree) (plugins.Instance, error) {
	g, err := j.findOwn(ctx)
	if err != nil {
		return plugins.Instance{}, err
	}
	d, err := j.directory(ctx)
	if err != nil {
		return plugins.Instance{}, err
	}
	resumed := g.exists
	if resumed && j.hasRun(g, d) {
		return g.instance(), nil
	}
	hardware, disks, err := j.hardwareAndDisks(spec, d)
	if err == nil && !resumed {
		g, err = j.define(ctx, spec, hardware, tree, d, disks)
	}
	if err == nil {
		err = j.complete(ctx, g, d, disks)
	}
	if err != nil {
		return plugins.Instance{}, j.abortSpawn(ctx, d, resumed, err)
	}
	d.markRan(j.log)
	if g, err = j.find(ctx); err != nil {
		return plugins.Instance{}, err
	}
	if !g.managed() {
		return plugins.Instance{}, fmt.Errorf("instance %s: its domain disappeared while it was starting", j.uuid)
	}
	j.log.Info().Str("domain", g.Name).Bool("resumed", resumed).Msg("Created the instance.")
	return g.instance(), nil
}

// CheckSpawn reports why an instance cannot be made, as [plugins.SpawnChecker] says, without the
// choice of the host's processors and devices, which others may hold now.
//
// Cost: a look at the host, and at the beginning of the image.
func (m *Manager) CheckSpawn(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) error {
	j, err := m.begin(ctx, node, spec.UUID)
	if err != nil {
		return err
	}
	err = j.check(ctx, spec, tree)
	var back *failure
	if errors.As(err, &back) {
		err = back.fault(j.uuid)
	}
	return j.agentError(err)
}

func (j *job) check(ctx context.Context, spec plugins.InstanceSpec, tree *providertree.Tree) error {
	d, err := j.directory(ctx)
	if err != nil {
		return err
	}
	hardware, disks, err := j.hardwareAndDisks(spec, d)
	if err != nil {
		return err
	}
	if err := j.manager.deciding.acquire(ctx); err != nil {
		return err
	}
	defer j.manager.deciding.release()
	host, err := j.setup.Discover(ctx, tree, j.node)
	if err != nil {
		return err
	}
	if err := j.reachable(host.QEMU, d, disks); err != nil {
		return err
	}
	return j.domainConfig(spec, hardware, host, d, disks).Check()
}

// hardwareAndDisks returns the hardware that an instance asks for, and its disks. It reads the
// image and its properties, and changes nothing.
func (j *job) hardwareAndDisks(spec plugins.InstanceSpec, d directory) (extraspecs.Hardware, []disk, error) {
	hardware, err := j.hardware(spec)
	if err != nil {
		return extraspecs.Hardware{}, nil, err
	}
	disks, err := j.plan(spec, d)
	return hardware, disks, err
}

// domainConfig is the domain of an instance, but for the choice of the host's processors and
// devices.
func (j *job) domainConfig(
	spec plugins.InstanceSpec, hardware extraspecs.Hardware, host Host, d directory, disks []disk,
) domain.Spec {
	out := domain.Spec{
		Node: j.node, Instance: spec, Hardware: hardware, Traits: host.Traits,
		Type: j.setup.domainType(host), Arch: host.Machine.Arch, ConsoleLog: d.file(consoleLog),
	}
	for _, disk := range disks {
		out.Disks = append(out.Disks, disk.Disk)
	}
	return out
}

// hardware is what an instance asks for. It refuses what this driver cannot create: a guest without
// something that was requested is worse than none.
func (j *job) hardware(spec plugins.InstanceSpec) (extraspecs.Hardware, error) {
	properties, err := j.properties(spec)
	if err != nil {
		return extraspecs.Hardware{}, err
	}
	h, err := extraspecs.Request{
		Flavor: spec.Flavor.Name, Image: spec.Image,
		VCPUs: spec.Flavor.VCPUs, ExtraSpecs: spec.Flavor.ExtraSpecs, Properties: properties,
	}.Hardware()
	if err != nil {
		return extraspecs.Hardware{}, j.fault("%s", err)
	}
	return h, nil
}

// hasRun reports whether an instance ever ran: its directory records it, and libvirt as long as its
// daemon runs.
func (j *job) hasRun(g guest, d directory) bool {
	if d.markedRan() {
		return true
	}
	if g.starting() || !g.active() &&
		(g.State != hypervisor.ShutOff || !slices.Contains([]int{offShutdown, offDestroyed, offCrashed}, g.Reason)) {
		return false
	}
	d.markRan(j.log)
	return true
}

// define decides which hardware an instance gets, and takes it by the definition of the domain.
func (j *job) define(
	ctx context.Context, spec plugins.InstanceSpec,
	hardware extraspecs.Hardware, tree *providertree.Tree, d directory, disks []disk,
) (guest, error) {
	if err := j.manager.deciding.acquire(ctx); err != nil {
		return guest{}, err
	}
	defer j.manager.deciding.release()
	// Of an instance whose domain was removed from outside. The host is looked at afterwards, or
	// they would count as those of an operator.
	if err := j.removeRecordedVGPUs(ctx, d); err != nil {
		return guest{}, err
	}
	if _, settled := j.manager.power.current(); !settled { // which CPUs are of one core may be unknown
		j.manager.power.reconcileLater(ctx)
	}
	host, err := j.setup.Discover(ctx, tree, j.node)
	if err != nil {
		return guest{}, err
	}
	if slices.ContainsFunc(host.Domains, func(other domain.Domain) bool { return other.UUID == j.uuid }) {
		return guest{}, fmt.Errorf("instance %s: a domain with its uuid appeared while it was being created", j.uuid)
	}
	j.qemu = host.QEMU
	if err := j.reachable(j.qemu, d, disks); err != nil {
		return guest{}, err
	}
	decision, err := assignment.Decide(assignment.Request{
		Instance: spec, Providers: host.Providers, Machine: host.Machine, Shared: host.Shared,
		Dedicated: host.Dedicated, Domains: host.Domains,
	})
	if err != nil {
		return guest{}, err
	}
	written := j.domainConfig(spec, hardware, host, d, disks)
	written.Decision = decision
	text, err := domain.Write(written)
	if err != nil {
		return guest{}, err
	}
	if d.exists() && !j.keep { // of an instance whose domain was removed from outside
		j.begun = true
		if err := d.remove(); err != nil {
			return guest{}, err
		}
	}
	err = j.callQuick(ctx, "defining its domain",
		func(c hypervisor.Conn) error { _, err := c.DefineDomain(string(text)); return err })
	if err != nil {
		if isFinal(ctx, err) {
			err = &failure{reason: "the hypervisor rejects it", err: err}
		}
		return guest{}, err
	}
	mark := written.Mark()
	return guest{
		exists: true, Domain: hypervisor.Domain{UUID: j.uuid, Name: domain.Name(j.uuid),
			ID: hypervisor.NotRunning, State: hypervisor.ShutOff},
		parsed: domain.Domain{
			UUID: j.uuid, Name: domain.Name(j.uuid), Type: written.Type, Mark: &mark,
			VCPUs: len(decision.VCPUs), Pins: decision.VCPUs, EmulatorPin: decision.Emulator,
		},
	}, nil
}

// complete makes what is missing of an instance that is defined, and starts it.
func (j *job) complete(ctx context.Context, g guest, d directory, disks []disk) error {
	j.begun = true
	err := d.fill(ctx, disks)
	if err == nil {
		err = d.claim(j.node)
	}
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		return &failure{reason: diskReason(err), err: err}
	}
	err = j.start(ctx, g)
	var back *failure
	if errors.As(err, &back) {
		back.err = j.unreadable(back.err, j.qemu, disks)
	}
	return err
}

// start switches the CPUs on that a domain is bound to, makes the mediated devices that are missing
// and starts a domain that is off. That it runs already is as good. While it may be starting still,
// its CPUs stay on.
func (j *job) start(ctx context.Context, g guest) error {
	if err := j.manager.power.hold(ctx, j.uuid, g.parsed.Bound()); err != nil {
		if ctx.Err() != nil {
			return err
		}
		return &failure{reason: "a processor of the host that it is to have cannot be switched on", err: err}
	}
	err := j.startPowered(ctx, g)
	var back *failure
	if err == nil || errors.As(err, &back) {
		j.manager.power.release(j.uuid)
	}
	return err
}

func (j *job) startPowered(ctx context.Context, g guest) error {
	err := j.makeMdevs(ctx, g.parsed.Mark.Mdevs)
	if err == nil {
		err = j.makeVGPUs(ctx, g.parsed.Mark.VGPUs)
	}
	if err != nil {
		if isFinal(ctx, err) {
			return &failure{reason: "could not create a virtual device for it", err: err}
		}
		return err
	}
	err = j.callSlow(ctx, "starting its domain", startLimit,
		func(c hypervisor.Conn) error { return c.StartDomain(j.uuid) })
	if err == nil || !isFinal(ctx, err) {
		return err
	}
	if now, missing := j.find(ctx); missing != nil {
		return errors.Join(err, missing)
	} else if now.starting() { // by an earlier call, and libvirt did not want to wait for that
		return fmt.Errorf("instance %s: its domain has been starting for long: %w", j.uuid, err)
	} else if now.managed() && now.active() {
		return nil
	}
	return &failure{reason: "the hypervisor could not start it", err: err, accelerated: g.parsed.Type == kvm}
}

// fault is the failure as the agent takes it: the reason is for the owner, and the words around it
// for the operator.
func (f *failure) fault(uuid string) error {
	return fmt.Errorf("%w: %v", &plugins.InstanceFault{UUID: uuid, Reason: f.reason},
		f.err) //nolint:errorlint // what it wraps would be taken for another answer
}

// warn logs a failure, with a hint if there is a likely one.
func (j *job) warn(s *failure, what string) {
	log := j.log
	if s.accelerated {
		log = log.With().Str("hint", noKVM).Logger()
	}
	log.Warn().Err(s.err).Msg(what)
}

// abortSpawn removes the parts of an instance that cannot be created. After other errors they stay,
// for the next Spawn or Destroy.
func (j *job) abortSpawn(ctx context.Context, d directory, resumed bool, err error) error {
	return j.cleanUp(ctx, d, resumed, err, "Could not create an instance. Removing what was created of it.", j.remove,
		"cannot create instance %s (%s), and cannot remove it: %w")
}

// cleanUp removes the parts of an instance that has a fault, with a warning if it is the host's.
// failed is the format of the error if they cannot be removed: of the uuid, the fault and why.
func (j *job) cleanUp(
	ctx context.Context, d directory, resumed bool, err error, warning string,
	remove func(context.Context, directory) error, failed string,
) error {
	var back *failure
	var fault *plugins.InstanceFault
	switch {
	case errors.As(err, &back):
		fault, err = &plugins.InstanceFault{UUID: j.uuid, Reason: back.reason}, back.fault(j.uuid)
		j.warn(back, warning)
	case errors.As(err, &fault):
	default:
		return err
	}
	if j.begun || resumed {
		if left := remove(ctx, d); left != nil {
			return fmt.Errorf(failed, j.uuid, fault.Reason, left)
		}
	}
	return err
}

// Destroy ends an instance and removes all of it, as [plugins.InstanceManager] says.
func (m *Manager) Destroy(ctx context.Context, node, uuid string) error {
	j, err := m.begin(ctx, node, uuid)
	if err != nil {
		return err
	}
	err = j.destroy(ctx)
	m.forget(uuid)
	if err == nil {
		m.power.release(uuid)
		m.power.reconcileLater(ctx)
	}
	return j.agentError(err)
}

func (j *job) destroy(ctx context.Context) error {
	d, err := j.directory(ctx)
	if err != nil {
		return err
	}
	return j.remove(ctx, d)
}

// mostRounds bounds how often a domain is looked for that was removed: one whose start was still
// under way comes up again, once.
const mostRounds = 3

// remove stops a domain and removes everything in its mark, and the domain. One that the driver did
// not create is a fault; one of ours on another node stays.
func (j *job) remove(ctx context.Context, d directory) error {
	return j.removeWith(ctx, d, func(bool) error { return d.remove() })
}

// removeWith is remove with another way to remove the directory, which depends on whether there was
// a domain.
func (j *job) removeWith(ctx context.Context, d directory, files func(used bool) error) error {
	for range mostRounds {
		g, err := j.find(ctx)
		switch {
		case err != nil:
			return err
		case g.exists && !g.managed():
			return j.unmanaged()
		case g.exists && g.parsed.Mark.Node != j.node:
			return nil
		case !g.exists:
			if !d.exists() {
				return nil
			}
			j.begun = true
			if err := j.removeRecordedVGPUs(ctx, d); err != nil {
				return err
			}
			return files(false)
		}
		if err := j.removeOnce(ctx, g, files); err != nil {
			return err
		}
	}
	return fmt.Errorf("instance %s: its domain reappears each time it is removed", j.uuid)
}

func (j *job) removeOnce(ctx context.Context, g guest, files func(used bool) error) error {
	// Whatever the list says: a start may be under way.
	err := j.callSlow(ctx, "switching off its domain", endLimit,
		func(c hypervisor.Conn) error { return c.DestroyDomain(j.uuid) })
	switch {
	case errors.Is(err, hypervisor.ErrNotFound):
	case errors.Is(err, hypervisor.ErrState): // it does not run; or libvirt cannot determine it on this host
		now, err := j.find(ctx)
		if err != nil {
			return err
		}
		if now.exists && now.active() {
			return fmt.Errorf("instance %s: libvirt does not switch off its domain, which is in state %d",
				j.uuid, now.State)
		}
	case err != nil:
		return err
	}
	if err := j.removeMdevs(ctx, g.parsed.Mark.Mdevs); err != nil {
		return err
	}
	if err := j.removeVGPUs(ctx, g.parsed.Mark.VGPUs); err != nil {
		return err
	}
	if err := files(true); err != nil {
		return err
	}
	err = j.callQuick(ctx, "undefining its domain", func(c hypervisor.Conn) error { return c.UndefineDomain(j.uuid) })
	if errors.Is(err, hypervisor.ErrNotFound) {
		return nil
	}
	return err
}
