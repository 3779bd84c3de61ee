// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
)

// Names of the configuration's keys about the power of CPUs, which are those of Nova's [libvirt]
// section.
const (
	PowerKey         = "cpu_power_management"
	PowerStrategyKey = "cpu_power_management_strategy"
)

// PowerConfig are the keys about the power of dedicated CPUs. Those that no guest uses are off, or
// slow.
type PowerConfig struct {
	Management bool `json:"cpu_power_management"`
	// Strategy is cpu_state or governor.
	Strategy string `json:"cpu_power_management_strategy"`
	// Low is the governor of CPUs that no guest uses, High that of the others.
	Low  string `json:"cpu_power_governor_low"`
	High string `json:"cpu_power_governor_high"`
}

// DefaultPower has the defaults, which are Nova's.
func DefaultPower() PowerConfig {
	return PowerConfig{Strategy: cpuState, Low: "powersave", High: "performance"}
}

// The strategies.
const (
	cpuState = "cpu_state"
	governor = "governor"
)

// Power is which CPUs are switched, and how. The zero value switches none.
type Power struct {
	// Managed are the dedicated CPUs but CPU 0, which cannot be switched.
	Managed []int
	// Low and High are the governors between which CPUs are switched; both "": CPUs are taken
	// offline and brought online.
	Low, High string
	// boot says that CPU 0 is dedicated.
	boot bool
}

var governorName = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)

// ParsePower reads the configuration. Errors are [*plugins.ConfigError].
func ParsePower(c PowerConfig, sets CPUSets) (Power, error) {
	var all []error
	if c.Strategy != cpuState && c.Strategy != governor {
		all = append(all, &plugins.ConfigError{Key: PowerStrategyKey,
			Problem: fmt.Sprintf("%q must be %q or %q", c.Strategy, cpuState, governor)})
	}
	for _, one := range []struct{ key, name string }{{"cpu_power_governor_low", c.Low},
		{"cpu_power_governor_high", c.High}} {
		if !governorName.MatchString(one.name) {
			all = append(all,
				&plugins.ConfigError{Key: one.key,
					Problem: fmt.Sprintf("%.80q is not the name of a governor such as \"powersave\"", one.name)})
		}
	}
	if len(all) > 0 || !c.Management {
		return Power{}, plugins.JoinConfig(all...)
	}
	p := Power{Managed: filter(sets.Dedicated, func(cpu int) bool { return cpu != 0 })}
	p.boot = len(p.Managed) < len(sets.Dedicated)
	if c.Strategy == governor {
		p.Low, p.High = c.Low, c.High
	}
	return p, nil
}

// Switchable are the CPUs that guests can have although they are offline.
func (p Power) Switchable() []int {
	if p.ByGovernor() {
		return nil
	}
	return p.Managed
}

// ByGovernor says that CPUs stay online.
func (p Power) ByGovernor() bool { return p.Low != "" }

// Check finds what Nova refuses to start with, given the governors of the CPUs that are online and
// have one. Errors are [*plugins.ConfigError].
func (p Power) Check(m machine.Machine, governors map[int]string) error {
	managed, names := machine.SetOf(p.Managed), map[string][]int{}
	var off []int
	for _, cpu := range m.CPUs {
		switch {
		case !managed[cpu.ID]:
		case !cpu.Online:
			off = append(off, cpu.ID)
		case governors[cpu.ID] != "":
			names[governors[cpu.ID]] = append(names[governors[cpu.ID]], cpu.ID)
		}
	}
	switch {
	case p.ByGovernor() && len(off) > 0:
		list := machine.FormatCPUs(off)
		return &plugins.ConfigError{Key: PowerStrategyKey, Problem: fmt.Sprintf(
			"all the cores need to be online before modifying the governor strategy; CPUs %s are offline: bring "+
				"them online (chcpu -e %s)", list, list)}
	case !p.ByGovernor() && len(names) > 1:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(names)) {
			parts = append(parts, fmt.Sprintf("CPUs %s have %s", machine.FormatCPUs(names[name]), name))
		}
		return &plugins.ConfigError{Key: PowerStrategyKey, Problem: fmt.Sprintf(
			"all the cores need to have the same governor strategy before modifying the CPU states (%s); set one "+
				"(cpupower -c %s frequency-set -g GOVERNOR), or reboot the host",
			machine.JoinSome(parts), machine.FormatCPUs(p.Managed))}
	}
	return nil
}

// Discrepancies is what is valid but probably not intended.
func (p Power) Discrepancies() []machine.Discrepancy {
	if !p.boot {
		return nil
	}
	return []machine.Discrepancy{machine.Discrepancyf("cpu-power-cpu0",
		"CPU 0 is in %s, but it is not eligible for state management and will be ignored: it is always on",
		DedicatedCPUsKey)}
}
