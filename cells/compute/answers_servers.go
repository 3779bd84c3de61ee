// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"maps"
	"slices"

	js "github.com/compute-agent/compute-agent/internal/jsonkit"
)

// The schemas of answers, for the reference and the OpenAPI document. Handlers write answers
// without them; tests compare each answer with its schema.

// How schemas of answers are made.
var ()

// Types of members of answers.
var ()

// statusNames are the statuses that servers show, for the reference.
func statusNames() (all []any) {
	names := map[string]bool{statusUnknown: true}
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

var serverBrief = fields("id", schemaUUID, "name", schemaText, "links", answerLinks)

// The records of a server whose cell is down: in lists, in lists with details, and by itself.
var (
	serverStatusSchema = js.Schema{js.Type("string"), js.Enum(statusNames()...)}
	unknownBrief       = fields("id", schemaUUID, "status", serverStatusSchema, "links", answerLinks)
	unknownDetail      = fields("id", schemaUUID, "status", serverStatusSchema, "tenant_id", answerProject, "created", answerTime, "links", answerLinks)
	answerProject      = described(schemaText, "The project.")
	answerUser         = described(schemaText, "The user who created it; UNKNOWN if that is not known.")
	answerZone         = described(schemaText, "The availability zone: that of its host, or the one that was asked for; UNKNOWN if that is not known.")
	answerPower        = described(answerInt, "0: not known, 1: running, 3: paused, 4: shut down, 6: crashed, 7: suspended.")
)

func serverFlavor(v Version) js.Schema {
	if v < vFlavorEmbedded {
		return described(answerRef, "The flavor.")
	}
	return described(part(fields("vcpus", answerInt, "ram", answerInt, "disk", answerInt, "ephemeral", answerInt, "swap", answerInt, "original_name", schemaText),
		fields("extra_specs", described(answerTexts, "For those whom the policy servers:show:flavor-extra-specs allows."))), "The flavor, as it was when the server was created.")
}

// changedServer is a server as the answer to a change has it: the members that are always there,
// and those that depend on its state.
func changedServer(v Version) (all, some js.Properties) {
	all = fields(
		"id", schemaUUID, "name", schemaText, "status", serverStatusSchema, "tenant_id", answerProject, "user_id", answerUser,
		"metadata", answerTexts,
		"hostId", described(schemaText, "The same for servers of the project on the same host; empty without a host."),
		"image", described(answerRef, "The image; the id is no-image for a server without one."), "flavor", serverFlavor(v),
		"created", answerTime, "updated", answerTime, "addresses", answerEmpty,
		"accessIPv4", described(schemaText, "Empty for none."), "accessIPv6", described(schemaText, "Empty for none."),
		"links", answerLinks, "OS-DCF:diskConfig", schemaDiskConfig,
	)
	if v >= vLocked {
		all = append(all, fields("locked", answerBool)...)
	}
	if v >= vDescription {
		all = append(all, fields("description", nullable("string"))...)
	}
	if v >= vTags {
		all = append(all, fields("tags", listOf(schemaText))...)
	}
	if v >= vTrustedCerts {
		all = append(all, fields("trusted_image_certificates", js.Schema{js.Type("array", "null"), js.Items(schemaText)})...)
	}
	return all, fields(
		"fault", described(part(fields("code", answerInt, "created", answerTime, "message", schemaText),
			fields("details", described(schemaText, "For administrators, or if code is not 500."))), "Why it is in ERROR."),
		"progress", described(answerInt, "Always 0; in some statuses."),
	)
}

// shownServer is a server as lists with details have it.
func shownServer(v Version) (all, some js.Properties) {
	all, some = changedServer(v)
	all = append(all, fields(
		"OS-EXT-AZ:availability_zone", answerZone, "config_drive", described(schemaText, "True, or empty."),
		"key_name", nullable("string"), "OS-SRV-USG:launched_at", answerStampOr, "OS-SRV-USG:terminated_at", answerStampOr,
		"OS-EXT-STS:task_state", described(nullable("string"), "What is being done to it; null for nothing."), "OS-EXT-STS:vm_state", nullable("string"),
		"OS-EXT-STS:power_state", answerPower, "os-extended-volumes:volumes_attached", answerNothing,
	)...)
	const administrators = "For administrators."
	some = append(some, fields(
		"OS-EXT-SRV-ATTR:host", described(nullable("string"), administrators), "OS-EXT-SRV-ATTR:instance_name", described(schemaText, administrators),
		"OS-EXT-SRV-ATTR:hypervisor_hostname", described(nullable("string"), administrators),
	)...)
	if v >= vExtendedAttributes {
		some = append(some, fields(
			"OS-EXT-SRV-ATTR:reservation_id", described(schemaText, administrators), "OS-EXT-SRV-ATTR:launch_index", described(answerInt, administrators),
			"OS-EXT-SRV-ATTR:hostname", described(schemaText, administrators),
			"OS-EXT-SRV-ATTR:kernel_id", described(schemaText, administrators), "OS-EXT-SRV-ATTR:ramdisk_id", described(schemaText, administrators),
			"OS-EXT-SRV-ATTR:root_device_name", described(answerNull, administrators), "OS-EXT-SRV-ATTR:user_data", described(nullable("string"), administrators),
		)...)
	}
	if v >= vHostStatus {
		some = append(some, fields("host_status", described(js.Schema{js.Type("string"), js.Enum("UP", "UNKNOWN", "DOWN", "MAINTENANCE", "")},
			"How its host is, for administrators."))...)
	}
	return all, some
}

// grouped adds the groups of a server, for answers about one.
func grouped(v Version, all js.Properties) js.Properties {
	if v < vShowGroups {
		return all
	}
	return append(all, fields("server_groups", described(listOf(schemaUUID), "Its server group, or none."))...)
}

// orUnknown is a server, or from 2.69 on the minimal record of one.
func orUnknown(v Version, s js.Schema, unknown js.Properties) js.Schema {
	if v < vDownCells {
		return s
	}
	return js.Schema{js.AnyOf(s, whole(unknown))}
}

func serversAnswer(v Version) js.Schema {
	return part(fields("servers", listOf(orUnknown(v, whole(serverBrief), unknownBrief))), fields("servers_links", answerNext))
}

func serverDetailsAnswer(v Version) js.Schema {
	return part(fields("servers", listOf(orUnknown(v, part(shownServer(v)), unknownDetail))), fields("servers_links", answerNext))
}

func serverAnswer(v Version) js.Schema {
	all, some := shownServer(v)
	unknown := append(slices.Clone(unknownDetail), fields("image", described(answerRef, "The image; the id is no-image for a server without one."),
		"flavor", serverFlavor(v), "OS-EXT-AZ:availability_zone", answerZone, "OS-EXT-STS:power_state", answerPower, "user_id", answerUser)...)
	return in("server", orUnknown(v, part(grouped(v, all), some), grouped(v, unknown)))
}

func serverUpdated(v Version) js.Schema {
	all, some := changedServer(v)
	return in("server", part(grouped(v, all), some))
}

var answerPassword = described(schemaText, "The adminPass that was sent, or a new one. It is not set in the guest.")

func serverRebuilt(v Version) js.Schema {
	all, some := changedServer(v)
	all = append(grouped(v, all), fields("adminPass", answerPassword)...)
	if v >= vRebuildKey {
		all = append(all, fields("key_name", nullable("string"))...)
	}
	if v >= vRebuildUserData {
		all = append(all, fields("user_data", nullable("string"))...)
	}
	return in("server", part(all, some))
}

var serverCreated = js.Schema{js.AnyOf(
	in("server", whole(fields("id", schemaUUID, "links", answerLinks, "OS-DCF:diskConfig", schemaDiskConfig,
		"security_groups", described(listOf(in("name", schemaText)), "The group default, which does nothing."), "adminPass", answerPassword))),
	in("reservation_id", described(schemaText, "If return_reservation_id was sent: a filter by reservation_id finds the servers.")),
)}

func evacuated(v Version) js.Schema {
	if v >= vStorageFound {
		return nil
	}
	return in("adminPass", described(nullable("string"), "A password; null on shared storage. It is not set in the guest."))
}

var (
	consoleAnswer       = in("console", whole(fields("type", schemaText, "url", described(schemaText, "An URL for browsers, good for some minutes."))))
	remoteConsoleAnswer = in("remote_console", whole(fields("protocol", schemaText, "type", schemaText,
		"url", described(schemaText, "An URL for browsers, good for some minutes."))))
	consoleOutputAnswer = in("output", described(schemaText, "The end of the log."))

	metadataAnswer = in("metadata", answerTexts)
	metaAnswer     = in("meta", append(slices.Clone(answerTexts), js.MinProperties(1), js.MaxProperties(1)))
	tagsAnswer     = in("tags", listOf(schemaText))
)

func instanceAction(v Version) js.Properties {
	p := fields("action", schemaText, "instance_uuid", schemaUUID, "request_id", described(schemaText, "The id of the request; it is the id of the action."),
		"user_id", nullable("string"), "project_id", nullable("string"), "start_time", answerStamp, "message", described(nullable("string"), "Error if it failed."))
	if v >= vActionPages {
		p = append(p, fields("updated_at", answerStamp)...)
	}
	return p
}

func instanceActionsAnswer(v Version) js.Schema {
	list := fields("instanceActions", listOf(whole(instanceAction(v))))
	if v < vActionPages {
		return whole(list)
	}
	return part(list, fields("links", answerNext))
}

func instanceActionAnswer(v Version) js.Schema {
	all := fields("event", schemaText, "start_time", answerStamp, "finish_time", answerStampOr,
		"result", described(nullable("string"), "Success or Error; null while it is not finished."))
	some := fields("traceback", described(nullable("string"), "What went wrong, for administrators."))
	if v >= vActionHost {
		all = append(all, fields("hostId", described(schemaText, "The same for servers of the project on the same host."))...)
		some = append(some, fields("host", described(nullable("string"), "For administrators."))...)
	}
	events := fields("events", listOf(part(all, some)))
	if v < vActionEvents {
		events[0].Schema = described(events[0].Schema, "For administrators.")
		return in("instanceAction", part(instanceAction(v), events))
	}
	return in("instanceAction", whole(append(instanceAction(v), events...)))
}

// migrationsAnswer has null where nothing is kept.
func migrationsAnswer(v Version) js.Schema {
	const hosts = "For those whom the policy os-migrations:index:host allows; null for others."
	host := described(nullable("string"), hosts)
	p := fields("id", answerInt, "instance_uuid", schemaUUID, "status", schemaText, "created_at", answerStamp, "updated_at", answerStampOr,
		"source_compute", host, "source_node", host, "dest_compute", host, "dest_node", host, "dest_host", described(answerNull, "Always null."),
		"new_instance_type_id", described(answerNull, "Always null."), "old_instance_type_id", described(answerNull, "Always null."))
	if v >= vMigrationTypes {
		p = append(p, fields("migration_type", js.Schema{js.Type("string"), js.Enum("migration", "evacuation")})...)
	}
	if v < vMigrationPages {
		return in("migrations", listOf(whole(p)))
	}
	p = append(p, fields("uuid", schemaUUID)...)
	return part(fields("migrations", listOf(whole(p))), fields("migrations_links", answerNext))
}

var liveMigrationsAnswer = in("migrations", answerNothing)
