// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Switch takes a CPU offline or brings it online, in the model and in the tree.
func (h *Host) Switch(t Tree, cpu int, online bool) error {
	const at = "sys/devices/system/"
	var errs []error
	write := func(name, format string, args ...any) {
		errs = append(errs, t.Write(at+name, fmt.Sprintf(format, args...)))
	}
	for i := range h.CPUs {
		if h.CPUs[i].ID == cpu {
			h.CPUs[i].Offline = !online
		}
	}
	present := h.PresentCPUs()
	highest := present[len(present)-1]
	if !online {
		write("cpu/online", "%s\n", list(h.OnlineCPUs()))
	}
	for _, c := range h.CPUs {
		dir := fmt.Sprintf("cpu/cpu%d", c.ID)
		switch siblings := h.Siblings(c); {
		case c.ID == cpu && c.Offline:
			if err := t.Remove(at + dir + "/topology"); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		case !c.Offline:
			write(dir+"/topology/physical_package_id", "%d\n", c.Package)
			write(dir+"/topology/die_id", "%d\n", c.Die)
			write(dir+"/topology/cluster_id", "%d\n", c.Core)
			write(dir+"/topology/core_id", "%d\n", c.Core)
			write(dir+"/topology/thread_siblings", "%s\n", mask(siblings, highest))
			write(dir+"/topology/thread_siblings_list", "%s\n", list(siblings))
		}
		if c.ID == cpu {
			state := 0
			if online {
				state = 1
			}
			write(dir+"/online", "%d\n", state)
			if !h.NoNUMA {
				write(fmt.Sprintf("node/node%d/cpulist", c.Cell), "%s\n", list(h.CellCPUs(c.Cell)))
				write(fmt.Sprintf("node/node%d/cpumap", c.Cell), "%s\n", mask(h.CellCPUs(c.Cell), highest))
			}
		}
	}
	if online {
		write("cpu/online", "%s\n", list(h.OnlineCPUs()))
	}
	var info strings.Builder
	for _, c := range h.CPUs {
		if !c.Offline {
			h.describe(&info, c)
		}
	}
	errs = append(errs, t.Write("proc/cpuinfo", info.String()))
	return errors.Join(errs...)
}
