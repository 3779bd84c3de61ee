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

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// Host capabilities are libvirt's XML about the host: its CPU, its NUMA cells, and what its emulators can run
// (https://libvirt.org/formatcaps.html). Elements that are not needed are skipped, those that are must make sense.

// maxXML is more than any host's capabilities (some 100 KB with 512 CPUs).
const maxXML = 16 << 20

// Host is what the capabilities say of the host.
type Host struct {
	// Arch is libvirt's name of the CPU architecture: "x86_64", "aarch64".
	Arch string
	// Model is libvirt's name of the CPU's model, "" if it has none.
	Model string
	// CPU is the host's <cpu> element as it stands, for calls that take one. Its features are only those that the model
	// in it does not already stand for.
	CPU string
	// Features are those listed.
	Features []string
	// Cells are the NUMA cells. Hypervisors without an idea of them list none.
	Cells []Cell
	// QEMU is the user that guests' emulators run as, by libvirt's security model DAC; nil if libvirt does not say.
	QEMU *Label
	// GuestArches are the architectures that guests can have, sorted.
	GuestArches []string
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
	// Distances to other cells and to itself, by number of the cell; nil where libvirt tells none.
	Distances map[int]int
}

// Pages are the pages of a size.
type Pages struct {
	SizeKiB, Count uint64
}

// Unknown stands for a number that libvirt does not tell.
const Unknown = -1

// CPU is a host CPU (a hardware thread).
type CPU struct {
	ID int
	// Socket and Core are Unknown for a CPU that is offline.
	Socket, Core int
	// Siblings are the CPUs of the same core, itself among them; empty where libvirt does not know (CPUs that are offline).
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

type capsXML struct {
	XMLName xml.Name `xml:"capabilities"`
	Host    *struct {
		CPU *struct {
			Inner    string    `xml:",innerxml"`
			Arch     string    `xml:"arch"`
			Model    string    `xml:"model"`
			Features []nameXML `xml:"feature"`
		} `xml:"cpu"`
		Security []struct {
			Model  string `xml:"model"`
			Labels []struct {
				Type string `xml:"type,attr"`
				Text string `xml:",chardata"`
			} `xml:"baselabel"`
		} `xml:"secmodel"`
		Cells []struct {
			ID     int `xml:"id,attr"`
			Memory []struct {
				Unit string `xml:"unit,attr"`
				Size uint64 `xml:",chardata"`
			} `xml:"memory"`
			Pages []struct {
				Unit  string `xml:"unit,attr"`
				Size  uint64 `xml:"size,attr"`
				Count uint64 `xml:",chardata"`
			} `xml:"pages"`
			Distances []struct {
				ID    int `xml:"id,attr"`
				Value int `xml:"value,attr"`
			} `xml:"distances>sibling"`
			CPUs []struct {
				ID       int    `xml:"id,attr"`
				Socket   *int   `xml:"socket_id,attr"`
				Core     *int   `xml:"core_id,attr"`
				Siblings string `xml:"siblings,attr"`
			} `xml:"cpus>cpu"`
		} `xml:"topology>cells>cell"`
	} `xml:"host"`
	Guests []struct {
		OSType string `xml:"os_type"`
		Arch   struct {
			Name string `xml:"name,attr"`
		} `xml:"arch"`
	} `xml:"guest"`
}

type nameXML struct {
	Name   string `xml:"name,attr"`
	Policy string `xml:"policy,attr"`
}

// Parse reads the XML of virConnectGetCapabilities.
func ParseHost(text string) (Host, error) {
	var caps capsXML
	if err := decode(text, &caps); err != nil {
		return Host{}, fmt.Errorf("libvirt's capabilities: %w", err)
	}
	if caps.Host == nil || caps.Host.CPU == nil {
		return Host{}, errors.New("libvirt's capabilities have no element host/cpu")
	}
	h := Host{Arch: strings.TrimSpace(caps.Host.CPU.Arch), Model: strings.TrimSpace(caps.Host.CPU.Model), CPU: "<cpu>" + caps.Host.CPU.Inner + "</cpu>", Features: names(caps.Host.CPU.Features)}
	if h.Arch == "" {
		return Host{}, errors.New("libvirt's capabilities have no element host/cpu/arch")
	}
	for _, c := range caps.Host.Cells {
		cell := Cell{ID: c.ID}
		for _, m := range c.Memory {
			if m.Unit != "" && m.Unit != "KiB" {
				return Host{}, fmt.Errorf("libvirt's capabilities: the memory of NUMA cell %d is in %q, expected KiB", c.ID, m.Unit)
			}
			cell.MemoryKiB += m.Size
		}
		for _, p := range c.CPUs {
			siblings, err := machine.ParseCPUs(p.Siblings)
			if err != nil {
				return Host{}, fmt.Errorf("libvirt's capabilities: siblings of CPU %d: %w", p.ID, err)
			}
			cell.CPUs = append(cell.CPUs, CPU{ID: p.ID, Socket: known(p.Socket), Core: known(p.Core), Siblings: siblings})
		}
		for _, p := range c.Pages {
			if p.Unit != "" && p.Unit != "KiB" {
				return Host{}, fmt.Errorf("libvirt's capabilities: the pages of NUMA cell %d are in %q, expected KiB", c.ID, p.Unit)
			}
			cell.Pages = append(cell.Pages, Pages{p.Size, p.Count})
		}
		for _, d := range c.Distances {
			if cell.Distances == nil {
				cell.Distances = map[int]int{}
			}
			cell.Distances[d.ID] = d.Value
		}
		h.Cells = append(h.Cells, cell)
	}
	for _, m := range caps.Host.Security {
		if strings.TrimSpace(m.Model) != "dac" {
			continue
		}
		for _, l := range m.Labels { // those of kvm and qemu are the same
			if label, ok := parseLabel(l.Text); ok && (l.Type == "kvm" || l.Type == "qemu") {
				h.QEMU = &label
			}
		}
	}
	for _, g := range caps.Guests {
		if a := strings.TrimSpace(g.Arch.Name); a != "" && strings.TrimSpace(g.OSType) == "hvm" {
			h.GuestArches = append(h.GuestArches, a)
		}
	}
	slices.Sort(h.GuestArches)
	h.GuestArches = slices.Compact(h.GuestArches)
	return h, nil
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

// ModelCPU is the <cpu> element of a model without more features, for calls that take one. Names are libvirt's and need no escaping.
func ModelCPU(arch, model string) string {
	return "<cpu><arch>" + arch + "</arch><model>" + model + "</model></cpu>"
}

// ParseCPU reads the features of a guest's <cpu> element, as virConnectBaselineCPU returns it; disabled ones are left out.
func ParseCPU(text string) ([]string, error) {
	var cpu struct {
		XMLName  xml.Name  `xml:"cpu"`
		Features []nameXML `xml:"feature"`
	}
	if err := decode(text, &cpu); err != nil {
		return nil, fmt.Errorf("the expanded CPU of libvirt: %w", err)
	}
	return names(cpu.Features), nil
}

func names(list []nameXML) []string {
	var out []string
	for _, f := range list {
		if f.Name != "" && f.Policy != "disable" && f.Policy != "forbid" {
			out = append(out, f.Name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// decode reads one whole document, and no more.
func decode(text string, into any) error {
	if len(text) > maxXML {
		return fmt.Errorf("the XML has %d bytes, more than %d", len(text), maxXML)
	}
	d := xml.NewDecoder(strings.NewReader(text))
	if err := d.Decode(into); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("the XML is empty")
		}
		return fmt.Errorf("the XML cannot be read: %w", err)
	}
	return nil
}
