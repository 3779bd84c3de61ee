// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// positions are the lines of the keys of a TOML document, by their paths as they are in errors:
// nodes[0].inventories.VCPU.
type positions struct {
	lines  map[string]int
	tables map[string]int // how many tables an array has so far
	parser unstable.Parser
}

// keyLines finds the keys of a document that is known to be TOML. Cost: linear, but for the search
// of each line.
func keyLines(content []byte) *positions {
	p := &positions{lines: map[string]int{}, tables: map[string]int{}}
	p.parser.Reset(content)
	table := ""
	for p.parser.NextExpression() {
		switch e := p.parser.Expression(); e.Kind {
		case unstable.Table:
			table = p.key("", e.Key())
		case unstable.ArrayTable:
			table = p.key("", e.Key())
			if strings.HasSuffix(table, "]") { // the one before
				table = table[:strings.LastIndex(table, "[")]
			}
			p.tables[table]++
			table = p.element(table)
			p.mark(table, e.Child())
		case unstable.KeyValue:
			p.value(p.key(table, e.Key()), e.Value())
		}
	}
	return p
}

// key notes a key and those that are a part of it.
func (p *positions) key(path string, parts unstable.Iterator) string {
	for parts.Next() {
		path = p.element(strings.TrimPrefix(path+"."+string(parts.Node().Data), "."))
		p.mark(path, parts.Node())
	}
	return path
}

// element is the path, or that of the last table so far if it is an array of tables.
func (p *positions) element(path string) string {
	if n := p.tables[path]; n > 0 {
		return fmt.Sprintf("%s[%d]", path, n-1)
	}
	return path
}

func (p *positions) mark(path string, key *unstable.Node) {
	if _, known := p.lines[path]; !known {
		p.lines[path] = p.parser.Shape(key.Raw).Start.Line
	}
}

// value notes the keys in a value.
func (p *positions) value(path string, v *unstable.Node) {
	children := v.Children()
	switch v.Kind {
	case unstable.InlineTable:
		for children.Next() {
			p.value(p.key(path, children.Node().Key()), children.Node().Value())
		}
	case unstable.Array:
		for i := 0; children.Next(); i++ {
			at := fmt.Sprintf("%s[%d]", path, i)
			if children.Node().Raw.Length > 0 {
				p.mark(at, children.Node())
			}
			p.value(at, children.Node())
		}
	}
}

// line returns the line of a key, or of the innermost table around it that has one; otherwise 1.
func (p *positions) line(path string) int {
	for path != "" {
		if n, ok := p.lines[path]; ok {
			return n
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return 1
}

// lineIn is the line of a key in the last of these tables that has it.
func (p *positions) lineIn(tables []string, path string) int {
	first := path
	if i := strings.IndexAny(path, ".["); i >= 0 {
		first = path[:i]
	}
	for _, table := range slices.Backward(tables) {
		if p.lines[table+first] > 0 {
			return p.line(table + path)
		}
	}
	return p.line(path)
}
