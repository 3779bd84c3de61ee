// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// valueOf is a schema as a value of JSON.
func valueOf(s *openapi3.Schema) (any, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	return value, nil
}

// membersOf lists the members that the body of an answer can have at any microversion, in the form
// of a.b[].{}.c: {} are the members of an object whose names are data.
func membersOf(response *openapi3.Response) []string {
	media := response.Content.Get("application/json")
	if media == nil {
		return nil
	}
	schema, err := valueOf(media.Schema.Value)
	if err != nil {
		return []string{err.Error()}
	}
	return membersBelow(schema, "")
}

func membersBelow(schema any, path string) (all []string) {
	s, _ := schema.(object)
	properties, _ := s["properties"].(object)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		member := join(path, name)
		all = append(append(all, member), membersBelow(properties[name], member)...)
	}
	patterns, _ := s["patternProperties"].(object)
	for _, pattern := range slices.Sorted(maps.Keys(patterns)) {
		all = append(all, membersBelow(patterns[pattern], join(path, "{}"))...)
	}
	if items, has := s["items"]; has {
		all = append(all, membersBelow(items, path+"[]")...)
	}
	for _, one := range choices(s) {
		all = append(all, membersBelow(one, path)...)
	}
	return all
}

// membersIn lists the members of a schema that have another value than null in a value that fits
// it, in the form of membersOf.
func membersIn(schema, value any, path string) (all []string) {
	s, _ := schema.(object)
	switch v := value.(type) {
	case object:
		properties, _ := s["properties"].(object)
		patterns, _ := s["patternProperties"].(object)
		for name, member := range v {
			if inner, has := properties[name]; has && member != nil {
				all = append(append(all, join(path, name)), membersIn(inner, member, join(path, name))...)
				continue
			}
			for _, inner := range patterns {
				all = append(all, membersIn(inner, member, join(path, "{}"))...)
			}
		}
	case []any:
		for _, item := range v {
			all = append(all, membersIn(s["items"], item, path+"[]")...)
		}
	}
	for _, one := range choices(s) {
		all = append(all, membersIn(one, value, path)...)
	}
	return all
}

// choices are the schemas of which a value can fit one.
func choices(schema object) []any {
	anyOf, _ := schema["anyOf"].([]any)
	oneOf, _ := schema["oneOf"].([]any)
	return slices.Concat(anyOf, oneOf)
}

// join is the path of a member of an object.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
