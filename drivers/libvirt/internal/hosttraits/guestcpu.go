// SPDX-License-Identifier: Apache-2.0

package hosttraits

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
)

// Names of the keys about the processors that guests see.
const (
	CPUModeKey   = "cpu_mode"
	CPUModelsKey = "cpu_models"
	CPUFlagsKey  = "cpu_model_extra_flags"
)

// The values of cpu_mode.
const (
	CPUHostModel       = "host-model"
	CPUHostPassthrough = "host-passthrough"
	CPUCustom          = "custom"
	CPUNone            = "none"
)

// GuestCPU is the processor that guests see: Nova's options of these names. The traits of the node's CPU are those of this processor, since a
// guest cannot use what it does not see.
type GuestCPU struct {
	// Mode is one of the values of cpu_mode; "" is host-model (host-passthrough on aarch64): guests see all features of the host.
	Mode string `json:"cpu_mode"`
	// Models are libvirt's names of the models that guests can have, for the mode custom.
	Models []string `json:"cpu_models"`
	// Flags are features that guests have besides (avx, +avx) or do not have (-avx).
	Flags []string `json:"cpu_model_extra_flags"`
}

var (
	cpuModel = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}$`)
	cpuFlag  = regexp.MustCompile(`^[+-]?[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}$`)
)

// wrongCPU finds what the types do not.
func (g GuestCPU) wrongCPU() (all []error) {
	bad := func(key, format string, args ...any) {
		all = append(all, &plugins.ConfigError{Key: key, Problem: fmt.Sprintf(format, args...)})
	}
	switch g.Mode {
	case "", CPUHostModel, CPUHostPassthrough, CPUCustom, CPUNone:
	default:
		bad(CPUModeKey, "%.40q is not one of %q, %q, %q and %q", g.Mode, CPUHostModel, CPUHostPassthrough, CPUCustom, CPUNone)
	}
	switch {
	case g.Mode == CPUCustom && len(g.Models) == 0:
		bad(CPUModelsKey, "is required with %s = %q", CPUModeKey, CPUCustom)
	case g.Mode != CPUCustom && len(g.Models) > 0:
		bad(CPUModelsKey, "is allowed only with %s = %q", CPUModeKey, CPUCustom)
	}
	for i, model := range g.Models {
		if !cpuModel.MatchString(model) {
			bad(fmt.Sprintf("%s[%d]", CPUModelsKey, i), "%.80q is not the name of a CPU model; `virsh cpu-models ARCH` lists them", model)
		}
	}
	for i, flag := range g.Flags {
		if !cpuFlag.MatchString(flag) {
			bad(fmt.Sprintf("%s[%d]", CPUFlagsKey, i), "%.80q is not a CPU feature with + or - before it, such as \"-avx2\"", flag)
		}
	}
	return all
}

// ModelsFor are libvirt's names of the models whose features guests have; none if they have the host's.
func (g GuestCPU) ModelsFor(arch string) []string {
	switch g.Mode {
	case CPUCustom:
		return g.Models
	case CPUNone:
		switch arch { // the models that an emulator chooses by itself, as in Nova
		case "i686":
			return []string{"qemu32"}
		case "ppc64le":
			return []string{"POWER8"}
		case "aarch64":
			return []string{"max"}
		}
		return []string{"qemu64"}
	}
	return nil
}

// Apply returns features with those that the extra flags add, and without those that they disable. The mode none takes no flags, as in
// Nova.
func (g GuestCPU) Apply(features []string) []string {
	if g.Mode == CPUNone || len(g.Flags) == 0 {
		return features
	}
	out := slices.Clone(features)
	for _, flag := range g.Flags {
		name := strings.ToLower(strings.TrimLeft(flag, "+-"))
		out = slices.DeleteFunc(out, func(f string) bool { return f == name })
		if !strings.HasPrefix(flag, "-") {
			out = append(out, name)
		}
	}
	return out
}
