// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"strings"
)

// difference is one from Nova that a client can see. why is what tests say of it that replay what
// was recorded of Nova.
type difference struct{ why, call, nova, here string }

// novaDifferences are all those that the recordings show. A test fails for one that is not here,
// and for one that no recording shows.
var novaDifferences = []difference{
	{"readers only read", "any change, by a reader", "done, unless enforce_new_defaults is set", "403"},
	{"there are no networks", "`POST /servers` with networks", "202, or 400 in other words",
		"400; `networks` is `none`"},
	{"an empty image is an empty disk", "`POST /servers` with an `imageRef` of `\"\"`",
		"400 without volumes", "202; the disk is empty"},
	{"no server is locked here", "any for a locked server", "409 for members", "there are no locks"},
	{"no project has access to a private flavor", "any with a flavor that is not public, by a member with access",
		"the flavor", "404, in a boot 400"},
	{"there is no access", "`GET /flavors/{id}/os-flavor-access`", "200", "404: there is no such call"},
	{"Keystone is not asked which projects there are", "`os-quota-sets` of an unknown project", "400", "200"},
	{"there are no quotas of users", "`PUT /os-quota-sets/{id}?user_id=…`", "sets the quota of a user", "400"},
	{"errors have one form", "`GET /os-quota-sets`", "404 with a text of the web framework",
		"404 with a body of this page"},
	{"a method that a path does not have is refused as such",
		"a method that a path does not have", "404", "405 with Allow"},
	{"Nova's sentence has None for the marker", "`os-instance-actions` with an unknown marker",
		"400, naming None", "400, naming the marker"},
	{
		"Nova speaks of a mapping to a cell in some calls; a client knows no cells",
		"any for an unknown server",
		"404, in some calls about a mapping to a cell",
		"404: `Instance … could not be found.`",
	},
	{"Nova's 403 tells other projects that there is such a server", "tags of another project's server", "403", "404"},
	{"Nova loses the sentence that it has", "`os-hypervisors` with a pattern and a page",
		"400 with an empty reason", "400 that says why"},
	{"a server without an image has one", "a server that was booted from no image", "`\"image\": \"\"`",
		"`\"image\": {\"id\": \"no-image\", …}`"},
	{"there are no volumes", "a server", "`os-extended-volumes:volumes_attached`", "always empty"},
	{"no server has a kernel or a root device", "a server, for administrators",
		"`root_device_name`; `kernel_id` and `ramdisk_id` can be null", "null; empty strings"},
	{"there are no records of schedulers", "`os-services` of conductors and schedulers",
		"listed; a change is a 400", "not listed; 404"},
	{"there is no v2.0", "`GET /v2`", "a version", "300 with the versions to choose from"},
	{"another highest", "a microversion that is too high", "406 naming 2.93", "406 naming 2.71"},
}

// differences is the end of the reference.
func differences() string {
	var b strings.Builder
	b.WriteString(`## Differences from Nova

Tests replay more than 800 requests that were recorded with Nova 26.2.2, for all groups of calls but key pairs, consoles and migrations, and compare statuses
and bodies (ids and times by their form). All answers are equal but for these:

| call | Nova | here |
|---|---|---|
`)
	for _, d := range novaDifferences {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", d.call, d.nova, d.here)
	}
	b.WriteString(`
Recordings do not show everything. [cells.md](cells.md#what-is-novas-and-what-is-not) has the whole list, what is different on purpose and what is
simpler: above all, servers have no networks and no volumes, and there is no ` + "`resize`" + ` to another flavor.
`)
	return b.String()
}
