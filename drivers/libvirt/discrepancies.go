// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
)

// discrepancies are the differences between libvirt and the kernel about the host, by name. Each is
// logged when it begins and when it ends, not in every pass.
type discrepancies struct {
	logged map[string]bool
	found  map[string]string
}

// begin starts a pass, which finds every discrepancy again.
func (d *discrepancies) begin() { d.found = map[string]string{} }

// addIf adds a discrepancy if it holds.
func (d *discrepancies) addIf(holds bool, name, format string, args ...any) {
	if holds {
		d.found[name] = fmt.Sprintf(format, args...)
	}
}

func (d *discrepancies) add(list []machine.Discrepancy) {
	for _, one := range list {
		d.found[one.Key] = one.Text
	}
}

// log logs what began or ended since the last pass, and returns all that holds, by name.
func (d *discrepancies) log(logger zerolog.Logger) (all []plugins.Warning) {
	for _, name := range slices.Sorted(maps.Keys(d.found)) {
		all = append(all, plugins.Warning{Name: name, Text: d.found[name]})
		if !d.logged[name] {
			logger.Warn().Str("warning", name).Msg("Host discrepancy: " + d.found[name] + ". Logged once.")
		}
	}
	now := make(map[string]bool, len(d.found))
	for name := range d.found {
		now[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(d.logged)) {
		if !now[name] {
			logger.Info().Str("warning", name).Msg("Host discrepancy resolved.")
		}
	}
	d.logged = now
	return all
}
