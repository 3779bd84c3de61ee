// SPDX-License-Identifier: Apache-2.0

package serverview

import (
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi/apidoc"
)

// The schemas of servers in answers, for the reference and the OpenAPI document. A View writes
// servers without them; tests compare each answer with its schema.

// SchemaDiskConfig is the choice of a disk's partitions, which has no effect here.
var SchemaDiskConfig = js.Schema{js.Type("string"), js.Enum("AUTO", "MANUAL")}

// statusNames are the statuses that servers show, for the reference.
func statusNames() (all []any) {
	names := map[string]bool{api.StatusUnknown: true}
	for _, tasks := range statuses {
		for _, status := range tasks {
			names[status] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		all = append(all, name)
	}
	return all
}

var serverBrief = apidoc.Members("id", api.SchemaUUID, "name", api.SchemaText, "links", api.AnswerLinks)

// The records of a server whose cell is down: in lists, in lists with details, and by itself.
var (
	serverStatusSchema = js.Schema{js.Type("string"), js.Enum(statusNames()...)}
	unknownBrief       = apidoc.Members("id", api.SchemaUUID, "status", serverStatusSchema, "links", api.AnswerLinks)
	unknownDetail      = apidoc.Members("id", api.SchemaUUID, "status", serverStatusSchema, "tenant_id", answerProject,
		"created", api.AnswerTime, "links", api.AnswerLinks)
	answerProject = apidoc.Described(api.SchemaText, "The project.")
	answerUser    = apidoc.Described(api.SchemaText, "The user who created it; UNKNOWN if that is not known.")
	answerZone    = apidoc.Described(api.SchemaText,
		"The availability zone: that of its host, or the one that was asked for; UNKNOWN if that is not known.")
	answerPower = apidoc.Described(api.AnswerInt,
		"0: not known, 1: running, 3: paused, 4: shut down, 6: crashed, 7: suspended.")
)

func serverFlavor(v api.Version) js.Schema {
	if v < vFlavorEmbedded {
		return apidoc.Described(api.AnswerRef, "The flavor.")
	}
	return apidoc.Described(
		api.Part(apidoc.Members("vcpus", api.AnswerInt, "ram", api.AnswerInt, "disk", api.AnswerInt,
			"ephemeral", api.AnswerInt, "swap", api.AnswerInt,
			"original_name", api.SchemaText),
			apidoc.Members("extra_specs", apidoc.Described(
				api.AnswerTexts, "For those whom the policy servers:show:flavor-extra-specs allows."))),
		"The flavor, as it was when the server was created.")
}

// changedServer is a server as the answer to a change has it, but for its groups.
func changedServer(v api.Version) (all, some js.Properties) {
	all = apidoc.Members(
		"id", api.SchemaUUID, "name", api.SchemaText,
		"status", serverStatusSchema, "tenant_id", answerProject, "user_id", answerUser,
		"metadata", api.AnswerTexts,
		"hostId", apidoc.Described(api.SchemaText,
			"The same for servers of the project on the same host; empty without a host."),
		"image", apidoc.Described(api.AnswerRef, "The image; the id is no-image for a server without one."),
		"flavor", serverFlavor(v),
		"created", api.AnswerTime, "updated", api.AnswerTime, "addresses", api.AnswerEmpty,
		"accessIPv4", apidoc.Described(api.SchemaText, "Empty for none."),
		"accessIPv6", apidoc.Described(api.SchemaText, "Empty for none."),
		"links", api.AnswerLinks, "OS-DCF:diskConfig", SchemaDiskConfig,
	)
	if v >= vLocked {
		all = append(all, apidoc.Members("locked", api.AnswerBool)...)
	}
	if v >= api.VDescription {
		all = append(all, apidoc.Members("description", apidoc.OrNull("string"))...)
	}
	if v >= api.VTags {
		all = append(all, apidoc.Members("tags", apidoc.List(api.SchemaText))...)
	}
	if v >= api.VTrustedCerts {
		all = append(all, apidoc.Members("trusted_image_certificates",
			js.Schema{js.Type("array", "null"), js.Items(api.SchemaText)})...)
	}
	return all, apidoc.Members(
		"fault", apidoc.Described(
			api.Part(apidoc.Members("code", api.AnswerInt, "created", api.AnswerTime, "message", api.SchemaText),
				apidoc.Members("details", apidoc.Described(
					api.SchemaText, "For administrators, or if code is not 500."))), "Why it is in ERROR."),
		"progress", apidoc.Described(api.AnswerInt, "Always 0; in some statuses."),
	)
}

// shownServer is a server as lists with details have it.
func shownServer(v api.Version) (all, some js.Properties) {
	all, some = changedServer(v)
	all = append(all, apidoc.Members(
		"OS-EXT-AZ:availability_zone", answerZone, "config_drive", apidoc.Described(api.SchemaText, "True, or empty."),
		"key_name", apidoc.OrNull("string"), "OS-SRV-USG:launched_at", api.AnswerStampOr,
		"OS-SRV-USG:terminated_at", api.AnswerStampOr,
		"OS-EXT-STS:task_state",
		apidoc.Described(apidoc.OrNull("string"), "What is being done to it; null for nothing."),
		"OS-EXT-STS:vm_state", apidoc.OrNull("string"),
		"OS-EXT-STS:power_state", answerPower, "os-extended-volumes:volumes_attached", api.AnswerNothing,
	)...)
	const administrators = "For administrators."
	some = append(some, apidoc.Members(
		"OS-EXT-SRV-ATTR:host", apidoc.Described(apidoc.OrNull("string"), administrators),
		"OS-EXT-SRV-ATTR:instance_name", apidoc.Described(api.SchemaText, administrators),
		"OS-EXT-SRV-ATTR:hypervisor_hostname", apidoc.Described(apidoc.OrNull("string"), administrators),
	)...)
	if v >= vExtendedAttributes {
		some = append(some, apidoc.Members(
			"OS-EXT-SRV-ATTR:reservation_id", apidoc.Described(api.SchemaText, administrators),
			"OS-EXT-SRV-ATTR:launch_index", apidoc.Described(api.AnswerInt, administrators),
			"OS-EXT-SRV-ATTR:hostname", apidoc.Described(api.SchemaText, administrators),
			"OS-EXT-SRV-ATTR:kernel_id", apidoc.Described(api.SchemaText, administrators), "OS-EXT-SRV-ATTR:ramdisk_id",
			apidoc.Described(api.SchemaText, administrators),
			"OS-EXT-SRV-ATTR:root_device_name", apidoc.Described(api.AnswerNull, administrators),
			"OS-EXT-SRV-ATTR:user_data", apidoc.Described(apidoc.OrNull("string"), administrators),
		)...)
	}
	if v >= vHostStatus {
		some = append(some,
			apidoc.Members("host_status", apidoc.Described(
				js.Schema{js.Type("string"), js.Enum("UP", "UNKNOWN", "DOWN", "MAINTENANCE", "")},
				"How its host is, for administrators."))...)
	}
	return all, some
}

// grouped adds the groups of a server, for answers about one.
func grouped(v api.Version, all js.Properties) js.Properties {
	if v < vShowGroups {
		return all
	}
	return append(all, apidoc.Members(
		"server_groups", apidoc.Described(apidoc.List(api.SchemaUUID), "Its server group, or none."))...)
}

// orUnknown is a server, or from 2.69 on the minimal record of one.
func orUnknown(v api.Version, s js.Schema, unknown js.Properties) js.Schema {
	if v < api.VDownCells {
		return s
	}
	return js.Schema{js.AnyOf(s, apidoc.Whole(unknown))}
}

// briefListAnswer is a list of servers, as [View.Brief] and [View.UnknownBrief] show them.
func briefListAnswer(v api.Version) js.Schema {
	return api.Part(apidoc.Members("servers", apidoc.List(orUnknown(v, apidoc.Whole(serverBrief), unknownBrief))),
		apidoc.Members("servers_links", api.AnswerNext))
}

// detailListAnswer is a list of servers, as [View.Whole] and [View.Unknown] show them.
func detailListAnswer(v api.Version) js.Schema {
	return api.Part(apidoc.Members("servers", apidoc.List(orUnknown(v, api.Part(shownServer(v)), unknownDetail))),
		apidoc.Members("servers_links", api.AnswerNext))
}

// Answer is one server, as [View.Whole] and [View.UnknownWhole] show it.
func Answer(v api.Version) js.Schema {
	all, some := shownServer(v)
	unknown := append(slices.Clone(unknownDetail),
		apidoc.Members("image", apidoc.Described(api.AnswerRef,
			"The image; the id is no-image for a server without one."),
			"flavor", serverFlavor(v), "OS-EXT-AZ:availability_zone", answerZone,
			"OS-EXT-STS:power_state", answerPower, "user_id", answerUser)...)
	return api.In("server", orUnknown(v, api.Part(grouped(v, all), some), grouped(v, unknown)))
}

// ChangedAnswer is one server, as the answer to a change has it.
func ChangedAnswer(v api.Version) js.Schema {
	all, some := ChangedMembers(v)
	return api.In("server", api.Part(all, some))
}

// ChangedMembers are the members of [ChangedAnswer]: those that are always there, and those that
// depend on the state of the server.
func ChangedMembers(v api.Version) (all, some js.Properties) {
	all, some = changedServer(v)
	return grouped(v, all), some
}
