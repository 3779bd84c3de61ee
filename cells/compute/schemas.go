// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"strings"

	js "github.com/compute-agent/compute-agent/internal/jsonkit"
)

// The types that Nova's schemas share (nova.api.validation.parameter_types). The order of
// conditions is Nova's: it decides which error is returned.
var (
	schemaBoolean = js.Schema{js.Type("boolean", "string"), js.Enum(
		true, "True", "TRUE", "true", "1", "ON", "On", "on", "YES", "Yes", "yes",
		false, "False", "FALSE", "false", "0", "OFF", "Off", "off", "NO", "No", "no")}
	schemaName        = js.Schema{js.Type("string"), js.MinLength(1), js.MaxLength(255), js.Name()}
	schemaText        = js.Schema{js.Type("string")}
	schemaUUID        = js.Schema{js.Type("string"), js.Format("uuid")}
	schemaAnyNumber   = js.Schema{js.Type("integer", "string"), js.Pattern("^[0-9]*$"), js.Minimum(0), js.MinLength(1)}
	schemaCount       = js.Schema{js.Type("integer", "string"), js.Pattern("^[0-9]*$"), js.Minimum(1), js.MinLength(1)}
	schemaHost        = js.Schema{js.Type("string"), js.MinLength(1), js.MaxLength(255), js.Pattern("^[a-zA-Z0-9-._]*$")}
	schemaTag         = js.Schema{js.Type("string"), js.MinLength(1), js.MaxLength(60), js.Pattern("^[^,/]*$")}
	schemaIP          = js.Schema{js.Type("string"), js.AnyOf(js.Schema{js.Format("ipv4")}, js.Schema{js.Format("ipv6")})}
	schemaDescription = js.Schema{js.Type("string", "null"), js.MaxLength(255), printable}
	schemaMetadata    = js.Schema{js.Type("object"), js.PatternProperties(metadataKeys, js.Schema{js.Type("string"), js.MaxLength(255)})}
)

// maxInt is the largest integer of Nova's databases.
const maxInt = 0x7FFFFFFF

// metadataKeys are the names that metadata and extra specs may have.
const metadataKeys = "^[a-zA-Z0-9-_:. ]{1,255}$"

// printable is the condition on descriptions. Nova shows the 7 kB of its regular expression; this
// one is as strict.
var printable = js.PatternFunc("^[printable characters]*$", "Printable characters.", func(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !js.IsPrintable(r) || r >= 0xffff })
})

func schemaInteger(minimum float64) js.Schema {
	return js.Schema{js.Type("integer", "string"), js.Pattern("^[0-9]+$"), js.Minimum(minimum), js.Maximum(maxInt)}
}

// version ranges of schemas

// schemaSince is a schema and the microversion that it is good from.
type schemaSince struct {
	since  Version
	schema js.Schema
}

// schemaSteps are the schemas of one call, the newest first.
type schemaSteps []schemaSince

// once is a schema that is the same at all microversions.
func once(s js.Schema) schemaSteps { return schemaSteps{{MinVersion, s}} }

// at is the schema at a microversion.
func (s schemaSteps) at(v Version) js.Schema {
	for _, step := range s {
		if v >= step.since {
			return step.schema
		}
	}
	panic("compute: no schema for the microversion " + v.String())
}
