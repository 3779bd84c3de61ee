// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/http"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/test/openapi/apidoc"
)

// What the reference says about the calls on servers.

// Errors that several calls have.
var (
	noMeta   = failure(http.StatusNotFound, "The server has no such item.")
	noTag    = failure(http.StatusNotFound, "The server has no such tag.")
	overMeta = failure(http.StatusForbidden, "The server would have more items of metadata than the quota allows.")
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
	aboutShowServer = about{summary: "Shows a server",
		notes: []string{noteMinimalShow}, when: viewRules,
		answers: ok("The server.", byVersion(serverAnswer)), failures: reading}
	aboutCreateServers = about{
		summary: "Creates servers",
		notes: []string{
			"The answer comes before a host is found. Poll the server: `BUILD` becomes `ACTIVE`, or `ERROR` with a " +
				"`fault`. From 2.37 on `networks` is required and must be `none`; before, leave it out.",
			"With `max_count` several servers are created: the answer has the first, or with " +
				"`return_reservation_id` what all have in common.",
			"Members that this API has no use for are refused with 400 if they ask for something: volumes, " +
				"networks, security groups other than `default`, " +
				"`personality`, `trusted_image_certificates`, and scheduler hints other than `group`, `same_host` " +
				"and `different_host`. `imageRef` is required; empty, the disk is empty.",
		},
		when: map[string]string{
			"os_compute_api:servers:create:forced_host":      "if availability_zone is ZONE:HOST",
			"os_compute_api:servers:create:zero_disk_flavor": "if the flavor has no disk",
			"os_compute_api:servers:create:cell_down": "while servers of the project are in a " +
				"cell that does not respond",
		},
		answers: []apidoc.Answer{{Status: http.StatusAccepted, Text: "It will be created; Location is its URL.",
			Body: always(serverCreated)}},
		failures: []apidoc.Failure{
			failure(
				http.StatusBadRequest,
				"The flavor, the image, the key pair, the zone or the server group does not exist, or something is "+
					"asked for that this API does not have.",
			),
			failure(http.StatusForbidden, "The quota is used up, or the server group is full."),
		},
	}
	aboutUpdateServer = about{summary: "Changes the name, the description and other labels of a server",
		answers: ok("The server.", byVersion(changedAnswer)), failures: changing}
	aboutDeleteServer = about{
		summary: "Deletes a server",
		answers: done(http.StatusNoContent, "It is being deleted, if it can be restored only after some time."),
		notes: []string{"Where the server keeps deleted servers ([compute_api] reclaim_instance_interval), the " +
			"action `restore` takes it back."},
		failures: changing,
	}

	aboutListMetadata = about{summary: "Lists the metadata of a server",
		answers:  ok("The items.", always(metadataAnswer)),
		failures: reading}
	aboutShowMetadata = about{
		summary:  "Shows an item of metadata",
		answers:  ok("The item.", always(metaAnswer)),
		failures: append(reading[:2:2], noMeta),
	}
	aboutAddMetadata = about{
		summary:  "Adds or changes items of metadata",
		answers:  ok("All items.", always(metadataAnswer)),
		failures: putFailures,
	}
	aboutReplaceMetadata = about{
		summary:  "Replaces all items of metadata",
		answers:  ok("All items.", always(metadataAnswer)),
		failures: putFailures,
	}
	aboutSetMetadata = about{
		summary:  "Adds or changes an item of metadata",
		answers:  ok("The item.", always(metaAnswer)),
		failures: putFailures,
		notes:    []string{"The item of the body has the key of the path."},
	}
	aboutDeleteMetadata = about{
		summary:  "Deletes an item of metadata",
		answers:  done(http.StatusNoContent, "Deleted."),
		failures: append(changing[:3:3], noMeta),
	}

	aboutListTags = about{summary: "Lists the tags of a server",
		answers:  ok("The tags.", always(tagsAnswer)),
		failures: reading}
	aboutReplaceTags = about{summary: "Replaces all tags of a server",
		answers:  ok("The tags.", always(tagsAnswer)),
		failures: changing}
	aboutDeleteTags = about{summary: "Deletes all tags of a server",
		answers:  done(http.StatusNoContent, "Deleted."),
		failures: changing}
	aboutShowTag = about{
		summary:  "Says by its status whether a server has a tag",
		answers:  done(http.StatusNoContent, "It has."),
		failures: []apidoc.Failure{noServer, noTag, downCell},
	}
	aboutAddTag = about{
		summary: "Adds a tag to a server", notes: []string{noteNoTag},
		failures: changing,
		answers: []apidoc.Answer{{Status: http.StatusCreated, Text: "Added; Location is its URL."},
			{Status: http.StatusNoContent, Text: "The server has it already."}},
	}
	aboutDeleteTag = about{
		summary:  "Deletes a tag of a server",
		answers:  done(http.StatusNoContent, "Deleted."),
		failures: append(changing[:3:3], noTag),
	}

	aboutListInstanceActions = about{summary: "Lists what was done to a server, the newest first",
		notes:    []string{"From 2.21 on also of servers that were deleted. At most 500 are kept."},
		answers:  ok("The actions.", byVersion(instanceActionsAnswer)),
		failures: append(reading[:2:2], failure(http.StatusBadRequest, "The marker does not exist."))}
	aboutShowInstanceAction = about{summary: "Shows what was done to a server by one request",
		answers: ok("The action.", byVersion(instanceActionAnswer)),
		when: map[string]string{
			"os_compute_api:os-instance-actions:events": "for events before 2.51, and for traceback and host",
		},
		failures: append(reading[:2:2], failure(http.StatusNotFound, "There is no such action."))}

	aboutListLiveMigrations = about{summary: "Lists the live migrations of a server: there are none",
		answers:  ok("An empty list.", always(liveMigrationsAnswer)),
		failures: []apidoc.Failure{noServer}}
	aboutShowLiveMigration = about{summary: "Shows a live migration: there are none",
		failures: []apidoc.Failure{noServer,
			failure(http.StatusNotFound, "Always.")}}
	aboutAbortMigration = about{
		summary: "Ends a migration that has no destination yet, or waits for a host that is down; the server is kept",
		notes: []string{
			"Of all types, where Nova aborts live ones: the server goes back to where it was, or stays where it is " +
				"or is confirmed to be. What ends by itself, and what waits for a decision, is a 409. " +
				"`{migration}` is " +
				"the number that `os-migrations` shows.",
		},
		answers: done(http.StatusAccepted, "It ends."),
		failures: append(changing[:3:3],
			failure(http.StatusNotFound, "There is no such migration, or it is over.")),
	}
)

var putFailures = append(changing[:3:3], overMeta)

// What the reference says about actions on servers.
var (
	aboutRestore = about{
		summary:  "Takes back a soft delete",
		answers:  done(http.StatusAccepted, "It is being restored."),
		failures: append(changing[:3:3], overQuota),
	}
	aboutForceDelete = about{
		summary:  "Deletes a server for good, whatever its state",
		answers:  done(http.StatusAccepted, "It is being deleted."),
		failures: changing,
	}
	aboutStart = about{
		summary:  "Starts a server",
		notes:    []string{noteAccepted},
		answers:  done(http.StatusAccepted, "It will start."),
		failures: changing,
	}
	aboutStop = about{
		summary:  "Shuts a server down",
		notes:    []string{noteAccepted},
		answers:  done(http.StatusAccepted, "It will stop."),
		failures: changing,
	}
	aboutReboot = about{summary: "Reboots a server: SOFT asks the guest, HARD switches it off and on",
		notes:   []string{noteAccepted},
		answers: done(http.StatusAccepted, "It will reboot."), failures: changing}
	aboutRebuild = about{
		summary:  "Makes the guest of a server again from an image, on its host",
		failures: append(changing[:3:3], overMeta),
		notes: []string{
			noteAccepted,
			"Whether the image exists the host finds out: if it does not, the server is in `ERROR`. " +
				"`preserve_ephemeral`, `personality` and `trusted_image_certificates` " +
				"are refused with 400 if they ask for something. New `user_data` is a 409 for a host that no " +
				"administrator has enrolled.",
		},
		answers: []apidoc.Answer{{Status: http.StatusAccepted, Text: "It will be rebuilt; Location is its URL.",
			Body: byVersion(serverRebuilt)}},
	}
	aboutEvacuate = about{
		summary:  "Makes a server on another host, because its own is down",
		notes:    []string{"A host that is named is checked in any case: `force` makes no difference."},
		answers:  ok("It will be evacuated. From 2.14 on there is no body.", byVersion(evacuated)),
		failures: moving,
	}
	aboutMigrate = about{
		summary: "Moves a server to another host: its guest is shut down and started there",
		notes: []string{"The argument is null before 2.56. Then it may name the host. The server becomes " +
			"`VERIFY_RESIZE`, until `confirmResize` or `revertResize`."},
		when: map[string]string{
			"os_compute_api:os-migrate-server:migrate:host": "instead, if a host is named",
		},
		answers:  done(http.StatusAccepted, "It will be migrated."),
		failures: moving,
	}
	aboutConfirm = about{
		summary:  "Ends a migration: the server stays where it is",
		answers:  done(http.StatusNoContent, "It stays."),
		failures: deciding,
	}
	aboutRevert = about{
		summary:  "Takes back a migration: the server goes back to its old host",
		answers:  done(http.StatusAccepted, "It goes back."),
		failures: deciding,
	}

	aboutReset = about{
		summary: "Says in which state a server is, `active` or `error`, without a task",
		notes: []string{
			"Nothing is done to its guest. A server that is deleted, softly or for good, or that moves, is a 409, " +
				"and so is `active` for one that was never built; Nova takes all of these.",
		},
		answers: done(http.StatusAccepted, "It is in the state."), failures: changing,
	}

	overQuota = failure(http.StatusForbidden, "The quota is used up.")
	moving    = append(changing[:3:3],
		failure(http.StatusBadRequest, "The host that is named cannot take the server, or is its own."),
		failure(http.StatusNotFound, "There is no such host."))
	deciding = append(changing[:3:3],
		failure(http.StatusBadRequest, "The server has not been migrated."))
)

// The schemas of answers.
var (
	consoleAnswer = in("console", whole(members("type", api.SchemaText,
		"url", described(api.SchemaText, "An URL for browsers, good for some minutes."))))
	remoteConsoleAnswer = in(
		"remote_console", whole(members("protocol", api.SchemaText, "type", api.SchemaText,
			"url", described(api.SchemaText, "An URL for browsers, good for some minutes."))))
	consoleOutputAnswer = in("output", described(api.SchemaText, "The end of the log."))
)

const noteConsole = "The URL is for a browser: its page opens a websocket on the same path. Whether the host can " +
	"show the console, the page says."

// What the reference says about consoles.
var (
	aboutCreateRemoteConsole = about{summary: "Makes the URL of a console",
		notes: []string{"The only console is the serial one: `protocol` and `type` are `serial`. All others are " +
			"refused with 400. " + noteConsole},
		answers: ok("The URL.", always(remoteConsoleAnswer)), failures: consoleFailures}
	aboutConsoleOutput = about{
		summary: "Shows the end of what a guest wrote to its serial console: so many lines of its last 100 KiB",
		notes:   []string{"`length` is the number of lines; all for -1, null and none."},
		answers: ok("The output.", always(consoleOutputAnswer)),
		failures: append(changing[:3:3], failure(http.StatusNotImplemented, "The host keeps no console logs."),
			failure(http.StatusServiceUnavailable, "The agent of the host cannot be asked now.")),
	}
	aboutSerialConsole = about{
		summary:  "Makes the URL of a serial console",
		notes:    []string{noteConsole},
		answers:  ok("The URL.", always(consoleAnswer)),
		failures: consoleFailures,
	}
	aboutVNCConsole = about{summary: "Asks for a graphical console: there are none",
		failures: noConsole}
	aboutSPICEConsole = about{summary: "Asks for a graphical console: there are none",
		failures: noConsole}

	consoleFailures = append(changing[:3:3], failure(http.StatusBadRequest, "There is no such console."))
	noConsole       = []apidoc.Failure{noServer, failure(http.StatusBadRequest, "Always.")}
)
