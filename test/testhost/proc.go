// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"fmt"
	"strings"
)

// proc writes /proc/cpuinfo and /proc/meminfo.
func (w *writer) proc(h Host) {
	var info strings.Builder
	for _, c := range h.CPUs {
		if !c.Offline {
			h.describe(&info, c)
		}
	}
	w.file("proc/cpuinfo", "%s", info.String())
	var huge, hugeKiB uint64
	for _, c := range h.Cells {
		for _, p := range c.HugePages {
			if hugeKiB += p.Total * p.SizeKiB; p.SizeKiB == 2048 {
				huge += p.Total
			}
		}
	}
	total := h.MemoryKiB()
	w.file("proc/meminfo",
		"MemTotal:       %d kB\nMemFree:        %d kB\nMemAvailable:   %d kB\nSwapTotal:             0 kB\n"+
			"HugePages_Total:  %6d\nHugePages_Free:   %6d\nHugepagesize:       2048 kB\nHugetlb:        %d kB\n",
		total, total/2, total/2, huge, huge, hugeKiB)
}

// describe writes a CPU's paragraph, each with an empty line after it.
func (h Host) describe(b *strings.Builder, c CPU) {
	p := h.Processor
	line := func(key, format string, args ...any) {
		fmt.Fprintf(b, "%-15s : "+format+"\n", append([]any{key}, args...)...)
	}
	line("processor", "%d", c.ID)
	if p.Arch == "aarch64" {
		line("BogoMIPS", "50.00")
		line("Features", "%s", strings.Join(p.Flags, " "))
		line("CPU implementer", "0x41")
		b.WriteByte('\n')
		return
	}
	cores, threads := map[[2]int]bool{}, 0
	for _, other := range h.CPUs {
		if other.Package == c.Package && !other.Offline {
			cores[[2]int{other.Die, other.Core}] = true
			threads++
		}
	}
	line("vendor_id", "%s", p.Vendor)
	line("cpu family", "%d", p.Family)
	line("model", "%d", p.Number)
	line("model name", "%s", p.Name)
	line("stepping", "%d", p.Stepping)
	if p.Microcode != 0 {
		line("microcode", "0x%x", p.Microcode)
	}
	line("cpu MHz", "%d.000", p.MHz)
	line("physical id", "%d", c.Package)
	line("siblings", "%d", threads)
	line("core id", "%d", c.Core)
	line("cpu cores", "%d", len(cores))
	line("flags", "%s", strings.Join(p.Flags, " "))
	b.WriteByte('\n')
}

// virtualization writes what KVM's modules and the misc cgroup controller show.
func (w *writer) virtualization(h Host) {
	if h.Module == "" {
		return
	}
	yes := func(b bool) string {
		if b {
			return "Y"
		}
		return "N"
	}
	at := "sys/module/" + h.Module + "/parameters/"
	if h.Module == "kvm_amd" { // this module prints numbers for its older parameters
		nested := 0
		if h.Nested {
			nested = 1
		}
		w.file(at+"nested", "%d\n", nested)
	} else {
		w.file(at+"nested", "%s\n", yes(h.Nested))
	}
	w.mkdir("sys/module/kvm/parameters")
	if h.SEV == nil {
		return
	}
	w.file(at+"sev", "%s\n", yes(h.SEV.SEV))
	w.file(at+"sev_es", "%s\n", yes(h.SEV.ES))
	w.file(at+"sev_snp", "%s\n", yes(h.SEV.SNP))
	if h.SEV.SEV {
		w.file("sys/fs/cgroup/misc.capacity", "sev %d\nsev_es %d\n", h.SEV.Guests, h.SEV.ESGuests)
	}
}
