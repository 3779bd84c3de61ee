// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"sort"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// document is one file, decoded, with the place of every key in it.
type document struct {
	tree    map[string]any
	sources map[string]Source // By dotted key, where it was first mentioned.
}

// parse decodes a file. The decoder of go-toml finds what is not TOML, such as
// a key that is given twice; its parser then tells where each key stands.
// Linear in the size of data, but for a binary search per key.
func parse(name string, data []byte) (*document, *Problem) {
	d := &document{sources: map[string]Source{}}
	if err := toml.Unmarshal(data, &d.tree); err != nil {
		return nil, syntaxProblem(name, data, err)
	}
	if depth(d.tree) > maxDepth {
		return nil, &Problem{Source: Source{Kind: FromFile, Name: name}, What: "tables or arrays are nested too deeply",
			Hint: "nest no deeper than 32 levels"}
	}
	w := walker{name: name, data: data, lines: lineStarts(data), sources: d.sources}
	w.parser.Reset(data)
	var table []string
	for w.parser.NextExpression() {
		node := w.parser.Expression()
		switch node.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = w.note(nil, node.Key())
		case unstable.KeyValue:
			w.value(w.note(table, node.Key()), node.Value())
		}
	}
	if err := w.parser.Error(); err != nil {
		return nil, &Problem{Source: Source{Kind: FromFile, Name: name}, What: "cannot be read as TOML", cause: err}
	}
	return d, nil
}

// maxDepth bounds nesting, maxLine the part of a line that is kept, in bytes.
const (
	maxDepth = 32
	maxLine  = 512
)

// depth is how deeply a decoded value is nested.
func depth(v any) int {
	deepest := 0
	switch v := v.(type) {
	case map[string]any:
		for _, item := range v {
			deepest = max(deepest, 1+depth(item))
		}
	case []any:
		for _, item := range v {
			deepest = max(deepest, 1+depth(item))
		}
	}
	return deepest
}

// syntaxProblem shows the line that go-toml stumbled over.
func syntaxProblem(name string, data []byte, err error) *Problem {
	p := &Problem{
		Source: Source{Kind: FromFile, Name: name},
		What:   "this is not TOML: " + strings.TrimPrefix(err.Error(), "toml: "),
		Hint:   "fix the line (strings need quotes: host = \"node-1\"); nothing of this file was used",
		cause:  err,
	}
	var decode *toml.DecodeError
	if errors.As(err, &decode) {
		row, column := decode.Position()
		lines := lineStarts(data)
		if row >= 1 && row <= len(lines) {
			p.Source.Line, p.Source.column, p.Source.width = row, column, 1
			p.Source.text = lineText(data, lines, row)
			key, _, _ := strings.Cut(p.Source.text, "=")
			p.secret = looksSecret(strings.TrimSpace(key))
		}
	}
	return p
}

// walker notes where keys stand.
type walker struct {
	parser  unstable.Parser
	name    string
	data    []byte
	lines   []int
	sources map[string]Source
}

// note records every prefix of the key that is not known yet and returns the
// whole path.
func (w *walker) note(prefix []string, parts unstable.Iterator) []string {
	path := append([]string(nil), prefix...)
	for parts.Next() {
		node := parts.Node()
		path = append(path, string(node.Data))
		name := dotted(path...)
		if _, known := w.sources[name]; !known {
			w.sources[name] = w.source(int(node.Raw.Offset), int(node.Raw.Length))
		}
	}
	return path
}

// value descends into inline tables, which hold keys of their own.
func (w *walker) value(path []string, node *unstable.Node) {
	if node.Kind != unstable.InlineTable {
		return
	}
	children := node.Children()
	for children.Next() {
		child := children.Node()
		if child.Kind == unstable.KeyValue {
			w.value(w.note(path, child.Key()), child.Value())
		}
	}
}

func (w *walker) source(offset, length int) Source {
	row := sort.SearchInts(w.lines, offset+1)
	return Source{
		Kind: FromFile, Name: w.name, Line: row,
		column: offset - w.lines[row-1] + 1, width: length,
		text: lineText(w.data, w.lines, row),
	}
}

// lineStarts are the offsets at which lines begin.
func lineStarts(data []byte) []int {
	starts := []int{0}
	for i, b := range data {
		if b == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

func lineText(data []byte, lines []int, row int) string {
	line := data[lines[row-1]:]
	if end := bytes.IndexByte(line, '\n'); end >= 0 {
		line = line[:end]
	}
	line = line[:min(len(line), maxLine)]
	return strings.ToValidUTF8(strings.TrimSuffix(string(line), "\r"), "�")
}

// looksSecret reports whether the name of a key suggests that its value is secret.
func looksSecret(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{"password", "passwd", "passphrase", "secret", "token", "credential",
		"private_key", "api_key", "apikey"} {
		if strings.Contains(name, word) && !strings.HasSuffix(name, "_file") && !strings.HasSuffix(name, "_uuid") {
			return true
		}
	}
	return false
}
