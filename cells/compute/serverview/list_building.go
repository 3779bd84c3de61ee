// SPDX-License-Identifier: Apache-2.0

package serverview

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
)

// matching are the build requests that a query asks for, in its order. They are few and
// short-lived, so they are looked through one by one.
func matching(all []apidb.BuildRequest, q *cellwire.ServerQuery) ([]apidb.BuildRequest, error) {
	if q.Deleted == cellwire.DeletedOnly {
		return nil, nil
	}
	matches, err := Matcher(q)
	if err != nil {
		return nil, err
	}
	var chosen []apidb.BuildRequest
	for _, b := range all {
		if matches(&b.Server) {
			chosen = append(chosen, b)
		}
	}
	slices.SortFunc(chosen, func(a, b apidb.BuildRequest) int {
		for _, key := range q.Sort {
			order := compareBy(key.Key, &a.Server, &b.Server)
			if key.Desc {
				order = -order
			}
			if order != 0 {
				return order
			}
		}
		return cmp.Compare(a.UUID, b.UUID)
	})
	return chosen, nil
}

// Matcher returns a function that says whether a server meets the conditions of a query, but for
// Deleted and SoftDeleted: these are about servers in cells. Build requests are matched by it, and
// the servers of cells that tests make up. The error is for a pattern that no cell would take.
func Matcher(q *cellwire.ServerQuery) (func(*cellwire.Server) bool, error) {
	patterns := map[string]*regexp.Regexp{}
	for column, pattern := range q.Patterns {
		compiled, err := cellwire.Pattern(pattern)
		if err != nil {
			return nil, err
		}
		patterns[column] = compiled
	}
	name, err := cellwire.Pattern(q.NamePattern)
	if err != nil {
		return nil, err
	}
	return func(s *cellwire.Server) bool {
		return name.MatchString(s.Name) && matchesAll(s, patterns) && matches(s, q)
	}, nil
}

// matchesAll says whether a server has a match of each pattern, by column.
func matchesAll(s *cellwire.Server, patterns map[string]*regexp.Regexp) bool {
	for column, pattern := range patterns {
		value := ""
		switch column {
		case "access_ip_v4":
			value = s.AccessIPv4
		case "access_ip_v6":
			value = s.AccessIPv6
		case "availability_zone":
			value = s.Zone
		case "display_description":
			value = api.OrEmpty(s.Description)
		case "hostname":
			value = s.Hostname
		case "node":
			value = s.Node
		case "reservation_id":
			value = s.Reservation
		}
		if value == "" || !pattern.MatchString(value) {
			return false
		}
	}
	return true
}

// matches says whether a server that is being built meets the conditions of a query, but for its
// patterns.
func matches(s *cellwire.Server, q *cellwire.ServerQuery) bool {
	for _, c := range [...]struct{ want, have string }{
		{q.ProjectID, s.ProjectID}, {q.UserID, s.UserID}, {q.FlavorID, s.Flavor.ID}, {q.ImageRef, s.ImageRef},
	} {
		if c.want != "" && c.want != c.have {
			return false
		}
	}
	return isAmong(q.UUIDs, s.UUID) && isAmong(q.VMStates, s.VMState) && isAmong(q.TaskStates, s.TaskState) &&
		isAmong(q.PowerStates, s.PowerState) &&
		isAmong(q.Hosts, s.Host) && (!q.NoImage || s.ImageRef == "") &&
		fieldIs(q.LaunchIndex, s.LaunchIndex) && fieldIs(q.Locked, s.Locked) && fieldIs(q.ConfigDrive, s.ConfigDrive) &&
		tagged(s.Tags, q) && changed(s, q)
}

// isAmong reports whether a value is one of those that are wanted; nil is any.
func isAmong[T comparable](wanted []T, value T) bool {
	return len(wanted) == 0 || slices.Contains(wanted, value)
}

func fieldIs[T comparable](wanted *T, value T) bool { return wanted == nil || *wanted == value }

func tagged(tags []string, q *cellwire.ServerQuery) bool {
	has := func(tag string) bool { return slices.Contains(tags, tag) }
	all := func(wanted []string) bool {
		return !slices.ContainsFunc(wanted, func(tag string) bool { return !has(tag) })
	}
	return all(q.TagsAll) &&
		(len(q.TagsAny) == 0 || slices.ContainsFunc(q.TagsAny, has)) &&
		(len(q.NotTagsAll) == 0 || !all(q.NotTagsAll)) &&
		!slices.ContainsFunc(q.NotTagsAny, has)
}

func changed(s *cellwire.Server, q *cellwire.ServerQuery) bool {
	at := s.CreatedAt
	if s.UpdatedAt != nil {
		at = *s.UpdatedAt
	}
	return (q.ChangedSince == nil || !at.Before(*q.ChangedSince)) &&
		(q.ChangedBefore == nil || !at.After(*q.ChangedBefore))
}

// compareBy compares two servers in a column that servers can be sorted by. Columns that servers
// being built do not have yet make no difference.
func compareBy(column string, a, b *cellwire.Server) int {
	text := func(of func(*cellwire.Server) string) int { return strings.Compare(of(a), of(b)) }
	switch column {
	case "created_at":
		return a.CreatedAt.Truncate(time.Microsecond).Compare(b.CreatedAt.Truncate(time.Microsecond))
	case "display_name":
		return text(func(s *cellwire.Server) string { return s.Name })
	case "display_description":
		return text(func(s *cellwire.Server) string { return api.OrEmpty(s.Description) })
	case "uuid":
		return text(func(s *cellwire.Server) string { return s.UUID })
	case "project_id":
		return text(func(s *cellwire.Server) string { return s.ProjectID })
	case "user_id":
		return text(func(s *cellwire.Server) string { return s.UserID })
	case "hostname":
		return text(func(s *cellwire.Server) string { return s.Hostname })
	case "image_ref":
		return text(func(s *cellwire.Server) string { return s.ImageRef })
	case "availability_zone":
		return text(func(s *cellwire.Server) string { return s.Zone })
	case "access_ip_v4":
		return text(func(s *cellwire.Server) string { return s.AccessIPv4 })
	case "access_ip_v6":
		return text(func(s *cellwire.Server) string { return s.AccessIPv6 })
	case "vm_state":
		return text(func(s *cellwire.Server) string { return s.VMState })
	case "task_state":
		return text(func(s *cellwire.Server) string { return s.TaskState })
	case "instance_type_id":
		return text(func(s *cellwire.Server) string { return s.Flavor.ID })
	case "launch_index":
		return cmp.Compare(a.LaunchIndex, b.LaunchIndex)
	}
	return 0
}
