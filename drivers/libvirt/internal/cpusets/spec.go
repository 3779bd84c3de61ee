// SPDX-License-Identifier: Apache-2.0

package cpusets

import (
	"errors"
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/cpulist"
)

// maxSpec bounds a specification, in bytes. One that names 8192 CPUs one by one has 40 KB.
const maxSpec = 64 << 10

var errNothingLeft = errors.New("no CPUs are left of it")

// ParseSpec reads Nova's notation of a set of CPUs: numbers, ranges, and either after a caret, which takes them out wherever it stands:
// "4-12,^8,15", "^0-1,0-7". Empty items and numbers that are there twice do no harm. Returned are the numbers in ascending order, at least one.
//
// Cost: O(len(s) + MaxCPU), whatever ranges s has.
func ParseSpec(s string) ([]int, error) {
	if len(s) > maxSpec {
		return nil, fmt.Errorf("has %d characters, can have %d", len(s), maxSpec)
	}
	var with, without delta
	for item := range strings.SplitSeq(s, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		into := &with
		numbers, out := strings.CutPrefix(item, "^")
		if out {
			into = &without
		}
		first, last, err := cpulist.ParseItem(numbers)
		if err != nil {
			return nil, fmt.Errorf("item %.40q: %w", item, err)
		}
		into.add(first, last)
	}
	var cpus []int
	in, out := 0, 0
	for cpu := range with {
		in, out = in+with[cpu], out+without[cpu]
		if in > 0 && out == 0 {
			cpus = append(cpus, cpu)
		}
	}
	if len(cpus) == 0 {
		return nil, fmt.Errorf("%.60q: %w", s, errNothingLeft)
	}
	return cpus, nil
}

// delta has, for each CPU, how many ranges begin there less how many ended before it.
type delta [cpulist.MaxCPU + 2]int

func (d *delta) add(first, last int) {
	d[first]++
	d[last+1]--
}
