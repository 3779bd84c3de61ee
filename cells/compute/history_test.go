// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"cmp"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/test/openapi/apidoc"
)

// change is a microversion: what it brought in Nova, and what of that is here, "" for nothing.
// meaning: requests and answers have the same form as before, and mean something else.
type change struct {
	nova, here string
	meaning    bool
}

// history has all microversions from MinVersion on. A test compares it with what the reference has.
var history = [api.MaxVersion]change{
	{nova: "The first microversion, and the one of requests that ask for none.",
		here: "All calls of this page without a microversion of their own."},
	{nova: "Key pairs have a type, `ssh` or `x509`. Creating one is a 201 and deleting one a 204.",
		here: "As in Nova; a pair of the type `x509` is imported and not made."},
	{
		nova: "Administrators see more of a server: `OS-EXT-SRV-ATTR:reservation_id`, `launch_index`, `hostname` " +
			"and others, and `delete_on_termination` of volumes.",
		here: "The attributes; there are no volumes.",
	},
	{nova: "The status `reserved` of fixed IP addresses."},
	{nova: "The filter `ip6` of lists of servers counts for members.",
		here: "As in Nova; it finds nothing.", meaning: true},
	{nova: "`POST /servers/{id}/remote-consoles` takes the place of the actions for consoles.",
		here: "For serial consoles. The actions are a 400."},
	{nova: "Access to a flavor that is public cannot be granted."},
	{nova: "Consoles of the protocol `mks`.", here: "They are known, and refused as all but serial ones."},
	{nova: "Servers say whether they are `locked`.", here: "`locked`; the actions `lock` and `unlock` are not here."},
	{nova: "Administrators see, create and delete key pairs of other users, with `user_id`.", here: "As in Nova."},
	{nova: "Services have `forced_down`.", here: "As in Nova."},
	{nova: "Virtual interfaces show `net_id`."},
	{nova: "Server groups have `project_id` and `user_id`.", here: "As in Nova."},
	{nova: "`evacuate` has no `onSharedStorage`, and its answer no `adminPass`.",
		here: "As in Nova; the answer has no body."},
	{nova: "The policies `soft-affinity` and `soft-anti-affinity` of server groups.", here: "As in Nova."},
	{nova: "Servers have `host_status`, for administrators.", here: "As in Nova."},
	{nova: "The action `trigger_crash_dump`."},
	{nova: "The project is no part of paths any more.",
		here: "Paths with and without it are good at all microversions.", meaning: true},
	{nova: "Servers have a `description`.", here: "As in Nova; before, it is the name."},
	{nova: "Volumes are attached to shelved servers."},
	{nova: "Actions of deleted servers are shown.", here: "As in Nova.", meaning: true},
	{nova: "A live migration can be forced to complete."},
	{nova: "`GET /servers/{id}/migrations`; `os-migrations` has `migration_type`.",
		here: "As in Nova; no migration is live, so that the list of a server is empty."},
	{nova: "A live migration can be aborted.",
		here: "Any migration, if it has no destination yet, or waits for a host that is down."},
	{nova: "`os-migrateLive` finds out whether storage is shared."},
	{nova: "Servers have tags, and lists filters by them.", here: "As in Nova."},
	{nova: "The header `OpenStack-API-Version`.",
		here: "It is read, and sent, at all microversions, and so is `X-OpenStack-Nova-API-Version`.", meaning: true},
	{nova: "`cpu_info` of hypervisors is an object.", here: "An empty one; before, an empty string."},
	{nova: "`evacuate` has `force`, and checks a host that is named without it.",
		here: "`force` is read, and makes no difference: hosts are always checked."},
	{nova: "`os-migrateLive` has `force`."},
	{nova: "`os-console-auth-tokens` knows all types of consoles."},
	{nova: "Networks and volumes of a new server can have a `tag`.",
		here: "It is known, and refused with the networks and volumes."},
	{nova: "Lists of hypervisors have pages. Volumes of a new server have no `tag` (until 2.42).", here: "As in Nova."},
	{nova: "`os-migrateLive` answers before its checks."},
	{nova: "Lists of key pairs have pages.", here: "As in Nova."},
	{nova: "The calls for networks are gone, with their limits and quotas.",
		here: "Limits and quotas of networks are gone; the calls are not here."},
	{nova: "`networks` of a new server is required, and can be `auto` or `none`.", here: "It must be `none`."},
	{nova: "An unknown `status` in a list of servers is a 400.",
		here: "As in Nova; before, it finds nothing.", meaning: true},
	{nova: "The calls for metadata of images are gone, and `maxImageMeta` among limits.",
		here: "`maxImageMeta` is gone; the calls are not here."},
	{nova: "Usages of projects have pages."},
	{nova: "Aggregates have a `uuid`.", here: "As in Nova."},
	{nova: "Networks and volumes of a new server can have a `tag` again.",
		here: "It is known, and refused with the networks and volumes."},
	{nova: "The calls for hosts (`os-hosts`) are gone."},
	{nova: "The actions for fixed and floating IP addresses are gone."},
	{nova: "The answer of `createImage` has the id of the image."},
	{nova: "Answers have `X-OpenStack-Request-ID`.",
		here: "They have it at all microversions, beside `X-Compute-Request-Id`.", meaning: true},
	{nova: "A server has its flavor as it was, and no link to it.", here: "As in Nova."},
	{nova: "Diagnostics of servers are the same for all drivers."},
	{nova: "Interfaces and volumes that are attached can have a `tag`."},
	{nova: "`os-quota-class-sets` has server groups, and no networks."},
	{nova: "Members see the events of an action.", here: "As in Nova, without `traceback`."},
	{nova: "A server can be created with tags.", here: "As in Nova."},
	{nova: "Services and hypervisors have a UUID as their id. Lists of hypervisors have filters, and take the place " +
		"of `search` and `servers`.", here: "As in Nova."},
	{nova: "A rebuild can change the key pair, `key_name`.", here: "As in Nova."},
	{nova: "Flavors have a `description`, which can be changed.", here: "As in Nova."},
	{nova: "`migrate` can name a host.", here: "As in Nova."},
	{nova: "`personality` is gone, with its limits and quotas. A rebuild can change `user_data`.",
		here: "As in Nova; before, files of `personality` are refused."},
	{nova: "Lists of actions have pages, `changes-since` and `updated_at`.",
		here: "As in Nova. Other parameters are refused."},
	{nova: "Lists of migrations have pages, `changes-since` and `uuid`.",
		here: "As in Nova. Other parameters are refused."},
	{nova: "Volumes can be attached to several servers."},
	{nova: "Flavors show their extra specs.", here: "As in Nova."},
	{nova: "Events of actions have `host` and `hostId`.", here: "As in Nova."},
	{nova: "`trusted_image_certificates` of a new server and of a rebuild.",
		here: "Servers show it, as null; certificates are refused."},
	{nova: "A server group has one `policy`, and `rules`.", here: "As in Nova."},
	{nova: "A queued live migration can be aborted."},
	{nova: "The filter `changes-before` of lists of servers, actions and migrations.", here: "As in Nova."},
	{nova: "Volumes of a new server can have a `volume_type`.", here: "It is known, and refused with the volumes."},
	{nova: "`evacuate` and `os-migrateLive` have no `force`.", here: "As in Nova."},
	{nova: "Lists and servers have minimal records while a cell is down.",
		here: "As in Nova: servers and services with the status `UNKNOWN`."},
	{nova: "Interfaces and volumes of a server show their `tag`."},
	{nova: "A server shows its `server_groups`.", here: "As in Nova."},
}

// steps are the history for the reference.
func steps() (all []apidoc.Step) {
	for _, c := range history {
		all = append(all, apidoc.Step{What: c.nova, Here: cmp.Or(c.here, "Accepted; nothing changes.")})
	}
	return all
}

const aboutAPI = `The calls of the compute API in front of the cells, ` + "`compute-agent cells api`" + `. They are Nova's, microversions 2.1 to 2.71, as far as they are on this
page; all other calls of Nova's are 404. [cells.md](cells.md) says how to run it and what happens when a cell is down.
[openapi/compute.json](openapi/compute.json) has the same in OpenAPI 3.1. Tests compare both with the server.

What a request needs:

- ` + "`X-Auth-Token`" + `, a token of Keystone, or what the configuration says ([cells.md](cells.md#configuration)). The server has the user, the project and the roles from it:
  ` + "`admin`" + ` implies ` + "`member`" + `, and that ` + "`reader`" + `.
- ` + "`OpenStack-API-Version: compute 2.71`" + ` or another microversion; ` + "`latest`" + ` is the highest, and without the header it is 2.1.
  ` + "`X-OpenStack-Nova-API-Version: 2.71`" + ` is read without the first one.
- ` + "`Content-Type: application/json`" + ` with a body. Bodies are JSON in both directions. Members that this page does not have are refused with 400.

` + "`{name}`" + ` in a path is one segment, quoted. After ` + "`/v2.1`" + ` the project of the token can follow, as in ` + "`/v2.1/PROJECT/servers`" + `; another project is a 400.
"Policy" is the rule of the policy file that must allow the call, and who passes it by default. HEAD is good where GET is.

Every answer has the id of the request in ` + "`X-OpenStack-Request-Id`" + ` and ` + "`X-Compute-Request-Id`" + `, which finds it in the logs of all services, and the microversion in
` + "`OpenStack-API-Version`" + ` and ` + "`X-OpenStack-Nova-API-Version`" + `. A 503 has ` + "`Retry-After`" + `. Members of answers that are not required are left out, not null.

An error is an object with one member, whose name goes with the status: ` + "`{\"itemNotFound\": {\"code\": 404, \"message\": \"Instance … could not be found.\"}}`" + `. The tables of errors have
that name as code. Messages are for people: compare the status. A 500 after a change says that it may have been made: read before you repeat it.

Lists have pages where they have ` + "`limit`" + ` and ` + "`marker`" + `: follow the link ` + "`next`" + `, as ` + "`servers_links`" + `, until there is none. The last page can be empty.

Changes of servers are not finished when the call is answered. Ask for the server until its ` + "`OS-EXT-STS:task_state`" + ` is null, and look at its ` + "`status`" + `:

    POST /v2.1/servers HTTP/1.1
    X-Auth-Token: TOKEN
    OpenStack-API-Version: compute 2.71
    Content-Type: application/json

    {"server": {"name": "web1", "imageRef": "70a599e0-31e7-49b7-b260-868f441e862b", "flavorRef": "1", "networks": "none"}}

    HTTP/1.1 202 Accepted
    Location: https://compute.example.org/v2.1/servers/0d1b6a43-8f0a-4a3c-8d0e-0c4b6d5f7a11
    OpenStack-API-Version: compute 2.71

    {"server": {"id": "0d1b6a43-8f0a-4a3c-8d0e-0c4b6d5f7a11", "links": [...], "OS-DCF:diskConfig": "MANUAL", "security_groups": [{"name": "default"}], "adminPass": "..."}}

| status | the server |
|---|---|
| ` + "`BUILD`" + ` | is being placed, or made |
| ` + "`ACTIVE`, `SHUTOFF`" + ` | runs; does not |
| ` + "`REBOOT`, `HARD_REBOOT`, `REBUILD`" + ` | is being rebooted, or made again (also in an evacuation) |
| ` + "`RESIZE`, `VERIFY_RESIZE`, `REVERT_RESIZE`" + ` | is moving; has moved, and waits for ` + "`confirmResize` or `revertResize`" + `; is going back |
| ` + "`ERROR`" + ` | could not be placed or made: ` + "`fault`" + ` says why |
| ` + "`SOFT_DELETED`, `DELETED`" + ` | can be restored; is gone, and only in lists that ask for it |
| ` + "`UNKNOWN`" + ` | is in a cell that does not respond |

No server here has another one of Nova's statuses; filters know them, and find nothing.

Not on this page, because they are no part of this API:

- ` + "`GET /serial-console`" + ` on the same address: the page and the websocket of the URLs that consoles have ([cells.md](cells.md#serial-consoles)).
- Enrolment of hosts (` + "`POST /v1/join`, `/v1/renew`, `/v1/confirm`" + `): it has an address of its own, ` + "`[enrolment] listen`" + ` ([identity.md](identity.md#enrolling-a-host)).
- What a cell serves to the compute API and to agents: it is internal, and changes between versions.
- Metrics and health ([metrics.md](metrics.md)).`
