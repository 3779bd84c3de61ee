// SPDX-License-Identifier: Apache-2.0

package serverview

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/plugins"
)

// listRequest is what a list of servers was asked for.
type listRequest struct {
	params api.Query // those that the microversion has
	detail bool
	// query is what the cells are asked, but for the page.
	query cellwire.ServerQuery
	// nothing says that the list is empty without asking any cell.
	nothing    bool
	limit      int
	marker     string
	hasMarker  bool
	allTenants bool
	// minimal says that servers of cells that are down are listed as far as they are known.
	minimal bool
}

// readList reads what was asked for, with Nova's checks in Nova's order.
func (ls *Lists) readList(x *api.Exchange, detail bool) (*listRequest, error) {
	var err error
	params := x.Params
	rule, ruleAll := ruleServersIndex, ruleServersIndexAll
	if detail {
		rule, ruleAll = ruleServersDetail, ruleServersDetailAll
	}
	if err := x.AllowOwn(rule); err != nil {
		return nil, err
	}
	filters := filters(x, params)
	l := &listRequest{params: params, detail: detail, minimal: minimalRecords(x, params, filters)}
	for _, name := range slices.Sorted(maps.Keys(filters)) {
		if slices.Contains(joined, name) || strings.HasPrefix(name, "_") {
			return nil, osapi.BadRequest("Invalid filter field: %s.", osapi.Shortened(name))
		}
	}
	if err := l.readStates(x, params, filters); err != nil || l.nothing {
		return l, err
	}
	if l.allTenants, err = readAllTenants(filters); err != nil {
		return nil, err
	}
	delete(filters, "all_tenants")
	if l.allTenants {
		if err := x.AllowOwn(ruleAll); err != nil {
			return nil, err
		}
	} else {
		// Without all_tenants a project that is asked for does not count, as in Nova.
		delete(filters, "tenant_id")
		delete(filters, "project_id")
		l.query.ProjectID = x.Caller.Project
		l.nothing = x.Caller.Project == "" // no project has no servers; it does not stand for all
	}
	l.limit, l.marker, l.hasMarker = api.ReadLimit(params, ls.MaxLimit),
		params.Last("marker"), params.Has("marker")
	if l.query.Sort, err = readSort(x, params); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(filters)) {
		if err := l.filter(name, filters[name]); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// filters are the filters that count for this caller: all for an administrator, those of
// memberFilters for a member.
func filters(x *api.Exchange, params api.Query) map[string]string {
	all := x.Allows(ruleServersAllFilters, x.Caller.Project)
	filters := map[string]string{}
	for name := range params.Values {
		since, forMembers := memberFilters[name]
		if all && !slices.Contains(paging, name) || forMembers && x.AtLeast(since) {
			values := params.Values[name]
			filters[name] = values[len(values)-1]
		}
	}
	return filters
}

// knownFilters are the filters whose values the API database has for every server, so that they
// also apply to servers of cells that are down.
var knownFilters = []string{"all_tenants", "project_id", "tenant_id", "deleted"}

// minimalRecords says whether the list has records of servers whose cells are down: from 2.69 on,
// in the order that a list has by itself, and with no filters but those that the specification
// allows: the project and deleted=False. Nova leaves them out for administrators who send one of
// these. What the caller may not filter by does not count, but paging always does.
func minimalRecords(x *api.Exchange, params api.Query, filters map[string]string) bool {
	if !x.AtLeast(api.VDownCells) || slices.ContainsFunc(paging, params.Has) {
		return false
	}
	for name := range filters {
		if !slices.Contains(knownFilters, name) {
			return false
		}
	}
	deleted, _ := api.ReadBool(filters["deleted"])
	return !deleted
}

// readAllTenants reads the word; "" is yes.
func readAllTenants(filters map[string]string) (bool, error) {
	word, asked := filters["all_tenants"]
	if !asked || word == "" {
		return asked, nil
	}
	value, known := api.ReadBool(word)
	if !known {
		return false, osapi.BadRequest(
			"Unrecognized value %s, acceptable values are: '0', '1', 'f', 'false', 'n', 'no', 'off', 'on', 't', "+
				"'true', 'y', 'yes'",
			api.PythonString(osapi.Shortened(word)))
	}
	return value, nil
}

// readStates reads status, the times of changes and deleted, which depend on each other.
func (l *listRequest) readStates(x *api.Exchange, params api.Query, filters map[string]string) error {
	q := &l.query
	delete(filters, "status")
	if params.Has("status") {
		delete(filters, "vm_state")
		vms, tasks := statesOf(params.All("status"))
		switch {
		case len(vms) > 0:
		case x.AtLeast(vStatusChecked):
			return osapi.BadRequest("Invalid status value")
		default:
			l.nothing = true
			return nil
		}
		q.VMStates = vms
		if tasks != nil {
			delete(filters, "task_state")
			q.TaskStates = tasks
		}
	}
	since, hasSince := filters["changes-since"]
	before, hasBefore := filters["changes-before"]
	if hasSince {
		t, _ := api.ReadTime(since)
		q.ChangedSince = &t
	}
	if hasBefore {
		t, _ := api.ReadTime(before)
		q.ChangedBefore = &t
	}
	if hasSince && hasBefore && q.ChangedBefore.Before(*q.ChangedSince) {
		return osapi.BadRequest("The value of changes-since must be less than or equal to changes-before.")
	}
	word, hasDeleted := filters["deleted"]
	deleted, _ := api.ReadBool(word)
	switch {
	case deleted:
		q.Deleted = cellwire.DeletedOnly
	case !hasDeleted && (hasSince || hasBefore):
		q.Deleted = cellwire.DeletedAny
	}
	if slices.Equal(q.VMStates, []string{cellwire.VMDeleted}) {
		if !x.IsAdmin() {
			return api.Forbidden("Only administrators may list deleted instances")
		}
		q.Deleted = cellwire.DeletedOnly
	}
	q.SoftDeleted = filters["soft_deleted"] != ""
	for _, name := range []string{"changes-since", "changes-before", "deleted", "soft_deleted"} {
		delete(filters, name)
	}
	return nil
}

// filter adds one condition to the query.
func (l *listRequest) filter(name, value string) error {
	q := &l.query
	switch name {
	case "name", "display_name":
		q.NamePattern = value
	case "project_id", "tenant_id":
		q.ProjectID = value
	case "user_id":
		q.UserID = value
	case "uuid":
		q.UUIDs = []string{value}
	case "host":
		q.Hosts = []string{value}
	case "flavor":
		q.FlavorID = value
	case "image", "image_ref":
		if q.ImageRef = value; value == noImage {
			q.ImageRef, q.NoImage = "", true
		}
	case "vm_state":
		q.VMStates = []string{value}
	case "task_state":
		q.TaskStates = []string{value}
	case "hostname", "key_name", "node", "availability_zone", "reservation_id", "access_ip_v4",
		"access_ip_v6", "display_description":
		l.search(name, value)
	case "description":
		l.search("display_description", value)
	case "tags":
		q.TagsAll = strings.Split(value, ",")
	case "tags-any":
		q.TagsAny = strings.Split(value, ",")
	case "not-tags":
		q.NotTagsAll = strings.Split(value, ",")
	case "not-tags-any":
		q.NotTagsAny = strings.Split(value, ",")
	case "config_drive":
		drive, _ := api.ReadBool(value)
		q.ConfigDrive = &drive
	case "power_state", "launch_index":
		n, err := strconv.Atoi(value)
		switch {
		case err != nil:
			l.nothing = true // no number is equal to it
		case name == "power_state":
			q.PowerStates = []plugins.PowerState{plugins.PowerState(n)}
		default:
			q.LaunchIndex = &n
		}
	case "ip", "ip6", "kernel_id", "ramdisk_id", "root_device_name":
		l.nothing = true // what no server has
	default:
		return osapi.BadRequest("Servers cannot be filtered by %s here.", osapi.Shortened(name))
	}
	return nil
}

// search looks for a pattern in a column, as Nova does in all that it does not compare.
func (l *listRequest) search(column, pattern string) {
	if l.query.Patterns == nil {
		l.query.Patterns = map[string]string{}
	}
	l.query.Patterns[column] = pattern
}
