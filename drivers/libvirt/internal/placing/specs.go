// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/cpulist"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
)

// The values of policies.
const (
	prefer  = "prefer"
	isolate = "isolate"
	require = "require"
	share   = "share"
)

// specs are the extra specs that matter.
type specs struct {
	threads  string // prefer, isolate, require
	emulator string // "", share, isolate
	// dedicated are the virtual processors that are; nil: it does not say.
	dedicated []int
	// nodes is how many NUMA cells an instance is to have; 0: it does not say.
	nodes int64
	// pageKiB is the size of the pages; 0 is for common ones. large says any huge ones.
	pageKiB uint64
	large   bool
}

func (c *chooser) readSpecs(*domain.Decision) error {
	from := c.Instance.Flavor.ExtraSpecs
	s := specs{threads: prefer, emulator: from["hw:emulator_threads_policy"]}
	if policy, given := from["hw:cpu_thread_policy"]; given {
		s.threads = policy
	}
	if s.threads != prefer && s.threads != isolate && s.threads != require {
		return c.fault("hw:cpu_thread_policy is %.40q; prefer, isolate and require can be", s.threads)
	}
	if s.emulator != "" && s.emulator != share && s.emulator != isolate {
		return c.fault("hw:emulator_threads_policy is %.40q; share and isolate can be", s.emulator)
	}
	if text, given := from["hw:numa_nodes"]; given {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 1 {
			return c.fault("hw:numa_nodes is %.40q, which is no number from 1", text)
		}
		s.nodes = n
	}
	if text, given := from["hw:cpu_dedicated_mask"]; given {
		set, err := mask(text, c.Instance.Flavor.VCPUs)
		if err != nil || len(set) == 0 {
			return c.fault("hw:cpu_dedicated_mask is %.40q, which names none of its processors, or others", text)
		}
		s.dedicated = set
	}
	switch text := from["hw:mem_page_size"]; text {
	case "", "small", "any":
	case "large":
		s.large = true
	default:
		kib, ok := pageSize(text)
		if !ok {
			return c.fault("hw:mem_page_size is %.40q; small, large, any and sizes such as 2MB can be", text)
		}
		if kib > 64 { // all common pages are as small as that
			s.pageKiB = kib
		}
	}
	c.specs = s
	return nil
}

// mask reads a set of virtual processors: "0-3,^2", or all but some: "^0-1".
func mask(text string, vcpus int64) ([]int, error) {
	var with, without []string
	for part := range strings.SplitSeq(text, ",") {
		if out, not := strings.CutPrefix(strings.TrimSpace(part), "^"); not {
			without = append(without, out)
		} else {
			with = append(with, part)
		}
	}
	if len(with) == 0 {
		with = []string{"0-" + strconv.FormatInt(vcpus-1, 10)}
	}
	set, err := cpulist.Parse(strings.Join(with, ","))
	if err != nil {
		return nil, err
	}
	not, err := cpulist.Parse(strings.Join(without, ","))
	if err != nil {
		return nil, err
	}
	out := minus(set, not)
	if len(out) > 0 && int64(out[len(out)-1]) >= vcpus {
		return nil, strconv.ErrRange
	}
	return out, nil
}

// pageSize reads a size in KiB, or with a unit, all of which count in 1024s, as Nova reads them.
func pageSize(text string) (uint64, bool) {
	digits := strings.TrimRight(text, "KMGTBkmgtbi")
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || n == 0 {
		return 0, false
	}
	switch strings.ToUpper(text[len(digits):]) {
	case "", "K", "KB", "KIB":
		return n, true
	case "M", "MB", "MIB":
		return n << 10, true
	case "G", "GB", "GIB":
		return n << 20, true
	}
	return 0, false
}
