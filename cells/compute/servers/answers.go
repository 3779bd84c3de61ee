// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"slices"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/compute/serverview"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi/apidoc"
)

// The schemas of answers, for the reference and the OpenAPI document. Handlers write answers
// without them; tests compare each answer with its schema.

var answerPassword = apidoc.Described(api.SchemaText,
	"The adminPass that was sent, or a new one. It is not set in the guest.")

func serverRebuilt(v api.Version) js.Schema {
	all, some := serverview.ChangedMembers(v)
	all = append(all, apidoc.Members("adminPass", answerPassword)...)
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
		"OS-DCF:diskConfig", serverview.SchemaDiskConfig,
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
