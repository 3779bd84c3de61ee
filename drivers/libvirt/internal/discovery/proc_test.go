// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jaypipes/ghw/pkg/snapshot"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/inventory"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// scratchRoot is a directory for a made-up host.
func scratchRoot(t testing.TB) string {
	t.Helper()
	dir := testproc.Try(testhost.Scratch()).Or(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func renderRoot(t *testing.T, h testhost.Host) Root {
	t.Helper()
	dir := scratchRoot(t)
	testproc.Try(h.Sysfs(dir)).Or(t)
	return Root(dir)
}

func TestProcFiguresOfAHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	h.CPUs[3].Offline, h.CPUs[15].Offline = true, true
	r := renderRoot(t, h)
	cpus, err := r.OnlineCPUs()
	if err != nil || !slices.Equal(cpus, h.OnlineCPUs()) {
		t.Errorf("online %v, %v", cpus, err)
	}
	if memory, err := r.MemTotalKiB(); err != nil || memory != h.MemoryKiB() {
		t.Errorf("memory %d, %v", memory, err)
	}
	flags, err := r.CPUFlags()
	if diff := cmp.Diff(slices.Sorted(slices.Values(h.Processor.Flags)), flags); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}

func TestFlagsOnArm(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	h.Processor.Arch, h.Processor.Flags = "aarch64", []string{"fp", "asimd"}
	if flags, err := renderRoot(t, h).CPUFlags(); err != nil || !slices.Equal(flags, []string{"asimd", "fp"}) {
		t.Errorf("%v, %v", flags, err)
	}
}

func TestDamagedFiles(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	online := func(r Root) error { _, err := r.OnlineCPUs(); return err }
	memory := func(r Root) error { _, err := r.MemTotalKiB(); return err }
	flags := func(r Root) error { _, err := r.CPUFlags(); return err }
	h := testhost.Sample()
	for i := range h.CPUs {
		h.CPUs[i].Core = i // each its own
	}
	for _, tc := range []struct {
		file, text string // "-": removed
		read       func(Root) error
		says       string
	}{
		{"sys/devices/system/cpu/online", "-", online, "no such file"},
		{"sys/devices/system/cpu/online", "\n", online, "names no CPU"},
		{"sys/devices/system/cpu/online", "0-x\n", online, "not a CPU number"},
		{"sys/devices/system/cpu/online", "0-99999999\n", online, "above"},
		{"sys/devices/system/cpu/online", strings.Repeat("0,", maxFile), online, "larger than"},
		{"proc/meminfo", "-", memory, "no such file"},
		{"proc/meminfo", "MemFree: 1 kB\n", memory, "no line MemTotal"},
		{"proc/meminfo", "MemTotal: lots kB\n", memory, "not an amount in kB"},
		{"proc/meminfo", "MemTotal: 12 MB\n", memory, "not an amount in kB"},
		{"proc/meminfo", "MemTotal: -1 kB\n", memory, "not an amount in kB"},
		{"proc/cpuinfo", "-", flags, "no such file"},
	} {
		t.Run(tc.file+" "+tc.says, func(t *testing.T) {
			r := renderRoot(t, h)
			file := filepath.Join(string(r), tc.file)
			if tc.text == "-" {
				testproc.Check(t, os.Remove(file))
			} else if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := tc.read(r); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want an error with %q", err, tc.says)
			}
		})
	}
}

func TestFilesystem(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	fs, err := StatFilesystem(dir)
	if err != nil || fs.Bytes == 0 || fs.Path != dir {
		t.Errorf("%+v, %v", fs, err)
	}
	testproc.Try(StatFilesystem(filepath.Join(dir, "none"))).ErrorHas(t, "none", "%v")
	testproc.Equal(t, NearestDir(filepath.Join(dir, "a", "b")), dir, "nearest to a missing directory is %s")
}

// TestFlagsOfRealMachines: the machines that ghw was taught with: what traits their flags stand
// for.
func TestFlagsOfRealMachines(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/jaypipes/ghw").
		Output()
	testproc.Check(t, err)
	for name, tc := range map[string]struct{ arch, want string }{
		"linux-amd64-8581cf3a529e5d8b97ea876eade2f60d": {"x86_64",
			"AESNI CLMUL INTEL_VMX MMX SSE SSE2 SSE41 SSE42 SSSE3 VMX"},
		"linux-amd64-61797caf7c0b6bca1725ad7975ed4773": {"x86_64",
			"ABM AESNI AMD_SVM AVX AVX2 BMI BMI2 CLMUL F16C FMA3 MMX SHA SSE SSE2 SSE41 SSE42 SSE4A SSSE3 SVM"},
		"linux-amd64-415ee03b8c4d1c4f07ae2e9d8b3d3d6d": {"x86_64",
			"ABM AESNI AVX AVX2 AVX512GFNI AVX512VAES AVX512VPCLMULQDQ BMI BMI2 CLMUL F16C FMA3 INTEL_VMX MMX SHA " +
				"SSE SSE2 SSE41 SSE42 SSSE3 VMX"},
		"linux-amd64-accel-nvidia": {"x86_64",
			"ABM AESNI AVX AVX2 BMI BMI2 CLMUL F16C FMA3 INTEL_VMX MMX SSE SSE2 SSE41 SSE42 SSSE3 VMX"},
		"linux-arm64-c288e0776090cd558ef793b2a4e61939": {"aarch64",
			"AES ASIMD ASIMDDP ASIMDHP ASIMDRDM ATOMICS CPUID CRC32 DCPOP EVTSTRM FP FPHP LRCPC PMULL SHA1 SHA2"},
	} {
		t.Run(name, func(t *testing.T) {
			root := scratchRoot(t)
			testproc.Check(t,
				snapshot.UnpackInto(
					filepath.Join(strings.TrimSpace(string(dir)), "testdata", "snapshots", name+".tar.gz"), root))
			flags := testproc.Try(Root(root).CPUFlags()).Or(t)
			h := inventory.HostTraits{Arch: tc.arch, Features: inventory.FeaturesOfFlags(tc.arch, flags)}
			var got []string
			verdicts := h.Verdicts()
			for _, trait := range slices.Sorted(maps.Keys(verdicts)) {
				if !verdicts[trait] {
					continue
				}
				for _, prefix := range []string{"HW_CPU_X86_", "HW_CPU_AARCH64_"} {
					if s, ok := strings.CutPrefix(trait, prefix); ok {
						got = append(got, s)
					}
				}
			}
			testproc.Same(t, cmp.Diff(tc.want, strings.Join(got, " ")))
		})
	}
}

func BenchmarkCPUFlags(b *testing.B) {
	for _, cpus := range []int{16, 512} {
		b.Run(fmt.Sprint(cpus), func(b *testing.B) {
			h := testhost.Sample()
			h.CPUs, h.Cells = testhost.Grid{Packages: 2,
				CoresPerDie: cpus / 4, ThreadsPerCore: 2, MemoryKiB: 16 << 20}.Build()
			dir := scratchRoot(b)
			testproc.Try(h.Sysfs(dir)).Or(b)
			b.ReportAllocs()
			for b.Loop() {
				testproc.Try(Root(dir).CPUFlags()).Or(b)
			}
		})
	}
}
