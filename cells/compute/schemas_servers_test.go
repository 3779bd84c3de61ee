// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"slices"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
)

// The microversions that change answers.
const (
	vStorageFound    api.Version = 14 // a destination of an evacuation finds out whether storage is shared
	vActionEvents    api.Version = 51 // members see the events of actions, but for their tracebacks
	vRebuildKey      api.Version = 54 // key_name
	vRebuildUserData api.Version = 57 // user_data
	vActionPages     api.Version = 58 // lists of actions have pages, filters and updated_at
	vActionHost      api.Version = 62 // events of actions have a host
)

// The schemas of answers, for the reference and the OpenAPI document. Handlers write answers
// without them; tests compare each answer with its schema.

var answerPassword = described(api.SchemaText,
	"The adminPass that was sent, or a new one. It is not set in the guest.")

func serverRebuilt(v api.Version) js.Schema {
	all, some := changedMembers(v)
	all = append(all, members("adminPass", answerPassword)...)
	if v >= vRebuildKey {
		all = append(all, members("key_name", orNull("string"))...)
	}
	if v >= vRebuildUserData {
		all = append(all, members("user_data", orNull("string"))...)
	}
	return in("server", part(all, some))
}

var serverCreated = js.Schema{js.AnyOf(
	in("server", whole(members("id", api.SchemaUUID, "links", answerLinks,
		"OS-DCF:diskConfig", api.SchemaDiskConfig,
		"security_groups", described(list(in("name", api.SchemaText)),
			"The group default, which does nothing."), "adminPass", answerPassword))),
	in("reservation_id", described(api.SchemaText,
		"If return_reservation_id was sent: a filter by reservation_id finds the servers.")),
)}

func evacuated(v api.Version) js.Schema {
	if v >= vStorageFound {
		return nil
	}
	return in("adminPass", described(orNull("string"),
		"A password; null on shared storage. It is not set in the guest."))
}

var (
	metadataAnswer = in("metadata", answerTexts)
	metaAnswer     = in("meta", append(slices.Clone(answerTexts), js.MinProperties(1), js.MaxProperties(1)))
	tagsAnswer     = in("tags", list(api.SchemaText))
)

func instanceAction(v api.Version) js.Properties {
	p := members("action", api.SchemaText, "instance_uuid", api.SchemaUUID,
		"request_id", described(api.SchemaText, "The id of the request; it is the id of the action."),
		"user_id", orNull("string"), "project_id", orNull("string"), "start_time", answerStamp,
		"message", described(orNull("string"), "Error if it failed."))
	if v >= vActionPages {
		p = append(p, members("updated_at", answerStamp)...)
	}
	return p
}

func instanceActionsAnswer(v api.Version) js.Schema {
	list := members("instanceActions", list(whole(instanceAction(v))))
	if v < vActionPages {
		return whole(list)
	}
	return part(list, members("links", answerNext))
}

func instanceActionAnswer(v api.Version) js.Schema {
	all := members("event", api.SchemaText, "start_time", answerStamp, "finish_time", answerStampOr,
		"result", described(orNull("string"), "Success or Error; null while it is not finished."))
	some := members("traceback", described(orNull("string"),
		"What went wrong, for administrators."))
	if v >= vActionHost {
		all = append(all,
			members("hostId", described(api.SchemaText,
				"The same for servers of the project on the same host."))...)
		some = append(some, members("host", described(orNull("string"), "For administrators."))...)
	}
	events := members("events", list(part(all, some)))
	if v < vActionEvents {
		events[0].Schema = described(events[0].Schema, "For administrators.")
		return in("instanceAction", part(instanceAction(v), events))
	}
	return in("instanceAction", whole(append(instanceAction(v), events...)))
}

var liveMigrationsAnswer = in("migrations", answerNothing)
