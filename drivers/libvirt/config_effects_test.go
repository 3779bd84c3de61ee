// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// switched is a value of a key that is not its default, and what must be set beside it in both
// runs.
type switched struct {
	value any
	with  map[string]any
	// beside says that the key shows beside the tree: in what is asked of libvirt, what the
	// scheduler and the operator see.
	beside bool
}

// switches has every key of the configuration but those of seenElsewhere.
func switches(other string) map[string]switched {
	type table = map[string]any
	gpus := table{"enabled_mdev_types": []string{"nvidia-222"}}
	cards := []any{table{"vendor_id": "10de"}}
	custom := table{"cpu_mode": "custom", "cpu_models": []string{"Nehalem"}}
	return map[string]switched{
		"uri":                           {"qemu+unix:///system", nil, true},
		"host":                          {"another", nil, false},
		"instances_path":                {filepath.Join(other, "sys"), nil, true},
		"reserved_host_cpus":            {1, nil, false},
		"reserved_host_memory_mb":       {1, nil, false},
		"reserved_host_disk_mb":         {1, nil, false},
		"cpu_allocation_ratio":          {3, nil, false},
		"ram_allocation_ratio":          {3, nil, false},
		"disk_allocation_ratio":         {3, nil, false},
		"initial_cpu_allocation_ratio":  {3, nil, false},
		"initial_ram_allocation_ratio":  {3, nil, false},
		"initial_disk_allocation_ratio": {3, nil, false},
		"numa":                          {"nested", nil, false},
		"numa_ignore_cells":             {[]int{3}, nil, false},
		"memory_tiers_in_root":          {true, nil, false},
		"unplaced_consumers":            {"guess", table{"numa": "nested"}, true},
		"shared_disk":                   {true, nil, false},
		"cpu_shared_set":                {"1-3", nil, false},
		"cpu_dedicated_set":             {"1-3", nil, false},
		"cpu_power_management":          {true, table{"cpu_dedicated_set": "0-3"}, true},
		"cpu_power_management_strategy": {"governor",
			table{"cpu_dedicated_set": "1-3", "cpu_power_management": true, "instances": table{}}, true},
		"reserved_huge_pages": {[]any{table{"node": 0, "size": "1G", "count": 3}},
			table{"numa": "nested"}, false},
		"enabled_mdev_types":           {[]string{"nvidia-222"}, nil, false},
		"mdev_types":                   {table{"nvidia-222": table{"mdev_class": "CUSTOM_BIG"}}, gpus, false},
		"mdev_type_traits":             {true, gpus, false},
		"pci_report_in_placement":      {true, table{"pci_device_spec": cards}, false},
		"pci_device_spec":              {cards, table{"pci_report_in_placement": true}, false},
		"pmem_namespaces":              {[]string{"SMALL:ns0"}, nil, false},
		"num_memory_encrypted_guests":  {7, nil, false},
		"compute_capabilities":         {"report", nil, true},
		"compute_capability_overrides": {table{"COMPUTE_VOLUME_MULTI_ATTACH": true}, nil, true},
		"more_traits":                  {"report", nil, false},
		"cpu_mode":                     {"none", nil, false},
		"cpu_models":                   {[]string{"SandyBridge"}, custom, false},
		"cpu_model_extra_flags":        {[]string{"+3dnow"}, nil, false},
		"swtpm_enabled":                {true, nil, true},
		"instances":                    {table{"images_path": other}, nil, true},
		"chroot":                       {other, nil, false},
	}
}

// seenElsewhere are the keys that change nothing that a pass over a healthy host reports.
var seenElsewhere = map[string]string{
	"cpu_power_governor_high": "TestParsePower, TestCPUsGoOnAndOffWithGuests",
	"cpu_power_governor_low":  "TestParsePower, TestCPUsGoOnAndOffWithGuests",
	"connect_timeout":         "TestTimeoutsReachTheConnection",
	"call_timeout":            "TestTimeoutsReachTheConnection",
}

// TestEachKeyIsWired: a key that is switched away from its default, alone, changes something that
// can be seen from outside: the tree, what is asked of libvirt, a warning, a refused reshape.
func TestEachKeyIsWired(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := withMemoryCell(testhost.GPUHost(), 0)
	h.Namespaces = []testhost.Namespace{{Name: "namespace0.0", Label: "ns0",
		UUID: "f2d5c4a8-0000-4000-8000-000000000001", Mode: "dax", Driver: "device_dax", Bytes: 8 << 30}}
	own, other := scratch(t), scratch(t)
	for dir, host := range map[string]testhost.Host{own: h, other: testhost.SingleNode()} {
		testproc.Try(host.Sysfs(dir)).Or(t)
	}
	all, classes := switches(other), map[string]bool{}
	var keys struct{ Properties map[string]any }
	testproc.Check(t, json.Unmarshal(schema, &keys))
	seen := map[string][2]string{} // most keys are switched away from the same configuration
	for _, key := range slices.Sorted(maps.Keys(keys.Properties)) {
		if seenElsewhere[key] != "" {
			continue
		}
		change, known := all[key]
		if !known {
			t.Errorf("%s: no value to switch it to: add one, or say in seenElsewhere where it is tested", key)
			continue
		}
		before := map[string]any{"chroot": own}
		maps.Copy(before, change.with)
		after := maps.Clone(before)
		after[key] = change.value
		if key != "cpu_models" { // what it is switched away from is in with
			if _, set := change.with[key]; set {
				t.Errorf("%s is set in both runs", key)
			}
		}
		first := fmt.Sprint(before)
		if _, known := seen[first]; !known {
			tree, rest := observe(t, h, before, classes)
			seen[first] = [2]string{tree, rest}
		}
		tree, rest := seen[first][0], seen[first][1]
		newTree, newRest := observe(t, h, after, classes)
		if change.beside {
			tree, newTree = rest, newRest
		}
		if tree == newTree {
			t.Errorf("%s = %v changes nothing of\n%s", key, change.value, tree)
		}
	}
	for key := range all {
		if keys.Properties[key] == nil {
			t.Errorf("%s is no key", key)
		}
	}
	inTheDocumentation(t, keys.Properties, classes)
}

// inTheDocumentation: docs/libvirt.md has every key, and every resource class that was reported.
func inTheDocumentation(t *testing.T, keys map[string]any, classes map[string]bool) {
	t.Helper()
	text := testproc.Try(os.ReadFile("../../docs/libvirt.md")).Or(t)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !regexp.MustCompile("(?m)(`|^|`\\[[A-Za-z]+\\] |config\\.)" + key + "(`| = |\\.)").Match(text) {
			t.Errorf("docs/libvirt.md does not have the key %s", key)
		}
	}
	delete(classes, "CUSTOM_BIG") // of this test's own configuration
	families := map[string]bool{}
	for class := range classes {
		name := class
		for _, prefix := range []string{"CUSTOM_PCI_", "CUSTOM_PMEM_NAMESPACE_"} {
			if strings.HasPrefix(class, prefix) {
				name = prefix + "<"
			}
		}
		families[name] = true
		if !regexp.MustCompile("`" + name).Match(text) {
			t.Errorf("docs/libvirt.md does not have the resource class %s", class)
		}
	}
	want := []string{
		"CUSTOM_HUGEPAGES_1G", "CUSTOM_PCI_<", "CUSTOM_PMEM_NAMESPACE_<", "DISK_GB", "MEMORY_MB",
		"MEM_ENCRYPTION_CONTEXT", "PCPU", "VCPU", "VGPU",
	}
	diff(t, "classes that were reported", want, slices.Sorted(maps.Keys(families)))
}

// observe is what a driver shows of itself with a configuration: the tree of a new node, and beside
// it what it answers where a consumer that it does not know holds something of a flat tree, and
// more. It adds the classes of the tree.
func observe(t *testing.T, h testhost.Host, config map[string]any, classes map[string]bool) (shown, beside string) {
	t.Helper()
	daemon := newDaemon(t, h)
	daemon.models = map[string][]string{"Nehalem": {"sse", "sse2"}, "SandyBridge": {"sse", "avx"}, "qemu64": {"sse"}}
	daemon.guestCaps = strings.Replace(sevCapabilities(h.SEV.Guests, h.SEV.ESGuests), "<features>",
		"<devices><disk supported='yes'><enum name='bus'><value>usb</value></enum></disk></devices><features>", 1)
	var out strings.Builder
	d := newDriver(func(r hypervisor.Request) (hypervisor.Conn, error) {
		fmt.Fprintf(&out, "connected to %s\n", r.URI)
		return daemon, nil
	})
	run := func(config map[string]any, tree *providertree.Tree,
		allocations providertree.Allocations) (providertree.Allocations, error) {
		raw := testproc.Try(json.Marshal(config)).Or(t)
		testproc.Checkf(t, d.Configure(t.Context(), raw, plugins.HostInfo{Name: nodeName}), "%s", raw)
		nodes := testproc.Try(d.AvailableNodes(t.Context())).Or(t)
		if tree.Len() == 0 {
			testproc.Check(t, tree.AddRoot(nodeUUID, nodes[0].Name))
		}
		return d.UpdateProviderTree(t.Context(), tree, nodes[0].Name, allocations)
	}
	flatTree := &providertree.Tree{}
	flat := maps.Clone(config)
	delete(flat, "numa")
	_, err := run(flat, flatTree, nil)
	testproc.Checkf(t, err, "%v", config)
	unknown := providertree.Allocations{"8a3a2f5f-5d0c-4bb5-9d4c-6c6a2b6e8a11": {
		Resources: providertree.ProviderResources{nodeUUID: {"MEMORY_MB": 64}},
	}}
	moved, err := run(config, flatTree, unknown)
	fmt.Fprintf(&out, "allocations: %+v, %v\n", moved, err)
	tree := &providertree.Tree{}
	if _, err := run(config, tree, nil); err != nil {
		t.Fatalf("%v: %v", config, err)
	}
	for p := range tree.All() {
		shown += fmt.Sprintf("%+v\n", p)
		for class := range p.Inventories {
			classes[class] = true
		}
	}
	list, err := d.Instances(t.Context(), nodeName)
	fmt.Fprintf(&out, "%v, %+v, disks in %s, guests: %v, %v\n", d.Capabilities(nodeName),
		d.Warnings(), d.loggedDisk, list, err)
	testproc.Check(t, d.Shutdown(context.Background()))
	return shown, out.String()
}

// TestTimeoutsReachTheConnection: each time decides how long a daemon that does not answer is
// waited for, when it is connected to and when it is asked.
func TestTimeoutsReachTheConnection(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	took := func(t *testing.T, config map[string]any, connects bool) (took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			end := make(chan struct{})
			d := newDriver(func(hypervisor.Request) (hypervisor.Conn, error) {
				if !connects {
					<-end
				}
				return hanging{end: end}, nil
			})
			raw := testproc.Try(json.Marshal(config)).Or(t)
			testproc.Check(t, d.Configure(t.Context(), raw, plugins.HostInfo{}))
			start := time.Now()
			testproc.Try(d.AvailableNodes(t.Context())).ErrorIs(t, plugins.ErrNotReady, "%v")
			took = time.Since(start)
			close(end)
			testproc.NoError(t, d.Shutdown(context.Background()))
		})
		return took
	}
	got := map[string]time.Duration{
		"connecting":          took(t, nil, false),
		"connecting for long": took(t, map[string]any{"connect_timeout": "90s"}, false),
		"calling":             took(t, nil, true),
		"calling for long":    took(t, map[string]any{"call_timeout": "90s"}, true),
	}
	want := map[string]time.Duration{"connecting": 10 * time.Second, "connecting for long": 90 * time.Second,
		"calling": 30 * time.Second, "calling for long": 90 * time.Second}
	testproc.Same(t, cmp.Diff(want, got))
}

// hanging is a connection that answers nothing until the end.
type hanging struct {
	hypervisor.Conn
	end chan struct{}
}

func (h hanging) Hostname() (string, error) { <-h.end; return "", errors.New("too late") }
func (hanging) Close() error                { return nil }
func (hanging) Alive() bool                 { return true }
