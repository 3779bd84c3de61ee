// SPDX-License-Identifier: Apache-2.0

package discovery_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/discovery"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/selection"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// pmemTruth is the persistent memory that a test host has.
func pmemTruth(h testhost.Host) (want []machine.Namespace) {
	for _, n := range h.Namespaces {
		if n.Bytes == 0 {
			continue
		}
		one := machine.Namespace{Name: n.Name, Label: n.Label, Mode: machine.Mode(n.Mode), Bytes: n.Bytes, Cell: n.Cell}
		if dax := n.DAX(); dax != "" {
			one.Device, one.Driver = "/dev/"+dax, n.Driver
			if h.DAXClass {
				one.Driver = "device_dax"
			}
		}
		want = append(want, one)
	}
	return want
}

type tester interface {
	Helper()
	Fatal(args ...any)
}

func checkPMEM(t tester, h testhost.Host) []machine.Namespace {
	t.Helper()
	dir := testproc.Try(testhost.Scratch()).Or(t)
	defer func() { _ = os.RemoveAll(dir) }()
	testproc.Try(h.Sysfs(dir)).Or(t)
	got := testproc.Try(discovery.ReadPMEM(dir)).Or(t)
	if diff := cmp.Diff(pmemTruth(h), got); diff != "" {
		t.Fatal(diff)
	}
	return got
}

// TestPMEMPresets: guests can have what a made-up host has for them, by kernels of both kinds.
func TestPMEMPresets(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, h := range map[string]testhost.Host{"sample": testhost.Sample(), "GPU host": testhost.GPUHost(),
		"single node": testhost.SingleNode()} {
		if got := checkPMEM(t, h); got != nil {
			t.Errorf("%s has %v", name, got)
		}
	}
	labels := testproc.Try(selection.ParsePMEM(selection.PMEMConfig{PMEMNamespaces: []string{"SMALL:ns0|ns1"}})).Or(t)
	for _, class := range []bool{false, true} {
		h := testhost.ManyCells()
		h.DAXClass = class
		pools, discrepancies := labels.Choose(checkPMEM(t, h))
		if diff := cmp.Diff(map[string]int64{"CUSTOM_PMEM_NAMESPACE_SMALL": 2},
			selection.PMEMTotals(pools)); diff != "" || len(discrepancies) > 0 {
			t.Errorf("device class %v: %s, %v", class, diff, discrepancies)
		}
	}
}

// TestAnyHost: whatever persistent memory a made-up host has, that is what is read.
func TestAnyHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(rt *rapid.T) {
		h := testhost.SingleNode()
		h.DAXClass = rapid.Bool().Draw(rt, "device class")
		for region := range rapid.IntRange(0, 3).Draw(rt, "regions") {
			for id := range rapid.IntRange(0, 3).Draw(rt, "namespaces") {
				mode := rapid.SampledFrom([]string{"raw", "safe", "memory", "dax", "dax"}).Draw(rt, "mode")
				h.Namespaces = append(h.Namespaces, testhost.Namespace{
					Name: names[region][id], Label: rapid.SampledFrom([]string{"", "a", "b c"}).Draw(rt, "label"),
					Mode: mode, Cell: region - 1,
					Bytes:    rapid.SampledFrom([]uint64{0, 1 << 21, 4 << 30}).Draw(rt, "bytes"),
					Driver:   rapid.SampledFrom([]string{"", "device_dax", "kmem"}).Draw(rt, "driver"),
					NoDevice: rapid.Bool().Draw(rt, "disabled"),
				})
			}
		}
		checkPMEM(rt, h)
	})
}

var names = [3][3]string{
	{"namespace0.0", "namespace0.1", "namespace0.2"}, {"namespace2.0", "namespace2.1", "namespace2.9"},
	{"namespace10.0", "namespace10.1", "namespace10.11"},
}
