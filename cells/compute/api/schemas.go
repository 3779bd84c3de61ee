// SPDX-License-Identifier: Apache-2.0

package api

import (
	"slices"
	"strings"

	js "github.com/compute-agent/compute-agent/internal/jsonkit"
)

// The types that Nova's schemas share (nova.api.validation.parameter_types). The order of
// conditions is Nova's: it decides which error is returned.
var (
	SchemaBoolean = js.Schema{js.Type("boolean", "string"), js.Enum(
		true, "True", "TRUE", "true", "1", "ON", "On", "on", "YES", "Yes", "yes",
		false, "False", "FALSE", "false", "0", "OFF", "Off", "off", "NO", "No", "no")}
	SchemaName      = js.Schema{js.Type("string"), js.MinLength(1), js.MaxLength(255), js.Name()}
	SchemaText      = js.Schema{js.Type("string")}
	SchemaUUID      = js.Schema{js.Type("string"), js.Format("uuid")}
	SchemaAnyNumber = js.Schema{js.Type("integer", "string"), js.Pattern("^[0-9]*$"), js.Minimum(0), js.MinLength(1)}
	SchemaCount     = js.Schema{js.Type("integer", "string"), js.Pattern("^[0-9]*$"), js.Minimum(1), js.MinLength(1)}
	SchemaHost      = js.Schema{js.Type("string"), js.MinLength(1), js.MaxLength(255),
		js.Pattern("^[a-zA-Z0-9-._]*$")}
	SchemaTag = js.Schema{js.Type("string"), js.MinLength(1), js.MaxLength(60), js.Pattern("^[^,/]*$")}
	SchemaIP  = js.Schema{js.Type("string"),
		js.AnyOf(js.Schema{js.Format("ipv4")}, js.Schema{js.Format("ipv6")})}
	SchemaDiskConfig  = js.Schema{js.Type("string"), js.Enum("AUTO", "MANUAL")} // it has no effect here
	SchemaDescription = js.Schema{js.Type("string", "null"), js.MaxLength(255), Printable}
	SchemaMetadata    = js.Schema{js.Type("object"),
		js.PatternProperties(MetadataKeys, js.Schema{js.Type("string"), js.MaxLength(255)})}
)

// MaxInt is the largest integer of Nova's databases.
const MaxInt = 0x7FFFFFFF

// MetadataKeys are the names that metadata and extra specs may have.
const MetadataKeys = "^[a-zA-Z0-9-_:. ]{1,255}$"

// Printable is the condition on descriptions. Nova shows the 7 kB of its regular expression; this
// one is as strict.
var Printable = js.PatternFunc("^[printable characters]*$", "Printable characters.", func(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !js.IsPrintable(r) || r >= 0xffff })
})

// SchemaInteger is an integer, or digits, from a minimum on.
func SchemaInteger(minimum float64) js.Schema {
	return js.Schema{js.Type("integer", "string"), js.Pattern("^[0-9]+$"), js.Minimum(minimum), js.Maximum(MaxInt)}
}

// SchemaSince is a schema and the microversion that it is good from.
type SchemaSince struct {
	Since  Version
	Schema js.Schema
}

// SchemaSteps are the schemas of one call, the newest first.
type SchemaSteps []SchemaSince

// Always is a schema that is the same at all microversions.
func Always(s js.Schema) SchemaSteps { return SchemaSteps{{MinVersion, s}} }

// At is the schema at a microversion.
func (s SchemaSteps) At(v Version) js.Schema {
	for _, step := range s {
		if v >= step.Since {
			return step.Schema
		}
	}
	panic("api: no schema for the microversion " + v.String())
}

// Field is a member of a body, with its schema at the microversions that have it; an Until of 0 is
// no bound.
type Field struct {
	Name         string
	Since, Until Version
	Schema       js.Schema
}

// Fields are the members of a body, in the order of their checks. One whose schema depends on the
// microversion is there several times.
type Fields []Field

// Steps are the schemas of a body, the newest first: one for each microversion that has other
// fields than the one before.
func (f Fields) Steps(schema func(Version, js.Properties) js.Schema) (steps SchemaSteps) {
	for v := MaxVersion; v >= MinVersion; v-- {
		changes := func(one Field) bool { return v == one.Since || v == one.Until+1 }
		if v > MinVersion && !slices.ContainsFunc(f, changes) {
			continue
		}
		var here js.Properties
		for _, one := range f {
			if v >= one.Since && (one.Until == 0 || v <= one.Until) {
				here = append(here, js.Property{Name: one.Name, Schema: one.Schema})
			}
		}
		steps = append(steps, SchemaSince{v, schema(v, here)})
	}
	return steps
}
