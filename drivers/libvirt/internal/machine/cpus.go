// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// CPU sets in the kernel's and libvirt's notation of CPU sets: "0-3,8,10-11".

// MaxCPU is the highest CPU number taken for true. Linux has at most 8192 CPUs; a list that names
// more is damaged.
const MaxCPU = 65535

// ParseCPUs returns the numbers in ascending order, each once. An empty list is an empty set.
//
// Cost: O(len(s) + CPUs), at most MaxCPU+1 numbers whatever s says.
func ParseCPUs(s string) ([]int, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return nil, nil
	}
	var set []bool
	for part := range strings.SplitSeq(s, ",") {
		first, last, err := ParseCPURange(part)
		if err != nil {
			return nil, fmt.Errorf("CPU list %.60q: %w", s, err)
		}
		if last >= len(set) {
			set = append(set, make([]bool, last+1-len(set))...)
		}
		for cpu := first; cpu <= last; cpu++ {
			set[cpu] = true
		}
	}
	var cpus []int
	for cpu, in := range set {
		if in {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// ParseCPURange reads what is between two commas: one CPU, or a range.
func ParseCPURange(item string) (first, last int, err error) {
	from, to, isRange := strings.Cut(strings.TrimSpace(item), "-")
	if first, err = number(from); err != nil {
		return 0, 0, err
	}
	last = first
	if isRange {
		if last, err = number(to); err != nil {
			return 0, 0, err
		}
	}
	if last < first {
		return 0, 0, fmt.Errorf("the range %d-%d is reversed", first, last)
	}
	return first, last, nil
}

func number(s string) (int, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && n > MaxCPU:
		return 0, fmt.Errorf("CPU %.20s is above %d", s, MaxCPU)
	case err != nil:
		return 0, fmt.Errorf("%.20q is not a CPU number", s)
	}
	return int(n), nil
}

// FormatCPUs is the shortest notation of a set, the inverse of Parse.
func FormatCPUs(cpus []int) string {
	sorted := slices.Compact(slices.Sorted(slices.Values(cpus)))
	var b strings.Builder
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(sorted[i]))
		if j > i {
			b.WriteString("-" + strconv.Itoa(sorted[j]))
		}
		i = j + 1
	}
	return b.String()
}
