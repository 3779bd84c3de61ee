// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/url"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/cells/cellwire"
)

// The kinds of values that the query of a list of servers may have.
type paramKind int

// param is a parameter of those microversions that have it.
type param struct {
	kind  paramKind
	since Version
}

const (
	anyText paramKind = iota
	pattern           // a regular expression
	dateTime
	number // not negative
	sortColumn
)

// listParams are the parameters of a list of servers, as Nova's schemas have them: what they hold,
// and since when. Others are left out before 2.75, but for those that begin with an underscore.
var listParams = map[string]param{
	"user_id": {}, "project_id": {}, "tenant_id": {}, "launch_index": {}, "image_ref": {}, "image": {}, "vm_state": {}, "task_state": {},
	"host": {}, "uuid": {}, "sort_dir": {}, "all_tenants": {}, "soft_deleted": {}, "deleted": {}, "status": {}, "marker": {},

	"kernel_id": {kind: pattern}, "ramdisk_id": {kind: pattern}, "hostname": {kind: pattern}, "key_name": {kind: pattern},
	"power_state": {kind: pattern}, "node": {kind: pattern}, "flavor": {kind: pattern}, "reservation_id": {kind: pattern},
	"launched_at": {kind: pattern}, "terminated_at": {kind: pattern}, "availability_zone": {kind: pattern}, "name": {kind: pattern},
	"display_name": {kind: pattern}, "description": {kind: pattern}, "display_description": {kind: pattern}, "locked_by": {kind: pattern},
	"root_device_name": {kind: pattern}, "config_drive": {kind: pattern}, "access_ip_v4": {kind: pattern}, "access_ip_v6": {kind: pattern},
	"auto_disk_config": {kind: pattern}, "progress": {kind: pattern}, "ip": {kind: pattern}, "ip6": {kind: pattern}, "created_at": {kind: pattern},

	"tags": {pattern, vTags}, "tags-any": {pattern, vTags}, "not-tags": {pattern, vTags}, "not-tags-any": {pattern, vTags},
	"changes-since": {kind: dateTime}, "changes-before": {dateTime, vChangesBefore}, "limit": {kind: number}, "sort_key": {kind: sortColumn},

	"block_device_mapping": {}, "services": {}, "metadata": {}, "system_metadata": {}, "info_cache": {}, "security_groups": {}, "pci_devices": {},
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
func (x *exchange) listQuery() (url.Values, error) {
	params, err := x.query()
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(params))
	for name := range params {
		names = append(names, name)
	}
	slices.Sort(names)
	patterns := 0
	for _, name := range names {
		spec, known := listParams[name]
		switch {
		case strings.HasPrefix(name, "_"):
			continue
		case !known || !x.since(spec.since):
			params.Del(name)
			continue
		}
		for _, value := range params[name] {
			if spec.kind == pattern {
				if patterns += len(value); patterns > maxPatterns {
					return nil, badRequest("The regular expressions of the query have more than the %d bytes that this server reads.", maxPatterns)
				}
			}
			if wrong := wrongParam(spec.kind, value); wrong != "" {
				return nil, badRequest("Invalid input for query parameters %s. Value: %s. %s", name, shortened(value), wrong)
			}
		}
	}
	return params, nil
}

// maxPatterns bounds all regular expressions of a query together, in bytes: 64 KiB of them take
// seconds to read.
const maxPatterns = 8 << 10

var digits = regexp.MustCompile(`^[0-9]*$`)

// wrongParam says what is wrong with a value, "" for nothing.
func wrongParam(kind paramKind, value string) string {
	quoted := pythonString(shortened(value))
	if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
		return quoted + " is not text"
	}
	switch kind {
	case pattern: // empty is no pattern, as for Nova's format "regex"
		if _, err := syntax.Parse(value, syntax.Perl); err != nil || value == "" { // those that are looked for are bounded where they are compiled
			return quoted + " is not a 'regex'"
		}
	case dateTime:
		if _, ok := readTime(value); !ok {
			return quoted + " is not a 'date-time'"
		}
	case number:
		switch {
		case value == "":
			return quoted + " is too short"
		case !digits.MatchString(value):
			return quoted + " does not match '^[0-9]*$'"
		}
	case sortColumn:
		if !slices.Contains(sortKeys, value) && !slices.Contains(ignoredSortKeys, value) {
			return quoted + " is not one of " + pythonList(slices.Concat(sortKeys, ignoredSortKeys))
		}
	}
	return ""
}

// pythonString is a string as Python's repr has it, for the plain ones that go into errors.
func pythonString(s string) string {
	quote := "'"
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = `"`
	}
	inner := strings.ReplaceAll(s, `\`, `\\`)
	if quote == "'" {
		inner = strings.ReplaceAll(inner, "'", `\'`)
	}
	return quote + inner + quote
}

func pythonList(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = pythonString(word)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// timeForms are the forms of ISO 8601 that clients use; without a zone it is UTC.
var timeForms = []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999",
	"2006-01-02T15:04:05.999999999-0700", "2006-01-02T15:04Z07:00", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"}

func readTime(s string) (time.Time, bool) {
	for _, form := range timeForms {
		if t, err := time.Parse(form, s); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

// readBool reads a word as oslo.utils does.
func readBool(s string) (value, known bool) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "1", "t", "true", "on", "y", "yes":
		return true, true
	case "0", "f", "false", "off", "n", "no":
		return false, true
	}
	return false, false
}

// readLimit is how many records a page has at most.
func readLimit(params url.Values, most int) int {
	if !params.Has("limit") {
		return most
	}
	limit := strings.TrimLeft(last(params, "limit"), "0")
	n, err := strconv.Atoi("0" + limit)
	if err != nil {
		return most // more digits than a number has here
	}
	return min(n, most)
}

// readSort is the order that the parameters ask for, in the columns that cells have. A direction
// that is left out is the first one, and without any descending; without a key it is the time of
// creation. Keys that Nova ignores take their direction away with them.
func (x *exchange) readSort(params url.Values) ([]cellwire.SortKey, error) {
	var keys, dirs []string
	for _, key := range params["sort_key"] {
		keys = append(keys, strings.TrimSpace(key))
	}
	for _, dir := range params["sort_dir"] {
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
