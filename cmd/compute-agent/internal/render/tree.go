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
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// TreeOptions configures [Tree].
type TreeOptions struct {
	// AllTraits prints every trait instead of folding families of them.
	AllTraits bool
	// Now is the time for the age of a stale tree.
	Now time.Time
}

// Tree prints the provider trees of all nodes.
func Tree(w io.Writer, tree control.Tree, opts TreeOptions) error {
	p := newPrinter(w)
	if len(tree.Nodes) == 0 {
		p.line("No compute nodes yet: no driver has reported one.")
	}
	for i, node := range tree.Nodes {
		if i > 0 {
			p.line("")
		}
		if node.Error != "" {
			p.line("%s (%s)", p.styled(bold, node.Node), p.styled(dim, node.UUID))
			p.line("  nothing to show: %s", p.styled(bad, node.Error))
			continue
		}
		if node.Stale != "" {
			p.line("%s: %s: %s", node.Node, p.styled(bad, "Placement cannot be read"), node.Stale)
			p.line("The tree below was read at %s, %s. Usage is unknown.",
				node.ReadAt.UTC().Format(time.RFC3339), agoText(node.ReadAt, opts.Now))
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
			p.line("%s: %s", p.styled(notice, "The guests of "+node.Node+" are unknown"), node.GuestsError)
		}
		if len(node.WithoutAllocations) > 0 {
			p.line("Guests of %s without allocations (see compute-agent allocations audit):", node.Node)
			for _, row := range consumerTable(node.WithoutAllocations, p.innerWidth(2)) {
				p.row("  %s", row)
			}
		}
	}
	return p.err
}

// provider prints a provider and its children. first is the prefix of its first line, rest that of
// all others.
func (p *printer) provider(
	rp control.Provider, children map[string][]control.Provider, first, rest string, opts TreeOptions,
) {
	below := children[rp.UUID]
	bar := rest + "│ "
	if len(below) == 0 {
		bar = rest + "  "
	}
	generation := fmt.Sprintf("generation %d", rp.Generation)
	title := []any{first, p.styled(bold, rp.Name), p.styled(dim, rp.UUID), p.styled(dim, generation)}
	whole := strings.Join([]string{first + rp.Name, rp.UUID, generation, rp.ProductName}, "  ")
	if rp.ProductName == "" || p.width <= 0 || runes(whole) <= p.width {
		p.row("%s%s  %s  %s  %s", append(title, rp.ProductName)...)
	} else {
		p.row("%s%s  %s  %s", title...)
		for _, row := range wrapText(rp.ProductName, p.innerWidth(runes(bar)+1)) {
			p.row("%s %s", bar, row)
		}
	}
	for _, row := range p.inventoryTable(rp.Inventories, p.innerWidth(runes(bar)+1)) {
		p.row("%s %s", bar, row)
	}
	traits := widestTraits
	if p.width > 0 {
		traits = min(traits, p.innerWidth(runes(bar)+1+len("traits  ")))
	}
	p.labelled(bar, "traits  ", wrap(foldTraits(rp.Traits, opts.AllTraits), traits))
	p.labelled(bar, "member of  ", rp.Aggregates)
	p.labelled(bar, "held by  ", consumerTable(rp.Consumers, p.innerWidth(runes(bar)+1+len("held by  "))))
	for i, child := range below {
		if i == len(below)-1 {
			p.provider(child, children, rest+"└─ ", rest+"   ", opts)
		} else {
			p.provider(child, children, rest+"├─ ", rest+"│  ", opts)
		}
	}
}

// labelled prints rows behind a bar, the first one with a label.
func (p *printer) labelled(bar, label string, rows []string) {
	for _, row := range rows {
		p.row("%s %s%s", bar, p.styled(dim, label), row)
		label = strings.Repeat(" ", len(label))
	}
}

// widestTraits is how wide a line of traits is at most, narrowest how narrow text beside a tree is
// made at most.
const widestTraits, narrowest = 96, 24

// innerWidth is how wide text is after an indent; 0: any width.
func (p *printer) innerWidth(indent int) int {
	if p.width <= 0 {
		return 0
	}
	return max(p.width-indent, narrowest)
}

// inventoryTable formats inventories as a table with a header. What is used beyond the capacity is
// marked.
func (p *printer) inventoryTable(inventories []control.Inventory, width int) []painted {
	if len(inventories) == 0 {
		return []painted{p.styled(dim, "no inventory")}
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
	return p.aligned(grid{rows: rows, left: 1, width: width, style: func(row, column int) style {
		switch {
		case row == 0:
			return dim
		case column == len(rows[0])-1 && strings.HasPrefix(rows[row][column], "-"):
			return bad
		}
		return plain
	}})
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
		// the uuid is beside it
		if c.Name != "" && c.Guest != "" && c.Guest != c.Name && !strings.Contains(c.Guest, c.UUID) {
			name += " (" + textutil.Line(c.Guest, maxName) + ")"
		}
		var amounts []string
		for _, class := range slices.Sorted(maps.Keys(c.Resources)) {
			amounts = append(amounts, fmt.Sprintf("%s %d", class, c.Resources[class]))
		}
		rows = append(rows, []string{name, c.UUID, strings.Join(amounts, ", "), consumerNote(c)})
	}
	return stacked(rows, width)
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

// StandaloneTree prints the provider tree of a standalone agent, or why it has none, and commands
// of a program to inspect it: at the URL of Placement, and by the agent's runtime directory.
func StandaloneTree(w io.Writer, tree control.Tree, failure error, url, runtimeDir, program string) error {
	p := newPrinter(w)
	if failure != nil {
		p.row("\nNothing is reported yet: %v\nSee the log above; the agent retries.", failure)
	} else {
		p.row("\nThis machine in Placement:\n")
		if err := Tree(w, tree, TreeOptions{Now: time.Now()}); err != nil {
			return err
		}
		p.row(`
Placement listens at %[1]s. To inspect it:
  %[3]s tree --runtime-dir %[2]s
  curl -H 'X-Auth-Token: admin' -H 'OpenStack-API-Version: placement latest' %[1]s/resource_providers
  openstack --os-auth-type admin_token --os-endpoint %[1]s --os-token admin resource provider list
`, url, runtimeDir, program)
	}
	p.row("The agent keeps Placement up to date. Ctrl-C stops everything except guests.\n")
	return p.err
}

// StandaloneCompute prints commands for the compute API at a URL.
func StandaloneCompute(w io.Writer, url string) error {
	_, err := fmt.Fprintf(w, `The compute API listens at %[1]s. To create a server on this machine, and to list it:
  curl -H 'X-Auth-Token: admin' -H 'Content-Type: application/json' %[1]s/servers -d '{"server": {"name": "first", "flavorRef": "1", "imageRef": ""}}'
  openstack --os-auth-type admin_token --os-endpoint %[1]s --os-token admin --os-compute-api-version 2.69 server list -n

`, url)
	return err
}
