// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// benchHost starts a host; onTransition may be nil.
func benchHost(b *testing.B, onTransition func(Status)) *Host {
	b.Helper()
	dir := testproc.Try(os.MkdirTemp("/tmp", "rt")).Or(b)
	h, err := New(Options{Dir: binDir, RuntimeDir: dir, Logger: zerolog.Nop(), OnTransition: onTransition})
	testproc.Check(b, err)
	b.Cleanup(func() {
		_ = h.Close()
		_ = os.RemoveAll(dir)
	})
	return h
}

// wideNode is a configuration of the fake driver with one node and n-1 children in groups of a
// hundred.
func wideNode(b testing.TB, n int) json.RawMessage {
	b.Helper()
	type provider map[string]any
	inventories := map[string]any{"VGPU": map[string]any{"total": 4}}
	var groups []provider
	for left := n - 1; left > 0; {
		size := min(left, 100)
		var children []provider
		for i := range size - 1 {
			children = append(children,
				provider{"name": fmt.Sprint(i), "inventories": inventories, "traits": []string{"CUSTOM_A", "CUSTOM_B"}})
		}
		groups = append(groups, provider{"name": fmt.Sprint("g", len(groups)), "children": children})
		left -= size
	}
	raw, err := json.Marshal(map[string]any{"nodes": []provider{{"name": "cn1", "uuid": rootUUID, "children": groups}}})
	testproc.Check(b, err)
	return raw
}

func startBench(b *testing.B, h *Host, spec Spec) *Plugin {
	b.Helper()
	p := testproc.Try(h.Plugin(spec)).Or(b)
	testproc.Check(b, p.Start(context.Background()))
	return p
}

func update(
	b *testing.B, p *Plugin, tree *providertree.Tree, allocations providertree.Allocations,
) (*providertree.Tree, providertree.Allocations) {
	b.Helper()
	after, moved, err := p.UpdateProviderTree(context.Background(), tree, "cn1", allocations)
	testproc.Check(b, err)
	return after, moved
}

// BenchmarkStartToFirstTree is everything from the check of the executable to the tree. What the
// parts take is from the times at which the states are reached: the check (most of it is the sha256
// of the file), process and connection (exec, the handshake, the keys, TLS), Info and Configure,
// and the first tree.
func BenchmarkStartToFirstTree(b *testing.B) {
	var mu sync.Mutex
	times := map[State]time.Time{}
	h := benchHost(b, func(s Status) {
		mu.Lock()
		defer mu.Unlock()
		times[s.State] = time.Now()
	})
	at := func(s State) time.Time {
		mu.Lock()
		defer mu.Unlock()
		return times[s]
	}
	var check, connect, configure, tree time.Duration
	var own, its time.Duration
	for b.Loop() {
		begun, used := time.Now(), cpuTime(b, os.Getpid())
		p := startBench(b, h, Spec{Name: "fake", Config: wideNode(b, 1)})
		started := time.Now()
		update(b, p, oneNode(b), nil)
		check += at(Verified).Sub(begun)
		connect += at(Configured).Sub(at(Verified))
		configure += started.Sub(at(Configured))
		tree += time.Since(started)
		own += cpuTime(b, os.Getpid()) - used
		its += cpuTime(b, p.Status().PID)
		b.StopTimer()
		testproc.Check(b, h.Remove(context.Background(), p))
		b.StartTimer()
	}
	for name, d := range map[string]time.Duration{
		"check-ms": check, "connect+configure-ms": connect,
		"take-over-ms": configure, "tree-ms": tree, "host-CPU-ms": own, "plugin-CPU-ms": its,
	} {
		b.ReportMetric(milliseconds(d)/float64(b.N), name)
	}
}

// BenchmarkExec is a plugin's process without a plugin in it: what of a start is the kernel's and
// Go's.
func BenchmarkExec(b *testing.B) {
	for b.Loop() {
		testproc.Check(b, exec.Command(fakePath, "--info").Run())
	}
}

// BenchmarkUpdateProviderTree is the round trip of a steady pass, with the CPU time of both sides.
// "fake" is a driver that looks at all providers and finds them as they should be, "idle" one that
// looks at the root, so that the rest is the protocol's: both trees converted, encoded, decoded and
// checked.
func BenchmarkUpdateProviderTree(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		h := benchHost(b, nil)
		fake := startBench(b, h, Spec{Name: "fake", Config: wideNode(b, n)})
		tree, _ := update(b, fake, oneNode(b), nil)
		if tree.Len() != n {
			b.Fatalf("%d providers", tree.Len())
		}
		idle := startBench(b, h, chaosSpec("", nil))
		b.Run(fmt.Sprint("fake/", n), func(b *testing.B) { roundTrip(b, fake, tree, nil) })
		b.Run(fmt.Sprint("idle/", n), func(b *testing.B) { roundTrip(b, idle, tree, nil) })
		testproc.Check(b, h.Close())
	}
}

// BenchmarkReshape is the round trip of a tree of a hundred providers with what 10,000 guests hold
// of it.
func BenchmarkReshape(b *testing.B) {
	h := benchHost(b, nil)
	fake := startBench(b, h, Spec{Name: "fake", Config: wideNode(b, 100)})
	tree, _ := update(b, fake, oneNode(b), nil)
	allocations := providertree.Allocations{}
	uuids := tree.UUIDs()
	for i := range 10_000 {
		uuid := testproc.Try(providertree.ChildUUID(rootUUID, fmt.Sprint("guest", i))).Or(b)
		generation := int64(1)
		allocations[uuid] = providertree.ConsumerAllocations{
			Resources: providertree.ProviderResources{rootUUID: {"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 20},
				uuids[2+i%98]: {"VGPU": 1}},
			Generation: &generation, ProjectID: strings.Repeat("p", 32),
			UserID: strings.Repeat("u", 32), ConsumerType: "INSTANCE",
		}
	}
	b.Run("100/10000", func(b *testing.B) { roundTrip(b, fake, tree, allocations) })
}

// roundTrip measures calls with one tree.
func roundTrip(b *testing.B, p *Plugin, tree *providertree.Tree, allocations providertree.Allocations) {
	tree = tree.Clone()
	tree, _ = update(b, p, tree, allocations)
	pid := p.Status().PID
	own, its := cpuTime(b, os.Getpid()), cpuTime(b, pid)
	b.ReportAllocs()
	for b.Loop() {
		after, moved := update(b, p, tree, allocations)
		if after.Len() != tree.Len() || len(moved) != len(allocations) {
			b.Fatal("the answer is not what went")
		}
	}
	b.ReportMetric(milliseconds(cpuTime(b, os.Getpid())-own)/float64(b.N), "host-CPU-ms")
	b.ReportMetric(milliseconds(cpuTime(b, pid)-its)/float64(b.N), "plugin-CPU-ms")
	b.ReportMetric(memoryMiB(b, pid, "Rss"), "plugin-RSS-MiB")
}

// BenchmarkMemory is what ten plugins take: of the host each, and their processes; after a pass
// with one, a hundred and 1,000 providers each.
func BenchmarkMemory(b *testing.B) {
	const plugins = 10
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				h := benchHost(b, nil)
				heap, resident := heapMiB(), memoryMiB(b, os.Getpid(), "Rss")
				var all []*Plugin
				trees := make([]*providertree.Tree, plugins)
				for i := range plugins {
					all = append(all,
						startBench(b, h, Spec{Name: fmt.Sprint("fake", i), Path: fakePath, Config: wideNode(b, n)}))
				}
				var wg sync.WaitGroup
				for i, p := range all {
					wg.Go(func() {
						tree := oneNode(b)
						for range 3 {
							next, _, err := p.UpdateProviderTree(context.Background(), tree, "cn1", nil)
							if err != nil {
								b.Error(err)
								return
							}
							tree = next
						}
						trees[i] = tree
					})
				}
				wg.Wait()
				var rss, pss float64
				for _, p := range all {
					rss += memoryMiB(b, p.Status().PID, "Rss")
					pss += memoryMiB(b, p.Status().PID, "Pss")
				}
				b.ReportMetric((heapMiB()-heap)/plugins, "host-heap-MiB/plugin")
				b.ReportMetric((memoryMiB(b, os.Getpid(), "Rss")-resident)/plugins, "host-RSS-MiB/plugin")
				b.ReportMetric(rss/plugins, "plugin-RSS-MiB")
				b.ReportMetric(pss/plugins, "plugin-PSS-MiB")
				goruntime.KeepAlive(trees)
				testproc.Check(b, h.Close())
			}
		})
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// cpuTime is what a process has used in user and kernel mode, from its CPU clock.
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil { // clock_getcpuclockid(3)
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// heapMiB is what the heap and the stacks hold after a collection.
func heapMiB() float64 {
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return float64(m.HeapAlloc+m.StackInuse) / (1 << 20)
}

// memoryMiB is the memory that a process occupies: Rss, or Pss, in which what processes share is
// divided by their number.
func memoryMiB(b *testing.B, pid int, field string) float64 {
	b.Helper()
	rollup := testproc.Try(os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))).Or(b)
	for line := range strings.Lines(string(rollup)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			var kib float64
			testproc.Try(fmt.Sscan(rest, &kib)).Or(b)
			return kib / 1024
		}
	}
	b.Fatalf("no %s in %s", field, rollup)
	return 0
}
