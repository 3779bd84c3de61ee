// SPDX-License-Identifier: Apache-2.0

package jsonkit

import (
	"maps"
	"slices"
)

// Document returns a schema as JSON Schema (draft 2020-12), as it is written in API references.
//
// Conditions that JSON Schema cannot say (PatternFunc, and those on names) are in the description:
// a value that fits the document can still be refused for them. So can a string that is a number,
// for Minimum and Maximum, which JSON Schema has for numbers only.
func Document(s Schema) map[string]any {
	schema := map[string]any{}
	for _, c := range s {
		c.document(schema)
	}
	return schema
}

// Described adds a description to a schema. Every value fits it.
func Described(text string) Condition {
	return condition{"description", text, func(any) *SchemaError { return nil }}
}

// Described is the schema with a description, which takes the place of an earlier one.
func (s Schema) Described(text string) Schema { return append(slices.Clone(s), Described(text)) }

// documented is the value of a keyword as it is written.
func documented(value any) any {
	switch v := value.(type) {
	case Schema:
		return Document(v)
	case []Schema:
		all := make([]any, len(v))
		for i := range v {
			all[i] = Document(v[i])
		}
		return all
	}
	return value
}

// oneOrSeveral is the value of the keyword type.
func oneOrSeveral(types []string) any {
	if len(types) == 1 {
		return types[0]
	}
	return types
}

func (p Properties) document(schema map[string]any) {
	members := map[string]any{}
	if known, is := schema["properties"].(map[string]any); is {
		members = maps.Clone(known)
	}
	for _, property := range p {
		members[property.Name] = Document(property.Schema)
	}
	schema["properties"] = members
}

// patternProperties are members whose names match a pattern; no others are allowed.
type patternProperties struct {
	pattern string
	schema  Schema
	test    func(value any) *SchemaError
}

func (p patternProperties) check(value any) *SchemaError { return p.test(value) }

func (p patternProperties) document(schema map[string]any) {
	schema["patternProperties"] = map[string]any{p.pattern: Document(p.schema)}
	schema["additionalProperties"] = false
}
