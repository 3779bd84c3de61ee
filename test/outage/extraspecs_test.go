// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestRefusedExtraSpecs: extra specs that servers would lack are refused with their name,
// when they are set on a flavor and, for flavors that got them before that was so, at a boot. What
// is honoured or harmless is accepted, and a server that was made with such a flavor stays as it
// is.
func TestRefusedExtraSpecs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plan{cells: []string{"cell1"}})
	defer func() { w.close(t, t.Failed()) }()
	w.boot(t, "p1", "before", "")
	set := func(name, value string) *answer {
		t.Helper()
		return w.api.ask(t, admin, "2.69", "POST", "/flavors/1/os-extra_specs", record{"extra_specs": record{name: value}})
	}
	store := func(specs map[string]string) {
		t.Helper()
		text, err := json.Marshal(specs)
		check(t, err)
		w.edit(t, "UPDATE flavors SET extra_specs = ? WHERE flavorid = '1'", string(text))
	}
	for _, spec := range []string{
		"os:resolution=1", "hw:tpm_secret_security=host", "pci_passthrough:x=1", "hw:mem_encryption_model=sgx", "hw:vif_multiqueue_enabled=true",
		"quota:cpu_quota=10000", "quota:disk_read_bytes_sec=1", "aggregate_instance_extra_specs:ssd=true", "capabilities:hypervisor_type=QEMU", "ssd=true",
		"hw:max_cpu_sockets=2", "hw:watchdog_action=bark", "hw:mem_encryption=perhaps", "hw:sound_model=ich9", "accel:device_profile=p", "vmware:storage_policy=p",
	} {
		name, value, _ := strings.Cut(spec, "=")
		if m := set(name, value).fault(t, "badRequest", 400); !strings.Contains(m, spec) {
			t.Errorf("setting %s: %q", spec, m)
		}
		store(map[string]string{name: value})
		for _, version := range []string{"2.1", "2.69"} {
			server := record{"name": "n", "flavorRef": "1", "imageRef": image}
			if version != "2.1" {
				server["networks"] = "none"
			}
			before := w.written(t)
			m := w.api.ask(t, of("p1"), version, "POST", "/servers", record{"server": server}).fault(t, "badRequest", 400)
			if !strings.Contains(m, "The extra spec "+spec+" of the flavor") {
				t.Errorf("a boot with %s: %q", spec, m)
			}
			w.unwritten(t, before)
		}
	}
	w.settled(t, "ACTIVE", "before")
	store(map[string]string{})
	for _, spec := range []string{"os:secure_boot=required", "hw:watchdog_action=reset", "hw:cpu_max_sockets=2", "hw:cpu_policy=shared", "hw:mem_page_size=small", "acme:gold=yes", "resources:VCPU=1"} {
		name, value, _ := strings.Cut(spec, "=")
		if name == "resources:VCPU" {
			store(map[string]string{})
		}
		set(name, value).status(t, 200)
	}
	w.boot(t, "p1", "after", "")
}
