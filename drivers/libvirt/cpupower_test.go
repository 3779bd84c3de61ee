// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// asleep is a host whose CPUs of a list are offline.
func asleep(h testhost.Host, cpus ...int) testhost.Host {
	h = h.Clone()
	for i := range h.CPUs {
		h.CPUs[i].Offline = slices.Contains(cpus, h.CPUs[i].ID)
	}
	return h
}

// TestManagedCPUsCountOfflineToo: a host whose idle dedicated CPUs are offline, as nova-compute
// leaves them, is the same tree as with all of them online: it is adopted without a write.
func TestManagedCPUsCountOfflineToo(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	for name, tc := range map[string]struct {
		config map[string]any
		off    []int
		calm   bool
	}{
		"whole cores": {map[string]any{"cpu_shared_set": "0-1,8-9", "cpu_dedicated_set": "2-7,10-15"},
			[]int{2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15}, true},
		"some of them": {map[string]any{"cpu_shared_set": "0-1,8-9", "cpu_dedicated_set": "2-7,10-15"},
			[]int{4, 10}, true},
		"all second threads": {map[string]any{"cpu_dedicated_set": "8-15"},
			[]int{8, 9, 10, 11, 12, 13, 14, 15}, false},
		"with instances": {map[string]any{"cpu_dedicated_set": "2-7,10-15", "instances": map[string]any{}},
			[]int{3, 5}, true},
		"by governor, all on": {map[string]any{"cpu_dedicated_set": "2-7,10-15",
			"cpu_power_management_strategy": "governor"}, nil, true},
		"NUMA cells": {map[string]any{"cpu_shared_set": "0,8", "cpu_dedicated_set": "2-7,10-15",
			"numa": "nested"}, []int{4, 5, 6, 7, 12, 13, 14, 15}, true},
		"a cell without a CPU": {map[string]any{"cpu_dedicated_set": "4-7,12-15", "numa": "nested"},
			[]int{4, 5, 6, 7, 12, 13, 14, 15}, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := maps.Clone(tc.config)
			delete(before, "instances")
			awake := newRig(t, h, newDaemon(t, h).open, before)
			tree := newTree(t)
			awake.mustPass(tree)
			want := tree.Clone()
			tc.config["cpu_power_management"] = true
			off := asleep(h, tc.off...)
			r := newRig(t, off, newDaemon(t, off).open, tc.config)
			r.mustPass(tree)
			if !tree.Equal(want) {
				t.Errorf("written: %+v", providertree.Diff(want, tree))
			}
			fresh := newTree(t)
			if r.mustPass(fresh); !fresh.Equal(want) {
				t.Errorf("a new node: %+v", providertree.Diff(want, fresh))
			}
			for _, w := range r.Warnings() {
				if tc.calm && w.Name != "instances-path" && w.Name != "images-path" {
					t.Errorf("warning %s: %s", w.Name, w.Text)
				}
			}
			if len(tc.off) == 0 {
				return
			}
			without := maps.Clone(before)
			testproc.Check(t, r.configure(without))
			var wrong *plugins.ConfigError
			if _, err := r.pass(newTree(t)); !errors.As(err, &wrong) || wrong.Key != "cpu_dedicated_set" {
				t.Errorf("without power management: %v", err)
			}
		})
	}
}

// TestPowerIsNoChangeOfTheHost: CPUs that go on and off with guests cause no pass and no other
// tree; others do.
func TestPowerIsNoChangeOfTheHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	d := newDaemon(t, h)
	r := newRig(t, h, d.open, map[string]any{"cpu_shared_set": "0,1,8", "cpu_dedicated_set": "2-7,10-15",
		"cpu_power_management": true, "numa": "nested"})
	kernel := testhost.Tree(r.chroot)
	tree := newTree(t)
	r.mustPass(tree)
	want, seen := tree.Clone(), r.onlineCPUs()
	turn := func(cpu int, on bool) {
		t.Helper()
		testproc.Check(t, h.Switch(kernel, cpu, on))
		d.node.CPUs, d.cpuMap, d.caps = uint(len(h.OnlineCPUs())), cpuMap(h), h.Capabilities("i686", "x86_64")
	}
	for _, cpu := range []int{4, 5, 6, 7, 12, 13, 14, 15, 2, 10} {
		turn(cpu, false)
		r.mustPass(tree)
		if !tree.Equal(want) || !slices.Equal(r.onlineCPUs(), seen) || len(r.Warnings()) > 0 {
			t.Fatalf("CPU %d goes off: %+v, %v, %+v", cpu, providertree.Diff(want, tree), r.onlineCPUs(), r.Warnings())
		}
	}
	for _, cpu := range []int{2, 15, 4} {
		turn(cpu, true)
		r.mustPass(tree)
		if !tree.Equal(want) || !slices.Equal(r.onlineCPUs(), seen) || len(r.Warnings()) > 0 {
			t.Fatalf("CPU %d goes on: %+v, %v, %+v", cpu, providertree.Diff(want, tree), r.onlineCPUs(), r.Warnings())
		}
	}
	turn(9, false)
	if slices.Equal(r.onlineCPUs(), seen) {
		t.Error("a CPU of the host's own goes off, and nothing is seen")
	}
}

// TestPowerThatCannotBeManaged: what Nova does not start with fails a pass, once for each
// configuration; what keeps CPUs from being switched is a warning.
func TestPowerThatCannotBeManaged(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := asleep(testhost.Sample(), 3)
	r := newRig(t, h, newDaemon(t, h).open, map[string]any{"cpu_dedicated_set": "0,2-7", "cpu_power_management": true})
	kernel := testhost.Tree(r.chroot)
	tree := newTree(t)
	refused := func(want string) {
		t.Helper()
		_, err := r.pass(tree)
		var wrong *plugins.ConfigError
		if !errors.As(err, &wrong) || wrong.Key != "cpu_power_management_strategy" ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	governor := func(cpu int, name string) {
		t.Helper()
		testproc.Check(t,
			kernel.Write(fmt.Sprintf("sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", cpu), name+"\n"))
	}
	warning := func(name string) string {
		for _, w := range r.Warnings() {
			if w.Name == name {
				return w.Text
			}
		}
		return ""
	}
	governor(2, "powersave")
	governor(4, "performance")
	refused("the same governor strategy")
	governor(2, "performance")
	r.mustPass(tree)
	testproc.Contains(t, warning("cpu-power-cpu0"), "not eligible for state management", "%q")
	governor(2, "powersave") // later it is the operator's affair, as with Nova
	r.mustPass(tree)
	testproc.Check(t, r.configure(map[string]any{"cpu_dedicated_set": "0,2-7", "cpu_power_management": true,
		"cpu_power_management_strategy": "governor", "instances": map[string]any{}}))
	refused("need to be online before modifying the governor strategy; CPUs 3 are offline: bring them online " +
		"(chcpu -e 3)")
	testproc.Check(t, h.Switch(kernel, 3, true))
	r.mustPass(tree)
	if text := warning("cpu-power"); !strings.Contains(text, "CPUs 3,5-7 are not switched") ||
		!strings.Contains(text, "cpu3/cpufreq/scaling_governor") {
		t.Errorf("%q", text)
	}
}

// TestUnknownCores: CPUs whose core is not known are known once they were online.
func TestUnknownCores(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := asleep(testhost.Sample(), 2, 3, 10)
	r := newRig(t, h, newDaemon(t, h).open,
		map[string]any{"cpu_dedicated_set": "2-3,10-11", "cpu_power_management": true})
	cfg, _, err := r.current()
	testproc.Check(t, err)
	for _, want := range [][]int{{2, 3, 10}, {2, 10}} {
		unknown, err := r.unseenCPUs(cfg)
		if err != nil || !slices.Equal(unknown, want) {
			t.Errorf("%v, %v, want %v", unknown, err, want)
		}
		testproc.Check(t, h.Switch(testhost.Tree(r.chroot), 3, true))
	}
	testproc.Check(t, h.Switch(testhost.Tree(r.chroot), 3, false))
	if unknown, err := r.unseenCPUs(cfg); err != nil || !slices.Equal(unknown, []int{2, 10}) {
		t.Errorf("%v, %v", unknown, err)
	}
}
