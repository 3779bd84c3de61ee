// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"net/http"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/compute/serverview"
	"github.com/compute-agent/compute-agent/internal/osapi/apidoc"
)

// What the reference says about the calls on servers.

// Errors that several calls have.
var (
	noMeta   = api.Failure(http.StatusNotFound, "The server has no such item.")
	noTag    = api.Failure(http.StatusNotFound, "The server has no such tag.")
	overMeta = api.Failure(http.StatusForbidden, "The server would have more items of metadata than the quota allows.")
)

const (
	noteMinimalShow = "From 2.69 on, a server whose cell does not respond has a minimal record: `status` is " +
		"`UNKNOWN`, and of the members below only `id`, `status`, `links`, " +
		"`tenant_id`, `user_id`, `created`, `image`, `flavor`, `OS-EXT-AZ:availability_zone`, " +
		"`OS-EXT-STS:power_state` and, from 2.71 on, `server_groups` are there. Before, the answer is 500."
	noteAccepted = "The answer comes when the cell has it. The host does it when it is up: see " +
		"`OS-EXT-STS:task_state` of the server."
	noteNoTag = "There is no body, or `null`."
)

var (
	aboutShowServer = api.About{Summary: "Shows a server",
		Notes: []string{noteMinimalShow}, Rules: append(api.Rules(ruleServersShow), serverview.Rules...),
		Answers: api.OK("The server.", api.ByVersion(serverview.Answer)), Failures: serverview.Reading}
	aboutCreateServers = api.About{
		Summary: "Creates servers",
		Notes: []string{
			"The answer comes before a host is found. Poll the server: `BUILD` becomes `ACTIVE`, or `ERROR` with a " +
				"`fault`. From 2.37 on `networks` is required and must be `none`; before, leave it out.",
			"With `max_count` several servers are created: the answer has the first, or with " +
				"`return_reservation_id` what all have in common.",
			"Members that this API has no use for are refused with 400 if they ask for something: volumes, " +
				"networks, security groups other than `default`, " +
				"`personality`, `trusted_image_certificates`, and scheduler hints other than `group`, `same_host` " +
				"and `different_host`. `imageRef` is required; empty, the disk is empty.",
		},
		Rules: []api.RuleUse{
			{Rule: ruleServersCreate, When: ""},
			{Rule: ruleCreateForcedHost, When: "if availability_zone is ZONE:HOST"},
			{Rule: ruleCreateZeroDisk, When: "if the flavor has no disk"},
			{Rule: ruleCreateCellDown, When: "while servers of the project are in a cell that does not respond"},
		},
		Answers: []apidoc.Answer{{Status: http.StatusAccepted, Text: "It will be created; Location is its URL.",
			Body: apidoc.Always(serverCreated)}},
		Failures: []apidoc.Failure{
			api.Failure(
				http.StatusBadRequest,
				"The flavor, the image, the key pair, the zone or the server group does not exist, or something is "+
					"asked for that this API does not have.",
			),
			api.Failure(http.StatusForbidden, "The quota is used up, or the server group is full."),
		},
	}
	aboutUpdateServer = api.About{Summary: "Changes the name, the description and other labels of a server",
		Rules:   api.Rules(ruleServersUpdate),
		Answers: api.OK("The server.", api.ByVersion(serverview.ChangedAnswer)), Failures: serverview.Changing}
	aboutDeleteServer = api.About{
		Summary: "Deletes a server", Rules: api.Rules(ruleServersDelete),
		Answers: api.Done(http.StatusNoContent, "It is being deleted, if it can be restored only after some time."),
		Notes: []string{"Where the server keeps deleted servers ([compute_api] reclaim_instance_interval), the " +
			"action `restore` takes it back."},
		Failures: serverview.Changing,
	}

	aboutListMetadata = api.About{Summary: "Lists the metadata of a server", Rules: api.Rules(ruleMetadataIndex),
		Answers:  api.OK("The items.", apidoc.Always(metadataAnswer)),
		Failures: serverview.Reading}
	aboutShowMetadata = api.About{
		Summary:  "Shows an item of metadata",
		Rules:    api.Rules(ruleMetadataShow),
		Answers:  api.OK("The item.", apidoc.Always(metaAnswer)),
		Failures: append(serverview.Reading[:2:2], noMeta),
	}
	aboutAddMetadata = api.About{
		Summary:  "Adds or changes items of metadata",
		Rules:    api.Rules(ruleMetadataCreate),
		Answers:  api.OK("All items.", apidoc.Always(metadataAnswer)),
		Failures: putFailures,
	}
	aboutReplaceMetadata = api.About{
		Summary:  "Replaces all items of metadata",
		Rules:    api.Rules(ruleMetadataUpdateAll),
		Answers:  api.OK("All items.", apidoc.Always(metadataAnswer)),
		Failures: putFailures,
	}
	aboutSetMetadata = api.About{
		Summary:  "Adds or changes an item of metadata",
		Rules:    api.Rules(ruleMetadataUpdate),
		Answers:  api.OK("The item.", apidoc.Always(metaAnswer)),
		Failures: putFailures,
		Notes:    []string{"The item of the body has the key of the path."},
	}
	aboutDeleteMetadata = api.About{
		Summary:  "Deletes an item of metadata",
		Rules:    api.Rules(ruleMetadataDelete),
		Answers:  api.Done(http.StatusNoContent, "Deleted."),
		Failures: append(serverview.Changing[:3:3], noMeta),
	}

	aboutListTags = api.About{Summary: "Lists the tags of a server", Rules: api.Rules(ruleTagsIndex),
		Answers:  api.OK("The tags.", apidoc.Always(tagsAnswer)),
		Failures: serverview.Reading}
	aboutReplaceTags = api.About{Summary: "Replaces all tags of a server", Rules: api.Rules(ruleTagsUpdateAll),
		Answers:  api.OK("The tags.", apidoc.Always(tagsAnswer)),
		Failures: serverview.Changing}
	aboutDeleteTags = api.About{Summary: "Deletes all tags of a server", Rules: api.Rules(ruleTagsDeleteAll),
		Answers:  api.Done(http.StatusNoContent, "Deleted."),
		Failures: serverview.Changing}
	aboutShowTag = api.About{
		Summary:  "Says by its status whether a server has a tag",
		Rules:    api.Rules(ruleTagsShow),
		Answers:  api.Done(http.StatusNoContent, "It has."),
		Failures: []apidoc.Failure{serverview.NoServer, noTag, serverview.DownCell},
	}
	aboutAddTag = api.About{
		Summary: "Adds a tag to a server", Notes: []string{noteNoTag},
		Rules: api.Rules(ruleTagsUpdate), Failures: serverview.Changing,
		Answers: []apidoc.Answer{{Status: http.StatusCreated, Text: "Added; Location is its URL."},
			{Status: http.StatusNoContent, Text: "The server has it already."}},
	}
	aboutDeleteTag = api.About{
		Summary:  "Deletes a tag of a server",
		Rules:    api.Rules(ruleTagsDelete),
		Answers:  api.Done(http.StatusNoContent, "Deleted."),
		Failures: append(serverview.Changing[:3:3], noTag),
	}

	aboutListInstanceActions = api.About{Summary: "Lists what was done to a server, the newest first",
		Rules:    api.Rules(ruleActionsList),
		Notes:    []string{"From 2.21 on also of servers that were deleted. At most 500 are kept."},
		Answers:  api.OK("The actions.", api.ByVersion(instanceActionsAnswer)),
		Failures: append(serverview.Reading[:2:2], api.Failure(http.StatusBadRequest, "The marker does not exist."))}
	aboutShowInstanceAction = api.About{Summary: "Shows what was done to a server by one request",
		Answers: api.OK("The action.", api.ByVersion(instanceActionAnswer)),
		Rules: []api.RuleUse{{Rule: ruleActionsShow, When: ""},
			{Rule: ruleActionsEvents, When: "for events before 2.51, and for traceback and host"}},
		Failures: append(serverview.Reading[:2:2], api.Failure(http.StatusNotFound, "There is no such action."))}

	aboutListLiveMigrations = api.About{Summary: "Lists the live migrations of a server: there are none",
		Rules:    api.Rules(ruleServerMigrationsList),
		Answers:  api.OK("An empty list.", apidoc.Always(liveMigrationsAnswer)),
		Failures: []apidoc.Failure{serverview.NoServer}}
	aboutShowLiveMigration = api.About{Summary: "Shows a live migration: there are none",
		Rules: api.Rules(ruleServerMigrationsShow), Failures: []apidoc.Failure{serverview.NoServer,
			api.Failure(http.StatusNotFound, "Always.")}}
	aboutAbortMigration = api.About{
		Summary: "Ends a migration that has no destination yet, or waits for a host that is down; the server is kept",
		Rules:   api.Rules(ruleServerMigrationAbort),
		Notes: []string{
			"Of all types, where Nova aborts live ones: the server goes back to where it was, or stays where it is " +
				"or is confirmed to be. What ends by itself, and what waits for a decision, is a 409. " +
				"`{migration}` is " +
				"the number that `os-migrations` shows.",
		},
		Answers: api.Done(http.StatusAccepted, "It ends."),
		Failures: append(serverview.Changing[:3:3],
			api.Failure(http.StatusNotFound, "There is no such migration, or it is over.")),
	}
)

var putFailures = append(serverview.Changing[:3:3], overMeta)

// What the reference says about actions on servers.
var (
	aboutRestore = api.About{
		Summary:  "Takes back a soft delete",
		Rules:    api.Rules(ruleRestore),
		Answers:  api.Done(http.StatusAccepted, "It is being restored."),
		Failures: append(serverview.Changing[:3:3], overQuota),
	}
	aboutForceDelete = api.About{
		Summary:  "Deletes a server for good, whatever its state",
		Rules:    api.Rules(ruleForceDelete),
		Answers:  api.Done(http.StatusAccepted, "It is being deleted."),
		Failures: serverview.Changing,
	}
	aboutStart = api.About{
		Summary:  "Starts a server",
		Notes:    []string{noteAccepted},
		Rules:    api.Rules(ruleServersStart),
		Answers:  api.Done(http.StatusAccepted, "It will start."),
		Failures: serverview.Changing,
	}
	aboutStop = api.About{
		Summary:  "Shuts a server down",
		Notes:    []string{noteAccepted},
		Rules:    api.Rules(ruleServersStop),
		Answers:  api.Done(http.StatusAccepted, "It will stop."),
		Failures: serverview.Changing,
	}
	aboutReboot = api.About{Summary: "Reboots a server: SOFT asks the guest, HARD switches it off and on",
		Notes: []string{noteAccepted}, Rules: api.Rules(ruleServersReboot),
		Answers: api.Done(http.StatusAccepted, "It will reboot."), Failures: serverview.Changing}
	aboutRebuild = api.About{
		Summary:  "Makes the guest of a server again from an image, on its host",
		Rules:    api.Rules(ruleServersRebuild),
		Failures: append(serverview.Changing[:3:3], overMeta),
		Notes: []string{
			noteAccepted,
			"Whether the image exists the host finds out: if it does not, the server is in `ERROR`. " +
				"`preserve_ephemeral`, `personality` and `trusted_image_certificates` " +
				"are refused with 400 if they ask for something. New `user_data` is a 409 for a host that no " +
				"administrator has enrolled.",
		},
		Answers: []apidoc.Answer{{Status: http.StatusAccepted, Text: "It will be rebuilt; Location is its URL.",
			Body: api.ByVersion(serverRebuilt)}},
	}
	aboutEvacuate = api.About{
		Summary: "Makes a server on another host, because its own is down", Rules: api.Rules(ruleEvacuate),
		Notes:    []string{"A host that is named is checked in any case: `force` makes no difference."},
		Answers:  api.OK("It will be evacuated. From 2.14 on there is no body.", api.ByVersion(evacuated)),
		Failures: moving,
	}
	aboutMigrate = api.About{
		Summary: "Moves a server to another host: its guest is shut down and started there",
		Notes: []string{"The argument is null before 2.56. Then it may name the host. The server becomes " +
			"`VERIFY_RESIZE`, until `confirmResize` or `revertResize`."},
		Rules: []api.RuleUse{{Rule: ruleMigrate, When: ""},
			{Rule: ruleMigrateToHost, When: "instead, if a host is named"}},
		Answers:  api.Done(http.StatusAccepted, "It will be migrated."),
		Failures: moving,
	}
	aboutConfirm = api.About{
		Summary:  "Ends a migration: the server stays where it is",
		Rules:    api.Rules(ruleServersConfirm),
		Answers:  api.Done(http.StatusNoContent, "It stays."),
		Failures: deciding,
	}
	aboutRevert = api.About{
		Summary:  "Takes back a migration: the server goes back to its old host",
		Rules:    api.Rules(ruleServersRevert),
		Answers:  api.Done(http.StatusAccepted, "It goes back."),
		Failures: deciding,
	}

	aboutReset = api.About{
		Summary: "Says in which state a server is, `active` or `error`, without a task",
		Rules:   api.Rules(ruleResetState),
		Notes: []string{
			"Nothing is done to its guest. A server that is deleted, softly or for good, or that moves, is a 409, " +
				"and so is `active` for one that was never built; Nova takes all of these.",
		},
		Answers: api.Done(http.StatusAccepted, "It is in the state."), Failures: serverview.Changing,
	}

	overQuota = api.Failure(http.StatusForbidden, "The quota is used up.")
	moving    = append(
		serverview.Changing[:3:3],
		api.Failure(http.StatusBadRequest, "The host that is named cannot take the server, or is its own."),
		api.Failure(http.StatusNotFound, "There is no such host."),
	)
	deciding = append(serverview.Changing[:3:3],
		api.Failure(http.StatusBadRequest, "The server has not been migrated."))
)
