// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
)

// nothing marks a missing inventory.
const nothing = "-"

// isNew and isRemoved mark providers of a reshape.
const isNew, isRemoved = " (new)", " (removed)"

// preview prints the state before and after a reshape, side by side; of one that is refused, what
// the driver requests.
func (p *printer) preview(r *reshape.Preview, refused bool) {
	switch {
	case r.Moved > 0 && refused:
		p.line("  the driver requests to move allocations of %d of %d consumers", r.Moved, r.Consumers)
	case r.Moved > 0:
		p.line("  a reshape would move allocations of %d of %d consumers; amounts per consumer do not change",
			r.Moved, r.Consumers)
	case len(r.Providers) == 0:
		p.line("  the driver requests a reshape. No allocations move, and no inventory changes.")
	default:
		p.line("  the driver requests a reshape. No allocations move; inventories change:")
	}
	for _, from := range slices.Sorted(maps.Keys(r.Renames)) {
		p.line("  resource class %s becomes %s", from, r.Renames[from])
	}
	rows := [][]string{{"", "consumers", "total", "used", "", "consumers", "total", "used"}}
	for _, rp := range r.Providers {
		name := rp.Name
		switch {
		case rp.New:
			name += isNew
		case rp.Removed:
			name += isRemoved
		}
		rows = append(rows, []string{name, strconv.Itoa(rp.Before), "", "", "→", strconv.Itoa(rp.After), "", ""})
		for _, c := range rp.Classes {
			row := append([]string{"  " + c.Class, ""}, totalAndUsed(c.Before)...)
			rows = append(rows, append(append(row, "→", ""), totalAndUsed(c.After)...))
		}
	}
	if len(r.Providers) > 0 {
		table := grid{rows: rows, left: 1, width: p.innerWidth(len("    ")), style: func(row, column int) style {
			switch cells := rows[row]; {
			case row == 0:
				return dim
			case column == 0 && strings.HasSuffix(cells[0], isNew):
				return good
			case column == 0 && strings.HasSuffix(cells[0], isRemoved):
				return bad
			case column > 4 && cells[column] != cells[column-4]: // after, not as before
				return notice
			}
			return plain
		}}
		p.grid("    ", table)
	}
	if r.Moved > 0 && len(r.OverCommitted) > 0 {
		p.line("  %s: more is allocated than there is. Placement before 14.0.0 (2025.2) refuses to move "+
			"consumers of it:",
			p.styled(notice, "over-committed"))
		p.line("  for such a Placement free some of it, or raise its allocation ratio for as long as the reshape takes")
		for _, over := range r.OverCommitted {
			p.line("    %s", over)
		}
	}
	if r.Payload != nil {
		p.line("  the request: %s, %s, %d bytes including the previous state",
			textutil.Count(r.Payload.Providers, "resource provider"), textutil.Count(r.Payload.Consumers, "consumer"),
			r.Payload.Bytes)
	}
}

func totalAndUsed(s *reshape.InventoryCount) []string {
	if s == nil {
		return []string{nothing, nothing}
	}
	return []string{strconv.FormatInt(s.Total, 10), strconv.FormatInt(s.Used, 10)}
}

// Refusal prints why a reshape is refused: each violation with what it concerns, and the fixes.
func Refusal(w io.Writer, problem string, groups []reshape.ViolationGroup, hint string) error {
	p := newPrinter(w)
	p.refusal("", problem, groups, hint)
	return p.err
}

// groups returns an agent's violations, or converts those of an older version.
func groups(all []reshape.ViolationGroup, violations []string) []reshape.ViolationGroup {
	if len(all) > 0 {
		return all
	}
	out := make([]reshape.ViolationGroup, 0, len(violations))
	for _, o := range violations {
		out = append(out, reshape.ViolationGroup{Problem: o})
	}
	return out
}

func (p *printer) refusal(indent, problem string, groups []reshape.ViolationGroup, hint string) {
	p.line("%s%s: %s", indent, p.styled(fatal, "refused"), problem)
	for _, o := range groups {
		if len(o.Concerns) < 2 {
			p.line("%s  - %s", indent, o)
		} else {
			p.line("%s  - %s:", indent, o.Problem)
			for _, concern := range o.Concerns {
				p.line("%s      %s", indent, concern)
			}
		}
		if o.Hint != "" {
			p.line("%s    %s: %s", indent, p.styled(bold, "what to do"), o.Hint)
		}
	}
	if hint != "" {
		p.line("%s%s: %s", indent, p.styled(bold, "what to do"), hint)
	}
}

// ReshapeHistory prints the journal, newest first.
func ReshapeHistory(w io.Writer, entries []journal.Entry) error {
	p := newPrinter(w)
	if len(entries) == 0 {
		p.line("No reshapes yet.")
		return p.err
	}
	undone := map[int64]int64{}
	for _, e := range entries {
		if e.Undoes != 0 && e.Outcome == reportclient.ReshapeHappened {
			undone[e.Undoes] = e.ID
		}
	}
	rows := [][]string{{"reshape", "started", "node", "outcome", "moved"}}
	for _, e := range slices.Backward(entries) {
		rows = append(rows, []string{strconv.FormatInt(e.ID, 10), when(e.Begun), cmp.Or(e.Node, e.Root),
			outcome(e, undone[e.ID]), moved(e)})
	}
	table := grid{rows: rows, left: len(rows[0]), width: p.innerWidth(0), style: func(row, column int) style {
		if column != outcomeColumn || row == 0 {
			return header(row, column)
		}
		return outcomeStyle(entries[len(entries)-row])
	}}
	p.grid("", table)
	return p.err
}

func when(t time.Time) string {
	if t.IsZero() {
		return "?"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// outcomeColumn is the index of the outcome's column in a table of reshapes.
const outcomeColumn = 3

func outcomeStyle(e journal.Entry) style {
	switch {
	case e.Err != nil:
		return bad
	case e.Open():
		return notice
	case e.Outcome == reportclient.ReshapeHappened:
		return good
	}
	return plain
}

func outcome(e journal.Entry, undoneBy int64) string {
	s := string(e.Outcome)
	switch {
	case e.Err != nil && !e.Open():
		s = "damaged"
	case e.Err != nil:
		s = "unknown, damaged"
	case e.Open():
		s = "unknown yet"
	case e.Compared:
		s += " (compared)"
	}
	if e.Undoes != 0 {
		s += fmt.Sprintf(", undoes %d", e.Undoes)
	}
	if undoneBy != 0 {
		s += fmt.Sprintf(", undone by %d", undoneBy)
	}
	return s
}

func moved(e journal.Entry) string {
	if e.Reshape == nil {
		return "?"
	}
	return textutil.Count(len(e.Reshape.Consumers), "consumer") + " on " +
		textutil.Count(len(e.Reshape.Providers), "provider")
}

// Reshape prints one entry of the journal: the state before, and the request.
func Reshape(w io.Writer, e journal.Entry) error {
	p := newPrinter(w)
	p.line("reshape %d of %s (%s): %s", e.ID, p.styled(bold, cmp.Or(e.Node, e.Root)), p.styled(dim, e.Root),
		p.styled(outcomeStyle(e), outcome(e, 0)))
	p.line("  start  %s", when(e.Begun))
	if !e.Ended.IsZero() {
		p.line("  end    %s", when(e.Ended))
	}
	p.line("  file   %s", e.File)
	if e.Err != nil || e.Reshape == nil {
		p.line("  problem: %v", e.Err)
		return p.err
	}
	names := providerNames(e.Reshape)
	rows := [][]string{{"resource provider", "before", "after"}}
	for _, rp := range e.Reshape.Providers {
		rows = append(rows,
			[]string{names[rp.UUID] + " (generation " + strconv.FormatInt(rp.Generation, 10) + ")", "", ""})
		rows = append(rows, beforeAfter(totals(rp.Before), totals(rp.After))...)
	}
	p.table(rows)
	rows = [][]string{{"consumer", "before", "after"}}
	for _, c := range e.Reshape.Consumers {
		rows = append(rows, []string{c.UUID, "", ""})
		rows = append(rows, beforeAfter(places(c.Before, names), places(c.After, names))...)
	}
	if len(rows) > 1 {
		p.table(rows)
	}
	return p.err
}

// table prints rows after an empty line.
func (p *printer) table(rows [][]string) {
	p.line("")
	table := grid{rows: rows, left: 1, width: p.innerWidth(0), style: func(row, column int) style {
		switch cells := rows[row]; {
		case row == 0:
			return dim
		case cells[1] == "" && cells[2] == "": // what the rows below are about
			return bold
		case column == 2 && cells[1] != cells[2]:
			return notice
		}
		return plain
	}}
	p.grid("", table)
}

// beforeAfter returns a row for each key, with its amounts before and after.
func beforeAfter(before, after providertree.Resources) [][]string {
	all := maps.Clone(before)
	maps.Copy(all, after)
	amount := func(amounts providertree.Resources, what string) string {
		if n, there := amounts[what]; there {
			return strconv.FormatInt(n, 10)
		}
		return nothing
	}
	rows := make([][]string, 0, len(all))
	for _, what := range slices.Sorted(maps.Keys(all)) {
		rows = append(rows, []string{"  " + what, amount(before, what), amount(after, what)})
	}
	return rows
}

// totals returns the total of each class.
func totals(v providertree.Inventories) providertree.Resources {
	out := make(providertree.Resources, len(v))
	for class, inventory := range v {
		out[class] = inventory.Total
	}
	return out
}

// providerNames returns the names of all providers of a reshape by uuid. Duplicate names include
// the uuid.
func providerNames(r *reportclient.Reshape) map[string]string {
	names := map[string]string{}
	maps.Copy(names, r.Names)
	for _, rp := range r.Providers {
		names[rp.UUID] = rp.Name
	}
	uses := map[string]int{}
	for _, name := range names {
		uses[name]++
	}
	for uuid, name := range names {
		if uses[name] > 1 {
			names[uuid] = name + " " + uuid
		}
	}
	return names
}

// places returns what a consumer holds on each provider. A provider without a name has its uuid.
func places(held providertree.ProviderResources, names map[string]string) map[string]int64 {
	out := map[string]int64{}
	for provider, amounts := range held {
		for class, amount := range amounts {
			out[class+" on "+cmp.Or(names[provider], provider)] = amount
		}
	}
	return out
}
