// SPDX-License-Identifier: Apache-2.0

package serverview

import (
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// serverQuery are the parameters of a list of servers, as Nova's schemas have them: what they hold,
// and since when. Others are left out before 2.75, but for those that begin with an underscore.
var serverQuery = api.Parameters{Check: listQuery, All: forMembers(slices.Concat([]api.Parameter{
	{Name: "limit", Kind: api.Number, Text: api.TextLimit},
	{Name: "marker", Text: "The id of a server: the page begins after it."},
	{Name: "sort_key", Kind: api.Choice, Choices: slices.Concat(sortKeys, ignoredSortKeys), Repeated: true,
		Text: "What to sort by, created_at without one. Those that servers here do not have make no difference."},
	{Name: "sort_dir", Repeated: true,
		Text: "asc or desc, for each key; desc without one, and the first for keys without one."},
	{Name: "all_tenants", Text: "A boolean, or empty for true: servers of all projects, for administrators."},
	{Name: "status", Repeated: true,
		Text: "Those with one of these statuses, as ACTIVE. An unknown one finds nothing before 2.38, and is " +
			"refused from then on."},
	{Name: "name", Kind: api.Pattern, Text: textPattern},
	{Name: "image", Text: "The id of an image; no-image for servers without one."},
	{Name: "flavor", Kind: api.Pattern, Text: "The id of a flavor."},
	{Name: "reservation_id", Kind: api.Pattern, Text: textPattern},
	{Name: "ip", Kind: api.Pattern, Text: textNothing},
	{Name: "ip6", Kind: api.Pattern, Text: textNothing},
	{Name: "changes-since", Kind: api.DateTime, Text: "Those that changed then or later, with deleted ones."},
	{Name: "changes-before", Kind: api.DateTime, Since: api.VChangesBefore,
		Text: "Those that changed then or earlier, with deleted ones."},
	{Name: "tags", Kind: api.Pattern, Since: api.VTags, Text: "TAG,TAG: those with all of the tags."},
	{Name: "tags-any", Kind: api.Pattern, Since: api.VTags, Text: "TAG,TAG: those with one of the tags."},
	{Name: "not-tags", Kind: api.Pattern, Since: api.VTags, Text: "TAG,TAG: those without all of the tags."},
	{Name: "not-tags-any", Kind: api.Pattern, Since: api.VTags, Text: "TAG,TAG: those with none of the tags."},
	{Name: "project_id", Text: "With all_tenants, those of a project."},
	{Name: "tenant_id", Text: "With all_tenants, those of a project."},
	{Name: "user_id", Text: "Those of a user."},
	{Name: "uuid", Text: "The server with the id."},
	{Name: "host", Text: "Those on a host."},
	{Name: "node", Kind: api.Pattern, Text: textPattern},
	{Name: "hostname", Kind: api.Pattern, Text: textPattern},
	{Name: "key_name", Kind: api.Pattern, Text: textPattern},
	{Name: "availability_zone", Kind: api.Pattern, Text: textPattern},
	{Name: "access_ip_v4", Kind: api.Pattern, Text: textPattern},
	{Name: "access_ip_v6", Kind: api.Pattern, Text: textPattern},
	{Name: "display_name", Kind: api.Pattern, Text: "As name."},
	{Name: "description", Kind: api.Pattern, Text: textPattern},
	{Name: "display_description", Kind: api.Pattern, Text: "As description."},
	{Name: "image_ref", Text: "As image."},
	{Name: "vm_state", Text: "Those in the state."},
	{Name: "task_state", Text: "Those with the task."},
	{Name: "power_state", Kind: api.Pattern, Text: "Those with the number of a power state."},
	{Name: "launch_index", Text: "Those with the number, among servers that were created at once."},
	{Name: "config_drive", Kind: api.Pattern, Text: "A boolean: those with a config drive, or without."},
	{Name: "deleted", Text: "A boolean: those that were deleted."},
	{Name: "soft_deleted", Text: "If not empty: with those that can be restored."},
	{Name: "kernel_id", Kind: api.Pattern, Text: textNothing},
	{Name: "ramdisk_id", Kind: api.Pattern, Text: textNothing},
	{Name: "root_device_name", Kind: api.Pattern, Text: textNothing},
	{Name: "created_at", Kind: api.Pattern, Text: textRefused},
	{Name: "launched_at", Kind: api.Pattern, Text: textRefused},
	{Name: "terminated_at", Kind: api.Pattern, Text: textRefused},
	{Name: "locked_by", Kind: api.Pattern, Text: textRefused},
	{Name: "auto_disk_config", Kind: api.Pattern, Text: textRefused},
	{Name: "progress", Kind: api.Pattern, Text: textRefused},
}, joinedParameters()))}

// The texts of parameters.
const (
	textPattern = "Those with a match of the regular expression (RE2)."
	textNothing = "Finds nothing: no server here has one."
	textRefused = "Refused with 400 for administrators; ignored for others."
)

// forMembers adds to the texts of filters for whom they count.
func forMembers(all []api.Parameter) []api.Parameter {
	for i := range all {
		p := &all[i]
		if slices.Contains(paging, p.Name) {
			continue
		}
		switch since, is := memberFilters[p.Name]; {
		case !is && p.Text != textRefused:
			p.Text += " For administrators; ignored for others."
		case since > p.Since:
			p.Text += " For administrators; from " + since.String() + " on for all."
		}
	}
	return all
}

// joinedParameters returns a parameter that is refused for each name in joined.
func joinedParameters() (all []api.Parameter) {
	for _, name := range joined {
		all = append(all, api.Parameter{Name: name, Text: textRefused})
	}
	return all
}

// joined are parameters that name other tables of Nova; they are refused.
var joined = []string{"block_device_mapping", "services",
	"metadata", "system_metadata", "info_cache", "security_groups", "pci_devices"}

// paging are the parameters that are about the page and are no filters.
var paging = []string{"sort_key", "sort_dir", "limit", "marker"}

// memberFilters are the filters that members may use; all others are left out for them.
var memberFilters = map[string]api.Version{
	"reservation_id": 0, "name": 0, "status": 0, "image": 0, "flavor": 0, "ip": 0, "changes-since": 0,
	"all_tenants": 0, "ip6": vFilterIPv6,
	"tags": api.VTags, "tags-any": api.VTags, "not-tags": api.VTags, "not-tags-any": api.VTags,
	"changes-before": api.VChangesBefore,
}

// sortKeys and ignoredSortKeys are the sort keys that Nova takes, and those of them that it does
// not sort by. The order is that of its error.
var (
	sortKeys = []string{"access_ip_v4", "access_ip_v6", "auto_disk_config", "availability_zone", "config_drive",
		"created_at", "display_description",
		"display_name", "host", "hostname", "image_ref",
		"instance_type_id", "kernel_id", "key_name", "launch_index", "launched_at", "locked_by",
		"node", "power_state", "progress", "project_id", "ramdisk_id", "root_device_name", "task_state",
		"terminated_at", "updated_at", "user_id",
		"uuid", "vm_state"}
	ignoredSortKeys = []string{"architecture", "cell_name",
		"cleaned", "default_ephemeral_device", "default_swap_device", "deleted", "deleted_at",
		"disable_terminate", "ephemeral_gb", "ephemeral_key_uuid", "id", "key_data", "launched_on",
		"locked", "memory_mb", "os_type",
		"reservation_id", "root_gb", "shutdown_terminate", "user_data", "vcpus", "vm_mode"}
)

// listQuery reads the parameters of a list and refuses those that are wrong, in the words of Nova's
// schemas. What the microversion does not know is left out.
func listQuery(x *api.Exchange) (api.Query, error) {
	params, err := x.ReadQuery()
	if err != nil {
		return params, err
	}
	patterns := 0
	for _, name := range slices.Sorted(maps.Keys(params.Values)) {
		spec := params.Known.Named(name)
		switch {
		case strings.HasPrefix(name, "_"):
			continue
		case !spec.ExistsAt(x.Version):
			params.Values.Del(name)
			continue
		}
		for _, value := range params.Values[name] {
			if spec.Kind == api.Pattern {
				if patterns += len(value); patterns > maxPatterns {
					return params,
						osapi.BadRequest(
							"The regular expressions of the query have more than the %d bytes that this server reads.",
							maxPatterns)
				}
			}
			if wrong := spec.Problem(value); wrong != "" {
				return params, osapi.BadRequest("Invalid input for query parameters %s. Value: %s. %s",
					name, osapi.Shortened(value), wrong)
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
func readSort(x *api.Exchange, params api.Query) ([]cellwire.SortKey, error) {
	var keys, dirs []string
	for _, key := range params.All("sort_key") {
		keys = append(keys, strings.TrimSpace(key))
	}
	for _, dir := range params.All("sort_dir") {
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
		case (key == "host" || key == "node") && !x.IsAdmin():
			return nil, api.Forbidden("Only administrators can sort servers by %s", key)
		}
		i++
	}
	for _, dir := range dirs {
		if dir != "asc" && dir != "desc" {
			return nil, osapi.BadRequest("Invalid input received: Unknown sort direction, must be 'desc' or 'asc'")
		}
	}
	if len(keys) == 0 && len(dirs) == 0 {
		keys, dirs = []string{"created_at"}, []string{"desc"}
	}
	if len(dirs) > len(keys) {
		return nil, osapi.BadRequest("Invalid input received: Sort direction size exceeds sort key size")
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
