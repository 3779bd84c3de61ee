// SPDX-License-Identifier: Apache-2.0

package hosttraits

import (
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/plugins"
)

// Names of the configuration's keys.
const (
	ServiceKey   = "compute_capabilities"
	OverridesKey = "compute_capability_overrides"
	MoreKey      = "more_traits"
)

// Choice is what to do about a group of traits.
type Choice string

// The choices.
const (
	// Keep says nothing about the traits: those that are on the root stay. It is the default.
	Keep Choice = "keep"
	// Report says which of them the host has, and which not.
	Report Choice = "report"
	// Remove says that the host has none of them.
	Remove Choice = "remove"
)

// Config are the keys about traits in the driver's configuration.
type Config struct {
	// Service is about what the service that runs the guests promises, see [Host.Capabilities]: with "report" what Nova's libvirt driver
	// promises; with "keep" what stands, so that nothing changes for a scheduler where nova-compute still runs the guests.
	Service Choice `json:"compute_capabilities"`
	// Overrides have the last word about single ones of these: COMPUTE_IMAGE_TYPE_QCOW2 = false where nova.conf says so.
	Overrides map[string]bool `json:"compute_capability_overrides"`
	// More is about facts of the host for which there are traits, but which Nova's driver does not report: firmware, USB controllers.
	More Choice `json:"more_traits"`
	// SWTPM lets guests have emulated TPMs, where libvirt can make them. It is Nova's option [libvirt]swtpm_enabled.
	SWTPM bool `json:"swtpm_enabled"`

	GuestCPU
}

// Check finds what the types do not. The error is a [*plugins.ConfigError].
func (c Config) Check() error {
	all := c.wrongCPU()
	for _, choice := range []struct {
		key   string
		value Choice
	}{{ServiceKey, c.Service}, {MoreKey, c.More}} {
		switch choice.value {
		case "", Keep, Report, Remove:
		default:
			all = append(all, &plugins.ConfigError{Key: choice.key, Problem: fmt.Sprintf("%.40q is none of %q, %q and %q", choice.value, Keep, Report, Remove)})
		}
	}
	for _, trait := range slices.Sorted(maps.Keys(c.Overrides)) {
		if !promised[trait] {
			all = append(all, &plugins.ConfigError{Key: OverridesKey, Problem: fmt.Sprintf("%.80q is no trait by which a compute service promises something, such as %s", trait, service[0].trait)})
		}
	}
	return plugins.JoinConfig(all...)
}
