// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"slices"

	js "github.com/compute-agent/compute-agent/internal/jsonkit"
)

// faultSchema is the body of an error: one member, whose name goes with the status.
var faultSchema = func() js.Schema {
	fault := whole(fields("code", described(answerInt, "The status."), "message", described(schemaText, "What is wrong.")))
	names := []string{computeFault}
	for _, name := range faultNames {
		names = append(names, name)
	}
	slices.Sort(names)
	var all []js.Schema
	for _, name := range slices.Compact(names) {
		all = append(all, in(name, fault))
	}
	return js.Schema{js.AnyOf(all...)}
}()

var (
	mediaTypesAnswer = listOf(whole(fields("base", schemaText, "type", schemaText)))
	versionMembers   = fields("id", described(schemaText, "v2.1"), "status", described(schemaText, "CURRENT"),
		"version", described(schemaText, "The highest microversion."), "min_version", described(schemaText, "The lowest microversion."), "updated", answerTime)
	versionsAnswer = in("versions", listOf(whole(versionMembers.With("links", listOf(whole(fields("rel", schemaText, "href", schemaText)))))))
	versionAnswer  = in("version", whole(versionMembers.
			With("links", listOf(part(fields("rel", schemaText, "href", schemaText), fields("type", schemaText)))).With("media-types", mediaTypesAnswer)))
)
