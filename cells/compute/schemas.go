// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"slices"
	"strings"

	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi/apidoc"
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

var (
	described = apidoc.Described
	listOf    = apidoc.List
	nullable  = apidoc.OrNull
	fields    = apidoc.Members
	whole     = apidoc.Whole
	always    = apidoc.Always
)

// byVersion is a body by microversion.
func byVersion(schema func(Version) js.Schema) apidoc.Body {
	return func(minor int) js.Schema { return schema(Version(minor)) } //nolint:gosec // between MinVersion and MaxVersion
}

// part is an object with members that all have, and others.
func part(all, some js.Properties) js.Schema {
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return js.ClosedObject(slices.Concat(all, some), names...)
}

// in is an object with one member.
func in(name string, s js.Schema) js.Schema { return whole(fields(name, s)) }

var (
	answerInt     = js.Schema{js.Type("integer")}
	answerBool    = js.Schema{js.Type("boolean")}
	answerTime    = described(schemaText, "A time in UTC, as 2024-05-01T12:00:00Z.")
	answerStamp   = described(schemaText, "A time in UTC, as 2024-05-01T12:00:00.000000.")
	answerStampOr = described(nullable("string"), "A time in UTC, as 2024-05-01T12:00:00.000000.")
	answerNull    = js.Schema{js.Type("null")}
	answerEmpty   = described(js.ClosedObject(nil), "Always empty.")
	answerNothing = described(listOf(js.ClosedObject(nil)), "Always empty.")
	answerTexts   = js.Schema{js.Type("object"), js.PatternProperties(anyKey, schemaText)}
	answerLinks   = described(listOf(whole(fields("rel", schemaText, "href", schemaText))), "self and bookmark: URLs of it.")
	answerNext    = described(listOf(whole(fields("rel", schemaText, "href", schemaText))), "The link next, to the next page; only if there may be one.")
	answerRef     = whole(fields("id", schemaText, "links", answerLinks))
)

// anyKey is a pattern for the keys of objects that can be any.
const anyKey = "^(?s:.*)$"
