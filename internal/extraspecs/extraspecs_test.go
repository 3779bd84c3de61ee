// SPDX-License-Identifier: Apache-2.0

package extraspecs_test

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// nova are the names that Nova 26 and the newest one validate or read, a line each: flavor or
// image, and the name.
//
//go:embed testdata/nova.txt
var nova string

// TestEveryNameOfNovaHasARow: no name that Nova knows is left to a row for all others.
func TestEveryNameOfNovaHasARow(t *testing.T) {
	find := map[string]func(string) extraspecs.Row{"flavor": extraspecs.Find, "image": extraspecs.FindImage}
	n := 0
	for line := range strings.Lines(nova) {
		kind, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if kind == "image" { // older names are read as today's
			for today := range extraspecs.Current(map[string]string{name: "x"}) {
				name = today
			}
		}
		if row := find[kind](name); slices.Contains(
			[]string{"*", "*:*", "hw:*", "hw_rng:*", "hw_video:*", "hw_*", "img_*", "os_*"}, row.Name) {
			t.Errorf("%s %s has no row of its own", kind, name)
		}
		n++
	}
	if n < 220 {
		t.Errorf("there are %d names", n)
	}
}

// TestCheck: what is accepted, and what is refused under which row.
func TestCheck(t *testing.T) {
	const accepted = ""
	for spec, row := range map[string]string{
		"resources:VGPU=1": accepted, "resources_NIC:CUSTOM_A=2": accepted, "trait1:CUSTOM_A=forbidden": accepted,
		"group_policy=none":       accepted,
		"hw:cpu_policy=dedicated": accepted, "hw:cpu_thread_policy=isolate": accepted,
		"hw:cpu_dedicated_mask=0-1":        accepted,
		"hw:emulator_threads_policy=share": accepted, "hw:mem_page_size=2MB": accepted, "hw:numa_nodes=2": accepted,

		"os:secure_boot=required": accepted, "os:secure_boot=disabled": accepted,
		"os:secure_boot=optional": accepted, "os:resolution=1": "os:*",
		"hw:tpm_version=2.0": accepted, "hw:tpm_model=tpm-crb": accepted,
		"hw:tpm_secret_security=host": "hw:tpm_secret_security", "pci_passthrough:alias=a1:1": accepted,
		"pci_passthrough:x=1":             "pci_passthrough:*",
		"hw:mem_encryption_model=amd-sev": accepted, "hw:mem_encryption=True": accepted,
		"hw:mem_encryption= FALSE": accepted,
		"hw:watchdog_action=reset": accepted, "hw:watchdog_action=disabled": accepted,
		"hw:vif_multiqueue_enabled=true": "hw:vif_multiqueue_enabled",
		"quota:cpu_quota=10000":          "quota:*", "quota:vif_inbound_average=1": "quota:*",
		"quota:anything=0":                        "quota:*",
		"aggregate_instance_extra_specs:ssd=true": "aggregate_instance_extra_specs:*",
		"capabilities:hypervisor_type=QEMU":       "capabilities:*",
		"capabilities:cpu_info:arch=x86_64":       "capabilities:*", "ssd=true": "*",
		"HW:cpu_policy=dedicated": accepted, "hw:unheard_of=1": "hw:*",
		"hw:numa_cpus.0=0-1": accepted, "hw:numa_mem.1=512": accepted, "same_subtree:x=_A,_B": accepted,
		"hw:cpu_sockets=2": accepted, "hw:max_cpu_sockets=2": "hw:max_cpu_*", "hw:pmem=6GB": "hw:pmem",
		"hw:pci_numa_affinity_policy=required":  accepted,
		"hw:pci_numa_affinity_policy=socket":    "hw:pci_numa_affinity_policy",
		"hw:pci_numa_affinity_policy=preferred": accepted,
		"hw_rng:allowed=True":                   accepted, "hw_rng:allowed=False": accepted,
		"hw_rng:rate_bytes=1": accepted, "hw_rng:rate=1": "hw_rng:*", "hw_video:ram_max_mb=64": accepted,
		"hide_hypervisor_id=true": accepted, "hw:hide_hypervisor_id=no": accepted, "hw:serial_port_count=1": accepted,
		"hw:serial_port_count=2": accepted,
		"accel:device_profile=p": "accel:*", "vmware:storage_policy=p": "vmware:*",
		"acme:gold=yes": accepted, ":": accepted, "": "*",
	} {
		name, value, _ := strings.Cut(spec, "=")
		checkOne(t, extraspecs.Check(map[string]string{name: value, "hw:cpu_policy": "shared"}), "extra spec", name,
			row)
	}
	for property, row := range map[string]string{
		"hw_machine_type=q35": accepted, "hw_firmware_type=uefi": accepted, "hw_disk_bus=scsi": accepted,
		"hw_rng_model=virtio": accepted,
		"hw_video_model=qxl":  accepted, "hw_cpu_policy=shared": "hw_cpu_policy", "hw_numa_mem.1=5": "hw_numa_mem*",
		"hw_unheard_of=1": "hw_*", "os_distro=debian": accepted, "os_secure_boot=required": accepted,
		"os_type=windows": "os_type", "img_signature=x": "img_signature*",
		"img_config_drive=mandatory": "img_config_drive",
		"trait:CUSTOM_A=required":    "trait:*", "traits_required=A": "traits_required", "colour=blue": accepted,
	} {
		name, value, _ := strings.Cut(property, "=")
		checkOne(t, extraspecs.CheckImage(map[string]string{name: value}), "property", name, row)
	}
	testproc.NoError(t, errors.Join(extraspecs.Check(nil), extraspecs.CheckImage(nil)))
}

// TestUnread: what no part of Nova or of the compute API reads, and no prefix is of.
func TestUnread(t *testing.T) {
	specs := map[string]string{
		"reservation:r1": "true", "acme:gold": "yes", "HW:cpu_policy": "dedicated", "hw:cpu_policy": "dedicated",
		"resources1:VGPU": "1", "trait:CUSTOM_A": "required",
		"group_policy": "none", "hide_hypervisor_id": "true", "quota:x": "1",
	}
	for prefixes, want := range map[string][]string{
		"": {"HW:cpu_policy", "acme:gold", "reservation:r1"}, "reservation:": {"HW:cpu_policy", "acme:gold"},
		"acme:g reservation:r2": {"HW:cpu_policy", "reservation:r1"},
	} {
		if got := extraspecs.Unread(specs, strings.Fields(prefixes)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, not %q", prefixes, got, want)
		}
	}
}

// checkOne: a refusal names what is refused.
func checkOne(t *testing.T, err error, kind, name, row string) {
	t.Helper()
	var refused *extraspecs.RefusedError
	switch {
	case row == "" && err != nil:
		t.Errorf("%s is refused: %v", name, err)
	case row == "":
	case !errors.As(err, &refused):
		t.Errorf("%s is accepted", name)
	case refused.Name != name || refused.Row.Name != row || !strings.Contains(err.Error(), kind+" "+name+"="):
		t.Errorf("%s: %v, by the row %s, not %s", name, err, refused.Row.Name, row)
	}
}

// TestPage: the tables of the page are those of this package.
func TestPage(t *testing.T) {
	const file = "../../docs/extra-specs.md"
	golden.Section(t, file, "<!-- extra specs -->", "<!-- end of extra specs -->", rendered(extraspecs.Flavor))
	golden.Section(t, file, "<!-- properties -->", "<!-- end of properties -->", rendered(extraspecs.Image))
}

func rendered(rows []extraspecs.Row) string {
	var out strings.Builder
	out.WriteString("| name | asks for | | why |\n|---|---|---|---|\n")
	for _, r := range rows {
		verdict := string(r.Verdict)
		if len(r.Values.OneOf) > 0 {
			verdict += ": `" + strings.Join(r.Values.OneOf, "`, `") + "`"
		}
		if len(r.Accepts) > 0 {
			verdict += fmt.Sprintf(", but for `%s`", r.Accepts[0])
			for _, other := range r.Accepts[1:] {
				if len(r.Accepts) < 4 { // the words for one truth value are one
					verdict += fmt.Sprintf(", `%s`", other)
				}
			}
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", r.Name, r.What, verdict, r.Why)
	}
	return out.String()
}
