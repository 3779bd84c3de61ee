// SPDX-License-Identifier: Apache-2.0

package render

import (
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// grid is a table: rows of equal length.
type grid struct {
	rows [][]string
	// left is how many columns are aligned left; the others are aligned right.
	left int
	// width is how wide the lines may be, 0 for any width: the text of the widest column that is
	// aligned left is broken.
	width int
	// style returns the style of the cell at a row and column; nil prints all cells plain.
	style func(row, column int) style
}

// header is the style of a grid with a header.
func header(row, _ int) style {
	if row == 0 {
		return dim
	}
	return plain
}

// columns prints a table with a header, all columns aligned left, within the width of the terminal.
func (p *printer) columns(indent string, rows [][]string) {
	p.grid(indent, grid{rows: rows, left: len(rows[0]), width: p.innerWidth(len(indent)), style: header})
}

// grid prints a table.
func (p *printer) grid(indent string, g grid) {
	for _, row := range p.aligned(g) {
		p.row("%s", painted(indent)+row)
	}
}

// aligned formats a table. The lines are sanitized.
func (p *printer) aligned(g grid) []painted {
	widths := make([]int, len(g.rows[0]))
	total := -len(gap)
	for i := range widths {
		for _, row := range g.rows {
			widths[i] = max(widths[i], runes(row[i]))
		}
		total += len(gap) + widths[i]
	}
	if g.width > 0 && total > g.width { // break the text of the widest column
		widest := 0
		for i, n := range widths[:g.left] {
			if n > widths[widest] {
				widest = i
			}
		}
		widths[widest] = min(widths[widest], max(widths[widest]-(total-g.width), narrowest))
	}
	var out []painted
	for r, row := range g.rows {
		cells, height := make([][]string, len(row)), 1
		for i, cell := range row {
			cells[i] = []string{cell}
			if runes(cell) > widths[i] {
				cells[i] = hanging(cell, widths[i])
				height = max(height, len(cells[i]))
			}
		}
		for n := range height {
			out = append(out, p.alignedRow(cells, n, widths, g, r))
		}
	}
	return out
}

// gap is between two columns.
const gap = "  "

// alignedRow formats line n of a row.
func (p *printer) alignedRow(cells [][]string, n int, widths []int, g grid, row int) painted {
	var b strings.Builder
	for i, lines := range cells {
		cell, s := "", plain
		if n < len(lines) {
			cell = lines[n]
		}
		if g.style != nil {
			s = g.style(row, i)
		}
		if i > 0 {
			b.WriteString(gap)
		}
		pad := strings.Repeat(" ", max(widths[i]-runes(cell), 0))
		if i < g.left {
			b.WriteString(string(p.styled(s, cell)) + pad)
		} else {
			b.WriteString(pad + string(p.styled(s, cell)))
		}
	}
	return painted(strings.TrimRight(b.String(), " "))
}

// hanging breaks text into lines of a width, with the indentation of the first one and a little
// more.
func hanging(text string, width int) []string {
	indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
	lines := wrapText(text, max(width-len(indent)-len("  "), 1))
	for i := range lines {
		lines[i] = indent + lines[i]
		if i > 0 {
			lines[i] = "  " + lines[i]
		}
	}
	return lines
}

// stacked aligns columns left. If that is wider than width, what is in the first column has lines
// of its own, and the rest is below it; width 0 is any width.
func stacked(rows [][]string, width int) []string {
	var p printer // without colours
	table := make([]string, 0, len(rows))
	for _, row := range p.aligned(grid{rows: rows, left: len(rows[0])}) {
		table = append(table, string(row))
	}
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

func runes(text string) int { return len([]rune(textutil.Printable(text))) }

// Table returns rows as lines in which columns are aligned left, two spaces apart. The first row is
// the header. They are as they are: neither sanitized, nor folded or coloured on a terminal.
func Table(rows [][]string) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, len(gap), ' ', 0)
	for _, row := range rows {
		_, _ = t.Write([]byte(strings.Join(row, "\t") + "\n")) // a Builder does not fail
	}
	_ = t.Flush()
	return b.String()
}

// timestamp is a time as results for people have it.
func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// named is a name with another one in parentheses, if there is one.
func named(name, other string) string {
	if other == "" {
		return name
	}
	return name + " (" + other + ")"
}
