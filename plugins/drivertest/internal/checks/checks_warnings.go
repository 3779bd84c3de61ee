// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

const seeWarnings = "plugins.Warner; proto: Warning"

var warningChecks = []Check{
	{
		ID: "warnings/form", Title: "reports its warnings with name and text, each once, also before it is configured",
		Needs:    protocol.CapabilityWarnings,
		Protects: "the warnings: the agent ignores invalid ones",
		Rule: fmt.Sprintf(
			"At most %d warnings. A name has 1 to %d of a-z, 0-9, -, _, . and :, starts with a letter or a digit, "+
				"and is listed once; a text has 1 to %d characters.",
			protocol.MaxWarnings, protocol.MaxWarningName, protocol.MaxWarningText),
		See: seeWarnings, run: checkWarningForm,
	},
	{
		ID: "warnings/steady", Title: "reports the same warnings while nothing changes",
		Needs:    protocol.CapabilityWarnings,
		Protects: "the agent's log, which has a line for each warning that begins or ends",
		Rule: "A warning is reported as long as it holds, under the same name; details that change belong " +
			"in its text.", See: seeWarnings,
		run: checkWarningsSteady,
	},
	{
		ID: "warnings/announced", Title: "reports warnings only if it announces them",
		Protects: "the warnings: the agent ignores what was not announced",
		Rule:     "warnings need the capability \"" + protocol.CapabilityWarnings + "\".", See: seeWarnings,
		run: checkWarningsAnnounced,
	},
}

// warnings returns those of a plugin before it is configured and after it made a tree.
func (b *Bench) warnings(ctx context.Context) (before, after []*driverv1.Warning, err error) {
	p, err := b.start(ctx)
	if err != nil {
		return nil, nil, err
	}
	reply, err := p.health(ctx)
	if err != nil {
		return nil, nil, failf("Health before Configure", "%s", describe(err))
	}
	before = reply.GetWarnings()
	if _, p, err = b.base(ctx); err != nil {
		return nil, nil, err
	}
	if reply, err = p.health(ctx); err != nil {
		return nil, nil, failf(sentHealth, "%s", describe(err))
	}
	return before, reply.GetWarnings(), nil
}

const sentHealth = "Health after UpdateProviderTree"

func checkWarningForm(ctx context.Context, b *Bench) error {
	before, after, err := b.warnings(ctx)
	if err != nil {
		return err
	}
	if err := failLines("Health before Configure", invalidWarnings(before)); err != nil {
		return err
	}
	return failLines(sentHealth, invalidWarnings(after))
}

// invalidWarnings describes what is wrong with warnings.
func invalidWarnings(all []*driverv1.Warning) []string {
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

func checkWarningsSteady(ctx context.Context, b *Bench) error {
	_, first, err := b.warnings(ctx)
	if err != nil {
		return err
	}
	_, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	had := warningNames(first)
	var changes []string
	for range 3 { // one can begin or end at this moment, but not every time
		reply, err := p.health(ctx)
		if err != nil {
			return failf(sentHealth, "%s", describe(err))
		}
		has := warningNames(reply.GetWarnings())
		changes = nil
		for _, name := range sortedKeys(had) {
			if !has[name] {
				changes = append(changes, "the warning "+name+" is missing")
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
	return failLines("Health four times without other calls; comparing the last two", changes)
}

func warningNames(all []*driverv1.Warning) map[string]bool {
	out := make(map[string]bool, len(all))
	for _, w := range all {
		out[w.GetName()] = true
	}
	return out
}

func checkWarningsAnnounced(ctx context.Context, b *Bench) error {
	_, after, err := b.warnings(ctx)
	if err != nil {
		return err
	}
	if n := len(after); n > 0 && !b.announces(protocol.CapabilityWarnings) {
		return failf(sentHealth, "%s, without the capability %q",
			textutil.Count(n, "warning"), protocol.CapabilityWarnings)
	}
	return nil
}
