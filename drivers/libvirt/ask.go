// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/capabilities"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/instances"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/inventory"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// testDriver is the type of libvirt's test driver, whose host is invented.
const testDriver = "TEST"

// answers are libvirt's answers about the host, unprocessed.
type answers struct {
	hypervisor string
	node       hypervisor.NodeInfo
	cpuMap     []bool // nil where the hypervisor has none
	caps       capabilities.Host
	expanded   []string // nil where libvirt does not know what the CPU's model stands for
	// modelFeatures are the CPU features of the configured models, if guests do not get the host's
	// model; modelProblem is why they are not known.
	modelFeatures []string
	modelProblem  string
	guests        guestFacts
}

// guestFacts are what guests can have according to libvirt. The first answer takes seconds, and it
// changes only with the daemon or an emulator: it is requested once per connection, and again after
// lookAgain passes if that failed.
type guestFacts struct {
	libvirt, emulator inventory.Version
	// domains is nil if libvirt does not answer completely; discrepancies have the reason.
	domains       []capabilities.Domain
	sev           *hypervisor.SEV
	discrepancies []machine.Discrepancy
	// failed reports that domains is nil because of an error, not because there are none.
	failed bool
}

// reusedAnswers are answers of libvirt that hold for a connection, and are not asked for again.
type reusedAnswers struct {
	// connection is the number of the connection that answered.
	connection uint64
	// text is libvirt's capabilities document, caps and kinds its content.
	text  string
	caps  capabilities.Host
	kinds []capabilities.Kind
	// qemu is the user that emulators run as; nil: not known.
	qemu *instances.User
	// cpu is the last that libvirt expanded.
	cpu      string
	features []string
	// models are the CPU models that libvirt expanded last, modelArch their architecture, and
	// modelFeatures the result.
	models, modelFeatures []string
	modelArch             string
	// flags are the kernel's words for the CPU's features, below a directory.
	flags  []string
	chroot string

	// guests are of the kinds asked.
	asked  []capabilities.Kind
	guests *guestFacts
	// discrepantPasses is for how many passes guests has stood with a discrepancy.
	discrepantPasses int
}

// queryLibvirt asks libvirt for everything. Cached answers of an earlier connection are dropped.
//
// Cost: four round trips, and six or more on a new connection.
func (d *Driver) queryLibvirt(ctx context.Context, l *hypervisor.Link, cpu inventory.GuestCPU) (answers, error) {
	type first struct {
		answers
		known reusedAnswers
	}
	// The call may continue after its caller gave up, so it gets copies.
	known := d.known
	a, err := hypervisor.Call(ctx, l, "the host's inventory", func(c hypervisor.Conn) (first, error) {
		if now := d.connections.Load(); now != known.connection {
			known = reusedAnswers{connection: now}
		}
		a, err := askHost(c, &known, cpu)
		return first{a, known}, err
	})
	if err != nil {
		return answers{}, err
	}
	d.known = a.known
	a.guests, err = askGuests(ctx, l, &d.known, d.savedFile)
	return a.answers, err
}

func askHost(c hypervisor.Conn, known *reusedAnswers, cpu inventory.GuestCPU) (a answers, err error) {
	if a.hypervisor, err = c.Type(); err != nil {
		return a, fmt.Errorf("asking libvirt for its type: %w", err)
	}
	if a.node, err = c.NodeInfo(); err != nil {
		return a, fmt.Errorf("asking libvirt for the node's figures: %w", err)
	}
	if a.cpuMap, err = c.CPUMap(); err != nil && !errors.Is(err, hypervisor.ErrUnsupported) {
		return a, fmt.Errorf("asking libvirt for the CPU map: %w", err)
	}
	text, err := c.Capabilities()
	if err != nil {
		return a, fmt.Errorf("asking libvirt for its capabilities: %w", err)
	}
	if text != known.text || text == "" {
		if err := known.read(text); err != nil {
			return a, err
		}
	}
	a.caps = known.caps
	a.modelFeatures, a.modelProblem = askModels(c, known, cpu)
	if known.features != nil && known.cpu == a.caps.CPU {
		a.expanded = known.features
		return a, nil
	}
	if a.caps.Model == "" {
		return a, nil // nothing to expand: libvirt does not know this CPU
	}
	expanded, err := c.ExpandCPU(a.caps.CPU)
	switch {
	case errors.Is(err, hypervisor.ErrUnsupported):
		return a, nil
	case err != nil:
		return a, fmt.Errorf("asking libvirt for the features of the host's CPU: %w", err)
	}
	a.expanded, err = capabilities.ParseCPU(expanded)
	known.cpu, known.features = a.caps.CPU, a.expanded
	return a, err
}

// askModels returns the features that at least one of the guests' CPU models has. A problem with
// them does not fail the pass.
//
// Cost: two calls for each model, once.
func askModels(c hypervisor.Conn, known *reusedAnswers, cpu inventory.GuestCPU) (features []string, problem string) {
	models := cpu.ModelsFor(known.caps.Arch)
	if models == nil || known.modelArch == known.caps.Arch && slices.Equal(known.models, models) {
		return known.modelFeatures, ""
	}
	names, err := c.CPUModels(known.caps.Arch)
	if err != nil && !errors.Is(err, hypervisor.ErrUnsupported) {
		return nil, err.Error()
	}
	all := map[string]bool{}
	for _, model := range models {
		if i := slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, model) }); i >= 0 {
			model = names[i] // Nova does not mind the case
		}
		text, err := c.ExpandCPU(capabilities.ModelCPU(known.caps.Arch, model))
		var of []string
		if err == nil {
			of, err = capabilities.ParseCPU(text)
		}
		if err != nil {
			return nil, fmt.Sprintf("model %s: %v", model, err)
		}
		for _, feature := range of {
			all[feature] = true
		}
	}
	known.models, known.modelArch, known.modelFeatures =
		slices.Clone(models), known.caps.Arch, slices.Sorted(maps.Keys(all))
	return known.modelFeatures, ""
}

// read takes the capabilities in.
func (r *reusedAnswers) read(text string) error {
	caps, err := capabilities.ParseHost(text)
	if err != nil {
		return err
	}
	r.text, r.caps, r.kinds, r.qemu = text, caps, caps.Kinds(inventory.AskedArch(caps.Arch)), nil
	if caps.QEMU != nil {
		u := instances.LookupUser(caps.QEMU.UID, caps.QEMU.GID)
		r.qemu = &u
	}
	return nil
}

// askGuests requests what guests can have, with one call for each kind of guest: libvirt may run an
// emulator to find out. What libvirt refuses without write access is taken from the file saved. A
// failure is a discrepancy and does not fail the pass.
func askGuests(ctx context.Context, l *hypervisor.Link, known *reusedAnswers, saved string) (guestFacts, error) {
	if known.guests != nil && slices.Equal(known.asked, known.kinds) {
		if len(known.guests.discrepancies) > 0 {
			known.discrepantPasses++
		}
		if known.discrepantPasses < lookAgain {
			return *known.guests, nil
		}
	}
	var g guestFacts
	_, err := hypervisor.Call(ctx, l, "the versions", func(c hypervisor.Conn) (struct{}, error) {
		libvirt, emulator, err := c.Versions()
		g.libvirt, g.emulator = inventory.Version(libvirt), inventory.Version(emulator)
		return struct{}{}, err
	})
	if err != nil && !errors.Is(err, hypervisor.ErrUnsupported) {
		return guestFacts{}, fmt.Errorf("asking libvirt for its version: %w", err)
	}
	file := savedFile{path: saved, libvirt: g.libvirt, emulator: g.emulator}
	for _, kind := range known.kinds {
		one, err := askKind(ctx, l, kind, &file)
		var gone *hypervisor.Unavailable
		switch {
		case errors.As(err, &gone):
			return guestFacts{}, fmt.Errorf("asking libvirt what guests can have: %w", err)
		case errors.Is(err, hypervisor.ErrUnsupported):
			g.domains = nil
		case err != nil:
			g.domains, g.failed = nil, true
			g.discrepancies = append(
				g.discrepancies,
				machine.Discrepancyf("domain-capabilities",
					"libvirt does not report the domain capabilities (%s, %s), so device traits stay unchanged: %v",
					kind.Arch, kind.Machine, err),
			)
		default:
			g.domains = append(g.domains, one)
			continue
		}
		break
	}
	if slices.ContainsFunc(g.domains, func(c capabilities.Domain) bool { return c.SEV.Supported }) {
		if err := g.askSEV(ctx, l, &file); err != nil {
			return guestFacts{}, err
		}
	}
	known.asked, known.guests, known.discrepantPasses = known.kinds, &g, 0
	return g, nil
}

func askKind(
	ctx context.Context, l *hypervisor.Link, kind capabilities.Kind, file *savedFile,
) (capabilities.Domain, error) {
	if file.used {
		return file.domain(kind)
	}
	text, err := hypervisor.Call(ctx, l, "the domain capabilities",
		func(c hypervisor.Conn) (string, error) { return c.DomainCapabilities(emulatorOf(kind)) })
	if errors.Is(err, hypervisor.ErrReadOnly) {
		return file.read(kind, err)
	}
	if err != nil {
		return capabilities.Domain{}, err
	}
	return capabilities.ParseDomain(text)
}

func (g *guestFacts) askSEV(ctx context.Context, l *hypervisor.Link, file *savedFile) error {
	if file.used {
		g.sev = file.content.SEV
		return nil
	}
	sev, err := hypervisor.Call(ctx, l,
		"the memory encryption", func(c hypervisor.Conn) (hypervisor.SEV, error) { return c.SEV() })
	var gone *hypervisor.Unavailable
	switch {
	case err == nil:
		g.sev = &sev
	case errors.As(err, &gone):
		return fmt.Errorf("asking libvirt for its memory encryption: %w", err)
	case !errors.Is(err, hypervisor.ErrUnsupported):
		g.discrepancies = append(g.discrepancies,
			machine.Discrepancyf("sev-info", "libvirt does not report how many guests can be encrypted: %v", err))
	}
	return nil
}
