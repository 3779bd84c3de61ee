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

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/textutil"
)

// TreeOptions configures [Tree].
type TreeOptions struct {
	// AllTraits prints every trait instead of folding families of them.
	AllTraits bool
	// Width is that of the terminal, into which lines are broken; 0: there is none, and each
	// consumer has one line.
	Width int
	// Now is the time for the age of a stale tree.
	Now time.Time
}

// Tree prints the provider trees of all nodes.
func Tree(w io.Writer, tree control.Tree, opts TreeOptions) error {
	p := &printer{w: w}
	if len(tree.Nodes) == 0 {
		p.line("No compute nodes yet: no driver has reported one.")
	}
	for i, node := range tree.Nodes {
		if i > 0 {
			p.line("")
		}
		if node.Error != "" {
			p.line("%s (%s)", node.Node, node.UUID)
			p.line("  nothing to show: %s", node.Error)
			continue
		}
		if node.Stale != "" {
			p.line("%s: Placement cannot be read: %s", node.Node, node.Stale)
			p.line("The tree below was read at %s, %s. Usage is unknown.", node.ReadAt.UTC().Format(time.RFC3339), ago(node.ReadAt, opts.Now))
			p.line("")
		}
		children := map[string][]control.Provider{}
		for _, rp := range node.Providers {
			children[rp.Parent] = append(children[rp.Parent], rp)
		}
		for _, root := range children[""] {
			p.provider(root, children, "", "", opts)
		}
		if node.GuestsError != "" {
			p.line("The guests of %s are unknown: %s", node.Node, node.GuestsError)
		}
		if len(node.WithoutAllocations) > 0 {
			p.line("Guests of %s without allocations (see compute-agent allocations audit):", node.Node)
			for _, row := range consumerTable(node.WithoutAllocations, opts.within(2)) {
				p.line("  %s", row)
			}
		}
	}
	return p.err
}

// printer keeps the first error of its writer.
type printer struct {
	w   io.Writer
	err error
}

// line prints one line, sanitized.
func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.w, textutil.Printable(strings.TrimRight(fmt.Sprintf(format, args...), " ")))
	}
}

// provider prints a provider and its children. first is the prefix of its first line, rest that of
// all others.
func (p *printer) provider(rp control.Provider, children map[string][]control.Provider, first, rest string, opts TreeOptions) {
	below := children[rp.UUID]
	bar := rest + "│ "
	if len(below) == 0 {
		bar = rest + "  "
	}
	title := fmt.Sprintf("%s%s  %s  generation %d", first, rp.Name, rp.UUID, rp.Generation)
	whole := title + "  " + rp.ProductName
	if rp.ProductName == "" || opts.Width <= 0 || runes(whole) <= opts.Width {
		p.line("%s", whole)
	} else {
		p.line("%s", title)
		for _, row := range wrapText(rp.ProductName, opts.within(runes(bar)+1)) {
			p.line("%s %s", bar, row)
		}
	}
	for _, row := range inventoryTable(rp.Inventories) {
		p.line("%s %s", bar, row)
	}
	traits := widestTraits
	if opts.Width > 0 {
		traits = min(traits, opts.within(runes(bar)+1+len("traits  ")))
	}
	for i, row := range wrap(foldTraits(rp.Traits, opts.AllTraits), traits) {
		label := "traits  "
		if i > 0 {
			label = "        "
		}
		p.line("%s %s%s", bar, label, row)
	}
	for i, aggregate := range rp.Aggregates {
		label := "member of  "
		if i > 0 {
			label = "           "
		}
		p.line("%s %s%s", bar, label, aggregate)
	}
	for i, row := range consumerTable(rp.Consumers, opts.within(runes(bar)+1+len("held by  "))) {
		label := "held by  "
		if i > 0 {
			label = "         "
		}
		p.line("%s %s%s", bar, label, row)
	}
	for i, child := range below {
		if i == len(below)-1 {
			p.provider(child, children, rest+"└─ ", rest+"   ", opts)
		} else {
			p.provider(child, children, rest+"├─ ", rest+"│  ", opts)
		}
	}
}

// widestTraits is how wide a line of traits is at most, narrowest how narrow text beside a tree is
// made at most.
const widestTraits, narrowest = 96, 24

// within is how wide text is after an indent; 0: any width.
func (o TreeOptions) within(indent int) int {
	if o.Width <= 0 {
		return 0
	}
	return max(o.Width-indent, narrowest)
}

func runes(text string) int { return len([]rune(textutil.Printable(text))) }

// inventoryTable formats inventories as a table with a header.
func inventoryTable(inventories []control.Inventory) []string {
	if len(inventories) == 0 {
		return []string{"no inventory"}
	}
	rows := [][]string{{"", "total", "reserved", "ratio", "capacity", "used", "free"}}
	for _, i := range inventories {
		used, free := "?", "?"
		if i.Used != nil {
			used, free = strconv.FormatInt(*i.Used, 10), strconv.FormatInt(i.Capacity-*i.Used, 10)
		}
		rows = append(rows, []string{
			i.Class, strconv.FormatInt(i.Total, 10), strconv.FormatInt(i.Reserved, 10),
			strconv.FormatFloat(i.AllocationRatio, 'f', -1, 64), strconv.FormatInt(i.Capacity, 10), used, free,
		})
	}
	return columns(rows)
}

// maxName is how much of the name of a guest is shown, in characters.
const maxName = 40

// consumerTable formats consumers, a line each: name, uuid, amounts, and what is special. If that
// is wider than width, names have lines of their own, and the rest is below them.
func consumerTable(consumers []control.Consumer, width int) []string {
	if len(consumers) == 0 {
		return nil
	}
	rows := make([][]string, 0, len(consumers))
	for _, c := range consumers {
		name := textutil.Line(cmp.Or(c.Name, c.Guest, "-"), maxName)
		if c.Name != "" && c.Guest != "" && c.Guest != c.Name && !strings.Contains(c.Guest, c.UUID) { // the uuid is beside it
			name += " (" + textutil.Line(c.Guest, maxName) + ")"
		}
		var amounts []string
		for _, class := range slices.Sorted(maps.Keys(c.Resources)) {
			amounts = append(amounts, fmt.Sprintf("%s %d", class, c.Resources[class]))
		}
		rows = append(rows, []string{name, c.UUID, strings.Join(amounts, ", "), consumerNote(c)})
	}
	table := leftColumns(rows)
	if width <= 0 || !slices.ContainsFunc(table, func(row string) bool { return runes(row) > width }) {
		return table
	}
	var lines []string
	for _, row := range rows {
		lines = append(lines, wrapText(row[0], width)...)
		own := len(lines)
		for _, cell := range row[1:] {
			if n := len(lines); cell != "" && n > own && runes(lines[n-1])+len("  ")+runes(cell) <= width {
				lines[n-1] += "  " + cell
				continue
			}
			for _, part := range wrapText(cell, width-len("  ")) {
				lines = append(lines, "  "+part)
			}
		}
	}
	return lines
}

// consumerNote says what a consumer is that is not just a guest of the node.
func consumerNote(c control.Consumer) string {
	var what string
	switch c.Kind {
	case control.KindGuest:
		return ""
	case control.KindElsewhere:
		what = "a guest of " + c.GuestOf + ", not of this node"
	case control.KindServer:
		what = "a server of the cell, not a guest now"
	case control.KindUnchecked:
		what = "not known whether it is a guest"
	default:
		what = "not a guest of this host"
	}
	if c.Type != "" && c.Type != "INSTANCE" {
		what = c.Type + ", " + what
	}
	return what
}

// columns aligns the first column left and the others right. leftColumns aligns all of them left.
func columns(rows [][]string) []string     { return aligned(rows, 1) }
func leftColumns(rows [][]string) []string { return aligned(rows, len(rows[0])) }

// aligned formats rows of equal length, the first left columns aligned left.
func aligned(rows [][]string, left int) []string {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len([]rune(textutil.Printable(cell))))
		}
	}
	out := make([]string, 0, len(rows))
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cell = textutil.Printable(cell)
			pad := strings.Repeat(" ", width[i]-len([]rune(cell)))
			if i < left {
				cells[i] = cell + pad
			} else {
				cells[i] = pad + cell
			}
		}
		out = append(out, strings.TrimRight(strings.Join(cells, "  "), " "))
	}
	return out
}

// families are the prefixes of traits that are folded, the most specific first.
var families = []string{"HW_CPU_X86_", "HW_CPU_AARCH64_", "HW_GPU_", "HW_NIC_", "COMPUTE_", "CUSTOM_"}

// foldAt is the number of traits of a family that are listed before they are folded.
const foldAt = 5

// foldTraits returns traits, with each large family folded into one entry.
func foldTraits(traits []string, all bool) []string {
	if all {
		return slices.Clone(traits)
	}
	family := func(trait string) string {
		for _, f := range families {
			if strings.HasPrefix(trait, f) {
				return f
			}
		}
		return ""
	}
	count := map[string]int{}
	for _, t := range traits {
		count[family(t)]++
	}
	var out []string
	folded := map[string]bool{}
	for _, t := range traits {
		f := family(t)
		switch {
		case f == "" || count[f] <= foldAt || t == "COMPUTE_NODE":
			out = append(out, t)
		case !folded[f]:
			folded[f] = true
			n := count[f]
			if f == "COMPUTE_" && slices.Contains(traits, "COMPUTE_NODE") {
				n--
			}
			out = append(out, fmt.Sprintf("%s* (%d)", f, n))
		}
	}
	return out
}

// wrap joins words into lines of at most width characters, if no word is longer.
func wrap(words []string, width int) []string {
	var out []string
	for _, w := range words {
		if n := len(out); n > 0 && len(out[n-1])+2+len(w) <= width {
			out[n-1] += ", " + w
		} else {
			if n > 0 {
				out[n-1] += ","
			}
			out = append(out, w)
		}
	}
	return out
}
