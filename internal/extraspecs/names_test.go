// SPDX-License-Identifier: Apache-2.0

package extraspecs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestClass(t *testing.T) {
	for in, want := range map[string]string{
		"VGPU": "VGPU", "pgpu": "PGPU", "CUSTOM_X": "CUSTOM_X", "custom_x": "CUSTOM_X",
		" GPU ": "CUSTOM_GPU", "my-gpu": "CUSTOM_MY_GPU",
		"a__b..c": "CUSTOM_A_B_C", "PCI_DEVICE": "PCI_DEVICE", "HW_PCI_ONE_TIME_USE": "CUSTOM_HW_PCI_ONE_TIME_USE",
	} {
		if got, err := ClassName(in); err != nil || got != want {
			t.Errorf("Class(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
	for in, says := range map[string]string{
		"CUSTOM_a b": "only A-Z, 0-9 and _ are allowed",
		"CUSTOM_Ä":   "only A-Z", strings.Repeat("x", 249): "must have 1 to 255",
	} {
		if got, err := ClassName(in); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Class(%q) = %q, %v, want an error with %q", in, got, err, says)
		}
	}
}

func TestTrait(t *testing.T) {
	for in, want := range map[string]string{
		"HW_GPU_API_VULKAN": "HW_GPU_API_VULKAN", "hw_gpu_api_vulkan": "CUSTOM_HW_GPU_API_VULKAN",
		"HW_NO_SUCH":     "CUSTOM_HW_NO_SUCH",
		"my-awesome-gpu": "CUSTOM_MY_AWESOME_GPU", " custom_y ": "CUSTOM_Y",
	} {
		if got, err := TraitName(in); err != nil || got != want {
			t.Errorf("Trait(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
	if got, err := TraitNames([]string{"b", " ", "HW_NUMA_ROOT", "B"}); err != nil ||
		!cmp.Equal(got, []string{"CUSTOM_B", "HW_NUMA_ROOT"}) {
		t.Errorf("Traits: %q, %v", got, err)
	}
	if _, err := TraitNames([]string{"CUSTOM_-"}); err == nil {
		t.Error("CUSTOM_- is a trait")
	}
}

func TestStandardNames(t *testing.T) {
	if !StandardTrait("COMPUTE_MANAGED_PCI_DEVICE") || StandardTrait("CUSTOM_X") {
		t.Error("the standard names are not those of os-traits")
	}
}

// TestTheListsAreThoseOfTheService: the service and the driver have the same lists.
func TestTheListsAreThoseOfTheService(t *testing.T) {
	for name, ours := range map[string]string{"traits.txt": traitsText, "resource_classes.txt": classesText} {
		theirs := testproc.Try(os.ReadFile(filepath.Join("..", "..", "placement", "ledger", "data", name))).Or(t)
		testproc.Samef(t, cmp.Diff(string(theirs), ours), "%s is not placement/ledger's (-theirs +ours)", name)
	}
}

func FuzzNames(f *testing.F) {
	for _, s := range []string{"VGPU", "my-gpu", "custom_x", "", "\xff", "ﬀ", "CUSTOM_"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if class, err := ClassName(s); err == nil {
			testproc.Checkf(t, providertree.ValidateClass(class), "Class(%q)", s)
			if again, err := ClassName(class); err != nil || again != class {
				t.Fatalf("Class(%q) = %q, of which it makes %q, %v", s, class, again, err)
			}
		}
		if trait, err := TraitName(s); err == nil {
			if again, err := TraitName(trait); err != nil || again != trait {
				t.Fatalf("Trait(%q) = %q, of which it makes %q, %v", s, trait, again, err)
			}
		}
	})
}
