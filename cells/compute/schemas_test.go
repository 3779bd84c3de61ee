// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/http"
	"slices"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/test/openapi/apidoc"
)

// The schemas that answers have in common, for the reference and the OpenAPI document. Handlers
// write answers without schemas; tests compare each answer with its schema.

// How schemas are made.
var (
	described = js.Schema.Described
	list      = apidoc.List
	orNull    = apidoc.OrNull
	members   = apidoc.Members
	whole     = apidoc.Whole
	always    = apidoc.Always
)

// byVersion is a body by microversion.
func byVersion(schema func(api.Version) js.Schema) apidoc.Body {
	return func(minor int) js.Schema {
		return schema(api.Version(minor)) // between MinVersion and MaxVersion
	}
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
func in(name string, s js.Schema) js.Schema { return whole(members(name, s)) }

// Types of members of answers.
var (
	answerInt     = js.Schema{js.Type("integer")}
	answerBool    = js.Schema{js.Type("boolean")}
	answerTime    = described(api.SchemaText, "A time in UTC, as 2024-05-01T12:00:00Z.")
	answerStamp   = described(api.SchemaText, "A time in UTC, as 2024-05-01T12:00:00.000000.")
	answerStampOr = described(orNull("string"), "A time in UTC, as 2024-05-01T12:00:00.000000.")
	answerNull    = js.Schema{js.Type("null")}
	answerEmpty   = described(js.ClosedObject(nil), "Always empty.")
	answerNothing = described(list(js.ClosedObject(nil)), "Always empty.")
	answerTexts   = js.Schema{js.Type("object"), js.PatternProperties(anyKey, api.SchemaText)}
	answerLinks   = described(list(whole(members("rel", api.SchemaText, "href", api.SchemaText))),
		"self and bookmark: URLs of it.")
	answerNext = described(list(whole(members("rel", api.SchemaText, "href", api.SchemaText))),
		"The link next, to the next page; only if there may be one.")
	answerRef = whole(members("id", api.SchemaText, "links", answerLinks))
)

// anyKey is a pattern for the keys of objects that can be any.
const anyKey = "^(?s:.*)$"

// faultSchema is the body of an error: one member, whose name goes with the status.
var faultSchema = func() js.Schema {
	fault := whole(members("code", described(answerInt, "The status."),
		"message", described(api.SchemaText, "What is wrong.")))
	var names []string
	for status := http.StatusBadRequest; status <= http.StatusServiceUnavailable; status++ {
		names = append(names, api.FaultName(status))
	}
	slices.Sort(names)
	var all []js.Schema
	for _, name := range slices.Compact(names) {
		all = append(all, in(name, fault))
	}
	return js.Schema{js.AnyOf(all...)}
}()

// The schemas of the version documents.
var (
	mediaTypesAnswer = list(whole(members("base", api.SchemaText, "type", api.SchemaText)))
	versionMembers   = members("id", described(api.SchemaText, "v2.1"),
		"status", described(api.SchemaText, "CURRENT"),
		"version", described(api.SchemaText, "The highest microversion."),
		"min_version", described(api.SchemaText, "The lowest microversion."),
		"updated", answerTime)
	versionsAnswer = in("versions", list(whole(versionMembers.With("links",
		list(whole(members("rel", api.SchemaText, "href", api.SchemaText)))))))
	versionAnswer = in("version", whole(versionMembers.
			With("links", list(part(members("rel", api.SchemaText, "href", api.SchemaText),
			members("type", api.SchemaText)))).
		With("media-types", mediaTypesAnswer)))
)
