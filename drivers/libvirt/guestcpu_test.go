// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// cpuTraits are those of a host's CPU features, shortened.
func cpuTraits(traits []string) []string {
	var out []string
	for _, trait := range traits {
		if name, is := strings.CutPrefix(trait, "HW_CPU_X86_"); is {
			out = append(out, name)
		}
	}
	return out
}

// TestCPUTraitsFollowWhatGuestsSee: as Nova's driver reports them for these options, but that it
// reports a feature that guests do not have.
func TestCPUTraitsFollowWhatGuestsSee(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	host := []string{"AESNI", "AVX", "AVX2", "AVX512F",
		"CLMUL", "INTEL_VMX", "SSE", "SSE2", "SSE41", "SSE42", "SSSE3", "VMX"}
	without := func(gone ...string) []string {
		return slices.DeleteFunc(slices.Clone(host), func(trait string) bool { return slices.Contains(gone, trait) })
	}
	for name, c := range map[string]struct {
		config map[string]any
		want   []string
	}{
		"no properties":    {nil, host},
		"the host's model": {map[string]any{"cpu_mode": "host-model"}, host},
		"passed through":   {map[string]any{"cpu_mode": "host-passthrough"}, host},
		"a feature less, and one more": {map[string]any{"cpu_model_extra_flags": []string{"-AVX512F", "+3dnow"}},
			append([]string{"3DNOW"}, without("AVX512F")...)},
		"one model": {map[string]any{"cpu_mode": "custom", "cpu_models": []string{"nehalem"}}, []string{"SSE", "SSE2"}},
		"two models, and flags": {
			map[string]any{"cpu_mode": "custom", "cpu_models": []string{"Nehalem", "SandyBridge"},
				"cpu_model_extra_flags": []string{"aes", "-sse2"}},
			[]string{"AESNI", "AVX", "SSE"},
		},
		"the emulator's default": {map[string]any{"cpu_mode": "none", "cpu_model_extra_flags": []string{"avx"}},
			[]string{"SSE"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := testhost.Sample()
			d := newDaemon(t, h)
			d.models = map[string][]string{"Nehalem": {"sse", "sse2"}, "SandyBridge": {"sse", "avx"}, "qemu64": {"sse"}}
			r := newRig(t, h, d.open, c.config)
			diff(t, "traits", c.want, cpuTraits(r.mustPass(newTree(t)).Traits))
			if d.expands > 3 {
				t.Errorf("models were expanded %d times: two passes ask once", d.expands)
			}
		})
	}
}

// TestCPUModelThatLibvirtDoesNotKnow: nothing is reported, and nothing taken away.
func TestCPUModelThatLibvirtDoesNotKnow(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	r := newRig(t, h, newDaemon(t, h).open,
		map[string]any{"cpu_mode": "custom", "cpu_models": []string{"Nehalem", "Unheard-Of"}})
	tree := newTree(t)
	testproc.Try(tree.AddTraits(nodeUUID, "HW_CPU_X86_AVX", "HW_CPU_X86_3DNOW")).Or(t)
	diff(t, "traits", []string{"3DNOW", "AVX"}, cpuTraits(r.mustPass(tree).Traits))
	if !slices.ContainsFunc(r.Warnings(), func(w plugins.Warning) bool { return w.Name == "cpu-models" }) {
		t.Errorf("no warning: %+v", r.Warnings())
	}
}

func TestCPUModelConfig(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	for name, c := range map[string]struct {
		config map[string]any
		says   string
	}{
		"no such mode":         {map[string]any{"cpu_mode": "maximum"}, "cpu_mode"},
		"custom, and no model": {map[string]any{"cpu_mode": "custom"}, "cpu_models: is required"},
		"models, not custom":   {map[string]any{"cpu_models": []string{"Nehalem"}}, "cpu_models: is allowed only"},
		"no name of a model":   {map[string]any{"cpu_mode": "custom", "cpu_models": []string{"<x/>"}}, "cpu_models[0]"},
		"no flag": {map[string]any{"cpu_model_extra_flags": []string{"avx", "--avx2"}},
			"cpu_model_extra_flags[1]"},
	} {
		t.Run(name, func(t *testing.T) {
			err := newRig(t, h, newDaemon(t, h).open, nil).configure(c.config)
			testproc.ErrorHas(t, err, c.says, "%v")
		})
	}
}
