// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/textutil"
)

// TreeOptions say how much of a tree is printed.
type TreeOptions struct {
	// AllTraits prints every trait instead of folding families of them.
	AllTraits bool
	// Now is what the age of a tree is counted to that could not be read from Placement.
	Now time.Time
}

// Tree prints the provider trees of all nodes.
func Tree(w io.Writer, tree control.Tree, opts TreeOptions) error {
	p := &printer{w: w}
	if len(tree.Nodes) == 0 {
		p.line("No compute node yet: no driver has named one.")
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
			p.line("The tree below is what the agent read at %s, %s. What is used is not known.", node.ReadAt.UTC().Format(time.RFC3339), ago(node.ReadAt, opts.Now))
			p.line("")
		}
		children := map[string][]control.Provider{}
		for _, rp := range node.Providers {
			children[rp.Parent] = append(children[rp.Parent], rp)
		}
		for _, root := range children[""] {
			p.provider(root, children, "", "", opts)
		}
	}
	return p.err
}

// printer remembers the first error of its writer, so that the code that prints reads as what it prints.
type printer struct {
	w   io.Writer
	err error
}

// line prints one line, whatever the names in it hold.
func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.w, textutil.Printable(strings.TrimRight(fmt.Sprintf(format, args...), " ")))
	}
}

// provider prints one provider and those below it. first is what stands before its name, rest before all other lines.
func (p *printer) provider(rp control.Provider, children map[string][]control.Provider, first, rest string, opts TreeOptions) {
	p.line("%s%s  %s  generation %d", first, rp.Name, rp.UUID, rp.Generation)
	kids := children[rp.UUID]
	bar := rest + "│ "
	if len(kids) == 0 {
		bar = rest + "  "
	}
	for _, row := range inventoryTable(rp.Inventories) {
		p.line("%s %s", bar, row)
	}
	for i, row := range wrap(foldTraits(rp.Traits, opts.AllTraits), 96) {
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
	for i, kid := range kids {
		if i == len(kids)-1 {
			p.provider(kid, children, rest+"└─ ", rest+"   ", opts)
		} else {
			p.provider(kid, children, rest+"├─ ", rest+"│  ", opts)
		}
	}
}

// inventoryTable lays the inventories out in columns, with a heading.
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

// columns aligns the first column left and the others right, leftColumns all of them left.
func columns(rows [][]string) []string     { return aligned(rows, 1) }
func leftColumns(rows [][]string) []string { return aligned(rows, len(rows[0])) }

// aligned makes lines of rows that have as many cells each, of which so many are aligned left.
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

// families are the prefixes whose traits are folded when there are several: the more special first.
var families = []string{"HW_CPU_X86_", "HW_CPU_AARCH64_", "HW_GPU_", "HW_NIC_", "COMPUTE_", "CUSTOM_"}

// foldAt is how many traits of a family are listed before they are folded.
const foldAt = 5

// foldTraits lists traits, each family of many as one entry that counts them.
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

// wrap joins words into lines of at most so many characters; a longer word has a line of its own.
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
