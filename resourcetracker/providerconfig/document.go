// SPDX-License-Identifier: Apache-2.0

package providerconfig

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	maxDepth  = 32      // levels of mappings and lists
	maxValues = 200_000 // values of one file, those behind an alias counted at each use
)

// parser reads one file. It goes on after a problem, so as to name them all.
type parser struct {
	name   string
	lines  [][]byte
	values int  // seen so far
	stop   bool // the document cannot be walked further

	problems Problems
	warnings []Warning
	entries  []Entry
	ids      []*yaml.Node // of entries: where their identification stands
	paths    []string     // of entries
}

// parse reads a file of at most maxFileSize bytes. Linear in its size, the values behind aliases
// counted, which maxValues bounds.
func parse(name string, data []byte) *parser {
	p := &parser{name: name}
	// a byte order mark says no more than that this is UTF-8
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	p.lines = bytes.Split(data, []byte("\n"))
	if bad := p.encoding(data); bad != nil {
		p.problems = Problems{bad}
		return p
	}
	if root := p.document(data); root != nil {
		p.wellFormed(root, nil)
		if !p.stop {
			p.file(root)
		}
	}
	return p
}

// encoding refuses what is not text in UTF-8.
func (p *parser) encoding(data []byte) *Problem {
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return &Problem{Place: Place{File: p.name}, What: "this is UTF-16", Hint: "save the file as UTF-8"}
	}
	for i, line := range p.lines {
		column := 1
		for rest := line; len(rest) > 0; column++ {
			r, size := utf8.DecodeRune(rest)
			at := Place{File: p.name, Line: i + 1, Column: column}
			switch {
			case r == utf8.RuneError && size == 1:
				return &Problem{Place: at, What: fmt.Sprintf("byte 0x%02x is not UTF-8", rest[0]),
					Hint: "save the file as UTF-8", text: p.line(i + 1)}
			case unicode.IsControl(r) && r != '\t' && r != '\u0085' && (r != '\r' || size != len(rest)):
				// without its line: a terminal may obey it
				return &Problem{Place: at,
					What: fmt.Sprintf("holds the control character U+%04X", r), Hint: "remove it"}
			}
			rest = rest[size:]
		}
	}
	return nil
}

// document is the content of the one document of the file; nil, and a problem, if there is none.
// What the decoder returns is a document of one node, which is null if nothing is written there.
func (p *parser) document(data []byte) *yaml.Node {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	err := decoder.Decode(&doc)
	const begin = "begin it with meta: {schema_version: '1.0'}, or remove the file"
	switch {
	case errors.Is(err, io.EOF):
		p.problems = append(p.problems, &Problem{Place: Place{File: p.name}, What: "the file is empty", Hint: begin})
		return nil
	case err != nil:
		p.problems = append(p.problems, p.syntax(err))
		return nil
	}
	var next yaml.Node
	switch err := decoder.Decode(&next); {
	case errors.Is(err, io.EOF):
	case err != nil:
		p.problems = append(p.problems, p.syntax(err))
		return nil
	default:
		p.problemf(next.Content[0], "",
			"remove the line `---` and put everything into one document, or into several files",
			"a second document begins here, but a file must have only one")
		return nil
	}
	return doc.Content[0]
}

// position finds the line in an error of the YAML parser, which tells it in words only.
var position = regexp.MustCompile(`^yaml: line ([0-9]{1,9}): `)

// syntax is what the YAML parser says. Its line is where it noticed, or where the mapping or list
// began that it was in.
func (p *parser) syntax(err error) *Problem {
	bad := &Problem{Place: Place{File: p.name}, cause: err,
		Hint: "fix the YAML there or shortly before: indent with spaces, never with tabs, and quote strings with : " +
			"# { [ * & !"}
	what := err.Error()
	if found := position.FindStringSubmatch(what); found != nil {
		bad.Line, _ = strconv.Atoi(found[1]) // at most nine digits
		bad.Line = min(bad.Line, len(p.lines))
		bad.text = p.line(bad.Line)
		what = what[len(found[0]):]
	}
	bad.What = "invalid YAML: " + strings.TrimPrefix(what, "yaml: ")
	return bad
}

// tags are the tags of YAML's own types. Nova's reader refuses all others.
var tags = []string{"!!str", "!!int", "!!float", "!!bool", "!!null", "!!seq", "!!map", "!!merge", "!!timestamp",
	"!!binary", "!!set", "!!omap", "!!pairs"}

// wellFormed checks what is wrong in any YAML, whatever it says: also in properties that the schema
// ignores.
func (p *parser) wellFormed(n *yaml.Node, above []*yaml.Node) {
	if p.stop || !p.count(n) {
		return
	}
	if len(above) > maxDepth {
		p.problemf(n, "", fmt.Sprintf("nest no deeper than %d levels", maxDepth),
			"mappings and lists are nested too deeply")
		p.stop = true
		return
	}
	if n.Kind == yaml.AliasNode {
		if slices.Contains(above, n.Alias) {
			p.problemf(n, "", "write the values out", "*%s refers to itself", n.Value)
			p.stop = true
		}
		return
	}
	if tag := n.ShortTag(); !slices.Contains(tags, tag) {
		p.problemf(n, "", "remove the tag", "%s is a tag that has no meaning here", clip(tag))
	}
	above = append(above, n)
	if n.Kind == yaml.MappingNode {
		first := map[string]*yaml.Node{}
		for property := range slices.Chunk(n.Content, 2) {
			key := property[0]
			if key.Kind != yaml.ScalarNode {
				continue
			}
			if was := first[key.Value]; was != nil {
				p.problemf(key, "", "keep one of them",
					"%s is given twice: first in line %d", clip(key.Value), was.Line)
				continue
			}
			first[key.Value] = key
		}
	}
	for _, below := range n.Content {
		p.wellFormed(below, above)
	}
}

// count says whether there may be one value more.
func (p *parser) count(n *yaml.Node) bool {
	p.values++
	if p.values <= maxValues {
		return true
	}
	if !p.stop {
		p.problemf(n, "", "split the file, and use fewer aliases",
			"the file holds more than %d values, those behind aliases counted at each use", maxValues)
		p.stop = true
	}
	return false
}

// resolve follows an alias.
func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// pair is one property of a mapping.
type pair struct{ key, value *yaml.Node }

// pairs are the properties of a mapping, those that `<<` merges into it after its own, which win.
func (p *parser) pairs(m *yaml.Node, path string) []pair {
	var out []pair
	seen := map[string]bool{}
	p.collect(m, path, seen, &out, 0)
	return out
}

func (p *parser) collect(m *yaml.Node, path string, seen map[string]bool, out *[]pair, depth int) {
	var merged []*yaml.Node
	for property := range slices.Chunk(m.Content, 2) {
		key, value := resolve(property[0]), resolve(property[1])
		if !p.count(key) {
			return
		}
		if key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge" {
			if value.Kind == yaml.SequenceNode {
				for _, item := range value.Content {
					merged = append(merged, resolve(item))
				}
			} else {
				merged = append(merged, value)
			}
			continue
		}
		if !isText(key) {
			p.problemf(key, path, "write a name; put it into quotes if it looks like a number or a truth value",
				"%s is not a property name", shown(key))
			continue
		}
		if !seen[key.Value] {
			seen[key.Value] = true
			*out = append(*out, pair{key, value})
		}
	}
	for _, from := range merged {
		if from.Kind != yaml.MappingNode {
			p.problemf(from, path, "write << with an alias of a mapping",
				"%s cannot be merged into a mapping", shown(from))
			continue
		}
		if depth < maxDepth {
			p.collect(from, path, seen, out, depth+1)
		}
	}
}

// items are the items of a list, with aliases followed.
func (p *parser) items(list *yaml.Node) []*yaml.Node {
	out := make([]*yaml.Node, 0, len(list.Content))
	for _, item := range list.Content {
		if !p.count(item) {
			return nil
		}
		out = append(out, resolve(item))
	}
	return out
}

func (p *parser) place(n *yaml.Node) Place {
	return Place{File: p.name, Line: n.Line, Column: n.Column}
}

func (p *parser) problemf(n *yaml.Node, path, hint, format string, args ...any) {
	if len(p.problems) >= maxKept {
		p.stop = true
		return
	}
	width := 1
	if n.Kind == yaml.ScalarNode {
		width = utf8.RuneCountInString(n.Value)
		if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
			width += 2
		}
	}
	p.problems = append(p.problems, &Problem{
		Place: p.place(n), Path: path, What: fmt.Sprintf(format, args...), Hint: hint,
		text: p.line(n.Line), width: width,
	})
}

func (p *parser) warn(n *yaml.Node, path, hint, what string) {
	if len(p.warnings) < maxKept {
		p.warnings = append(p.warnings, Warning{Place: p.place(n), Path: path, What: what, Hint: hint})
	}
}

// inOrder are the problems by line.
func (p *parser) inOrder() Problems {
	slices.SortStableFunc(p.problems, func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return p.problems
}

// maxText bounds what is kept of a line, in bytes: more than is ever shown of one.
const maxText = 320

// line is the text of a line, cut to a readable length.
func (p *parser) line(n int) string {
	if n < 1 || n > len(p.lines) {
		return ""
	}
	line := bytes.TrimSuffix(p.lines[n-1], []byte("\r"))
	return strings.ToValidUTF8(string(line[:min(len(line), maxText)]), "�")
}
