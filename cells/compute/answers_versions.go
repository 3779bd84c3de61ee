// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/internal/osapi/apidoc"
)

var (
	mediaTypesAnswer = apidoc.List(apidoc.Whole(apidoc.Members("base", api.SchemaText, "type", api.SchemaText)))
	versionMembers   = apidoc.Members("id", apidoc.Described(api.SchemaText, "v2.1"), "status", apidoc.Described(api.SchemaText, "CURRENT"),
		"version", apidoc.Described(api.SchemaText, "The highest microversion."), "min_version", apidoc.Described(api.SchemaText, "The lowest microversion."), "updated", api.AnswerTime)
	versionsAnswer = api.In("versions", apidoc.List(apidoc.Whole(versionMembers.With("links", apidoc.List(apidoc.Whole(apidoc.Members("rel", api.SchemaText, "href", api.SchemaText)))))))
	versionAnswer  = api.In("version", apidoc.Whole(versionMembers.
			With("links", apidoc.List(api.Part(apidoc.Members("rel", api.SchemaText, "href", api.SchemaText), apidoc.Members("type", api.SchemaText)))).With("media-types", mediaTypesAnswer)))
)
