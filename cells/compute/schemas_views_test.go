// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"slices"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
)

// The microversions that change how servers are shown.
const (
	vExtendedAttributes api.Version = 3  // all attributes for administrators
	vLocked             api.Version = 9  // servers say whether they are locked
	vHostStatus         api.Version = 16 // servers say how their host is
	vFlavorEmbedded     api.Version = 47 // the flavor of a server is shown as it was
	vShowGroups         api.Version = 71 // servers say in which groups they are
)

// The schemas of servers in answers, for the reference and the OpenAPI document. A View writes
// servers without them; tests compare each answer with its schema.

// statusNames are the statuses that servers show.
var statusNames = []any{
	"ACTIVE", "BUILD", "DELETED", "ERROR", "HARD_REBOOT", "MIGRATING", "PASSWORD", "PAUSED", "REBOOT", "REBUILD",
	"RESCUE", "RESIZE", "REVERT_RESIZE", "SHELVED", "SHELVED_OFFLOADED", "SHUTOFF", "SOFT_DELETED", "SUSPENDED",
	api.StatusUnknown, "VERIFY_RESIZE",
}

var serverBrief = members("id", api.SchemaUUID, "name", api.SchemaText, "links", answerLinks)

// The records of a server whose cell is down: in lists, in lists with details, and by itself.
var (
	serverStatusSchema = js.Schema{js.Type("string"), js.Enum(statusNames...)}
	unknownBrief       = members("id", api.SchemaUUID, "status", serverStatusSchema, "links", answerLinks)
	unknownDetail      = members("id", api.SchemaUUID, "status", serverStatusSchema, "tenant_id", answerProject,
		"created", answerTime, "links", answerLinks)
	answerProject = described(api.SchemaText, "The project.")
	answerUser    = described(api.SchemaText, "The user who created it; UNKNOWN if that is not known.")
	answerZone    = described(api.SchemaText,
		"The availability zone: that of its host, or the one that was asked for; UNKNOWN if that is not known.")
	answerPower = described(answerInt,
		"0: not known, 1: running, 3: paused, 4: shut down, 6: crashed, 7: suspended.")
)

func serverFlavor(v api.Version) js.Schema {
	if v < vFlavorEmbedded {
		return described(answerRef, "The flavor.")
	}
	return described(
		part(members("vcpus", answerInt, "ram", answerInt, "disk", answerInt,
			"ephemeral", answerInt, "swap", answerInt,
			"original_name", api.SchemaText),
			members("extra_specs", described(
				answerTexts, "For those whom the policy servers:show:flavor-extra-specs allows."))),
		"The flavor, as it was when the server was created.")
}

// changedServer is a server as the answer to a change has it, but for its groups.
func changedServer(v api.Version) (all, some js.Properties) {
	all = members(
		"id", api.SchemaUUID, "name", api.SchemaText,
		"status", serverStatusSchema, "tenant_id", answerProject, "user_id", answerUser,
		"metadata", answerTexts,
		"hostId", described(api.SchemaText,
			"The same for servers of the project on the same host; empty without a host."),
		"image", described(answerRef, "The image; the id is no-image for a server without one."),
		"flavor", serverFlavor(v),
		"created", answerTime, "updated", answerTime, "addresses", answerEmpty,
		"accessIPv4", described(api.SchemaText, "Empty for none."),
		"accessIPv6", described(api.SchemaText, "Empty for none."),
		"links", answerLinks, "OS-DCF:diskConfig", api.SchemaDiskConfig,
	)
	if v >= vLocked {
		all = append(all, members("locked", answerBool)...)
	}
	if v >= api.VDescription {
		all = append(all, members("description", orNull("string"))...)
	}
	if v >= api.VTags {
		all = append(all, members("tags", list(api.SchemaText))...)
	}
	if v >= api.VTrustedCerts {
		all = append(all, members("trusted_image_certificates",
			js.Schema{js.Type("array", "null"), js.Items(api.SchemaText)})...)
	}
	return all, members(
		"fault", described(
			part(members("code", answerInt, "created", answerTime, "message", api.SchemaText),
				members("details", described(
					api.SchemaText, "For administrators, or if code is not 500."))), "Why it is in ERROR."),
		"progress", described(answerInt, "Always 0; in some statuses."),
	)
}

// shownServer is a server as lists with details have it.
func shownServer(v api.Version) (all, some js.Properties) {
	all, some = changedServer(v)
	all = append(all, members(
		"OS-EXT-AZ:availability_zone", answerZone, "config_drive", described(api.SchemaText, "True, or empty."),
		"key_name", orNull("string"), "OS-SRV-USG:launched_at", answerStampOr,
		"OS-SRV-USG:terminated_at", answerStampOr,
		"OS-EXT-STS:task_state",
		described(orNull("string"), "What is being done to it; null for nothing."),
		"OS-EXT-STS:vm_state", orNull("string"),
		"OS-EXT-STS:power_state", answerPower, "os-extended-volumes:volumes_attached", answerNothing,
	)...)
	const administrators = "For administrators."
	some = append(some, members(
		"OS-EXT-SRV-ATTR:host", described(orNull("string"), administrators),
		"OS-EXT-SRV-ATTR:instance_name", described(api.SchemaText, administrators),
		"OS-EXT-SRV-ATTR:hypervisor_hostname", described(orNull("string"), administrators),
	)...)
	if v >= vExtendedAttributes {
		some = append(some, members(
			"OS-EXT-SRV-ATTR:reservation_id", described(api.SchemaText, administrators),
			"OS-EXT-SRV-ATTR:launch_index", described(answerInt, administrators),
			"OS-EXT-SRV-ATTR:hostname", described(api.SchemaText, administrators),
			"OS-EXT-SRV-ATTR:kernel_id", described(api.SchemaText, administrators), "OS-EXT-SRV-ATTR:ramdisk_id",
			described(api.SchemaText, administrators),
			"OS-EXT-SRV-ATTR:root_device_name", described(answerNull, administrators),
			"OS-EXT-SRV-ATTR:user_data", described(orNull("string"), administrators),
		)...)
	}
	if v >= vHostStatus {
		some = append(some,
			members("host_status", described(
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
	return append(all, members(
		"server_groups", described(list(api.SchemaUUID), "Its server group, or none."))...)
}

// orUnknown is a server, or from 2.69 on the minimal record of one.
func orUnknown(v api.Version, s js.Schema, unknown js.Properties) js.Schema {
	if v < api.VDownCells {
		return s
	}
	return js.Schema{js.AnyOf(s, whole(unknown))}
}

// briefListAnswer is a list of servers, as [View.Brief] and [View.UnknownBrief] show them.
func briefListAnswer(v api.Version) js.Schema {
	return part(members("servers", list(orUnknown(v, whole(serverBrief), unknownBrief))),
		members("servers_links", answerNext))
}

// detailListAnswer is a list of servers, as [View.Whole] and [View.Unknown] show them.
func detailListAnswer(v api.Version) js.Schema {
	return part(members("servers", list(orUnknown(v, part(shownServer(v)), unknownDetail))),
		members("servers_links", answerNext))
}

// serverAnswer is one server, as [View.Whole] and [View.UnknownWhole] show it.
func serverAnswer(v api.Version) js.Schema {
	all, some := shownServer(v)
	unknown := append(slices.Clone(unknownDetail),
		members("image", described(answerRef,
			"The image; the id is no-image for a server without one."),
			"flavor", serverFlavor(v), "OS-EXT-AZ:availability_zone", answerZone,
			"OS-EXT-STS:power_state", answerPower, "user_id", answerUser)...)
	return in("server", orUnknown(v, part(grouped(v, all), some), grouped(v, unknown)))
}

// changedAnswer is one server, as the answer to a change has it.
func changedAnswer(v api.Version) js.Schema {
	all, some := changedMembers(v)
	return in("server", part(all, some))
}

// changedMembers are the members of [changedAnswer]: those that are always there, and those that
// depend on the state of the server.
func changedMembers(v api.Version) (all, some js.Properties) {
	all, some = changedServer(v)
	return grouped(v, all), some
}
