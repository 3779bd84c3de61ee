// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/discovery"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func inv(total, reserved int64, ratio float64) providertree.Inventory {
	return providertree.Inventory{Total: total, Reserved: reserved, MinUnit: 1, MaxUnit: total,
		StepSize: 1, AllocationRatio: ratio}
}

func TestANewNode(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	r := newRig(t, h, newDaemon(t, h).open, nil)
	root := r.mustPass(newTree(t))
	diff(t, "inventories", providertree.Inventories{
		"VCPU": inv(16, 0, 4), "MEMORY_MB": inv(32768, 512, 1), "DISK_GB": inv(df(t, r.instances), 0, 1),
	}, root.Inventories)
	diff(t, "traits", []string{
		"COMPUTE_ARCH_X86_64", "HW_ARCH_X86_64", "HW_CPU_HYPERTHREADING", "HW_CPU_X86_AESNI",
		"HW_CPU_X86_AVX", "HW_CPU_X86_AVX2",
		"HW_CPU_X86_AVX512F", "HW_CPU_X86_CLMUL", "HW_CPU_X86_INTEL_VMX", "HW_CPU_X86_SSE",
		"HW_CPU_X86_SSE2", "HW_CPU_X86_SSE41",
		"HW_CPU_X86_SSE42", "HW_CPU_X86_SSSE3", "HW_CPU_X86_VMX",
	}, root.Traits)
	if strings.Contains(r.log.String(), "warn") {
		t.Errorf("warnings about a host without a flaw: %s", r.log)
	}
}

func TestUnmanagedItemsAreKept(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	r := newRig(t, h, newDaemon(t, h).open, nil)
	tree := newTree(t)
	child := "3f4e1c2a-0000-4000-8000-000000000002"
	foreign := []string{"COMPUTE_NODE", "CUSTOM_RACK_7", "HW_CPU_X86_AMD_SEV", "HW_CPU_X86_PDPE1GB", "OWNER_NOVA"}
	for _, err := range []error{
		tree.AddChild(nodeUUID, child, nodeName+"_bandwidth"),
		second(tree.SetInventory(nodeUUID, "CUSTOM_LICENCE", providertree.Inventory{Total: 3})),
		second(tree.SetInventory(nodeUUID, "PCPU", providertree.Inventory{Total: 3})),
		second(tree.SetInventory(child, "VCPU", providertree.Inventory{Total: 99})),
		second(tree.SetTraits(nodeUUID,
			append(slices.Clone(foreign), "HW_CPU_X86_3DNOW", "HW_ARCH_AARCH64", "COMPUTE_ARCH_S390X"))),
		second(tree.SetTraits(child, []string{"HW_CPU_X86_3DNOW"})),
		second(tree.SetAggregates(nodeUUID, []string{child})),
	} {
		testproc.Check(t, err)
	}
	before, _ := tree.Provider(child)
	root := r.mustPass(tree)
	after, _ := tree.Provider(child)
	if !before.Equal(after) {
		t.Errorf("the child changed: %+v", after)
	}
	diff(t, "custom inventory", providertree.Inventory{Total: 3}.Normalize(), root.Inventories["CUSTOM_LICENCE"])
	if _, there := root.Inventories["PCPU"]; there {
		t.Error("PCPU of the root is the driver's, and no CPU is dedicated")
	}
	diff(t, "aggregates", []string{child}, root.Aggregates)
	for _, trait := range foreign {
		if !root.HasTrait(trait) {
			t.Errorf("%s is gone, though it is not the driver's", trait)
		}
	}
	for _, trait := range []string{"HW_CPU_X86_3DNOW", "HW_ARCH_AARCH64", "COMPUTE_ARCH_S390X"} {
		if root.HasTrait(trait) {
			t.Errorf("%s is still there, though this host does not have it", trait)
		}
	}
}

func second(_ bool, err error) error { return err }

func TestRatiosAndReserved(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	for _, tc := range []struct {
		name             string
		config           map[string]any
		inPlacement      *providertree.Inventory // of VCPU
		vcpu             providertree.Inventory
		memory, reserved int64
		diskReserved     int64
	}{
		{"nothing said", nil, nil, inv(16, 0, 4), 512, 0, 0},
		{"Placement knows one", nil, &providertree.Inventory{Total: 7, Reserved: 3, AllocationRatio: 9.5},
			inv(16, 0, 9.5), 512, 0, 0},
		{"0 says nothing", map[string]any{"cpu_allocation_ratio": 0.0},
			&providertree.Inventory{Total: 7, AllocationRatio: 9.5}, inv(16, 0, 9.5), 512, 0, 0},
		{"the configuration wins", map[string]any{"cpu_allocation_ratio": 2.5},
			&providertree.Inventory{Total: 7, AllocationRatio: 9.5}, inv(16, 0, 2.5), 512, 0, 0},
		{"another first ratio", map[string]any{"initial_cpu_allocation_ratio": 8}, nil, inv(16, 0, 8), 512, 0, 0},
		{"a first ratio comes too late", map[string]any{"initial_cpu_allocation_ratio": 8},
			&providertree.Inventory{Total: 7, AllocationRatio: 1}, inv(16, 0, 1), 512, 0, 0},
		{"units of others are ours to set", nil,
			&providertree.Inventory{Total: 7, MinUnit: 2, MaxUnit: 3, StepSize: 2}, inv(16, 0, 1), 512, 0, 0},
		{"reserved", map[string]any{"reserved_host_cpus": 2, "reserved_host_memory_mb": 1000,
			"reserved_host_disk_mb": 1025}, nil, inv(16, 2, 4), 1000, 0, 2},
		{"whole GiB stay whole", map[string]any{"reserved_host_disk_mb": 2048}, nil, inv(16, 0, 4), 512, 0, 2},
		{"everything reserved", map[string]any{"reserved_host_cpus": 16}, nil, inv(16, 16, 4), 512, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, h, newDaemon(t, h).open, tc.config)
			tree := newTree(t)
			if tc.inPlacement != nil {
				testproc.Try(tree.SetInventory(nodeUUID, "VCPU", *tc.inPlacement)).Or(t)
			}
			root := r.mustPass(tree)
			diff(t, "VCPU", tc.vcpu, root.Inventories["VCPU"])
			diff(t, "MEMORY_MB", inv(32768, tc.memory, 1), root.Inventories["MEMORY_MB"])
			diff(t, "DISK_GB", inv(df(t, r.instances), tc.diskReserved, 1), root.Inventories["DISK_GB"])
		})
	}
}

func TestMoreReservedThanThereIs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	r := newRig(t, h, newDaemon(t, h).open,
		map[string]any{"reserved_host_cpus": 17, "reserved_host_memory_mb": 1 << 20})
	_, err := r.pass(newTree(t))
	if err == nil || !strings.Contains(err.Error(), "reserved_host_cpus: reserves 17 of VCPU, but cn1 has only 16") ||
		!strings.Contains(err.Error(), "reserved_host_memory_mb") {
		t.Errorf("%v, want both keys in it", err)
	}
}

func TestDiskBelowOneGiBHasNoInventory(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	tree := newTree(t)
	testproc.Try(tree.SetInventory(nodeUUID, "DISK_GB", providertree.Inventory{Total: 5})).Or(t)
	h := testhost.Sample()
	r := newRig(t, h, newDaemon(t, h).open, nil)
	r.disks.measure = func(string) (discovery.Filesystem, error) { return discovery.Filesystem{Bytes: 1<<30 - 1}, nil }
	r.mustPass(tree)
	if i, ok := tree.Inventory(nodeUUID, "DISK_GB"); ok {
		t.Errorf("DISK_GB is %+v", i)
	}
}

func TestTheNodesName(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	for _, tc := range []struct{ agent, key, libvirt, want string }{
		{"agent", "key", "lv", "key"}, {"agent", "", "lv", "agent"}, {"", "", "lv", "lv"}, {"", "", "", ""},
	} {
		d := newDaemon(t, h)
		d.hostname = tc.libvirt
		r := newRig(t, h, d.open, nil)
		raw := fmt.Sprintf(`{"host": %q}`, tc.key)
		testproc.Check(t, r.Configure(t.Context(), json.RawMessage(raw), plugins.HostInfo{Name: tc.agent}))
		nodes, err := r.AvailableNodes(t.Context())
		if tc.want == "" {
			testproc.ErrorHas(t, err, "set host", "%+v: %v %v", tc, nodes)
			continue
		}
		testproc.Check(t, err)
		diff(t, "nodes", []plugins.Node{{Name: tc.want}}, nodes)
	}
}

func TestWrongNodes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	r := newRig(t, h, newDaemon(t, h).open, nil)
	tree := newTree(t)
	testproc.Check(t, tree.AddRoot("3f4e1c2a-0000-4000-8000-000000000009", "other"))
	testproc.Check(t, tree.AddChild(nodeUUID, "3f4e1c2a-0000-4000-8000-000000000008", "child"))
	for node, says := range map[string]string{"absent": "no resource provider", "child": "not the root",
		"other": `reports only node "cn1"`} {
		testproc.Try(r.UpdateProviderTree(t.Context(), tree, node, nil)).ErrorHas(t, says, "node %q: %v", node)
	}
}

func TestUnavailableLibvirtIsNotReady(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	for name, tc := range map[string]struct {
		away error
		says string
	}{
		"no daemon":  {errors.New("virError(38)"), "start the daemon that should listen there"},
		"no library": {hypervisor.ErrNoLibrary, "apt-get install libvirt0"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, h)
			d.away = tc.away
			r := newRig(t, h, d.open, map[string]any{"uri": "qemu+unix:///system?socket=/nonexistent/libvirt-sock"})
			tree := newTree(t)
			_, err := r.pass(tree)
			if !errors.Is(err, plugins.ErrNotReady) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("UpdateProviderTree: %v, want NotReady with %q", err, tc.says)
			}
			testproc.ErrorHas(t, r.Health(t.Context()), tc.says, "Health: %v")
			testproc.Check(t, r.Configure(t.Context(),
				json.RawMessage(`{"uri": "qemu+unix:///system?socket=/nonexistent/libvirt-sock"}`), plugins.HostInfo{}))
			if nodes, err := r.AvailableNodes(t.Context()); !errors.Is(err, plugins.ErrNotReady) {
				t.Errorf("AvailableNodes: %v, %v, want NotReady", nodes, err)
			}
		})
	}
	t.Run("not configured", func(t *testing.T) {
		d := newDriver(nil)
		testproc.Try(d.AvailableNodes(t.Context())).ErrorIs(t, plugins.ErrNotReady, "%v")
		testproc.NoError(t, d.Shutdown(t.Context()))
		testproc.ErrorIs(t, d.Health(t.Context()), plugins.ErrNotReady, "%v")
	})
}

// TestImpossibleAnswersAreErrors: what libvirt says may be nonsense: an error that names it, never
// an inventory made of it.
func TestImpossibleAnswersAreErrors(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	for name, tc := range map[string]struct {
		break_ func(*daemon)
		says   string
	}{
		"no CPUs":          {func(d *daemon) { d.node.CPUs = 0 }, "node information says that the host has 0 CPUs"},
		"a million CPUs":   {func(d *daemon) { d.node.CPUs = 1 << 20 }, "1048576 CPUs"},
		"all offline":      {func(d *daemon) { clear(d.cpuMap) }, "no CPU is online"},
		"no memory":        {func(d *daemon) { d.node.MemoryKiB = 0 }, "0 KiB of memory"},
		"a memory of 2^64": {func(d *daemon) { d.node.MemoryKiB = 1<<64 - 1 }, "KiB of memory"},
		"a failing map":    {func(d *daemon) { d.noMap = errors.New("boom") }, "CPU map: boom"},
		"no XML":           {func(d *daemon) { d.caps = "" }, "capabilities: the XML is empty"},
		"cut XML": {func(d *daemon) { d.caps = d.caps[:len(d.caps)/2] },
			"capabilities: the XML cannot be read"},
		"other XML": {func(d *daemon) { d.caps = "<domain/>" }, "capabilities: the XML cannot be read"},
		"no host":   {func(d *daemon) { d.caps = "<capabilities/>" }, "no element host/cpu"},
		"no CPU": {func(d *daemon) { d.caps = "<capabilities><host/></capabilities>" },
			"no element host/cpu"},
		"no architecture": {func(d *daemon) { d.caps = "<capabilities><host><cpu/></host></capabilities>" },
			"no element host/cpu/arch"},
		"entities": {func(d *daemon) {
			d.caps =
				`<!DOCTYPE x [<!ENTITY a "b">]><capabilities>&a;</capabilities>`
		}, "cannot be read"},
		"huge XML": {func(d *daemon) { d.caps = strings.Repeat("<a>", 6<<20) }, "more than"},
		"deep XML": {func(d *daemon) { d.caps = "<capabilities>" + strings.Repeat("<a>", 1<<20) },
			"cannot be read"},
		"odd siblings": {func(d *daemon) {
			d.caps = strings.Replace(d.caps, `siblings='0,8'`,
				`siblings='0-'`, 1)
		}, "siblings of CPU"},
		"endless siblings": {func(d *daemon) {
			d.caps = strings.Replace(d.caps, `siblings='0,8'`,
				`siblings='0-4294967295'`, 1)
		}, "siblings of CPU"},
		"memory in MiB": {func(d *daemon) {
			d.caps = strings.Replace(d.caps, `<memory unit='KiB'`,
				`<memory unit='MiB'`, 1)
		}, "expected KiB"},
		"a broken CPU":     {func(d *daemon) { d.expanded = "<cpu" }, "expanded CPU of libvirt"},
		"a failing CPU":    {func(d *daemon) { d.noExpand = errors.New("boom") }, "features of the host's CPU: boom"},
		"not a CPU at all": {func(d *daemon) { d.expanded = "<domain/>" }, "expanded CPU of libvirt"},
		"negative cell ids": {func(d *daemon) { d.caps = strings.Replace(d.caps, `<cell id='0'`, `<cell id='x'`, 1) },
			"cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, h)
			r := newRig(t, h, d.open, nil)
			tree := newTree(t)
			r.mustPass(tree)
			before := d.caps
			tc.break_(d)
			r.connections.Add(1) // earlier answers are requested again
			if (strings.Contains(name, "siblings") || strings.Contains(name, "cell")) && d.caps == before {
				t.Fatal("the test did not break anything")
			}
			err := r.refused(tree)
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want an error with %q", err, tc.says)
			}
			if errors.Is(err, plugins.ErrNotReady) {
				t.Errorf("%v is NotReady, but waiting does not help", err)
			}
		})
	}
}

func TestDiscrepanciesAreLoggedOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	for name, break_ := range map[string]func(*daemon, string){
		"cpu-count":     func(d *daemon, _ string) { d.node.CPUs = 3 },
		"numa-cpus":     func(d *daemon, _ string) { d.cpuMap[15], d.node.CPUs = false, 15 },
		"pci-devices":   func(d *daemon, _ string) { d.devices = d.devices[2:] },
		"memory":        func(_ *daemon, root string) { write(t, root, "proc/meminfo", "MemTotal: 1000000 kB\n") },
		"threads":       func(d *daemon, _ string) { d.caps = unthreaded(h) },
		"cpu-features":  func(d *daemon, _ string) { d.expanded = cpuXML("aes", "sse") },
		"cpu-flags":     func(_ *daemon, root string) { remove(t, root, "proc/cpuinfo") },
		"cpu-expansion": func(d *daemon, _ string) { d.noExpand = hypervisor.ErrUnsupported },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, h)
			r := newRig(t, h, d.open, nil)
			break_(d, r.chroot)
			tree := newTree(t)
			r.mustPass(tree) // two passes
			if n := strings.Count(r.log.String(), `"warning":"`+name+`"`); n != 1 ||
				strings.Count(r.log.String(), `"level":"warn"`) != 1 {
				t.Errorf("logged %d times: %s", n, r.log)
			}
			*d = *newDaemon(t, h)
			remove(t, r.chroot, "sys", "proc")
			testproc.Try(h.Sysfs(r.chroot)).Or(t)
			r.connections.Add(1)
			r.mustPass(tree)
			if n := strings.Count(r.log.String(), "resolved"); n != 1 {
				t.Errorf("its end is logged %d times: %s", n, r.log)
			}
		})
	}
}

// TestMoreMemoryThanLibvirtReports is no discrepancy.
func TestMoreMemoryThanLibvirtReports(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	r := newRig(t, h, newDaemon(t, h).open, nil)
	write(t, r.chroot, "proc/meminfo", "MemTotal: 1000000000 kB\n")
	r.mustPass(newTree(t))
	if strings.Contains(r.log.String(), `"warning":`) {
		t.Error(r.log)
	}
}

func write(t *testing.T, root, file, text string) {
	t.Helper()
	testproc.Check(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o600))
}

func remove(t *testing.T, root string, files ...string) {
	t.Helper()
	for _, file := range files {
		testproc.Check(t, os.RemoveAll(filepath.Join(root, file)))
	}
}

// unthreaded are a host's capabilities if each of its CPUs were a core.
func unthreaded(h testhost.Host) string {
	h = h.Clone()
	for i := range h.CPUs {
		h.CPUs[i].Core = h.CPUs[i].ID
	}
	return h.Capabilities("i686", "x86_64")
}

// TestKernelFlagsReplaceUnexpandedCPUFeatures: where libvirt cannot expand the CPU, or does not
// know it, the kernel's flags stand in for what the model's name hides.
func TestKernelFlagsReplaceUnexpandedCPUFeatures(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	unknown := testhost.Sample()
	unknown.Processor.Model = ""
	for name, tc := range map[string]struct {
		host testhost.Host
		err  error
	}{
		"not supported":  {testhost.Sample(), hypervisor.ErrUnsupported},
		"without a name": {unknown, errors.New("Missing CPU model name")},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, tc.host)
			d.noExpand = tc.err
			root := newRig(t, tc.host, d.open, nil).mustPass(newTree(t))
			for _, trait := range []string{"HW_CPU_X86_AESNI", "HW_CPU_X86_SSE41", "HW_CPU_X86_VMX"} {
				if !root.HasTrait(trait) {
					t.Errorf("no %s in %v", trait, root.Traits)
				}
			}
		})
	}
}

func TestTheCPUIsExpandedOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	d := newDaemon(t, h)
	r := newRig(t, h, d.open, nil)
	tree := newTree(t)
	r.mustPass(tree)
	r.mustPass(tree)
	testproc.Equal(t, d.expands, 1, "libvirt was asked %d times in four passes")
}

func TestTheInstancesDirectory(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	r := newRig(t, h, newDaemon(t, h).open, nil)
	gone := filepath.Join(r.instances, "not", "mounted")
	testproc.Check(t, r.configure(map[string]any{"instances_path": gone}))
	if _, err := r.pass(newTree(t)); !errors.Is(err, plugins.ErrNotReady) || !strings.Contains(err.Error(), gone) ||
		!strings.Contains(err.Error(), "instances_path") {
		t.Errorf("a configured directory that is missing: %v, want NotReady that names it", err)
	}
	testproc.Check(t, os.MkdirAll(gone, 0o700))
	r.mustPass(newTree(t))
	if !strings.Contains(r.log.String(), gone) {
		t.Errorf("the directory is not logged: %s", r.log)
	}
	raw := fmt.Sprintf(`{"chroot": %q}`, r.chroot)
	testproc.Check(t, r.Configure(t.Context(), json.RawMessage(raw), plugins.HostInfo{Name: nodeName}))
	root := r.mustPass(newTree(t))
	if root.Inventories["DISK_GB"].Total == 0 {
		t.Errorf("no disk by default: %+v", root.Inventories)
	}
}

func TestHangingFileSystemIsNotReady(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		var measurements atomic.Int32
		d := disks{measure: func(string) (discovery.Filesystem, error) {
			measurements.Add(1)
			<-hang
			return discovery.Filesystem{Bytes: 5 << 30}, nil
		}}
		for range 3 {
			if _, err := d.discover(t.Context(), "/nfs"); err == nil ||
				!errors.Is(driverError(err), plugins.ErrNotReady) || !strings.Contains(err.Error(), "/nfs") {
				t.Errorf("%v, want NotReady that names it", err)
			}
		}
		testproc.Equal(t, measurements.Load(), 1, "%d measurements hang")
		close(hang)
		for range 2 {
			if disk, err := d.discover(t.Context(), "/nfs"); err != nil || disk.Bytes != 5<<30 {
				t.Errorf("%+v, %v", disk, err)
			}
		}
		testproc.Equal(t, measurements.Load(), 2, "%d measurements")
	})
}

func TestReloadChangesOnlyWhatChanged(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	opened := 0
	d := newDaemon(t, h)
	open := func(r hypervisor.Request) (hypervisor.Conn, error) { opened++; return d.open(r) }
	r := newRig(t, h, open, nil)
	tree := newTree(t)
	r.mustPass(tree)
	before := tree.Clone()
	testproc.Check(t, r.configure(map[string]any{"reserved_host_memory_mb": 1024}))
	root := r.mustPass(tree)
	changes := providertree.Diff(before, tree)
	if len(changes.Changed) != 1 || changes.Changed[0].Traits() || root.Inventories["MEMORY_MB"].Reserved != 1024 {
		t.Errorf("%+v", changes)
	}
	if err := r.configure(map[string]any{"reserved_host_memory_mb": -1}); err == nil {
		t.Error("a negative amount was taken")
	}
	if r.mustPass(tree); tree.Clone().Equal(before) {
		t.Error("a refused configuration took the former one away")
	}
	testproc.Equal(t, opened, 1, "%d connections")
}

func TestWatchReportsReconnects(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		h := testhost.Sample()
		d := newDaemon(t, h)
		d.away = errors.New("not started")
		r := newRig(t, h, d.open, nil)
		ctx, cancel := context.WithCancel(t.Context())
		changes, ended := make(chan string, 10), make(chan error, 1)
		go func() { ended <- r.Watch(ctx, func(node string) { changes <- node }) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		testproc.Equal(t, len(changes), 0, "%d changes while nothing happens")
		d.mu.Lock()
		d.away = nil
		d.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		testproc.Equal(t, len(changes), 1, "%d changes after libvirt came")
		write(t, r.chroot, "sys/devices/system/cpu/online", "0-14\n")
		time.Sleep(2 * cpuInterval)
		synctest.Wait()
		testproc.Equal(t, len(changes), 2, "%d changes after a CPU went offline")
		remove(t, r.chroot, "sys/devices/system/cpu/online")
		time.Sleep(2 * cpuInterval)
		synctest.Wait()
		testproc.Equal(t, len(changes), 2, "%d changes after the list could not be read")
		cancel()
		testproc.ErrorIs(t, <-ended, context.Canceled, "Watch: %v")
		testproc.NoError(t, r.Shutdown(t.Context()))
	})
}

// TestReportEqualsTheModel: for any host, what is reported is what the model has.
func TestReportEqualsTheModel(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(rt *rapid.T) {
		h := testhost.Sample()
		h.Devices = nil
		h.CPUs, h.Cells = testhost.Grid{
			Packages: rapid.IntRange(1, 4).Draw(rt, "nodes"), CoresPerDie: rapid.IntRange(1, 3).Draw(rt, "cores"),
			ThreadsPerCore: rapid.IntRange(1, 4).Draw(rt, "threads"),
			Interleaved:    rapid.Bool().Draw(rt, "interleaved"),
			MemoryKiB:      uint64(rapid.IntRange(1024, 1<<20).Draw(rt, "memory")) << 10,
		}.Build()
		for i := range h.CPUs {
			h.CPUs[i].Offline = i > 0 && rapid.Bool().Draw(rt, "offline")
		}
		threaded := slices.ContainsFunc(h.CPUs,
			func(c testhost.CPU) bool { return !c.Offline && len(h.Siblings(c)) > 1 })
		r := newRig(t, h, newDaemon(t, h).open, nil)
		root := r.mustPass(newTree(t))
		_ = r.Shutdown(t.Context())
		if got, want := root.Inventories["VCPU"].Total, int64(len(h.OnlineCPUs())); got != want {
			rt.Fatalf("VCPU %d, want %d", got, want)
		}
		if got, want := root.Inventories["MEMORY_MB"].Total, int64(h.MemoryKiB()>>10); got != want {
			rt.Fatalf("MEMORY_MB %d, want %d", got, want)
		}
		if got := root.HasTrait("HW_CPU_HYPERTHREADING"); got != threaded {
			rt.Fatalf("hyperthreading %v, want %v", got, threaded)
		}
		if strings.Contains(r.log.String(), "warn") {
			rt.Fatalf("libvirt and sysfs of the same host disagree: %s", r.log)
		}
	})
}

// TestLostEventsAreFollowedByAResync: where libvirt's daemon loses its events, everything is looked
// at again after a while all the same, and the kernel's files have the truth.
func TestLostEventsAreFollowedByAResync(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		h := testhost.Sample()
		r := newRig(t, h, newDaemon(t, h).open, map[string]any{"enabled_mdev_types": []string{"nvidia-222"}})
		ctx, cancel := context.WithCancel(t.Context())
		changes, ended := make(chan string, 10), make(chan error, 1)
		go func() { ended <- r.Watch(ctx, func(node string) { changes <- node }) }()
		<-changes // the connection
		tree := newTree(t)
		r.mustPass(tree)
		write(t, r.chroot, "sys/bus/pci/devices/0000:82:00.0/mdev_supported_types/nvidia-222/available_instances",
			"5\n")
		before := time.Now()
		<-changes
		if waited := time.Since(before); waited > resyncInterval+settleTime {
			t.Errorf("it took %s", waited)
		}
		r.mustPass(tree)
		gpu, _ := tree.ProviderByName(nodeName + "_pci_0000_82_00_0")
		diff(t, "VGPU", inv(5, 0, 1), gpu.Inventories["VGPU"])
		cancel()
		testproc.ErrorIs(t, <-ended, context.Canceled, "Watch: %v")
		testproc.NoError(t, r.Shutdown(t.Context()))
	})
}

// TestHypervisorIsAsInNova: the type of libvirt's driver, and the version of its emulator; none
// before the first pass.
func TestHypervisorIsAsInNova(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	r := newRig(t, h, newDaemon(t, h).open, nil)
	testproc.Equal(t, r.Hypervisor(nodeName), plugins.Hypervisor{}, "before the first pass it is %+v")
	r.mustPass(newTree(t))
	testproc.Equal(t, r.Hypervisor(nodeName), plugins.Hypervisor{Type: "QEMU", Version: 7002000}, "it is %+v")
}
