// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// heads are the traits for how many displays a GPU can drive at most.
var heads = map[int]string{
	1: "HW_GPU_MAX_DISPLAY_HEADS_1", 2: "HW_GPU_MAX_DISPLAY_HEADS_2", 4: "HW_GPU_MAX_DISPLAY_HEADS_4",
	6: "HW_GPU_MAX_DISPLAY_HEADS_6", 8: "HW_GPU_MAX_DISPLAY_HEADS_8",
}

// resolutions are the widths and heights for which there is a trait HW_GPU_RESOLUTION_W…H….
var resolutions = [][2]int{
	{320, 240}, {640, 480}, {800, 600}, {1024, 600}, {1024, 768}, {1152, 864}, {1280, 720}, {1280, 768},
	{1280, 800}, {1280, 1024}, {1360, 768},
	{1366, 768}, {1440, 900}, {1600, 900}, {1600, 1200}, {1680, 1050}, {1920, 1080}, {1920, 1200}, {2560, 1440},
	{2560, 1600}, {3840, 2160}, {7680, 4320},
}

func resolutionTrait(r [2]int) string {
	return "HW_GPU_RESOLUTION_W" + strconv.Itoa(r[0]) + "H" + strconv.Itoa(r[1])
}

// maxDescription is more than any vendor writes.
const maxDescription = 4096

// GPUTraits are the traits of a type of mediated devices, sorted, as the vendor's driver describes
// it in the file "description" below mdev_supported_types (NVIDIA's: "num_heads=4, frl_config=60,
// framebuffer=1024M, max_resolution=4096x2160, max_instance=16"): the number of displays, and all
// resolutions that are no larger than the largest. From other descriptions none follow.
//
// Nova leaves these traits to the operator. They are for the provider of a GPU, not for the root.
func GPUTraits(description string) []string {
	if len(description) > maxDescription {
		return nil
	}
	var traits []string
	for pair := range strings.FieldsFuncSeq(description,
		func(r rune) bool { return r == ',' || r == '\n' || r == ' ' }) {
		key, value, _ := strings.Cut(pair, "=")
		switch key {
		case "num_heads":
			if n, err := strconv.Atoi(value); err == nil && heads[n] != "" {
				traits = append(traits, heads[n])
			}
		case "max_resolution":
			width, height, _ := strings.Cut(value, "x")
			w, errW := strconv.Atoi(width)
			h, errH := strconv.Atoi(height)
			for _, r := range resolutions {
				if errW == nil && errH == nil && r[0] <= w && r[1] <= h {
					traits = append(traits, resolutionTrait(r))
				}
			}
		}
	}
	slices.Sort(traits)
	return slices.Compact(traits)
}

// OwnedGPUTraits are all traits that GPU can return, sorted: on the provider of a GPU the driver
// owns them where it reports them.
func OwnedGPUTraits() []string {
	traits := slices.Collect(maps.Values(heads))
	for _, r := range resolutions {
		traits = append(traits, resolutionTrait(r))
	}
	slices.Sort(traits)
	return traits
}
