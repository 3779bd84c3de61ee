// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
)

const seeWarnings = "plugins.Warner; proto: Warning"

var warningChecks = []Check{
	{
		ID: "warnings/form", Title: "tells its warnings by name, each once and in words, also before it is configured", Needs: protocol.CapabilityWarnings,
		Protects: "the warnings: an agent cannot show those that it cannot use",
		Rule: fmt.Sprintf("At most %d warnings. A name has 1 to %d of a-z, 0-9, -, _, . and :, a letter or a digit first, and is there once; a text has 1 to %d characters.",
			protocol.MaxWarnings, protocol.MaxWarningName, protocol.MaxWarningText),
		See: seeWarnings, run: checkWarningForm,
	},
	{
		ID: "warnings/steady", Title: "tells the same warnings while nothing happens", Needs: protocol.CapabilityWarnings,
		Protects: "the agent's log, in which each warning that begins or ends is a line",
		Rule:     "A warning is told for as long as it holds, under the same name; what changes from one moment to the next belongs into its text.", See: seeWarnings,
		run: checkWarningsSteady,
	},
	{
		ID: "warnings/announced", Title: "tells warnings only if it announces them",
		Protects: "the warnings: the agent leaves out what was not announced",
		Rule:     "warnings come with the capability \"" + protocol.CapabilityWarnings + "\" only.", See: seeWarnings,
		run: checkWarningsAnnounced,
	},
}

// warned are the warnings of a plugin, before it is configured and after it made a tree.
func (b *bench) warned(ctx context.Context) (before, after []*driverv1.Warning, err error) {
	p, err := b.start(ctx)
	if err != nil {
		return nil, nil, err
	}
	reply, err := p.health(ctx)
	if err != nil {
		return nil, nil, found("Health before Configure", "%s", said(err))
	}
	before = reply.GetWarnings()
	if _, p, err = b.base(ctx); err != nil {
		return nil, nil, err
	}
	if reply, err = p.health(ctx); err != nil {
		return nil, nil, found(sentHealth, "%s", said(err))
	}
	return before, reply.GetWarnings(), nil
}

const sentHealth = "Health after UpdateProviderTree"

func checkWarningForm(ctx context.Context, b *bench) error {
	before, after, err := b.warned(ctx)
	if err != nil {
		return err
	}
	if err := several("Health before Configure", wrongWarnings(before)); err != nil {
		return err
	}
	return several(sentHealth, wrongWarnings(after))
}

// wrongWarnings lists what is wrong with warnings.
func wrongWarnings(all []*driverv1.Warning) []string {
	var out []string
	if n := len(all); n > protocol.MaxWarnings {
		out = append(out, fmt.Sprintf("%d warnings", n))
	}
	seen := map[string]bool{}
	for _, w := range all {
		name, text := w.GetName(), w.GetText()
		switch n := utf8.RuneCountInString(text); {
		case !protocol.IsWarningName(name):
			out = append(out, fmt.Sprintf("a warning with the name %.100q", name))
		case seen[name]:
			out = append(out, "the warning "+name+" twice")
		case strings.TrimSpace(text) == "":
			out = append(out, "the warning "+name+" without a text")
		case n > protocol.MaxWarningText:
			out = append(out, fmt.Sprintf("the warning %s with a text of %d characters", name, n))
		}
		seen[name] = true
	}
	return out
}

func checkWarningsSteady(ctx context.Context, b *bench) error {
	_, first, err := b.warned(ctx)
	if err != nil {
		return err
	}
	_, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	had := warningNames(first)
	var changes []string
	for range 3 { // one may begin or end just now, but not every time
		reply, err := p.health(ctx)
		if err != nil {
			return found(sentHealth, "%s", said(err))
		}
		has := warningNames(reply.GetWarnings())
		changes = nil
		for _, name := range sortedKeys(had) {
			if !has[name] {
				changes = append(changes, "the warning "+name+" is not told any more")
			}
		}
		for _, name := range sortedKeys(has) {
			if !had[name] {
				changes = append(changes, "the warning "+name+" is new")
			}
		}
		if changes == nil {
			return nil
		}
		had = has
	}
	return several("Health four times, with no other call between them; of the last two", changes)
}

func warningNames(all []*driverv1.Warning) map[string]bool {
	out := make(map[string]bool, len(all))
	for _, w := range all {
		out[w.GetName()] = true
	}
	return out
}

func checkWarningsAnnounced(ctx context.Context, b *bench) error {
	_, after, err := b.warned(ctx)
	if err != nil {
		return err
	}
	if n := len(after); n > 0 && !b.announces(protocol.CapabilityWarnings) {
		return found(sentHealth, "%s, without the capability %q", counted(n, "warning"), protocol.CapabilityWarnings)
	}
	return nil
}
