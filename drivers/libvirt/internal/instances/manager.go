// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Host is what there is on the host, for a decision about it.
type Host struct {
	Machine machine.Machine
	// Shared and Dedicated are the processors of VCPU and PCPU, as for [assignment.Request].
	Shared, Dedicated []int
	// KVM says that guests of the host's own architecture can run on its processors.
	KVM bool
	// QEMU is the user that emulators run as; nil: not known.
	QEMU *User
	// Traits are traits about what guests can have: true if they can, false if they cannot. What is
	// not known is missing.
	Traits map[string]bool
	// Domains are all current domains, whatever created them.
	Domains []domain.Domain
	// Providers are what the providers of the tree stand for, by uuid.
	Providers map[string]assignment.Provider
}

// Setup is what a Manager works with.
type Setup struct {
	Settings

	// Node returns the name of the compute node.
	Node func(context.Context) (string, error)
	// Former are names that nodes had, with those that they have now: an instance with the mark of
	// a former name is of the node that has the other one.
	Former map[string]string
	// Directory returns the path of the existing directory of the guests' disks.
	Directory func(context.Context) (string, error)
	// Discover discovers the host and what the providers of a node's tree stand for. It reads the
	// XML of every domain again, since no event reports in time that one was removed and recreated.
	// Calls never overlap.
	Discover func(ctx context.Context, tree *providertree.Tree, node string) (Host, error)
	// Power is the power management of the CPUs that are switched; nil: none are.
	Power *PowerSetup
	// Chroot is the directory that has sys in it.
	Chroot string
	// Read is the connection for lists.
	Read *hypervisor.Link
	// Write are connections with write access, at least two: the first is for what is answered at
	// once, each of the others for one thing at a time that takes long.
	Write []*hypervisor.Link
}

// Manager manages the instances of a host. It is safe for concurrent use; calls about one instance
// come one after the other.
type Manager struct {
	eventLog *hypervisor.EventLog
	// deciding is held from the look at the host to the definition of the domain: what is free
	// stays free.
	deciding lock
	power    *CPUPower
	// write puts a text into a file of the kernel.
	write func(root *os.Root, name, text string) error

	mu    sync.Mutex
	setup *setup
	known map[string]entry
}

// setup is a Setup in use.
type setup struct {
	Setup
	slow chan *hypervisor.Link // the free ones
}

// entry caches the mark of a domain, for as long as its key stays the same.
type entry struct {
	key  hypervisor.Key
	mark *domain.Mark // nil: none of ours
}

// lock is a mutex for which one can wait with a context.
type lock chan struct{}

func (l lock) acquire(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l lock) release() { <-l }

// New returns a manager that manages nothing yet. eventLog has the events of the connection that
// lists domains.
func New(eventLog *hypervisor.EventLog) *Manager {
	return &Manager{eventLog: eventLog, deciding: make(lock, 1),
		power: newCPUPower(eventLog), write: writeKernel, known: map[string]entry{}}
}

// SetSetup replaces the setup; nil: instances are not managed. Calls in progress continue with the
// old one.
func (m *Manager) SetSetup(s *Setup) {
	var next *setup
	if s != nil {
		next = &setup{Setup: *s, slow: make(chan *hypervisor.Link, len(s.Write))}
		for _, link := range s.Write[min(1, len(s.Write)-1):] {
			next.slow <- link
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setup = next
	if s != nil {
		m.power.setSetup(s.Power)
	} else {
		m.power.setSetup(nil)
	}
}

// Power switches the dedicated CPUs.
func (m *Manager) Power() *CPUPower { return m.power }

// setupFor is the setup for a node.
func (m *Manager) setupFor(ctx context.Context, node string) (*setup, error) {
	m.mu.Lock()
	s := m.setup
	m.mu.Unlock()
	if s == nil {
		return nil, fmt.Errorf("%w: %s is not configured", plugins.ErrUnsupported, Key)
	}
	name, err := s.Node(ctx)
	switch {
	case err != nil:
		return nil, unreached(err)
	case name != node:
		return nil, fmt.Errorf("the libvirt driver reports only node %q, not %q", name, node)
	}
	return s, nil
}

// unreached converts an error from before anything was begun for the agent.
func unreached(err error) error {
	var gone *hypervisor.Unavailable
	if errors.As(err, &gone) {
		return &plugins.NotReady{Reason: err.Error()}
	}
	return err
}

// Instances lists those of a node. One that Spawn starts for the first time has no power state.
//
// Cost: two calls of libvirt, and one for each domain that something happened to since the last
// list.
func (m *Manager) Instances(ctx context.Context, node string) ([]plugins.Instance, error) {
	s, err := m.setupFor(ctx, node)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	known := make(map[string]entry, len(m.known))
	for id, e := range m.known {
		known[id] = e
	}
	m.mu.Unlock()
	list, err := hypervisor.Domains(ctx, s.Read, func(d hypervisor.Domain) bool {
		e, is := known[d.UUID]
		return !is || e.key != d.Key()
	})
	switch {
	case errors.Is(err, hypervisor.ErrUnsupported):
		return nil, fmt.Errorf("%w: %w", plugins.ErrUnsupported, err)
	case err != nil:
		return nil, unreached(err)
	}
	next := make(map[string]entry, len(list))
	out := []plugins.Instance{}
	for _, d := range list {
		e := known[d.UUID]
		if d.XML != "" {
			g := s.read(d)
			if g.broken != nil && d.Name == domain.Name(d.UUID) { // it may be one, and a list is all or an error
				return nil, fmt.Errorf("reading the domain of instance %s: %w", d.UUID, g.broken)
			}
			e = entry{key: d.Key(), mark: g.parsed.Mark}
			if g.renamed {
				s.renameClaim(ctx, node, d.UUID)
			}
		}
		next[d.UUID] = e
		if e.mark != nil && e.mark.Node == node {
			is := plugins.Instance{UUID: d.UUID, Name: e.mark.Name, Power: powerState(d), HypervisorName: d.Name}
			if (guest{Domain: d}).starting() {
				path, err := s.Directory(ctx)
				if err != nil {
					return nil, unreached(err)
				}
				if !(directory{path: path, name: domain.Name(d.UUID)}).markedRan() { // what runs is taken for created
					is.Power = plugins.PowerNoState
				}
			}
			out = append(out, is)
		}
	}
	m.mu.Lock()
	m.known = next
	m.mu.Unlock()
	return out, nil
}

// forget makes the next list read a domain again.
func (m *Manager) forget(uuid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, uuid)
}

// guest is a domain as it was found.
type guest struct {
	exists bool
	hypervisor.Domain
	parsed domain.Domain
	// broken reports that its XML is unreadable.
	broken error
	// renamed reports that its mark has a former name of its node.
	renamed bool
}

// read reads a domain. Its mark has the name that its node has now.
func (s *setup) read(d hypervisor.Domain) guest {
	g := read(d)
	if g.parsed.Mark == nil {
		return g
	}
	if now, former := s.Former[g.parsed.Mark.Node]; former {
		g.parsed.Mark.Node, g.renamed = now, true
	}
	return g
}

func read(d hypervisor.Domain) guest {
	g := guest{exists: true, Domain: d}
	g.parsed, g.broken = domain.Parse([]byte(d.XML))
	if g.broken == nil && g.parsed.UUID != d.UUID {
		g.broken = errors.New("its XML has another uuid")
	}
	if g.broken != nil {
		g.parsed = domain.Domain{}
	}
	return g
}

// managed reports whether the agent created a domain, on any node.
func (g guest) managed() bool { return g.exists && g.parsed.Mark != nil }

// active reports whether it has an emulator.
func (g guest) active() bool { return g.ID != hypervisor.NotRunning }

// starting reports whether it is being started.
func (g guest) starting() bool {
	return g.active() && g.State == hypervisor.Paused && g.Reason == pausedStarting
}

func (g guest) instance() plugins.Instance {
	return plugins.Instance{UUID: g.UUID, Name: g.parsed.Mark.Name, Power: powerState(g.Domain), HypervisorName: g.Name}
}

// The reasons of being off (virDomainShutoffReason) which imply that the domain ran.
const (
	offShutdown  = 1
	offDestroyed = 2
	offCrashed   = 3
)

// Reasons for which a domain is paused (virDomainPausedReason) that are no pauses.
const (
	pausedEnding   = 8
	pausedStarting = 11
)

func powerState(d hypervisor.Domain) plugins.PowerState {
	switch d.State {
	case hypervisor.Running, hypervisor.Blocked, hypervisor.ShuttingDown:
		return plugins.PowerRunning
	case hypervisor.Paused:
		switch d.Reason {
		case pausedEnding, pausedStarting:
			return plugins.PowerRunning
		}
		return plugins.PowerPaused
	case hypervisor.ShutOff:
		if d.Reason == offCrashed {
			return plugins.PowerCrashed
		}
		return plugins.PowerShutdown
	case hypervisor.Crashed:
		return plugins.PowerCrashed
	case hypervisor.PMSuspended:
		return plugins.PowerSuspended
	}
	if d.ID == hypervisor.NotRunning {
		return plugins.PowerShutdown
	}
	return plugins.PowerRunning // libvirt knows no more than that it is there
}
