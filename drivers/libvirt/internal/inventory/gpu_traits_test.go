// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestGPU(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	small := "HW_GPU_RESOLUTION_W1024H600 HW_GPU_RESOLUTION_W1024H768 HW_GPU_RESOLUTION_W320H240 " +
		"HW_GPU_RESOLUTION_W640H480 HW_GPU_RESOLUTION_W800H600"
	for name, tc := range map[string]struct{ description, want string }{
		"NVIDIA's": {"num_heads=4, frl_config=60, framebuffer=1024M, max_resolution=1024x768, " +
			"max_instance=16\n", "HW_GPU_MAX_DISPLAY_HEADS_4 " + small},
		"a number without trait": {"num_heads=3, framebuffer=1024M", ""},
		"a smaller height":       {"max_resolution=7680x240", "HW_GPU_RESOLUTION_W320H240"},
		"Intel's": {"low_gm_size: 128MB\nhigh_gm_size: 512MB\nfence: 4\nresolution: 1920x1200\n" +
			"weight: 4\n", ""},
		"said twice": {"num_heads=1,num_heads=1", "HW_GPU_MAX_DISPLAY_HEADS_1"},
		"no number": {"num_heads=many, max_resolution=x, max_resolution=320, max_resolution=99999999999999999999x240",
			""},
		"nothing": {"", ""},
		"endless": {"num_heads=4," + strings.Repeat("x", maxDescription), ""},
	} {
		t.Run(name, func(t *testing.T) {
			testproc.Same(t, cmp.Diff(tc.want, strings.Join(GPUTraits(tc.description), " ")))
		})
	}
	if got := len(GPUTraits("max_resolution=7680x4320")); got != len(resolutions) {
		t.Errorf("the largest has %d of %d", got, len(resolutions))
	}
}

func FuzzGPU(f *testing.F) {
	f.Add("num_heads=4, frl_config=60, framebuffer=1024M, max_resolution=4096x2160, max_instance=16")
	f.Add("max_resolution=-1x-1,num_heads=-4")
	f.Fuzz(func(t *testing.T, description string) {
		got := GPUTraits(description)
		if !slices.IsSorted(got) {
			t.Fatalf("%q", got)
		}
		for _, trait := range got {
			if _, found := slices.BinarySearch(OwnedGPUTraits(), trait); !found {
				t.Fatalf("%s is not owned", trait)
			}
		}
	})
}
