// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/providertree"
)

func benchHost(b *testing.B) *Host {
	b.Helper()
	dir, err := os.MkdirTemp("/tmp", "rt")
	if err != nil {
		b.Fatal(err)
	}
	h, err := New(Options{Dir: binDir, RuntimeDir: dir, Logger: zerolog.Nop()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = h.Close()
		_ = os.RemoveAll(dir)
	})
	return h
}

// wideNode is a configuration of the fake driver with one node and n-1 children in groups of a hundred.
func wideNode(b *testing.B, n int) json.RawMessage {
	b.Helper()
	type provider map[string]any
	inventories := map[string]any{"VGPU": map[string]any{"total": 4}}
	var groups []provider
	for left := n - 1; left > 0; {
		size := min(left, 100)
		var children []provider
		for i := range size - 1 {
			children = append(children, provider{"name": fmt.Sprint(i), "inventories": inventories, "traits": []string{"CUSTOM_A", "CUSTOM_B"}})
		}
		groups = append(groups, provider{"name": fmt.Sprint("g", len(groups)), "children": children})
		left -= size
	}
	raw, err := json.Marshal(map[string]any{"nodes": []provider{{"name": "cn1", "uuid": rootUUID, "children": groups}}})
	if err != nil {
		b.Fatal(err)
	}
	return raw
}

// BenchmarkStartToFirstTree is everything from the check of the executable to the tree, and the end of the process.
func BenchmarkStartToFirstTree(b *testing.B) {
	h := benchHost(b)
	ctx := context.Background()
	for b.Loop() {
		p, err := h.Plugin(Spec{Name: "fake", Config: wideNode(b, 1)})
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Start(ctx); err != nil {
			b.Fatal(err)
		}
		if _, _, err := p.UpdateProviderTree(ctx, oneNode(b), "cn1", nil); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := h.Remove(ctx, p); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkUpdateProviderTree is the round trip of a steady pass: the tree as it is, unchanged by the driver.
func BenchmarkUpdateProviderTree(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			h := benchHost(b)
			ctx := context.Background()
			p, err := h.Plugin(Spec{Name: "fake", Config: wideNode(b, n)})
			if err != nil {
				b.Fatal(err)
			}
			if err := p.Start(ctx); err != nil {
				b.Fatal(err)
			}
			tree, _, err := p.UpdateProviderTree(ctx, oneNode(b), "cn1", nil)
			if err != nil {
				b.Fatal(err)
			}
			if tree.Len() != n {
				b.Fatalf("%d providers", tree.Len())
			}
			b.ReportAllocs()
			defer func() { b.ReportMetric(residentMiB(b, p.Status().PID), "plugin-RSS-MiB") }()
			for b.Loop() {
				var again *providertree.Tree
				if again, _, err = p.UpdateProviderTree(ctx, tree, "cn1", nil); err != nil {
					b.Fatal(err)
				}
				if again.Len() != n {
					b.Fatal("the tree changed")
				}
			}
		})
	}
}

// residentMiB is the memory that a process occupies.
func residentMiB(b *testing.B, pid int) float64 {
	b.Helper()
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		b.Fatal(err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(statm), &size, &resident); err != nil {
		b.Fatal(err)
	}
	return float64(resident) * float64(os.Getpagesize()) / (1 << 20)
}
