// SPDX-License-Identifier: Apache-2.0

package resourcerequest_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// flavorWith has 4 VCPUs, 2 GiB, and 10 + 5 GB and 1,025 MiB of disk.
func flavorWith(specs map[string]string) cellwire.Flavor {
	return cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{VCPUs: 4, MemoryMB: 2048, RootGB: 10, EphemeralGB: 5,
		SwapMB: 1025, ExtraSpecs: specs}}
}

// always is what each request has.
const always = "&root_required=!COMPUTE_STATUS_DISABLED"

// TestNew: what flavors become, as Nova has it.
func TestNew(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	plain := "limit=1000&resources=DISK_GB:17,MEMORY_MB:2048,VCPU:4" + always
	for name, c := range map[string]struct {
		specs map[string]string
		want  string
	}{
		"nothing": {nil, plain},
		"other extra specs": {map[string]string{"hw:watchdog_action": "disabled", "hw_rng:allowed": "True",
			"my:resources": "1"}, plain},
		"a class beside": {map[string]string{"resources:VGPU": "1"},
			"limit=1000&resources=DISK_GB:17,MEMORY_MB:2048,VCPU:4,VGPU:1" + always},
		"overrides": {map[string]string{"resources:VCPU": "2", "resources:MEMORY_MB": "1"},
			"limit=1000&resources=DISK_GB:17,MEMORY_MB:1,VCPU:2" + always},
		"zeros take away": {map[string]string{"resources:VCPU": "0", "resources:DISK_GB": "0"},
			"limit=1000&resources=MEMORY_MB:2048" + always},
		"an override in a group": {map[string]string{"resources1:MEMORY_MB": "512"},
			"limit=1000&resources=DISK_GB:17,VCPU:4&resources1=MEMORY_MB:512" + always},
		"a zero in a group": {map[string]string{"resources1:MEMORY_MB": "0"},
			"limit=1000&resources=DISK_GB:17,VCPU:4" + always},
		"traits": {map[string]string{"trait:CUSTOM_A": "required",
			"trait:HW_CPU_X86_AVX": "forbidden", "trait:CUSTOM_B": "required"},
			"limit=1000&required=CUSTOM_A,CUSTOM_B,!HW_CPU_X86_AVX&resources=DISK_GB:17,MEMORY_MB:2048,VCPU:4" +
				always},
		"groups": {map[string]string{"resources1:VGPU": "1", "trait1:CUSTOM_A": "required",
			"resources_B-2:CUSTOM_FPGA": "1", "group_policy": "isolate"},
			"group_policy=isolate&limit=1000&required1=CUSTOM_A&resources=DISK_GB:17,MEMORY_MB:2048,VCPU:4&" +
				"resources1=VGPU:1&resources_B-2=CUSTOM_FPGA:1" + always},
		"groups without policy": {map[string]string{"resources1:VGPU": "1", "resources2:VGPU": "1"},
			"limit=1000&resources=DISK_GB:17,MEMORY_MB:2048,VCPU:4&resources1=VGPU:1&resources2=VGPU:1" + always},
		"dedicated": {map[string]string{"hw:cpu_policy": "dedicated"},
			"limit=1000&resources=DISK_GB:17,MEMORY_MB:2048,PCPU:4" + always},
		"shared": {map[string]string{"hw:cpu_policy": "shared"}, plain},
		"dedicated, isolated": {map[string]string{"hw:cpu_policy": "dedicated",
			"hw:emulator_threads_policy": "isolate", "hw:cpu_thread_policy": "isolate"},
			"limit=1000&required=!HW_CPU_HYPERTHREADING&resources=DISK_GB:17,MEMORY_MB:2048,PCPU:5" + always},
		"dedicated, with siblings": {map[string]string{"hw:cpu_policy": "dedicated",
			"hw:cpu_thread_policy": "require"},
			"limit=1000&required=HW_CPU_HYPERTHREADING&resources=DISK_GB:17,MEMORY_MB:2048,PCPU:4" + always},
		"dedicated by the class": {map[string]string{"resources:PCPU": "4"},
			"limit=1000&resources=DISK_GB:17,MEMORY_MB:2048,PCPU:4" + always},
		"mixed": {map[string]string{"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-2,^1"},
			"limit=1000&resources=DISK_GB:17,MEMORY_MB:2048,PCPU:2,VCPU:2" + always},
		"mixed, all but one": {map[string]string{"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "^0"},
			"limit=1000&resources=DISK_GB:17,MEMORY_MB:2048,PCPU:3,VCPU:1" + always},
		"hardware": {map[string]string{"hw:watchdog_action": "reset", "hw:viommu_model": "virtio",
			"hw:virtio_packed_ring": "yes"},
			"limit=1000&resources=DISK_GB:17,MEMORY_MB:2048,VCPU:4&" +
				"root_required=COMPUTE_NET_VIRTIO_PACKED,COMPUTE_VIOMMU_MODEL_VIRTIO,!COMPUTE_STATUS_DISABLED"},
		"secure boot and a TPM": {map[string]string{"os:secure_boot": "required", "hw:tpm_version": "2.0"},
			"limit=1000&resources=DISK_GB:17,MEMORY_MB:2048,VCPU:4&" +
				"root_required=COMPUTE_SECURITY_TPM_2_0,COMPUTE_SECURITY_UEFI_SECURE_BOOT,!COMPUTE_STATUS_DISABLED"},
		"encrypted memory": {map[string]string{"hw:mem_encryption": "true",
			"hw:mem_encryption_model": "amd-sev-es"},
			"limit=1000&required=HW_CPU_X86_AMD_SEV_ES&" +
				"resources=DISK_GB:17,MEMORY_MB:2048,MEM_ENCRYPTION_CONTEXT:1,VCPU:4" + always},
		"SEV-SNP": {map[string]string{"hw:mem_encryption": "true",
			"hw:mem_encryption_model": "amd-sev-snp"},
			"limit=1000&required=HW_CPU_X86_AMD_SEV_SNP&" +
				"resources=DISK_GB:17,MEMORY_MB:2048,MEM_ENCRYPTION_CONTEXT:1,VCPU:4&" +
				"root_required=COMPUTE_SECURITY_STATELESS_FIRMWARE,!COMPUTE_STATUS_DISABLED"},
		"the kind of no encryption": {map[string]string{"hw:mem_encryption_model": "amd-sev-snp"}, plain},
		"mixed, isolated": {map[string]string{"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "3",
			"hw:emulator_threads_policy": "isolate"},
			"limit=1000&resources=DISK_GB:17,MEMORY_MB:2048,PCPU:2,VCPU:3" + always},
	} {
		t.Run(name, func(t *testing.T) {
			r := testproc.Try(resourcerequest.New(flavorWith(c.specs), nil)).Or(t)
			testproc.Same(t, cmp.Diff(c.want, plainQuery(r)))
		})
	}
}

// plainQuery is a query in which nothing is escaped.
func plainQuery(r resourcerequest.Request) string {
	text := ""
	q := r.Query()
	for _, key := range slices.Sorted(maps.Keys(q)) {
		if text != "" {
			text += "&"
		}
		text += key + "=" + strings.Join(q[key], "&"+key+"=")
	}
	return text
}

// TestInTree: one tree, and how many.
func TestInTree(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r, err := resourcerequest.New(flavorWith(map[string]string{"resources1:VGPU": "1"}), nil)
	testproc.Check(t, err)
	r.InTree, r.Limit = "u", 7
	testproc.Same(t, cmp.Diff("in_tree=u&limit=7&resources=DISK_GB:17,MEMORY_MB:2048,VCPU:4&resources1=VGPU:1"+always,
		plainQuery(r)))
	r, err = resourcerequest.New(
		flavorWith(map[string]string{"resources1:VCPU": "1", "resources:MEMORY_MB": "0", "resources:DISK_GB": "0"}),
		nil)
	testproc.Check(t, err)
	r.InTree = "u"
	testproc.Same(t, cmp.Diff("in_tree1=u&limit=1000&resources1=VCPU:1"+always, plainQuery(r)))
}

// TestInvalidFlavors: what is refused, and in which words.
func TestInvalidFlavors(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct {
		specs map[string]string
		want  string
	}{
		{map[string]string{"resources:VCPU": "x"}, "Validation failed; 'x' is not a valid integer value."},
		{map[string]string{"resources:VCPU": "1.5"}, "Validation failed; '1.5' is not a valid integer value."},
		{map[string]string{"resources:VCPU": "-1"}, "Validation failed; '-1' is less than the min value of '0'."},
		{map[string]string{"resources:VCPU": "2147483648"},
			"Validation failed; '2147483648' is greater than the max value of '2147483647'."},
		{map[string]string{"resources:vcpu": "1"},
			"Validation failed; extra spec 'resources:vcpu' does not appear to be a valid extra spec."},
		{map[string]string{"resources:": "1"},
			"Validation failed; extra spec 'resources:' does not appear to be a valid extra spec."},
		{map[string]string{"trait:A\nB": "required"},
			"Validation failed; extra spec 'trait:A\nB' does not appear to be a valid extra spec."},
		{map[string]string{"trait:A": "yes"}, "Validation failed; 'yes' is not one of: required, forbidden."},
		{map[string]string{"group_policy": "maybe"}, "Validation failed; 'maybe' is not one of: isolate, none."},
		{map[string]string{"trait1:A": "required"},
			"Validation failed; the extra specs 'trait1:' have no 'resources1:' that they could be about."},
		{map[string]string{"resources:VCPU": "0", "resources:MEMORY_MB": "0", "resources:DISK_GB": "0"},
			"The flavor asks for no resources."},
		{map[string]string{"hw:cpu_policy": "none"},
			"CPU policy requested from 'flavor extra specs' is invalid, given: 'none', available: '('dedicated', " +
				"'mixed', 'shared')'."},
		{map[string]string{"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "x"},
			"CPU thread policy requested from 'flavor extra specs' is invalid, given: 'x', available: '('prefer', " +
				"'isolate', 'require')'."},
		{map[string]string{"hw:emulator_threads_policy": "x"},
			"CPU emulator threads option requested is invalid, given: 'x', available: '('isolate', 'share')'."},
		{map[string]string{"hw:emulator_threads_policy": "isolate"},
			"An isolated CPU emulator threads option requires a dedicated CPU policy option."},
		{map[string]string{"hw:cpu_policy": "dedicated", "resources:PCPU": "4"},
			"It is not possible to use the 'resources:VCPU' or 'resources:PCPU' extra specs in combination with the " +
				"'hw:cpu_policy' extra spec or 'hw_cpu_policy' image metadata property; use one or the other"},
		{map[string]string{"resources:VCPU": "4", "resources:PCPU": "4"},
			"It is not possible to specify both 'resources:VCPU' and 'resources:PCPU' extra specs; use one " +
				"or the other"},
		{map[string]string{"resources:PCPU": "3"},
			"There is a mismatch between the number of PCPUs requested via 'resourcesNN:PCPU' and the flavor); you " +
				"must allocate exactly flavor.vcpus PCPUs"},
		{map[string]string{"hw:cpu_dedicated_mask": "1"},
			"Cannot specify 'hw:cpu_dedicated_mask' without the 'mixed' policy."},
		{map[string]string{"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-3"},
			"Mixed instance must have at least 1 pinned vCPU and 1 unpinned vCPU. See 'hw:cpu_dedicated_mask'."},
		{map[string]string{"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "4"},
			"Mixed instance dedicated vCPU(s) mask is not a subset of vCPUs in the flavor. See " +
				"\"hw:cpu_dedicated_mask\""},
		{map[string]string{"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "3-1"},
			"Invalid range expression \"3-1\""},
		{map[string]string{"hw:cpu_max_sockets": "1", "hw:cpu_max_cores": "1", "hw:cpu_max_threads": "2"},
			"Requested vCPU limits 1:1:2 are impossible to satisfy for vcpus count 4"},
		{map[string]string{"hw:watchdog_action": "bark"},
			"The extra spec hw:watchdog_action=bark of the flavor is invalid: it must be none, pause, poweroff, " +
				"reset or disabled."},
		{map[string]string{"hw:cpu_policy": "shared", "quota:cpu_shares": "5"},
			"The extra spec quota:cpu_shares=5 of the flavor is not supported here: nothing is limited while a " +
				"server runs."},
	} {
		_, err := resourcerequest.New(flavorWith(c.specs), nil)
		var unfit *resourcerequest.InvalidError
		if !errors.As(err, &unfit) {
			t.Errorf("%v was taken", c.specs)
			continue
		}
		testproc.Samef(t, cmp.Diff(c.want, unfit.Message), "%v", c.specs)
	}
}

// FuzzNew: whatever stands in a flavor, there is a request or a reason.
func FuzzNew(f *testing.F) {
	for _, seed := range [][3]string{{"resources:VCPU", "1", "0"}, {"trait_A:B", "required", "^1"},
		{"resources1:VGPU", "99", "0-5,^2"}, {"group_policy", "none", "--"}, {"hw:pmem", ",,", ",^,"}} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, key, value, mask string) {
		for _, specs := range []map[string]string{{key: value},
			{"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": mask, key: value}} {
			r, err := resourcerequest.New(flavorWith(specs), nil)
			if err == nil && len(r.Query()) < 3 {
				t.Errorf("%v became %v", specs, r.Query())
			}
		}
	})
}
