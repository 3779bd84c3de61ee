// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/inventory"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/selection"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestConfigDefaults(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, raw := range []string{"", "{}"} {
		got := testproc.Try(parseConfig(json.RawMessage(raw), plugins.HostInfo{Name: "cn7"})).Or(t)
		want := config{
			URI: "qemu:///system", Host: "cn7", ReservedMemoryMB: 512, InitialCPURatio: 4,
			InitialRAMRatio: 1, InitialDiskRatio: 1,
			NUMA: "flat", Unplaced: "refuse",
			PowerConfig: selection.PowerConfig{Strategy: "cpu_state", Low: "powersave", High: "performance"},
			TraitConfig: inventory.TraitConfig{Service: "keep", More: "keep"},
			Chroot:      "/", ConnectTimeout: "10s", CallTimeout: "30s", connectTimeout: 10 * time.Second,
			callTimeout: 30 * time.Second,
		}
		testproc.Check(t, want.parse())
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q:\n%+v\nwant\n%+v", raw, got, want)
		}
	}
}

func TestConfigMistakesNameTheirKey(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for raw, key := range map[string]string{
		`{"uri": ""}`:               "uri",
		`{"uri": "/run/libvirt"}`:   "uri",
		`{"uri": 5}`:                "uri",
		`{"ury": "qemu:///system"}`: "ury",
		`{"host": "` + strings.Repeat("x", 201) + `"}`:        "host",
		`{"instances_path": "instances"}`:                     "instances_path",
		`{"chroot": "tmp"}`:                                   "chroot",
		`{"reserved_host_cpus": -1}`:                          "reserved_host_cpus",
		`{"reserved_host_memory_mb": 1.5}`:                    "reserved_host_memory_mb",
		`{"reserved_host_memory_mb": "512"}`:                  "reserved_host_memory_mb",
		`{"reserved_host_disk_mb": 1e30}`:                     "reserved_host_disk_mb",
		`{"reserved_host_disk_mb": 9223372036854775807}`:      "reserved_host_disk_mb",
		`{"cpu_allocation_ratio": -0.1}`:                      "cpu_allocation_ratio",
		`{"ram_allocation_ratio": 1e300}`:                     "ram_allocation_ratio",
		`{"initial_disk_allocation_ratio": 0}`:                "initial_disk_allocation_ratio",
		`{"connect_timeout": "soon"}`:                         "connect_timeout",
		`{"call_timeout": "1ms"}`:                             "call_timeout",
		`{"call_timeout": 30}`:                                "call_timeout",
		`{"cpu_power_management": "yes"}`:                     "cpu_power_management",
		`{"cpu_power_management_strategy": "sleep"}`:          "cpu_power_management_strategy",
		`{"cpu_power_governor_low": ""}`:                      "cpu_power_governor_low",
		`{"numa": "yes"}`:                                     "numa",
		`{"unplaced_consumers": "drop"}`:                      "unplaced_consumers",
		`{"cpu_shared_set": "4-"}`:                            "cpu_shared_set",
		`{"cpu_dedicated_set": "1", "cpu_shared_set": "1-2"}`: "cpu_dedicated_set",
		`{"reserved_huge_pages": [{"node": 0}]}`:              "reserved_huge_pages[0].count",
		`{"enabled_mdev_types": [""]}`:                        "enabled_mdev_types[0]",
		`{"mdev_types": {"x": {}}}`:                           `mdev_types."x"`,
		`{"pci_device_spec": [{"vendor_id": "zz"}]}`:          "pci_device_spec[0].vendor_id",
		`{"pmem_namespaces": ["SMALL"]}`:                      "pmem_namespaces[0]",
		`{"num_memory_encrypted_guests": -1}`:                 "num_memory_encrypted_guests",
		`{"compute_capabilities": "all"}`:                     "compute_capabilities",
		`{"compute_capability_overrides": {"HW_X": true}}`:    "compute_capability_overrides",
		`{"shared_disk": "yes"}`:                              "shared_disk",
		`[]`:                                                  "",
		`{`:                                                   "",
	} {
		_, err := parseConfig(json.RawMessage(raw), plugins.HostInfo{Name: "cn7"})
		var ce *plugins.ConfigError
		if !errors.As(err, &ce) || ce.Key != key || ce.Problem == "" {
			t.Errorf("%s: %v, want a ConfigError of key %q", raw, err, key)
		}
	}
}

// TestAllConfigMistakesAreReported: mistakes in different places are reported together, in a fixed
// order.
func TestAllConfigMistakesAreReported(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	_, err := parseConfig(json.RawMessage(`{
		"uri": "x", "numa": "deep", "chroot": "here", "reserved_host_cpus": -1, "cpu_allocation_ratio": -1, "initial_ram_allocation_ratio": -1, "call_timeout": "1",
		"cpu_shared_set": "4-", "cpu_dedicated_set": "x", "reserved_huge_pages": [{"node": 0}, {"node": 0, "size": "2M", "count": 1}, {"size": "2M", "count": 1}],
		"enabled_mdev_types": ["", "a"], "mdev_types": {"a": {"mdev_class": "x"}, "b": {}}, "pci_device_spec": [{"vendor_id": "zz"}, {"product_id": "zz"}],
		"pmem_namespaces": ["SMALL"], "num_memory_encrypted_guests": -1, "compute_capabilities": "all", "instances": {"virt_type": "xen"}
	}`), plugins.HostInfo{Name: "cn7"})
	var refused *plugins.ConfigError
	if !errors.As(err, &refused) {
		t.Fatal(err)
	}
	var keys []string
	for _, one := range refused.All() {
		keys = append(keys, one.Key)
	}
	want := []string{
		"uri", "numa", "chroot", "reserved_host_cpus", "cpu_allocation_ratio", "initial_ram_allocation_ratio",
		"call_timeout", "cpu_shared_set", "cpu_dedicated_set",
		"reserved_huge_pages[0].count", "reserved_huge_pages[2].node", "enabled_mdev_types[0]",
		`mdev_types."a".mdev_class`, `mdev_types."b"`,
		"pci_device_spec[0].vendor_id", "pci_device_spec[1].product_id", "pmem_namespaces[0]",
		"num_memory_encrypted_guests", "instances.virt_type", "compute_capabilities",
	}
	testproc.Same(t, cmp.Diff(want, keys))
}

// TestSchemaMatchesTheConfiguration: the schema and the struct name the same keys, and the same
// defaults.
func TestSchemaMatchesTheConfiguration(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var s struct {
		AdditionalProperties *bool
		Properties           map[string]struct {
			Description string
			Default     any
		}
	}
	testproc.Check(t, json.Unmarshal(newDriver(nil).ConfigSchema(), &s))
	if s.AdditionalProperties == nil || *s.AdditionalProperties {
		t.Error("the schema lets unknown keys pass")
	}
	cfg := testproc.Try(parseConfig(nil, plugins.HostInfo{})).Or(t)
	var keys []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[config]()) {
		key := field.Tag.Get("json")
		if key == "" {
			continue
		}
		keys = append(keys, key)
		p, ok := s.Properties[key]
		if !ok || p.Description == "" {
			t.Errorf("the schema does not describe %s", key)
			continue
		}
		want := testproc.Try(json.Marshal(reflect.ValueOf(cfg).FieldByIndex(field.Index).Interface())).Or(t)
		if got, _ := json.Marshal(p.Default); string(got) != string(want) &&
			(p.Default != nil || string(want) != `""` && string(want) != "null") {
			t.Errorf("default of %s is %s in the schema, %s in truth", key, got, want)
		}
	}
	for key := range s.Properties {
		if !slices.Contains(keys, key) {
			t.Errorf("the schema describes %s, which is no key", key)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add(`{"uri": "qemu:///system", "reserved_host_cpus": 1, "cpu_allocation_ratio": 2.5, "call_timeout": "1m"}`)
	f.Add(`{"chroot": "/tmp"} {}`)
	f.Fuzz(func(t *testing.T, raw string) {
		cfg, err := parseConfig(json.RawMessage(raw), plugins.HostInfo{Name: "cn7"})
		var ce *plugins.ConfigError
		switch {
		case err != nil && !errors.As(err, &ce):
			t.Fatalf("%v is no ConfigError", err)
		case err == nil && (cfg.callTimeout <= 0 || cfg.InitialCPURatio <= 0 || cfg.ReservedCPUs < 0):
			t.Fatalf("%+v", cfg)
		}
	})
}
