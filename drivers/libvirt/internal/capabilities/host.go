// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// Host capabilities are libvirt's XML about the host: its CPU, its NUMA cells, and what its
// emulators can run (https://libvirt.org/formatcaps.html). Elements that are not needed are
// skipped, those that are must make sense.

// Host is the host in the capabilities.
type Host struct {
	// Arch is libvirt's name of the CPU architecture: "x86_64", "aarch64".
	Arch string
	// Model is libvirt's name of the CPU's model, "" if it has none.
	Model string
	// CPU is the host's <cpu> element as it stands, for calls that take one. Its features are only
	// those that the model in it does not already stand for.
	CPU string
	// Features are the names of the features that the document lists beside the model.
	Features []string
	// Cells are the NUMA cells. Hypervisors without an idea of them list none.
	Cells []Cell
	// QEMU is the user that guests' emulators run as, by libvirt's security model DAC; nil if
	// libvirt does not say.
	QEMU *Label
	// GuestArches are the architectures that guests can have, sorted.
	GuestArches []string

	guests []libvirtxml.CapsGuest
}

// Label is a user and a group, by their numbers.
type Label struct{ UID, GID int }

// Cell is a NUMA cell.
type Cell struct {
	ID        int
	MemoryKiB uint64
	CPUs      []CPU
	// Pages are the pages of each size, the common one too.
	Pages []Pages
	// Distances to other cells and to itself, by number of the cell; nil if libvirt does not report
	// them.
	Distances map[int]int
}

// Pages are the pages of a size.
type Pages struct {
	SizeKiB, Count uint64
}

// Unknown stands for a number that libvirt does not report.
const Unknown = -1

// CPU is a host CPU (a hardware thread).
type CPU struct {
	ID int
	// Socket and Core are Unknown for a CPU that is offline.
	Socket, Core int
	// Siblings are the CPUs of the same core, itself among them; empty where libvirt does not know
	// (CPUs that are offline).
	Siblings []int
}

// Threaded reports whether some core has more than one CPU that is online.
func (h Host) Threaded() bool {
	for _, cell := range h.Cells {
		for _, cpu := range cell.CPUs {
			if len(cpu.Siblings) > 1 {
				return true
			}
		}
	}
	return false
}

// ParseHost reads the XML of virConnectGetCapabilities.
func ParseHost(text string) (Host, error) {
	h, err := parseHost(text)
	if err != nil {
		return Host{}, fmt.Errorf("libvirt's capabilities: %w", err)
	}
	return h, nil
}

func parseHost(text string) (Host, error) {
	var caps libvirtxml.Caps
	// libvirtxml does not keep the <cpu> element as it stands, and libvirt takes what it wrote
	// itself.
	var verbatim struct {
		CPU struct {
			Inner string `xml:",innerxml"`
		} `xml:"host>cpu"`
	}
	if err := errors.Join(Decode(text, &caps), Decode(text, &verbatim)); err != nil {
		return Host{}, err
	}
	cpu := caps.Host.CPU
	if cpu == nil || strings.TrimSpace(cpu.Arch) == "" {
		return Host{}, errors.New("there is no element host/cpu/arch")
	}
	h := Host{Arch: strings.TrimSpace(cpu.Arch), Model: strings.TrimSpace(cpu.Model), CPU: "<cpu>" +
		verbatim.CPU.Inner + "</cpu>", guests: caps.Guests}
	for _, f := range cpu.FeatureFlags {
		h.Features = append(h.Features, f.Name)
	}
	h.Features = sorted(h.Features)
	if topology := caps.Host.NUMA; topology != nil && topology.Cells != nil {
		for _, x := range topology.Cells.Cells {
			cell, err := parseCell(x)
			if err != nil {
				return Host{}, fmt.Errorf("NUMA cell %d: %w", x.ID, err)
			}
			h.Cells = append(h.Cells, cell)
		}
	}
	for _, m := range caps.Host.SecModel {
		if strings.TrimSpace(m.Name) != "dac" {
			continue
		}
		for _, l := range m.Labels { // those of kvm and qemu are the same
			if label, ok := parseLabel(l.Value); ok && (l.Type == "kvm" || l.Type == "qemu") {
				h.QEMU = &label
			}
		}
	}
	for _, g := range caps.Guests {
		if strings.TrimSpace(g.OSType) == "hvm" {
			h.GuestArches = append(h.GuestArches, strings.TrimSpace(g.Arch.Name))
		}
	}
	h.GuestArches = sorted(h.GuestArches)
	return h, nil
}

func parseCell(x libvirtxml.CapsHostNUMACell) (Cell, error) {
	cell := Cell{ID: x.ID}
	if m := x.Memory; m != nil {
		if m.Unit != "" && m.Unit != "KiB" {
			return Cell{}, fmt.Errorf("its memory is in %q, expected KiB", m.Unit)
		}
		cell.MemoryKiB = m.Size
	}
	if x.CPUS != nil {
		for _, p := range x.CPUS.CPUs {
			siblings, err := machine.ParseCPUs(p.Siblings)
			if err != nil {
				return Cell{}, fmt.Errorf("siblings of CPU %d: %w", p.ID, err)
			}
			cell.CPUs = append(cell.CPUs,
				CPU{ID: p.ID, Socket: known(p.SocketID), Core: known(p.CoreID), Siblings: siblings})
		}
	}
	for _, p := range x.PageInfo {
		if p.Unit != "" && p.Unit != "KiB" || p.Size < 0 {
			return Cell{}, fmt.Errorf("it has pages of %d %q, expected KiB", p.Size, p.Unit)
		}
		cell.Pages = append(cell.Pages, Pages{uint64(p.Size), p.Count})
	}
	if x.Distances != nil && len(x.Distances.Siblings) > 0 {
		cell.Distances = map[int]int{}
		for _, d := range x.Distances.Siblings {
			cell.Distances[d.ID] = d.Value
		}
	}
	return cell, nil
}

// parseLabel reads "+64055:+64055".
func parseLabel(text string) (Label, bool) {
	uid, gid, _ := strings.Cut(strings.TrimSpace(text), ":")
	u, err1 := strconv.ParseUint(strings.TrimPrefix(uid, "+"), 10, 31)
	g, err2 := strconv.ParseUint(strings.TrimPrefix(gid, "+"), 10, 31)
	return Label{int(u), int(g)}, err1 == nil && err2 == nil
}

func known(number *int) int {
	if number == nil {
		return Unknown
	}
	return *number
}

// ModelCPU is the <cpu> element of a model without more features, for calls that take one. Names
// are libvirt's and need no escaping.
func ModelCPU(arch, model string) string {
	return "<cpu><arch>" + arch + "</arch><model>" + model + "</model></cpu>"
}

// ParseCPU reads the features of a guest's <cpu> element, as virConnectBaselineCPU returns it;
// disabled ones are left out.
func ParseCPU(text string) ([]string, error) {
	cpu := struct {
		XMLName xml.Name `xml:"cpu"`
		libvirtxml.DomainCPU
	}{}
	if err := Decode(text, &cpu); err != nil {
		return nil, fmt.Errorf("the expanded CPU of libvirt: %w", err)
	}
	var names []string
	for _, f := range cpu.Features {
		if f.Policy != "disable" && f.Policy != "forbid" {
			names = append(names, f.Name)
		}
	}
	return sorted(names), nil
}

// sorted sorts a list; each value stays once, and no empty one.
func sorted(list []string) []string {
	slices.Sort(list)
	return slices.Compact(slices.DeleteFunc(list, func(s string) bool { return s == "" }))
}

// MaxXML is the most bytes of one document of libvirt's. The capabilities of a host with 512 CPUs
// have some 100 KB.
const MaxXML = 16 << 20

// Decode reads one document of libvirt's into a value, mostly one of package libvirtxml. Elements
// that the value has no field for are skipped. libvirtd is trusted not to be malicious, and may be
// wrong: a document beyond MaxXML is an error.
func Decode(text string, into any) error {
	if len(text) > MaxXML {
		return fmt.Errorf("the XML has %d bytes, more than %d", len(text), MaxXML)
	}
	err := xml.Unmarshal([]byte(text), into)
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("the XML is empty")
	case err != nil:
		return fmt.Errorf("the XML cannot be read: %w", err)
	}
	return nil
}
