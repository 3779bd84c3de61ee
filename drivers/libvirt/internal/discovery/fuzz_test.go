// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Each parser takes what the kernel prints, and for anything else has an error, no panic and no
// number out of bounds.

func FuzzNumbers(f *testing.F) {
	for _, s := range []string{"", "0", "1", "-1", "-2", "+1", "0x10de", "0x030200", "0X10DE", "0x", "0xfffff",
		"99999999999999999999", "1 ", "1\n", "Y", "N", "(null)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := count(s); err == nil &&
			(n > maxCount || strings.TrimLeft(s, "0") != strings.TrimLeft(fmt.Sprint(n), "0")) {
			t.Errorf("count %q: %d", s, n)
		}
		if n, err := number(s); err == nil && (n < 0 || n > 1<<20) {
			t.Errorf("number %q: %d", s, n)
		}
		if n, err := ordinal(s); err == nil && n < None {
			t.Errorf("ordinal %q: %d", s, n)
		}
		for _, width := range []int{16, 24} {
			if n, err := hexadecimal(width)(s); err == nil && !strings.EqualFold(s, fmt.Sprintf("0x%0*x", width/4, n)) {
				t.Errorf("hexadecimal %q: %x", s, n)
			}
		}
		if _, err := yesNo(s); err == nil && len(s) != 1 {
			t.Errorf("yes or no: %q", s)
		}
		if a, err := address(s); err == nil && a.String() != s {
			t.Errorf("address %q: %s", s, a)
		}
	})
}

func FuzzLists(f *testing.F) {
	for _, s := range []string{"", "0", "0-3,8", "3-0", "0-", "-", ",", "0-99999999", "(null)", "10 21",
		"10 0", "ten", "10\t21 17"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if set, err := cpuSet(s); err == nil && (!slices.IsSorted(set) || len(set) > 1<<16) {
			t.Errorf("set %q: %v", s, set)
		}
		if row, err := distances(s); err == nil && len(row) > 0 && slices.Min(row) < 10 {
			t.Errorf("distances %q: %v", s, row)
		}
	})
}

func FuzzMemTotal(f *testing.F) {
	for _, s := range []string{"", "Node 1 MemTotal: 5 kB\n", "Node 1 MemTotal: 5 MB", "Node 0 MemTotal: 5 kB",
		"Node 1 MemTotal:", "Node 1 MemTotal: -5 kB\nNode 1 MemTotal: 5 kB", "Node 11 MemTotal: 5 kB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := memTotal(s, "Node 1 MemTotal:"); err == nil &&
			(n > maxCount || !strings.Contains(s, "Node 1 MemTotal:")) {
			t.Errorf("%q: %d", s, n)
		}
	})
}

func FuzzCapacity(f *testing.F) {
	for _, s := range []string{"", "sev 410\nsev_es 99\n", "sev\n", "sev 1 2", "sev max", "sev_es 5", "tdx 31\nsev 2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := capacity(s, "sev"); err == nil && (n < 0 || n > 0 && !strings.Contains(s, "sev")) {
			t.Errorf("%q: %d", s, n)
		}
	})
}

func FuzzPageSize(f *testing.F) {
	for _, s := range []string{"hugepages-2048kB", "hugepages-0kB", "hugepages-kB", "hugepages-2048", "2048kB",
		"hugepages--1kB", "hugepages-1048576kB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := pageSize(s); err == nil && (n == 0 || !strings.HasSuffix(s, fmt.Sprintf("%dkB", n))) {
			t.Errorf("%q: %d", s, n)
		}
	})
}
