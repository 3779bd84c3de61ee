// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/capabilities"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domcaps"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hosttraits"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// testDriver is the type of libvirt's test driver, whose host is invented.
const testDriver = "TEST"

// answers are what libvirt said of the host, as it said it.
type answers struct {
	hypervisor string
	node       hypervisor.NodeInfo
	cpuMap     []bool // nil where the hypervisor has none
	caps       capabilities.Host
	expanded   []string // nil where libvirt does not know what the CPU's model stands for
	guests     guestFacts
}

// guestFacts are what libvirt says that guests can have. It takes seconds to find out the first time, and is the same until the daemon or an
// emulator is another one: it is asked once for each connection.
type guestFacts struct {
	libvirt, emulator hosttraits.Version
	// domains is nil if libvirt does not say all of it; doubts say why.
	domains []domcaps.Capabilities
	sev     *hypervisor.SEV
	doubts  []machine.Doubt
}

// remembered is what is not asked again.
type remembered struct {
	// cpu is the last that libvirt expanded.
	cpu      string
	features []string

	kinds  []domcaps.Kind
	guests *guestFacts
}

// ask asks for everything. What it remembers of a former connection is forgotten.
//
// Cost: four round trips, and six or more on a new connection.
func (d *Driver) ask(ctx context.Context, l *hypervisor.Link) (answers, error) {
	type first struct {
		answers
		text  string
		known remembered
		fresh bool
	}
	// The call may go on after it was given up, so it gets copies.
	known := d.known
	a, err := hypervisor.Call(ctx, l, "the host's inventory", func(c hypervisor.Conn) (first, error) {
		fresh := d.stale.Swap(false)
		if fresh {
			known = remembered{}
		}
		a, text, err := askHost(c, &known)
		return first{a, text, known, fresh}, err
	})
	if err != nil {
		d.stale.Store(true) // whether the connection was a new one is not known now
		return answers{}, err
	}
	d.known = a.known
	if a.fresh {
		d.witness = witness{}
	}
	a.guests, err = askGuests(ctx, l, a.caps.Arch, a.text, &d.known)
	return a.answers, err
}

func askHost(c hypervisor.Conn, known *remembered) (a answers, text string, err error) {
	if a.hypervisor, err = c.Type(); err != nil {
		return a, "", fmt.Errorf("asking libvirt for its type: %w", err)
	}
	if a.node, err = c.NodeInfo(); err != nil {
		return a, "", fmt.Errorf("asking libvirt for the node's figures: %w", err)
	}
	if a.cpuMap, err = c.CPUMap(); err != nil && !errors.Is(err, hypervisor.ErrUnsupported) {
		return a, "", fmt.Errorf("asking libvirt for the CPU map: %w", err)
	}
	if text, err = c.Capabilities(); err != nil {
		return a, "", fmt.Errorf("asking libvirt for its capabilities: %w", err)
	}
	if a.caps, err = capabilities.Parse(text); err != nil {
		return a, "", err
	}
	if known.features != nil && known.cpu == a.caps.CPU {
		a.expanded = known.features
		return a, text, nil
	}
	if a.caps.Model == "" {
		return a, text, nil // nothing to expand: libvirt does not know this CPU
	}
	cpu, err := c.ExpandCPU(a.caps.CPU)
	switch {
	case errors.Is(err, hypervisor.ErrUnsupported):
		return a, text, nil
	case err != nil:
		return a, "", fmt.Errorf("asking libvirt for the features of the host's CPU: %w", err)
	}
	a.expanded, err = capabilities.ParseCPU(cpu)
	known.cpu, known.features = a.caps.CPU, a.expanded
	return a, text, err
}

// askGuests asks what guests can have, one call for each kind of guest: libvirt may run an emulator to find out. What libvirt cannot or may
// not say is a doubt, and no reason to say nothing of the host.
func askGuests(ctx context.Context, l *hypervisor.Link, arch, caps string, known *remembered) (guestFacts, error) {
	kinds, err := domcaps.Kinds(caps, hosttraits.Asked(arch))
	if err != nil {
		return guestFacts{}, err
	}
	if known.guests != nil && slices.Equal(known.kinds, kinds) {
		return *known.guests, nil
	}
	var g guestFacts
	_, err = hypervisor.Call(ctx, l, "the versions", func(c hypervisor.Conn) (struct{}, error) {
		libvirt, emulator, err := c.Versions()
		g.libvirt, g.emulator = hosttraits.Version(libvirt), hosttraits.Version(emulator)
		return struct{}{}, err
	})
	if err != nil && !errors.Is(err, hypervisor.ErrUnsupported) {
		return guestFacts{}, fmt.Errorf("asking libvirt for its version: %w", err)
	}
	for _, kind := range kinds {
		one, err := askKind(ctx, l, kind)
		var gone *hypervisor.Unavailable
		switch {
		case errors.As(err, &gone):
			return guestFacts{}, fmt.Errorf("asking libvirt what guests can have: %w", err)
		case errors.Is(err, hypervisor.ErrUnsupported):
			g.domains = nil
		case err != nil:
			g.domains = nil
			g.doubts = append(g.doubts, machine.Doubtf("domain-capabilities", "libvirt does not say what guests (%s, %s) can have, so that traits about their devices stay as they are: %v", kind.Arch, kind.Machine, err))
		default:
			g.domains = append(g.domains, one)
			continue
		}
		break
	}
	if slices.ContainsFunc(g.domains, func(c domcaps.Capabilities) bool { return c.SEV.Supported }) {
		if err := g.askSEV(ctx, l); err != nil {
			return guestFacts{}, err
		}
	}
	known.kinds, known.guests = kinds, &g
	return g, nil
}

func askKind(ctx context.Context, l *hypervisor.Link, kind domcaps.Kind) (domcaps.Capabilities, error) {
	text, err := hypervisor.Call(ctx, l, "the domain capabilities", func(c hypervisor.Conn) (string, error) {
		return c.DomainCapabilities(hypervisor.Emulator{Path: kind.Emulator, Arch: kind.Arch, Machine: kind.Machine, Virt: kind.Type})
	})
	if err != nil {
		return domcaps.Capabilities{}, err
	}
	return domcaps.Parse(text)
}

func (g *guestFacts) askSEV(ctx context.Context, l *hypervisor.Link) error {
	sev, err := hypervisor.Call(ctx, l, "the memory encryption", func(c hypervisor.Conn) (hypervisor.SEV, error) { return c.SEV() })
	var gone *hypervisor.Unavailable
	switch {
	case err == nil:
		g.sev = &sev
	case errors.As(err, &gone):
		return fmt.Errorf("asking libvirt for its memory encryption: %w", err)
	case !errors.Is(err, hypervisor.ErrUnsupported):
		g.doubts = append(g.doubts, machine.Doubtf("sev-info", "libvirt does not say how many guests can be encrypted: %v", err))
	}
	return nil
}
