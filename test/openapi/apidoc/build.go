// SPDX-License-Identifier: Apache-2.0

package apidoc

import "github.com/compute-agent/compute-agent/internal/jsonkit"

// List is the schema of a list.
func List(item jsonkit.Schema) jsonkit.Schema {
	return jsonkit.Schema{jsonkit.Type("array"), jsonkit.Items(item)}
}

// OrNull is the schema of a type or null.
func OrNull(kind string) jsonkit.Schema { return jsonkit.Schema{jsonkit.Type(kind, "null")} }

// Members are the members of an object: names and schemas in turn.
func Members(pairs ...any) (p jsonkit.Properties) {
	for i := 0; i < len(pairs); i += 2 {
		p = append(p, jsonkit.Property{Name: pairs[i].(string), Schema: pairs[i+1].(jsonkit.Schema)})
	}
	return p
}

// Whole is an object that has all of the members, and no others.
func Whole(p jsonkit.Properties) jsonkit.Schema {
	names := make([]string, len(p))
	for i := range p {
		names[i] = p[i].Name
	}
	return jsonkit.ClosedObject(p, names...)
}

// Always is a body that is the same at all microversions.
func Always(s jsonkit.Schema) Body { return func(int) jsonkit.Schema { return s } }
