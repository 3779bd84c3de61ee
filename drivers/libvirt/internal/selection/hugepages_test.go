// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// configurePages reads a configuration the way the driver does.
func configurePages(t testing.TB, entries string) (Reserved, error) {
	var c PagesConfig
	testproc.Check(t, plugins.DecodeConfig(json.RawMessage(`{"reserved_huge_pages": [`+entries+`]}`), &c))
	return ParsePages(c)
}

func TestParseSize(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for text, want := range map[string]uint64{
		"2048": 2048, "2M": 2048, "2MB": 2048, "2MiB": 2048, " 2 m ": 2048, "2048K": 2048, "2048kib": 2048,
		"1G": 1 << 20, "1GB": 1 << 20, "16g": 16 << 20,
		"1048576": 1 << 20, "64": 64, "64K": 64, "1024G": 1 << 30,
	} {
		if got, err := ParsePageSize(text); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0", "0M", "M", "3M", "2000", "-2M", "2.5M", "1e3", "2Mbit", "2MM", "2GM", "2T",
		"2048G", "99999999999999999999", "4294967295G", "true", "{}"} {
		if got, err := ParsePageSize(text); err == nil ||
			err.Error() != `"`+text+`" is not a page size such as "2M", "1G" or 2048 (KiB)` {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}

func TestClassesAndSizes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for kib, want := range map[uint64]string{64: "CUSTOM_HUGEPAGES_64K", 2048: "CUSTOM_HUGEPAGES_2M",
		1 << 19: "CUSTOM_HUGEPAGES_512M", 1 << 20: "CUSTOM_HUGEPAGES_1G", 1 << 24: "CUSTOM_HUGEPAGES_16G"} {
		if got := PagesClass(kib); got != want || providertree.ValidateClass(got) != nil {
			t.Errorf("%d KiB: %s, want %s", kib, got, want)
		}
		if size, ok := PagesSize(want); !ok || size != kib {
			t.Errorf("%s: %d, %v", want, size, ok)
		}
	}
	for _, class := range []string{"MEMORY_MB", "CUSTOM_HUGEPAGES_", "CUSTOM_HUGEPAGES_2048K",
		"CUSTOM_HUGEPAGES_2MB", "CUSTOM_HUGEPAGES_X"} {
		if size, ok := PagesSize(class); ok {
			t.Errorf("%s: pages of %d KiB", class, size)
		}
	}
}

func TestWrongReservations(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for entries, want := range map[string]string{
		`{"size": "2M", "count": 1}`:             `reserved_huge_pages[0].node: is missing: the number of a NUMA cell`,
		`{"node": -1, "size": "2M", "count": 1}`: `reserved_huge_pages[0].node: -1 is not a number of a NUMA cell`,
		`{"node": 0, "size": "2M"}`:              `reserved_huge_pages[0].count: is missing: a number of pages`,
		`{"node": 0, "size": "2M", "count": -1}`: `reserved_huge_pages[0].count: -1 is not a number of pages`,
		`{"node": 0, "count": 1}`:                `reserved_huge_pages[0].size: is missing: "2M", "1G" or the like`,
		`{"node": 0, "count": 1, "size": "huge"}`: `reserved_huge_pages[0].size: "huge" is not a page size such as ` +
			`"2M", "1G" or 2048 (KiB)`,
		`{"node": 0, "count": 1, "size": [2048]}`: `reserved_huge_pages[0].size: "[2048]" is not a page size such ` +
			`as "2M", "1G" or 2048 (KiB)`,
		`{"node": 0, "count": 1, "size": null}`: `reserved_huge_pages[0].size: "null" is not a page size such as ` +
			`"2M", "1G" or 2048 (KiB)`,
		`{"node": 0, "count": 1, "size": 2048}, {"node": 0, "count": 3, "size": "2M"}`: `reserved_huge_pages[1]: ` +
			`has the same node and size as reserved_huge_pages[0]`,
	} {
		_, err := configurePages(t, entries)
		var wrong *plugins.ConfigError
		if !errors.As(err, &wrong) || err.Error() != "configuration: "+want {
			t.Errorf("%s: %v, want\n%s", entries, err, want)
		}
	}
}

func TestChoosePages(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	m := machine.Machine{Cells: []machine.Cell{
		{ID: 2, MemoryKiB: 1 << 20},
		{ID: 0, MemoryKiB: 8 << 20,
			Pages: []machine.Pages{{SizeKiB: 2048, Total: 1024, Free: 1000}, {SizeKiB: 1 << 20, Total: 2}}},
		{ID: 1, MemoryKiB: 8<<20 + 1023, Pages: []machine.Pages{{SizeKiB: 2048, Total: 10}, {SizeKiB: 1 << 20}}},
	}}
	r, err := configurePages(t, `{"node": 0, "size": "2M", "count": 64}, {"node": 1, "size": 2048, "count": 11}, {"node": 1, "size": "1G", "count": 1}, {"node": 0, "size": "1G", "count": 0},
		{"node": 7, "size": "2M", "count": 1}, {"node": 0, "size": 4, "count": 100}, {"node": 2, "size": "2M", "count": 0}, {"node": 1, "size": "64K", "count": 0}`)
	testproc.Check(t, err)
	cells, discrepancies := r.Choose(m)
	want := []PagesCell{
		{ID: 0, CommonKiB: 4 << 20,
			Pages: []Pages{{2048, "CUSTOM_HUGEPAGES_2M", 1024, 64}, {1 << 20, "CUSTOM_HUGEPAGES_1G", 2, 0}}},
		{ID: 1, CommonKiB: 8<<20 + 1023 - 20480, Pages: []Pages{{2048, "CUSTOM_HUGEPAGES_2M", 10, 10}}},
		{ID: 2, CommonKiB: 1 << 20},
	}
	testproc.Same(t, cmp.Diff(want, cells))
	wantDiscrepancies := []machine.Discrepancy{
		{Key: "hugepages-reserved_huge_pages[1]",
			Text: "reserved_huge_pages[1]: NUMA cell 1 has only 10 of the 11 pages of 2M; all are reserved"},
		{Key: "hugepages-reserved_huge_pages[2]",
			Text: "reserved_huge_pages[2]: NUMA cell 1 has none of the 1 pages of 1G"},
		{Key: "hugepages-reserved_huge_pages[4]", Text: "reserved_huge_pages[4]: the host has no NUMA cell 7"},
		{Key: "hugepages-reserved_huge_pages[5]",
			Text: "reserved_huge_pages[5]: NUMA cell 0 has no huge pages of 4K; to reserve memory in normal pages, " +
				"use reserved_host_memory_mb"},
		{Key: "hugepages-reserved_huge_pages[6]",
			Text: "reserved_huge_pages[6]: NUMA cell 2 has no huge pages of 2M; to reserve memory in normal pages, " +
				"use reserved_host_memory_mb"},
		{Key: "hugepages-reserved_huge_pages[7]",
			Text: "reserved_huge_pages[7]: NUMA cell 1 has no huge pages of 64K; to reserve memory in normal pages, " +
				"use reserved_host_memory_mb"},
	}
	testproc.Samef(t, cmp.Diff(wantDiscrepancies, discrepancies), "discrepancies")
}

func TestImpossiblePages(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, p := range []machine.Pages{{SizeKiB: 2048, Total: 513}, {SizeKiB: 1 << 40, Total: 1 << 40},
		{SizeKiB: 2048, Total: math.MaxUint64}} {
		cells, discrepancies := Reserved{}.Choose(
			machine.Machine{Cells: []machine.Cell{{MemoryKiB: 1 << 20, Pages: []machine.Pages{p}}}})
		if len(discrepancies) != 1 || discrepancies[0].Key != "hugepages-memory-0" || cells[0].CommonKiB != 0 ||
			cells[0].Pages[0].Total > providertree.MaxUnit {
			t.Errorf("%+v: %+v, %v", p, cells, discrepancies)
		}
	}
}

// TestPagesAndMemoryAddUp: huge pages and the rest are the cell's memory again, and what is
// reserved is what was asked for where it is there.
func TestPagesAndMemoryAddUp(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		var m machine.Machine
		var c PagesConfig
		sizes := []uint64{2048, 1 << 20}
		for id := range rapid.IntRange(1, 4).Draw(t, "cells") {
			cell := machine.Cell{ID: id, MemoryKiB: rapid.Uint64Range(0, 1<<20).Draw(t, "rest")}
			for _, size := range sizes {
				p := machine.Pages{SizeKiB: size, Total: rapid.Uint64Range(0, 50).Draw(t, "pages")}
				cell.Pages = append(cell.Pages, p)
				cell.MemoryKiB += p.Total * size
				if rapid.Bool().Draw(t, "some reserved") {
					count := rapid.Int64Range(0, 60).Draw(t, "reserved")
					c.ReservedHugePages = append(c.ReservedHugePages,
						ReservedPages{Node: &id,
							Size: json.RawMessage(`"` + FormatPageSize(size) + `"`), Count: &count})
				}
			}
			m.Cells = append(m.Cells, cell)
		}
		r := testproc.Try(ParsePages(c)).Or(t)
		cells, discrepancies := r.Choose(m)
		tooMany := 0
		for i, cell := range cells {
			kib := cell.CommonKiB
			for _, p := range m.Cells[i].Pages {
				var asked int64
				for _, w := range c.ReservedHugePages {
					if *w.Node == cell.ID && string(w.Size) == `"`+FormatPageSize(p.SizeKiB)+`"` {
						asked = *w.Count
					}
				}
				if asked > int64(p.Total) {
					tooMany++
				}
				at := slices.IndexFunc(cell.Pages, func(q Pages) bool { return q.SizeKiB == p.SizeKiB })
				if (at >= 0) != (p.Total > 0) {
					t.Fatalf("cell %d: %+v of %+v", cell.ID, cell.Pages, p)
				}
				if at < 0 {
					continue
				}
				q := cell.Pages[at]
				kib += uint64(q.Total) * q.SizeKiB
				if q.Total != int64(p.Total) || q.Reserved != min(asked, q.Total) {
					t.Fatalf("cell %d: %+v of %+v, asked for %d", cell.ID, q, p, asked)
				}
			}
			if kib != m.Cells[i].MemoryKiB {
				t.Fatalf("cell %d has %d KiB, split into %d", cell.ID, m.Cells[i].MemoryKiB, kib)
			}
		}
		if len(discrepancies) != tooMany {
			t.Fatalf("%v, %d reservations are too large", discrepancies, tooMany)
		}
	})
}

func TestSplitReserved(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, tc := range []struct {
		reserved     int64
		totals, want []int64
	}{
		{512, []int64{8192, 8192}, []int64{256, 256}},
		{512, []int64{8192}, []int64{512}}, {0, []int64{1, 2}, []int64{0, 0}}, {0, nil, []int64{}},
		{100, []int64{0, 300, 0}, []int64{0, 100, 0}},
		{2, []int64{1, 1, 1}, []int64{1, 1, 0}}, {10, []int64{1, 2}, nil}, {-1, []int64{1}, nil},
		{1000, []int64{100, 900, 1}, []int64{100, 899, 1}},
	} {
		got, err := SplitReserved(tc.reserved, tc.totals)
		var wrong *plugins.ConfigError
		if tc.want == nil {
			if !errors.As(err, &wrong) || wrong.Key != "reserved_host_memory_mb" {
				t.Errorf("%d of %v: %v, %v", tc.reserved, tc.totals, got, err)
			}
			continue
		}
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("%d of %v: %v (-want +got):\n%s", tc.reserved, tc.totals, err, diff)
		}
	}
	_, err := SplitReserved(4, []int64{1, 2})
	if err == nil ||
		err.Error() != "configuration: reserved_host_memory_mb: reserves 4 MiB, but the NUMA cells have only 3 MiB" {
		t.Error(err)
	}
}

// TestSplitReservedMemory: cells without CPUs have nothing of what is reserved while it fits into
// the others. Without such cells it is as it was.
func TestSplitReservedMemory(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, tc := range []struct {
		reserved int64
		totals   []int64
		with     []bool
		want     []int64
	}{
		{512, []int64{8192, 8192}, []bool{true, true}, []int64{256, 256}},
		{512, []int64{8192, 8192, 8192}, []bool{true, true, false}, []int64{256, 256, 0}},
		{512, []int64{8192, 8192}, []bool{false, false}, []int64{256, 256}},
		{512, []int64{0, 8192}, []bool{true, false}, []int64{0, 512}},
		{300, []int64{100, 100, 400, 400}, []bool{true, true, false, false}, []int64{100, 100, 50, 50}},
		{0, []int64{1, 2}, []bool{true, false}, []int64{0, 0}},
	} {
		got := testproc.Try(SplitReservedMemory(tc.reserved, tc.totals, tc.with)).Or(t)
		testproc.Samef(t, cmp.Diff(tc.want, got), "%d of %v, %v", tc.reserved, tc.totals, tc.with)
	}
	for _, reserved := range []int64{-1, 11} {
		var wrong *plugins.ConfigError
		if got, err := SplitReservedMemory(reserved, []int64{4, 6}, []bool{true, false}); !errors.As(err, &wrong) {
			t.Errorf("%d: %v, %v", reserved, got, err)
		}
	}
}

func TestSplitReservedIsFair(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		totals := rapid.SliceOfN(rapid.Int64Range(0, math.MaxInt64/8), 1, 6).Draw(t, "totals")
		var sum int64
		for _, n := range totals {
			sum += n
		}
		reserved := rapid.Int64Range(0, sum).Draw(t, "reserved")
		shares := testproc.Try(SplitReserved(reserved, totals)).Or(t)
		var again int64
		for i, s := range shares {
			again += s
			if s < 0 || s > totals[i] {
				t.Fatalf("share %d of %d", s, totals[i])
			}
			// Within one of the exact share: |s*sum - reserved*total| < sum.
			exact := new(big.Int).Mul(big.NewInt(reserved), big.NewInt(totals[i]))
			off := new(big.Int).Sub(new(big.Int).Mul(big.NewInt(s), big.NewInt(sum)), exact)
			if sum > 0 && off.CmpAbs(big.NewInt(sum)) >= 0 {
				t.Fatalf("share %d of %d is not in proportion (%d of %d)", s, totals[i], reserved, sum)
			}
		}
		if again != reserved {
			t.Fatalf("%v add up to %d, not %d", shares, again, reserved)
		}
	})
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"2M", "1GiB", "2048", "", "K", "4294967295G", "2 mb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		kib, err := ParsePageSize(s)
		if err != nil {
			return
		}
		if again, err := ParsePageSize(FormatPageSize(kib)); err != nil || again != kib {
			t.Fatalf("%q: %d became %d, %v", s, kib, again, err)
		}
	})
}
