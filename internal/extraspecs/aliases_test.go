// SPDX-License-Identifier: Apache-2.0

package extraspecs_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestAliases: those of nova.conf become classes and traits as devices do.
func TestAliases(t *testing.T) {
	got := testproc.Try(extraspecs.ParseAliases([]string{
		`{"name": "QuickAssist", "product_id": "0443", "vendor_id": "8086", "device_type": "type-PCI", ` +
			`"numa_policy": "legacy"}`,
		`{"name": "A16_16A", "device_type": "type-VF", "resource_class": "GPU_VF", "traits": "blue, ` +
			`big,HW_GPU_API_VULKAN"}`,
		`{"name": " fpga ", "resource_class": "fpga", "live_migratable": "no", "capability_type": "pci"}`,
	})).Or(t)
	want := extraspecs.Aliases{
		"QuickAssist": {Class: "CUSTOM_PCI_8086_0443"},
		"A16_16A":     {Class: "CUSTOM_GPU_VF", Traits: []string{"CUSTOM_BIG", "CUSTOM_BLUE", "HW_GPU_API_VULKAN"}},
		"fpga":        {Class: "FPGA"},
	}
	testproc.Same(t, cmp.Diff(want, got))
	for text, says := range map[string]string{
		``: "Malformed", `[]`: "no JSON object", `{"name": 1}`: "not a string", `{"resource_class": "A"}`: "the name",
		`{"name": "a:b", "resource_class": "A"}`:                          "colon",
		`{"name": "a"}`:                                                   "must have resource_class",
		`{"name": "a", "vendor_id": "8086"}`:                              "must have resource_class",
		`{"name": "a", "vendor_id": "x", "product_id": "0443"}`:           "four hexadecimal",
		`{"name": "a", "resource_class": "A", "numa_policy": "required"}`: "it must be legacy or preferred",
		`{"name": "a", "resource_class": "A", "device_type": "vdpa"}`:     "type-PCI, type-PF or type-VF",
		`{"name": "a", "resource_class": "A", "colour": "red"}`:           "no member",
		`{"name": "a", "resource_class": "A", "traits": "CUSTOM_-"}`:      "CUSTOM_-",
	} {
		testproc.Try(extraspecs.ParseAliases([]string{text})).ErrorHas(t, says, "%s: %v", text)
	}
	if _, err := extraspecs.ParseAliases(
		[]string{`{"name": "a", "resource_class": "A"}`, `{"name": "a", "resource_class": "B"}`}); err == nil {
		t.Error("two aliases of one name")
	}
}

// TestExpand: each device has a request group of its own.
func TestExpand(t *testing.T) {
	aliases := extraspecs.Aliases{"a1": {Class: "CUSTOM_A", Traits: []string{"CUSTOM_BIG"}}, "b": {Class: "VGPU"}}
	specs := map[string]string{extraspecs.AliasSpec: "a1:2, b:1",
		"resources_PCI1:CUSTOM_X": "1", "hw:cpu_policy": "shared"}
	got := testproc.Try(aliases.Expand(specs)).Or(t)
	want := map[string]string{
		"resources_PCI0:CUSTOM_A": "1", "trait_PCI0:CUSTOM_BIG": "required", "resources_PCI2:CUSTOM_A": "1",
		"trait_PCI2:CUSTOM_BIG": "required",
		"resources_PCI3:VGPU":   "1", "resources_PCI1:CUSTOM_X": "1", "hw:cpu_policy": "shared", "group_policy": "none",
	}
	testproc.Same(t, cmp.Diff(want, got))
	if specs[extraspecs.AliasSpec] == "" {
		t.Error("the flavor was changed")
	}
	if got, err := aliases.Expand(map[string]string{extraspecs.AliasSpec: "b:1",
		"group_policy": "isolate"}); err != nil || got["group_policy"] != "isolate" {
		t.Error(got, err)
	}
	if got, err := aliases.Expand(map[string]string{"a": "b"}); err != nil ||
		!cmp.Equal(got, map[string]string{"a": "b"}) {
		t.Error(got, err)
	}
	for text, want := range map[string]string{
		"c:1": "PCI alias c is not defined", "a1": "is not of the format", "a1:x": "is not of the format",
		"a1:-1": "is not of the format", "": "is not of the format",
		"a1:64,b:1": "more than 64 devices", "a1:9999999999": "is not of the format",
	} {
		testproc.Try(aliases.Expand(map[string]string{extraspecs.AliasSpec: text})).ErrorHas(t, want, "%q: %v", text)
	}
	if _, err := (extraspecs.Aliases)(nil).Expand(map[string]string{extraspecs.AliasSpec: "a:1"}); err == nil {
		t.Error("an alias without any")
	}
}
