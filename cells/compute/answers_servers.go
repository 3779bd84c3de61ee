// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi/apidoc"
)

// The schemas of answers, for the reference and the OpenAPI document. Handlers write answers
// without them; tests compare each answer with its schema.

// How schemas of answers are made.
var ()

// Types of members of answers.
var ()

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

// changedServer is a server as the answer to a change has it: the members that are always there,
// and those that depend on its state.
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
		"links", api.AnswerLinks, "OS-DCF:diskConfig", schemaDiskConfig,
	)
	if v >= vLocked {
		all = append(all, apidoc.Members("locked", api.AnswerBool)...)
	}
	if v >= vDescription {
		all = append(all, apidoc.Members("description", apidoc.OrNull("string"))...)
	}
	if v >= vTags {
		all = append(all, apidoc.Members("tags", apidoc.List(api.SchemaText))...)
	}
	if v >= vTrustedCerts {
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

func serversAnswer(v api.Version) js.Schema {
	return api.Part(apidoc.Members("servers", apidoc.List(orUnknown(v, apidoc.Whole(serverBrief), unknownBrief))),
		apidoc.Members("servers_links", api.AnswerNext))
}

func serverDetailsAnswer(v api.Version) js.Schema {
	return api.Part(apidoc.Members("servers", apidoc.List(orUnknown(v, api.Part(shownServer(v)), unknownDetail))),
		apidoc.Members("servers_links", api.AnswerNext))
}

func serverAnswer(v api.Version) js.Schema {
	all, some := shownServer(v)
	unknown := append(slices.Clone(unknownDetail),
		apidoc.Members("image", apidoc.Described(api.AnswerRef,
			"The image; the id is no-image for a server without one."),
			"flavor", serverFlavor(v), "OS-EXT-AZ:availability_zone", answerZone,
			"OS-EXT-STS:power_state", answerPower, "user_id", answerUser)...)
	return api.In("server", orUnknown(v, api.Part(grouped(v, all), some), grouped(v, unknown)))
}

func serverUpdated(v api.Version) js.Schema {
	all, some := changedServer(v)
	return api.In("server", api.Part(grouped(v, all), some))
}

var answerPassword = apidoc.Described(api.SchemaText,
	"The adminPass that was sent, or a new one. It is not set in the guest.")

func serverRebuilt(v api.Version) js.Schema {
	all, some := changedServer(v)
	all = append(grouped(v, all), apidoc.Members("adminPass", answerPassword)...)
	if v >= vRebuildKey {
		all = append(all, apidoc.Members("key_name", apidoc.OrNull("string"))...)
	}
	if v >= vRebuildUserData {
		all = append(all, apidoc.Members("user_data", apidoc.OrNull("string"))...)
	}
	return api.In("server", api.Part(all, some))
}

var serverCreated = js.Schema{js.AnyOf(
	api.In("server", apidoc.Whole(apidoc.Members("id", api.SchemaUUID, "links", api.AnswerLinks,
		"OS-DCF:diskConfig", schemaDiskConfig,
		"security_groups", apidoc.Described(apidoc.List(api.In("name", api.SchemaText)),
			"The group default, which does nothing."), "adminPass", answerPassword))),
	api.In("reservation_id", apidoc.Described(api.SchemaText,
		"If return_reservation_id was sent: a filter by reservation_id finds the servers.")),
)}

func evacuated(v api.Version) js.Schema {
	if v >= vStorageFound {
		return nil
	}
	return api.In("adminPass", apidoc.Described(apidoc.OrNull("string"),
		"A password; null on shared storage. It is not set in the guest."))
}

var (
	consoleAnswer = api.In("console", apidoc.Whole(apidoc.Members("type", api.SchemaText,
		"url", apidoc.Described(api.SchemaText, "An URL for browsers, good for some minutes."))))
	remoteConsoleAnswer = api.In(
		"remote_console", apidoc.Whole(apidoc.Members("protocol", api.SchemaText, "type", api.SchemaText,
			"url", apidoc.Described(api.SchemaText, "An URL for browsers, good for some minutes."))))
	consoleOutputAnswer = api.In("output", apidoc.Described(api.SchemaText, "The end of the log."))

	metadataAnswer = api.In("metadata", api.AnswerTexts)
	metaAnswer     = api.In("meta", append(slices.Clone(api.AnswerTexts), js.MinProperties(1), js.MaxProperties(1)))
	tagsAnswer     = api.In("tags", apidoc.List(api.SchemaText))
)

func instanceAction(v api.Version) js.Properties {
	p := apidoc.Members("action", api.SchemaText, "instance_uuid", api.SchemaUUID,
		"request_id", apidoc.Described(api.SchemaText, "The id of the request; it is the id of the action."),
		"user_id", apidoc.OrNull("string"), "project_id", apidoc.OrNull("string"), "start_time", api.AnswerStamp,
		"message", apidoc.Described(apidoc.OrNull("string"), "Error if it failed."))
	if v >= vActionPages {
		p = append(p, apidoc.Members("updated_at", api.AnswerStamp)...)
	}
	return p
}

func instanceActionsAnswer(v api.Version) js.Schema {
	list := apidoc.Members("instanceActions", apidoc.List(apidoc.Whole(instanceAction(v))))
	if v < vActionPages {
		return apidoc.Whole(list)
	}
	return api.Part(list, apidoc.Members("links", api.AnswerNext))
}

func instanceActionAnswer(v api.Version) js.Schema {
	all := apidoc.Members("event", api.SchemaText, "start_time", api.AnswerStamp, "finish_time", api.AnswerStampOr,
		"result", apidoc.Described(apidoc.OrNull("string"), "Success or Error; null while it is not finished."))
	some := apidoc.Members("traceback", apidoc.Described(apidoc.OrNull("string"),
		"What went wrong, for administrators."))
	if v >= vActionHost {
		all = append(all,
			apidoc.Members("hostId", apidoc.Described(api.SchemaText,
				"The same for servers of the project on the same host."))...)
		some = append(some, apidoc.Members("host", apidoc.Described(apidoc.OrNull("string"), "For administrators."))...)
	}
	events := apidoc.Members("events", apidoc.List(api.Part(all, some)))
	if v < vActionEvents {
		events[0].Schema = apidoc.Described(events[0].Schema, "For administrators.")
		return api.In("instanceAction", api.Part(instanceAction(v), events))
	}
	return api.In("instanceAction", apidoc.Whole(append(instanceAction(v), events...)))
}

var liveMigrationsAnswer = api.In("migrations", api.AnswerNothing)
