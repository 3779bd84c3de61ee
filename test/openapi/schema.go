// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/test/openapi/apidoc"
)

func documentOf(s jsonkit.Schema) object { return jsonkit.Document(s) }

// line is a member of a body in a table.
type line struct {
	path, kind, text string
	required         bool
}

// body writes the members of a body as a table, with the microversions of each.
func (rf reference) body(b *strings.Builder, body apidoc.Body, from, to int) {
	type row struct {
		line
		spans [][2]int
	}
	var rows []*row
	for _, s := range rf.spans(body, from, to) {
		for _, l := range rf.lines("", s.schema, true) {
			at := slices.IndexFunc(rows, func(r *row) bool { return r.line == l })
			if at < 0 {
				// A member goes next to those of its object.
				at = len(rows)
				for i := range rows {
					if parent(rows[i].path) == parent(l.path) || rows[i].path == parent(l.path) {
						at = i + 1
					}
				}
				rows = slices.Insert(rows, at, &row{line: l})
			}
			r := rows[at]
			switch n := len(r.spans); {
			case n > 0 && r.spans[n-1][1] == s.to: // two alternatives have it
			case n > 0 && r.spans[n-1][1] == s.from-1:
				r.spans[n-1][1] = s.to
			default:
				r.spans = append(r.spans, [2]int{s.from, s.to})
			}
		}
	}
	b.WriteString("| member | value | microversions | |\n|---|---|---|---|\n")
	for _, r := range rows {
		var versions []string
		for _, s := range r.spans {
			versions = append(versions, rf.between(s[0], s[1], from, to, "all"))
		}
		text := r.text
		if r.required {
			text = strings.TrimSpace("Required. " + text)
		}
		path := "the body"
		if r.path != "" {
			path = "`" + r.path + "`"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", cell(path), cell(r.kind), strings.Join(versions, ", "), cell(text))
	}
}

// parent is the path of the object that a member is in.
func parent(path string) string {
	if dot := strings.LastIndexByte(path, '.'); dot >= 0 {
		return path[:dot]
	}
	return ""
}

// lines are the members of a schema and of what is in it, the ones with few levels first.
func (rf reference) lines(path string, schema object, required bool) []line {
	kind, text := shown(schema)
	var all []line
	if path != "" || schema["properties"] == nil {
		all = append(all, line{path, kind, text, required && path != ""})
	}
	join := func(name string) string {
		if path == "" {
			return name
		}
		return path + "." + name
	}
	members, _ := schema["properties"].(object)
	needed, _ := schema["required"].([]string)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		all = append(all, rf.lines(join(name), members[name].(object), slices.Contains(needed, name))...)
	}
	patterns, _ := schema["patternProperties"].(object)
	for _, pattern := range slices.Sorted(maps.Keys(patterns)) {
		name := rf.Keys[pattern]
		if name == "" {
			name = "NAME"
		}
		all = append(all, rf.lines(join("{"+name+"}"), patterns[pattern].(object), false)...)
	}
	if items, is := schema["items"].(object); is && hasMembers(items) {
		inner := rf.lines(path+"[]", items, false)
		all = append(all, inner[1:]...)
	}
	for _, one := range alternatives(schema) {
		if inner := rf.lines(path, one, false); hasMembers(one) {
			all = append(all, slices.DeleteFunc(inner, func(l line) bool { return l.path == path })...)
		}
	}
	return all
}

// alternatives are the schemas of which one has to hold.
func alternatives(schema object) (all []object) {
	some, _ := schema["anyOf"].([]any)
	for _, one := range some {
		all = append(all, one.(object))
	}
	return all
}

// hasMembers says whether a schema is of objects, or of lists of them, whose members are known.
func hasMembers(schema object) bool {
	if items, is := schema["items"].(object); is && hasMembers(items) {
		return true
	}
	return schema["properties"] != nil || schema["patternProperties"] != nil ||
		slices.ContainsFunc(alternatives(schema), hasMembers)
}

// oneOf are the values of an enumeration. Words for booleans are there once, in lower case.
func oneOf(values []any) string {
	boolean := slices.ContainsFunc(values, func(v any) bool { _, is := v.(bool); return is })
	var names []string
	for _, v := range values {
		name := "`" + fmt.Sprint(v) + "`"
		if v == "" {
			name = "an empty string"
		}
		if boolean {
			name = strings.ToLower(name)
		}
		if _, is := v.(bool); !is && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if boolean {
		return "boolean, or one of the strings " + strings.Join(names, ", ") + " in any case"
	}
	return "one of " + strings.Join(names, ", ")
}

// kindsOf are alternatives in words; "" if they are not about the kind.
func kindsOf(all []object) string {
	if n := len(all); n > 1 && !slices.ContainsFunc(all, func(one object) bool { return one["properties"] == nil }) {
		return fmt.Sprintf("object, in one of %d forms", n)
	}
	var kinds []string
	for _, one := range all {
		if one["type"] == nil && one["format"] == nil {
			return ""
		}
		kind, _ := shown(one)
		if format, is := one["format"].(string); is && one["type"] == nil {
			kind = format
		}
		kinds = append(kinds, kind)
	}
	return strings.Join(kinds, " or ")
}

// shown is a schema in words: its type and bounds, and its description.
func shown(schema object) (kind, text string) {
	text, _ = schema["description"].(string)
	switch t := schema["type"].(type) {
	case string:
		kind = t
	case []string:
		kind = strings.Join(t, " or ")
	default:
		kind = "any"
	}
	if all := kindsOf(alternatives(schema)); all != "" {
		if kind == "any" || strings.HasPrefix(all, "object, in one of") {
			return all, text
		}
		kind += " (" + all + ")"
	}
	if items, is := schema["items"].(object); is {
		inner, _ := shown(items)
		kind += " of " + inner
	}
	if format, is := schema["format"].(string); is {
		kind += " (" + format + ")"
	}
	if values, is := schema["enum"].([]any); is {
		kind = oneOf(values)
	}
	for _, bound := range []struct{ keyword, words string }{
		{"minimum", "at least "}, {"exclusiveMinimum", "more than "}, {"maximum", "at most "},
		{"minLength", "at least %s characters"}, {"maxLength", "at most %s characters"},
		{"minItems", "at least %s items"}, {"maxItems", "at most %s items"}, {"minProperties", "at least %s members"},
		{"maxProperties", "at most %s members"},
	} {
		value := ""
		switch n := schema[bound.keyword].(type) {
		case int:
			value = strconv.Itoa(n)
		case float64:
			value = strconv.FormatFloat(n, 'g', -1, 64)
			if n == float64(int64(n)) {
				value = strconv.FormatInt(int64(n), 10)
			}
		default:
			continue
		}
		if strings.Contains(bound.words, "%s") {
			words := fmt.Sprintf(bound.words, value)
			if value == "1" {
				words = strings.TrimSuffix(words, "s")
			}
			kind += ", " + words
		} else {
			kind += ", " + bound.words + value
		}
	}
	if unique, _ := schema["uniqueItems"].(bool); unique {
		kind += ", each once"
	}
	if pattern, is := schema["pattern"].(string); is {
		kind += ", `" + pattern + "`"
	}
	return kind, text
}
