// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/plugins/drivertest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const fakePackage = "github.com/compute-agent/compute-agent/cmd/compute-driver-fake"

// patient are limits of drivers that pass, on a busy machine.
var patient = drivertest.Timeouts{Info: time.Minute, Health: time.Minute, Stop: time.Minute}

// binDir has the executables made once for all tests.
var binDir, fakePath, brokenPath string

func TestMain(m *testing.M) {
	if mode, ok := os.LookupEnv(brokenKey); ok {
		serveBroken(mode)
		return
	}
	code := 1
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, "preparing the tests:", err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(binDir)
	os.Exit(code)
}

func build() (err error) {
	if binDir, err = os.MkdirTemp("", "drivertest"); err != nil {
		return err
	}
	fakePath = filepath.Join(binDir, "compute-driver-fake")
	if out, err := exec.Command("go", "build", "-o", fakePath, fakePackage).CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", fakePackage, err, out)
	}
	brokenPath, err = os.Executable()
	return err
}

// variants are configurations of the fake driver that between them make every check apply.
var variants = map[string]variant{
	"vgpu-children from numa": {config: layoutConfig("vgpu-children"), former: layoutConfig("numa")},
	"renamed class": {
		config: `{"nodes": [{"name": "cn1", "inventories": {"VGPU": {"total": 8}, "VCPU": {"total": 4}}}], ` +
			`"layout": "vgpu-children", "class_renames": {"CUSTOM_SLICE": "VGPU"}}`,
		former: `{"nodes": [{"name": "cn1", "inventories": {"CUSTOM_SLICE": {"total": 8}, "VCPU": {"total": 4}}}]}`,
	},
	"layout versions": {config: numbered(4), former: numbered(1)},
	"abilities": {config: `{"nodes": [{"name": "cn1", "inventories": {"VCPU": {"total": 8}}}, {"name": "cn2", "uuid": "8f7c2b6e-6d3b-4c5e-9a55-9a2c2f1f7a02", "inventories": {"VCPU": {"total": 8}}}],
		"capabilities": {"COMPUTE_NET_ATTACH_INTERFACE": true, "COMPUTE_RESCUE_BFV": false},
		"instances": {}, "guest_list": [{"uuid": "6c6a2b6e-6d3b-4c5e-9a55-9a2c2f1f7a03", "name": "web", "node": "cn1", "resources": {"": {"VCPU": 2}}}], "deleted_nodes": ["cn7"],
		"warnings": {"numa-memory": "libvirt and the kernel differ", "gpu-clock-0000:82:00.0": "it is slow"}}`},
}

// moreVariants show no check that variants do not.
var moreVariants = map[string]variant{
	"no configuration": {},
	"flat with NUMA children": {config: `{"nodes": [{"name": "cn1", "traits": ["HW_CPU_X86_AVX2"], "aggregates": ["6f7c2b6e-6d3b-4c5e-9a55-9a2c2f1f7a01"],
		"inventories": {"VCPU": {"total": 8, "allocation_ratio": 4}, "MEMORY_MB": {"total": 16384, "reserved": 512}},
		"children": [{"name": "numa_0", "traits": ["HW_NUMA_ROOT"], "inventories": {"VGPU": {"total": 4}}}]}]}`},
	"numa layout": {config: layoutConfig("numa")},
}

const machine = `"nodes": [{"name": "cn1", "traits": ["HW_CPU_X86_AVX2"], "inventories": {"VCPU": {"total": 16, "allocation_ratio": 4}, "MEMORY_MB": {"total": 32768, "reserved": 512},
	"DISK_GB": {"total": 100}, "VGPU": {"total": 8}, "FPGA": {"total": 8}}}]`

func layoutConfig(layout string) string {
	return `{` + machine + `, "instances": {}, "layout": "` + layout + `"}`
}

func numbered(version int) string { return fmt.Sprintf(`{%s, "layout_version": %d}`, machine, version) }

// TestFake: the fake driver does all that is asked for, in configurations that between them make
// every check apply that can.
func TestFake(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	applied := map[string]bool{}
	t.Cleanup(func() { // after all variants
		// What no configuration of the fake driver makes apply is shown by the broken drivers to be
		// a check all the same.
		for _, c := range drivertest.Suite() {
			if !applied[c.ID] && !neverOfFake[c.ID] {
				t.Errorf("%s applied to no configuration", c.ID)
			}
		}
	})
	testVariants(t, variants, func(r drivertest.Result) {
		mu.Lock()
		defer mu.Unlock()
		applied[r.ID] = applied[r.ID] || r.Outcome == drivertest.Passed
	})
}

// TestNightlyFake: the same in more configurations.
func TestNightlyFake(t *testing.T) {
	t.Parallel()
	testVariants(t, moreVariants, nil)
}

type variant struct{ config, former string }

func testVariants(t *testing.T, of map[string]variant, each func(drivertest.Result)) {
	t.Helper()
	for name, v := range of {
		t.Run(name, func(t *testing.T) {
			testproc.Parallel(t, testproc.Light)
			opts := drivertest.Options{Path: fakePath, Config: json.RawMessage(v.config),
				Former:    json.RawMessage(v.former),
				Instances: &drivertest.InstanceTemplate{}, Each: each, Limits: patient}
			report := testproc.Try(drivertest.Execute(t.Context(), opts)).Or(t)
			for _, r := range report.Results {
				if r.Outcome == drivertest.Failed {
					t.Errorf("%s\n%s", r.ID, r.Explain())
				}
			}
			t.Logf("%d passed, %d not run", report.Count(drivertest.Passed), report.Count(drivertest.NotRun))
		})
	}
}

// neverOfFake are checks that say nothing of the fake driver: it announces everything, and has no
// secrets.
var neverOfFake = map[string]bool{"abilities/unannounced": true, "logs/secrets": true}
