// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/cells/cellwire"
)

// serverQuery are the parameters of a list of servers, as Nova's schemas have them: what they hold,
// and since when. Others are left out before 2.75, but for those that begin with an underscore.
var serverQuery = parameters{all: forMembers(slices.Concat([]parameter{
	{name: "limit", kind: number, text: textLimit},
	{name: "marker", text: "The id of a server: the page begins after it."},
	{name: "sort_key", kind: choice, choices: slices.Concat(sortKeys, ignoredSortKeys), repeated: true, text: "What to sort by, created_at without one. Those that servers here do not have make no difference."},
	{name: "sort_dir", repeated: true, text: "asc or desc, for each key; desc without one, and the first for keys without one."},
	{name: "all_tenants", text: "A boolean, or empty for true: servers of all projects, for administrators."},
	{name: "status", repeated: true, text: "Those with one of these statuses, as ACTIVE. An unknown one finds nothing before 2.38, and is refused from then on."},
	{name: "name", kind: pattern, text: textPattern},
	{name: "image", text: "The id of an image; no-image for servers without one."},
	{name: "flavor", kind: pattern, text: "The id of a flavor."},
	{name: "reservation_id", kind: pattern, text: textPattern},
	{name: "ip", kind: pattern, text: textNothing},
	{name: "ip6", kind: pattern, text: textNothing},
	{name: "changes-since", kind: dateTime, text: "Those that changed then or later, with deleted ones."},
	{name: "changes-before", kind: dateTime, since: vChangesBefore, text: "Those that changed then or earlier, with deleted ones."},
	{name: "tags", kind: pattern, since: vTags, text: "TAG,TAG: those with all of the tags."},
	{name: "tags-any", kind: pattern, since: vTags, text: "TAG,TAG: those with one of the tags."},
	{name: "not-tags", kind: pattern, since: vTags, text: "TAG,TAG: those without all of the tags."},
	{name: "not-tags-any", kind: pattern, since: vTags, text: "TAG,TAG: those with none of the tags."},
	{name: "project_id", text: "With all_tenants, those of a project."},
	{name: "tenant_id", text: "With all_tenants, those of a project."},
	{name: "user_id", text: "Those of a user."},
	{name: "uuid", text: "The server with the id."},
	{name: "host", text: "Those on a host."},
	{name: "node", kind: pattern, text: textPattern},
	{name: "hostname", kind: pattern, text: textPattern},
	{name: "key_name", kind: pattern, text: textPattern},
	{name: "availability_zone", kind: pattern, text: textPattern},
	{name: "access_ip_v4", kind: pattern, text: textPattern},
	{name: "access_ip_v6", kind: pattern, text: textPattern},
	{name: "display_name", kind: pattern, text: "As name."},
	{name: "description", kind: pattern, text: textPattern},
	{name: "display_description", kind: pattern, text: "As description."},
	{name: "image_ref", text: "As image."},
	{name: "vm_state", text: "Those in the state."},
	{name: "task_state", text: "Those with the task."},
	{name: "power_state", kind: pattern, text: "Those with the number of a power state."},
	{name: "launch_index", text: "Those with the number, among servers that were created at once."},
	{name: "config_drive", kind: pattern, text: "A boolean: those with a config drive, or without."},
	{name: "deleted", text: "A boolean: those that were deleted."},
	{name: "soft_deleted", text: "If not empty: with those that can be restored."},
	{name: "kernel_id", kind: pattern, text: textNothing},
	{name: "ramdisk_id", kind: pattern, text: textNothing},
	{name: "root_device_name", kind: pattern, text: textNothing},
	{name: "created_at", kind: pattern, text: textRefused},
	{name: "launched_at", kind: pattern, text: textRefused},
	{name: "terminated_at", kind: pattern, text: textRefused},
	{name: "locked_by", kind: pattern, text: textRefused},
	{name: "auto_disk_config", kind: pattern, text: textRefused},
	{name: "progress", kind: pattern, text: textRefused},
}, joinedParameters()))}

// The texts of parameters.
const (
	textPattern = "Those with a match of the regular expression (RE2)."
	textNothing = "Finds nothing: no server here has one."
	textRefused = "Refused with 400 for administrators; ignored for others."
)

// forMembers adds to the texts of filters for whom they count.
func forMembers(all []parameter) []parameter {
	for i := range all {
		p := &all[i]
		if slices.Contains(paging, p.name) {
			continue
		}
		switch since, is := memberFilters[p.name]; {
		case !is && p.text != textRefused:
			p.text += " For administrators; ignored for others."
		case since > p.since:
			p.text += " For administrators; from " + since.String() + " on for all."
		}
	}
	return all
}

// joinedParameters are those of joined.
func joinedParameters() (all []parameter) {
	for _, name := range joined {
		all = append(all, parameter{name: name, text: textRefused})
	}
	return all
}

// joined are parameters that name other tables of Nova; they are refused.
var joined = []string{"block_device_mapping", "services", "metadata", "system_metadata", "info_cache", "security_groups", "pci_devices"}

// paging are the parameters that are about the page and are no filters.
var paging = []string{"sort_key", "sort_dir", "limit", "marker"}

// memberFilters are the filters that members may use; all others are left out for them.
var memberFilters = map[string]Version{
	"reservation_id": 0, "name": 0, "status": 0, "image": 0, "flavor": 0, "ip": 0, "changes-since": 0, "all_tenants": 0, "ip6": vFilterIPv6,
	"tags": vTags, "tags-any": vTags, "not-tags": vTags, "not-tags-any": vTags, "changes-before": vChangesBefore,
}

// sortKeys and ignoredSortKeys are the sort keys that Nova takes, and those of them that it does
// not sort by. The order is that of its error.
var (
	sortKeys = []string{"access_ip_v4", "access_ip_v6", "auto_disk_config", "availability_zone", "config_drive", "created_at", "display_description",
		"display_name", "host", "hostname", "image_ref", "instance_type_id", "kernel_id", "key_name", "launch_index", "launched_at", "locked_by",
		"node", "power_state", "progress", "project_id", "ramdisk_id", "root_device_name", "task_state", "terminated_at", "updated_at", "user_id",
		"uuid", "vm_state"}
	ignoredSortKeys = []string{"architecture", "cell_name", "cleaned", "default_ephemeral_device", "default_swap_device", "deleted", "deleted_at",
		"disable_terminate", "ephemeral_gb", "ephemeral_key_uuid", "id", "key_data", "launched_on", "locked", "memory_mb", "os_type",
		"reservation_id", "root_gb", "shutdown_terminate", "user_data", "vcpus", "vm_mode"}
)

// listQuery reads the parameters of a list and refuses those that are wrong, in the words of Nova's
// schemas. What the microversion does not know is left out.
func listQuery(x *exchange) (query, error) {
	params, err := x.readQuery()
	if err != nil {
		return params, err
	}
	patterns := 0
	for _, name := range slices.Sorted(maps.Keys(params.values)) {
		spec := params.known.named(name)
		switch {
		case strings.HasPrefix(name, "_"):
			continue
		case !spec.in(x.version):
			params.values.Del(name)
			continue
		}
		for _, value := range params.values[name] {
			if spec.kind == pattern {
				if patterns += len(value); patterns > maxPatterns {
					return params, badRequest("The regular expressions of the query have more than the %d bytes that this server reads.", maxPatterns)
				}
			}
			if wrong := spec.wrong(value); wrong != "" {
				return params, badRequest("Invalid input for query parameters %s. Value: %s. %s", name, shortened(value), wrong)
			}
		}
	}
	return params, nil
}

// maxPatterns bounds all regular expressions of a query together, in bytes: 64 KiB of them take
// seconds to read.
const maxPatterns = 8 << 10

// readSort is the order that the parameters ask for, in the columns that cells have. A direction
// that is left out is the first one, and without any descending; without a key it is the time of
// creation. Keys that Nova ignores take their direction away with them.
func readSort(x *exchange, params query) ([]cellwire.SortKey, error) {
	var keys, dirs []string
	for _, key := range params.every("sort_key") {
		keys = append(keys, strings.TrimSpace(key))
	}
	for _, dir := range params.every("sort_dir") {
		dirs = append(dirs, strings.TrimSpace(dir))
	}
	if len(keys) == 0 {
		keys = []string{"created_at"}
	}
	if len(dirs) == 0 {
		dirs = []string{"desc"}
	}
	for i := 0; i < len(keys); {
		switch key := keys[i]; {
		case slices.Contains(ignoredSortKeys, key):
			keys = slices.Delete(keys, i, i+1)
			if i < len(dirs) {
				dirs = slices.Delete(dirs, i, i+1)
			}
			continue
		case (key == "host" || key == "node") && !x.isAdmin():
			return nil, forbidden("Only administrators can sort servers by %s", key)
		}
		i++
	}
	for _, dir := range dirs {
		if dir != "asc" && dir != "desc" {
			return nil, badRequest("Invalid input received: Unknown sort direction, must be 'desc' or 'asc'")
		}
	}
	if len(keys) == 0 && len(dirs) == 0 {
		keys, dirs = []string{"created_at"}, []string{"desc"}
	}
	if len(dirs) > len(keys) {
		return nil, badRequest("Invalid input received: Sort direction size exceeds sort key size")
	}
	var order []cellwire.SortKey
	for i, key := range keys {
		dir := dirs[0:min(len(dirs), 1)]
		if i < len(dirs) {
			dir = dirs[i : i+1]
		}
		named := func(k cellwire.SortKey) bool { return k.Key == key }
		if !slices.Contains(cellwire.SortColumns, key) || slices.ContainsFunc(order, named) {
			continue // All servers are equal by it: they have no kernels and ramdisks. Or it is there already.
		}
		order = append(order, cellwire.SortKey{Key: key, Desc: len(dir) == 0 || dir[0] == "desc"})
	}
	return order, nil
}
