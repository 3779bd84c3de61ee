// SPDX-License-Identifier: Apache-2.0

// Package jsonschema checks the bodies and queries of requests as Nova does, and words its refusals as Nova does.
//
// Nova checks with Python's jsonschema (draft 4) and answers with the first thing that is wrong: what is first follows from the order in which a
// schema is written, and values are shown as Python writes them. Programs and people know those texts, so a [Schema] here is a list of conditions
// in that order, values keep the order of their members ([jsonkit.Object]), and [Repr] writes them as Python would.
//
//	properties := jsonschema.Properties{{"host", jsonschema.Schema{jsonschema.Type("string"), jsonschema.MaxLength(255)}}}
//	schema := jsonschema.Schema{ // or jsonschema.Closed(properties, "host")
//		jsonschema.Type("object"),
//		properties,
//		jsonschema.Required("host"),
//		jsonschema.Only(properties),
//	}
//	value, err := jsonkit.Decode(body)
//	err = jsonschema.Validate(schema, value) // "Invalid input for field/attribute host. Value: 1. 1 is not of type 'string'"
package jsonschema
