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

// doubts are the disagreements between libvirt and the kernel about the host, by name. Each is logged when it begins and when it ends,
// not in every pass.
type doubts struct {
	open map[string]bool
	now  map[string]string
}

// begin starts a pass, in which everything is judged anew.
func (d *doubts) begin() { d.now = map[string]string{} }

// judge notes whether a disagreement holds now, and in which words.
func (d *doubts) judge(name string, holds bool, format string, args ...any) {
	if !holds {
		return
	}
	d.now[name] = fmt.Sprintf(format, args...)
}

// take notes those that hold now.
func (d *doubts) take(list []machine.Discrepancy) {
	for _, one := range list {
		d.now[one.Key] = one.Text
	}
}

// log tells what is new since the last pass, and returns all that holds, by name. Every pass judges everything, so what was not judged to hold has
// ended.
func (d *doubts) log(logger zerolog.Logger) (all []plugins.Warning) {
	for _, name := range slices.Sorted(maps.Keys(d.now)) {
		all = append(all, plugins.Warning{Name: name, Text: d.now[name]})
		if !d.open[name] {
			logger.Warn().Str("warning", name).Msg("Doubt about the host: " + d.now[name] + ". This is told once.")
		}
	}
	next := make(map[string]bool, len(d.now))
	for name := range d.now {
		next[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(d.open)) {
		if !next[name] {
			logger.Info().Str("warning", name).Msg("This doubt about the host is gone.")
		}
	}
	d.open = next
	return all
}
