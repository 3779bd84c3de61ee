// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/http"

	"github.com/compute-agent/compute-agent/internal/osapi/apidoc"
)

// What the reference says about the calls on servers.

// Errors that several calls have.
var (
	noServer = failure(http.StatusNotFound, "There is no such server, or it is another project's.")
	notNow   = failure(http.StatusConflict, "The state of the server does not allow it, or it is not in a cell yet.")
	noMeta   = failure(http.StatusNotFound, "The server has no such item.")
	noTag    = failure(http.StatusNotFound, "The server has no such tag.")
	overMeta = failure(http.StatusForbidden, "The server would have more items of metadata than the quota allows.")
	lostCell = failure(http.StatusInternalServerError, "The cell of the server is not responding: whether it was done is not known.")
	deadCell = failure(http.StatusInternalServerError, "The cell of the server is not responding.")

	onServer = []apidoc.Failure{noServer, deadCell}
	changing = []apidoc.Failure{noServer, notNow, lostCell}
)

const (
	noteMinimal = "From 2.69 on, a server whose cell does not respond has a minimal record: `status` is `UNKNOWN`, and of the members below only " +
		"`id`, `status` and `links` are there, with details also `tenant_id` and `created`. Such records come first, and only without filters, pages and sorting " +
		"(`all_tenants`, `project_id`, `tenant_id` and `deleted` are allowed). Otherwise servers of these cells are left out, or the list is refused with 500, " +
		"as the configuration says ([cells.md](cells.md#when-a-cell-is-down))."
	noteMinimalShow = "From 2.69 on, a server whose cell does not respond has a minimal record: `status` is `UNKNOWN`, and of the members below only `id`, `status`, `links`, " +
		"`tenant_id`, `user_id`, `created`, `image`, `flavor`, `OS-EXT-AZ:availability_zone`, `OS-EXT-STS:power_state` and, from 2.71 on, `server_groups` are there. Before, the answer is 500."
	noteAccepted = "The answer comes when the cell has it. The host does it when it is up: see `OS-EXT-STS:task_state` of the server."
	noteNoTag    = "There is no body, or `null`."
)

var (
	aboutListVersions = about{summary: "Shows the versions of the API", answers: ok("The versions.", always(versionsAnswer)),
		notes: []string{"Paths that begin with no version are answered with 300 and the versions to choose from."}}
	aboutShowVersion = about{summary: "Shows the microversions of the API", answers: ok("The version.", always(versionAnswer)),
		notes: []string{"The path is good without the last slash, too."}}

	aboutListBrief = about{summary: "Lists servers", notes: []string{noteMinimal}, rules: listRules(ruleServersIndex, ruleServersIndexAll),
		answers: ok("The servers, the newest first unless something else is asked for.", byVersion(serversAnswer)), failures: listFailures}
	aboutListDetail = about{summary: "Lists servers with details", notes: []string{noteMinimal}, rules: listRules(ruleServersDetail, ruleServersDetailAll),
		answers: ok("The servers, the newest first unless something else is asked for.", byVersion(serverDetailsAnswer)), failures: listFailures}
	aboutShowServer = about{summary: "Shows a server", notes: []string{noteMinimalShow}, rules: append(rules(ruleServersShow), shownRules...),
		answers: ok("The server.", byVersion(serverAnswer)), failures: onServer}
	aboutCreateServers = about{
		summary: "Creates servers",
		notes: []string{
			"The answer comes before a host is found. Poll the server: `BUILD` becomes `ACTIVE`, or `ERROR` with a `fault`. " +
				"From 2.37 on `networks` is required and must be `none`; before, leave it out.",
			"With `max_count` several servers are created: the answer has the first, or with `return_reservation_id` what all have in common.",
			"Members that this API has no use for are refused with 400 if they ask for something: volumes, networks, security groups other than `default`, " +
				"`personality`, `trusted_image_certificates`, and scheduler hints other than `group`, `same_host` and `different_host`. `imageRef` is required; empty, the disk is empty.",
		},
		rules: []ruleUse{
			{ruleServersCreate, ""}, {ruleCreateForcedHost, "if availability_zone is ZONE:HOST"},
			{ruleCreateZeroDisk, "if the flavor has no disk"}, {ruleCreateCellDown, "while servers of the project are in a cell that does not respond"},
		},
		answers: []apidoc.Answer{{Status: http.StatusAccepted, Text: "It will be created; Location is its URL.", Body: always(serverCreated)}},
		failures: []apidoc.Failure{
			failure(
				http.StatusBadRequest,
				"The flavor, the image, the key pair, the zone or the server group does not exist, or something is asked for that this API does not have.",
			),
			failure(http.StatusForbidden, "The quota is used up, or the server group is full."),
		},
	}
	aboutUpdateServer = about{summary: "Changes the name, the description and other labels of a server", rules: rules(ruleServersUpdate),
		answers: ok("The server.", byVersion(serverUpdated)), failures: changing}
	aboutDeleteServer = about{
		summary: "Deletes a server", rules: rules(ruleServersDelete), answers: done(http.StatusNoContent, "It is being deleted, if it can be restored only after some time."),
		notes:    []string{"Where the server keeps deleted servers ([compute_api] reclaim_instance_interval), the action `restore` takes it back."},
		failures: changing,
	}

	aboutListMetadata = about{summary: "Lists the metadata of a server", rules: rules(ruleMetadataIndex), answers: ok("The items.", always(metadataAnswer)), failures: onServer}
	aboutShowMetadata = about{
		summary:  "Shows an item of metadata",
		rules:    rules(ruleMetadataShow),
		answers:  ok("The item.", always(metaAnswer)),
		failures: append(metaFailures, noMeta),
	}
	aboutAddMetadata = about{
		summary:  "Adds or changes items of metadata",
		rules:    rules(ruleMetadataCreate),
		answers:  ok("All items.", always(metadataAnswer)),
		failures: putFailures,
	}
	aboutReplaceMetadata = about{
		summary:  "Replaces all items of metadata",
		rules:    rules(ruleMetadataUpdateAll),
		answers:  ok("All items.", always(metadataAnswer)),
		failures: putFailures,
	}
	aboutSetMetadata = about{
		summary:  "Adds or changes an item of metadata",
		rules:    rules(ruleMetadataUpdate),
		answers:  ok("The item.", always(metaAnswer)),
		failures: putFailures,
		notes:    []string{"The item of the body has the key of the path."},
	}
	aboutDeleteMetadata = about{
		summary:  "Deletes an item of metadata",
		rules:    rules(ruleMetadataDelete),
		answers:  done(http.StatusNoContent, "Deleted."),
		failures: append(changing[:3:3], noMeta),
	}

	aboutListTags    = about{summary: "Lists the tags of a server", rules: rules(ruleTagsIndex), answers: ok("The tags.", always(tagsAnswer)), failures: onServer}
	aboutReplaceTags = about{summary: "Replaces all tags of a server", rules: rules(ruleTagsUpdateAll), answers: ok("The tags.", always(tagsAnswer)), failures: changing}
	aboutDeleteTags  = about{summary: "Deletes all tags of a server", rules: rules(ruleTagsDeleteAll), answers: done(http.StatusNoContent, "Deleted."), failures: changing}
	aboutShowTag     = about{
		summary:  "Says by its status whether a server has a tag",
		rules:    rules(ruleTagsShow),
		answers:  done(http.StatusNoContent, "It has."),
		failures: []apidoc.Failure{noServer, noTag, deadCell},
	}
	aboutAddTag = about{
		summary: "Adds a tag to a server", notes: []string{noteNoTag}, rules: rules(ruleTagsUpdate), failures: changing,
		answers: []apidoc.Answer{{Status: http.StatusCreated, Text: "Added; Location is its URL."}, {Status: http.StatusNoContent, Text: "The server has it already."}},
	}
	aboutDeleteTag = about{
		summary:  "Deletes a tag of a server",
		rules:    rules(ruleTagsDelete),
		answers:  done(http.StatusNoContent, "Deleted."),
		failures: append(changing[:3:3], noTag),
	}

	aboutListInstanceActions = about{summary: "Lists what was done to a server, the newest first", rules: rules(ruleActionsList),
		notes:   []string{"From 2.21 on also of servers that were deleted. At most 500 are kept."},
		answers: ok("The actions.", byVersion(instanceActionsAnswer)), failures: append(onServer[:2:2], failure(http.StatusBadRequest, "The marker does not exist."))}
	aboutShowInstanceAction = about{summary: "Shows what was done to a server by one request", answers: ok("The action.", byVersion(instanceActionAnswer)),
		rules:    []ruleUse{{ruleActionsShow, ""}, {ruleActionsEvents, "for events before 2.51, and for traceback and host"}},
		failures: append(onServer[:2:2], failure(http.StatusNotFound, "There is no such action."))}
	aboutCreateRemoteConsole = about{summary: "Makes the URL of a console", rules: rules(ruleRemoteConsoles),
		notes:   []string{"The only console is the serial one: `protocol` and `type` are `serial`. All others are refused with 400. " + noteConsole},
		answers: ok("The URL.", always(remoteConsoleAnswer)), failures: consoleFailures}

	aboutListLiveMigrations = about{summary: "Lists the live migrations of a server: there are none", rules: rules(ruleServerMigrationsList),
		answers: ok("An empty list.", always(liveMigrationsAnswer)), failures: []apidoc.Failure{noServer}}
	aboutShowLiveMigration = about{summary: "Shows a live migration: there are none", rules: rules(ruleServerMigrationsShow), failures: []apidoc.Failure{noServer,
		failure(http.StatusNotFound, "Always.")}}
	aboutAbortMigration = about{summary: "Ends a migration that waits for a host that is down; the server is kept", rules: rules(ruleServerMigrationAbort),
		notes: []string{
			"Of all types, where Nova aborts live ones: the server goes back to where it was, or stays where it is confirmed to be. " +
				"What ends by itself, and what waits for a decision, is a 409. `{migration}` is the number that `os-migrations` shows.",
		},
		answers: done(http.StatusAccepted, "It ends."), failures: append(changing[:3:3], failure(http.StatusNotFound, "There is no such migration, or it is over."))}
)

const noteConsole = "The URL is for a browser: its page opens a websocket on the same path. Whether the host can show the console, the page says."

var (
	listFailures    = []apidoc.Failure{failure(http.StatusBadRequest, "The marker is no server of the list, or a filter is refused.")}
	metaFailures    = []apidoc.Failure{noServer, deadCell}
	putFailures     = append(changing[:3:3], overMeta)
	consoleFailures = append(changing[:3:3], failure(http.StatusBadRequest, "There is no such console."))

	// shownRules are those that decide which members of servers are shown.
	shownRules = []ruleUse{
		{ruleExtendedAttrs, "for the members OS-EXT-SRV-ATTR"}, {ruleShowExtraSpecs, "for flavor.extra_specs"},
		{ruleShowHostStatus, "for host_status"}, {ruleShowHostUnknown, "for a host_status of UNKNOWN"},
	}
)

func listRules(list, all Rule) []ruleUse {
	return append([]ruleUse{{list, ""}, {all, "with all_tenants"}, {ruleServersAllFilters, "for all filters"}}, shownRules...)
}

// What the reference says about actions on servers.
var (
	aboutRestore = about{
		summary:  "Takes back a soft delete",
		rules:    rules(ruleRestore),
		answers:  done(http.StatusAccepted, "It is being restored."),
		failures: append(changing[:3:3], overQuota),
	}
	aboutForceDelete = about{
		summary:  "Deletes a server for good, whatever its state",
		rules:    rules(ruleForceDelete),
		answers:  done(http.StatusAccepted, "It is being deleted."),
		failures: changing,
	}
	aboutStart = about{
		summary:  "Starts a server",
		notes:    []string{noteAccepted},
		rules:    rules(ruleServersStart),
		answers:  done(http.StatusAccepted, "It will start."),
		failures: changing,
	}
	aboutStop = about{
		summary:  "Shuts a server down",
		notes:    []string{noteAccepted},
		rules:    rules(ruleServersStop),
		answers:  done(http.StatusAccepted, "It will stop."),
		failures: changing,
	}
	aboutReboot = about{summary: "Reboots a server: SOFT asks the guest, HARD switches it off and on", notes: []string{noteAccepted}, rules: rules(ruleServersReboot),
		answers: done(http.StatusAccepted, "It will reboot."), failures: changing}
	aboutRebuild = about{
		summary:  "Makes the guest of a server again from an image, on its host",
		rules:    rules(ruleServersRebuild),
		failures: append(changing[:3:3], overMeta),
		notes: []string{
			noteAccepted,
			"Whether the image exists the host finds out: if it does not, the server is in `ERROR`. `preserve_ephemeral`, `personality` and `trusted_image_certificates` " +
				"are refused with 400 if they ask for something. New `user_data` is a 409 for a host that no administrator has enrolled.",
		},
		answers: []apidoc.Answer{{Status: http.StatusAccepted, Text: "It will be rebuilt; Location is its URL.", Body: byVersion(serverRebuilt)}},
	}
	aboutEvacuate = about{
		summary: "Makes a server on another host, because its own is down", rules: rules(ruleEvacuate),
		notes:   []string{"A host that is named is checked in any case: `force` makes no difference."},
		answers: ok("It will be evacuated. From 2.14 on there is no body.", byVersion(evacuated)), failures: moving,
	}
	aboutMigrate = about{
		summary:  "Moves a server to another host: its guest is shut down and started there",
		notes:    []string{"The argument is null before 2.56. Then it may name the host. The server becomes `VERIFY_RESIZE`, until `confirmResize` or `revertResize`."},
		rules:    []ruleUse{{ruleMigrate, ""}, {ruleMigrateToHost, "instead, if a host is named"}},
		answers:  done(http.StatusAccepted, "It will be migrated."),
		failures: moving,
	}
	aboutConfirm = about{
		summary:  "Ends a migration: the server stays where it is",
		rules:    rules(ruleServersConfirm),
		answers:  done(http.StatusNoContent, "It stays."),
		failures: deciding,
	}
	aboutRevert = about{
		summary:  "Takes back a migration: the server goes back to its old host",
		rules:    rules(ruleServersRevert),
		answers:  done(http.StatusAccepted, "It goes back."),
		failures: deciding,
	}

	aboutReset = about{
		summary: "Says in which state a server is, `active` or `error`, without a task", rules: rules(ruleResetState),
		notes: []string{
			"Nothing is done to its guest. A server that is deleted, softly or for good, or that moves, is a 409, and so is `active` for one that was never built; Nova takes all of these.",
		},
		answers: done(http.StatusAccepted, "It is in the state."), failures: changing,
	}

	aboutConsoleOutput = about{
		summary: "Shows the end of what a guest wrote to its serial console: so many lines of its last 100 KiB", rules: rules(ruleConsoleOutput),
		notes:   []string{"`length` is the number of lines; all for -1, null and none."},
		answers: ok("The output.", always(consoleOutputAnswer)),
		failures: append(changing[:3:3], failure(http.StatusNotImplemented, "The host keeps no console logs."),
			failure(http.StatusServiceUnavailable, "The agent of the host cannot be asked now.")),
	}
	aboutSerialConsole = about{
		summary:  "Makes the URL of a serial console",
		notes:    []string{noteConsole},
		rules:    rules(ruleRemoteConsoles),
		answers:  ok("The URL.", always(consoleAnswer)),
		failures: consoleFailures,
	}
	aboutVNCConsole   = about{summary: "Asks for a graphical console: there are none", rules: rules(ruleRemoteConsoles), failures: noConsole}
	aboutSPICEConsole = about{summary: "Asks for a graphical console: there are none", rules: rules(ruleRemoteConsoles), failures: noConsole}

	overQuota = failure(http.StatusForbidden, "The quota is used up.")
	noConsole = []apidoc.Failure{noServer, failure(http.StatusBadRequest, "Always.")}
	moving    = append(
		changing[:3:3],
		failure(http.StatusBadRequest, "The host that is named cannot take the server, or is its own."),
		failure(http.StatusNotFound, "There is no such host."),
	)
	deciding = append(changing[:3:3], failure(http.StatusBadRequest, "The server has not been migrated."))
)
