// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// The values that servers of the model have: few, so that there are ties, and strange, so that
// nothing is taken for syntax.
var (
	words = []string{"", "a", "a ", "A", "b%_", `c"'\`, "é", "x\u2028y", "$.k", "1"}
	times = []int{0, 1, 1, 2, 5}
)

// empty erases all that is in a store.
func empty(t testing.TB, s *celldb.DB) {
	t.Helper()
	testproc.Check(t, s.Execute(ctx, "DELETE FROM instances", "DELETE FROM instance_actions", "DELETE FROM services",
		"DELETE FROM compute_nodes"))
}

// populate fills a store with servers in all states and returns them as they are.
func populate(rt *rapid.T, s celldb.Store, n int) []cellwire.Server {
	word := rapid.SampledFrom(words)
	must := func(err error) {
		testproc.Check(rt, err)
	}
	for _, h := range []string{"h1", "h2"} {
		_, _, err := s.Report(ctx, serverstate.Reporter{Host: h}, cellwire.HostReport{}, moment)
		must(err)
	}
	for i := range n {
		in := building(i)
		in.ProjectID = rapid.SampledFrom([]string{"p", "q"}).Draw(rt, "project")
		in.UserID, in.Name, in.Hostname, in.ImageRef, in.Zone = word.Draw(rt, "user"), word.Draw(rt, "name"),
			word.Draw(rt, "hostname"), word.Draw(rt, "image"), word.Draw(rt, "zone")
		in.AccessIPv4, in.AccessIPv6, in.Reservation, in.Flavor.ID = word.Draw(rt, "v4"), word.Draw(rt, "v6"),
			word.Draw(rt, "reservation"), word.Draw(rt, "flavor")
		if rapid.Bool().Draw(rt, "described") {
			d := word.Draw(rt, "description")
			in.Description = &d
		}
		in.DiskConfig = rapid.SampledFrom([]string{"", "AUTO", "MANUAL"}).Draw(rt, "disk config")
		in.ConfigDrive, in.Locked, in.LaunchIndex = rapid.Bool().Draw(rt, "drive"), rapid.Bool().Draw(rt, "locked"),
			rapid.IntRange(0, 2).Draw(rt, "index")
		in.Tags = rapid.SliceOfNDistinct(word, 0, 3, rapid.ID).Draw(rt, "tags")
		in.Metadata = rapid.MapOfN(word, word, 0, 3).Draw(rt, "metadata")
		in.CreatedAt = start.Add(time.Duration(rapid.SampledFrom(times).Draw(rt, "created")) * time.Microsecond)
		in.Host = rapid.SampledFrom([]string{"h1", "h2"}).Draw(rt, "host")
		in.Node = in.Host + "-node"
		_, err := s.Insert(ctx, in, moment)
		must(err)
		m := moment
		m.Now = start.Add(time.Duration(rapid.SampledFrom(times).Draw(rt, "changed")) * time.Microsecond)
		report := func(kind cellwire.ReportKind) {
			_, err := s.Apply(ctx, in.Host,
				[]cellwire.Report{{UUID: in.UUID, Kind: kind,
					PowerState: rapid.SampledFrom([]plugins.PowerState{1, 4}).Draw(rt, "power"), Revision: 1 << 40}}, m)
			must(err)
		}
		fate := rapid.IntRange(0, 7).Draw(rt, "fate")
		if fate > 0 { // otherwise it stays hidden
			_, err := s.Release(ctx, in.UUID, m)
			must(err)
		}
		if fate > 2 {
			report(cellwire.ReportSpawned)
		}
		if kind := map[int]cellwire.DeleteKind{2: cellwire.DeleteNormal, 4: cellwire.DeleteNormal,
			5: cellwire.DeleteSoft, 6: cellwire.DeleteSoft, 7: cellwire.DeleteNormal}[fate]; kind != "" {
			_, err := s.Delete(ctx, in.UUID, kind, m)
			must(err)
		}
		switch fate {
		case 6:
			report(cellwire.ReportSettled)
		case 7:
			report(cellwire.ReportGone)
		}
	}
	var all []cellwire.Server
	for i := range n {
		server, err := s.Server(ctx, sid(i), moment)
		must(err)
		all = append(all, server)
	}
	return all
}

// valueOf is what a server is sorted by.
func valueOf(s cellwire.Server, column string) any {
	micros := func(t *time.Time) any {
		if t == nil {
			return int64(0)
		}
		return t.UnixMicro()
	}
	flag := func(b bool) any {
		if b {
			return int64(1)
		}
		return int64(0)
	}
	switch column {
	case "auto_disk_config":
		return flag(s.DiskConfig == "AUTO")
	case "config_drive":
		return flag(s.ConfigDrive)
	case "created_at":
		return s.CreatedAt.UnixMicro()
	case "updated_at":
		return micros(s.UpdatedAt)
	case "launched_at":
		return micros(s.LaunchedAt)
	case "terminated_at":
		return micros(s.TerminatedAt)
	case "launch_index":
		return int64(s.LaunchIndex)
	case "power_state":
		return int64(s.PowerState)
	case "display_description":
		if s.Description == nil {
			return ""
		}
		return *s.Description
	}
	return map[string]string{"access_ip_v4": s.AccessIPv4, "access_ip_v6": s.AccessIPv6, "availability_zone": s.Zone,
		"display_name": s.Name, "host": s.Host,
		"hostname": s.Hostname, "image_ref": s.ImageRef, "instance_type_id": s.Flavor.ID, "node": s.Node,
		"project_id": s.ProjectID, "task_state": s.TaskState,
		"user_id": s.UserID, "uuid": s.UUID, "vm_state": s.VMState}[column]
}

func keyOf(s cellwire.Server, sort []cellwire.SortKey) (key cellwire.Key) {
	for _, k := range sort {
		key = append(key, valueOf(s, k.Key))
	}
	return append(key, s.UUID)
}

func compareKeys(a, b cellwire.Key, sort []cellwire.SortKey) int {
	for i := range a {
		var c int
		if n, ok := a[i].(int64); ok {
			c = cmp.Compare(n, b[i].(int64))
		} else {
			c = cmp.Compare(a[i].(string), b[i].(string))
		}
		if i < len(sort) && sort[i].Desc {
			c = -c
		}
		if c != 0 {
			return c
		}
	}
	return 0
}

// matches says, condition by condition, whether a server is asked for.
func matches(s cellwire.Server, q cellwire.ServerQuery) bool {
	soft := s.VMState == cellwire.VMSoftDeleted
	eq := func(asked, value string) bool { return asked == "" || asked == value }
	in := func(asked []string, value string) bool { return len(asked) == 0 || slices.Contains(asked, value) }
	hasAll := func(tags []string) bool {
		return !slices.ContainsFunc(tags, func(tag string) bool { return !slices.Contains(s.Tags, tag) })
	}
	hasAny := func(tags []string) bool {
		return slices.ContainsFunc(tags, func(tag string) bool { return slices.Contains(s.Tags, tag) })
	}
	changed := s.CreatedAt
	if s.UpdatedAt != nil {
		changed = *s.UpdatedAt
	}
	for name, value := range q.Metadata {
		if got, ok := s.Metadata[name]; !ok || got != value {
			return false
		}
	}
	switch q.Deleted {
	case cellwire.DeletedNone:
		if s.Deleted || soft && !q.SoftDeleted {
			return false
		}
	case cellwire.DeletedOnly:
		if !s.Deleted && !soft {
			return false
		}
	}
	return !s.Hidden && eq(q.ProjectID, s.ProjectID) && eq(q.UserID, s.UserID) && in(q.UUIDs, s.UUID) &&
		in(q.VMStates, s.VMState) && in(q.TaskStates, s.TaskState) &&
		(len(q.PowerStates) == 0 || slices.Contains(q.PowerStates, s.PowerState)) && in(q.Hosts, s.Host) &&
		eq(q.FlavorID, s.Flavor.ID) &&
		eq(q.ImageRef, s.ImageRef) && (!q.NoImage || s.ImageRef == "") && found(s, q.Patterns) &&
		(q.LaunchIndex == nil || *q.LaunchIndex == s.LaunchIndex) &&
		(q.Locked == nil || *q.Locked == s.Locked) && (q.ConfigDrive == nil || *q.ConfigDrive == s.ConfigDrive) &&
		hasAll(q.TagsAll) && (len(q.TagsAny) == 0 || hasAny(q.TagsAny)) &&
		(len(q.NotTagsAll) == 0 || !hasAll(q.NotTagsAll)) && !hasAny(q.NotTagsAny) &&
		(q.ChangedSince == nil || !changed.Before(*q.ChangedSince)) &&
		(q.ChangedBefore == nil || !changed.After(*q.ChangedBefore)) &&
		(q.NamePattern == "" || regexp.MustCompile("(?i)"+q.NamePattern).MatchString(s.Name))
}

// found says whether a server has a match of each pattern; what is empty has none.
func found(s cellwire.Server, patterns map[string]string) bool {
	for column, pattern := range patterns {
		value, _ := valueOf(s, column).(string)
		if column == "reservation_id" {
			value = s.Reservation
		}
		if value == "" || !regexp.MustCompile("(?i)"+pattern).MatchString(value) {
			return false
		}
	}
	return true
}

// drawQuery draws a query of at most three conditions.
func drawQuery(rt *rapid.T) (q cellwire.ServerQuery) {
	word := rapid.SampledFrom(words)
	list := rapid.SliceOfN(word, 1, 3)
	at := rapid.Custom(func(rt *rapid.T) *time.Time {
		t := start.Add(time.Duration(rapid.SampledFrom(times).Draw(rt, "time")) * time.Microsecond)
		return &t
	})
	conditions := map[string]func(){
		"project": func() { q.ProjectID = "p" },
		"user":    func() { q.UserID = word.Draw(rt, "v") },
		"uuids":   func() { q.UUIDs = []string{sid(1), sid(3), sid(5), sid(7), sid(99)} },
		"pattern": func() {
			q.NamePattern = rapid.SampledFrom([]string{"a", "^b|é$", `\\`, "x|y", "^$"}).
				Draw(rt, "v")
		},
		"vm": func() { q.VMStates = []string{"active", "soft-delete", "deleted"} },
		"task": func() {
			q.TaskStates = rapid.SampledFrom([][]string{{""}, {"deleting", ""}, {"spawning"}}).Draw(rt, "v")
		},
		"power":  func() { q.PowerStates = rapid.SampledFrom([][]plugins.PowerState{{0}, {1, 4}}).Draw(rt, "v") },
		"hosts":  func() { q.Hosts = []string{"h1", "h9"} },
		"flavor": func() { q.FlavorID = word.Draw(rt, "v") },
		"image":  func() { q.ImageRef = word.Draw(rt, "v") },
		"none":   func() { q.NoImage = true },
		"patterns": func() {
			some := rapid.SampledFrom([]string{"a", "^b|é$", `\\`, "x|Y", "^$", ".*", "2-n", ""})
			q.Patterns = rapid.MapOfN(rapid.SampledFrom(cellwire.PatternColumns), some, 1, 2).Draw(rt, "v")
		},
		"index":    func() { q.LaunchIndex = new(rapid.IntRange(0, 2).Draw(rt, "v")) },
		"locked":   func() { q.Locked = new(rapid.Bool().Draw(rt, "v")) },
		"drive":    func() { q.ConfigDrive = new(rapid.Bool().Draw(rt, "v")) },
		"tags all": func() { q.TagsAll = list.Draw(rt, "v") },
		"tags any": func() { q.TagsAny = list.Draw(rt, "v") },
		"not all":  func() { q.NotTagsAll = list.Draw(rt, "v") },
		"not any":  func() { q.NotTagsAny = list.Draw(rt, "v") },
		"metadata": func() { q.Metadata = rapid.MapOfN(word, word, 1, 2).Draw(rt, "v") },
		"since":    func() { q.ChangedSince = at.Draw(rt, "v") },
		"before":   func() { q.ChangedBefore = at.Draw(rt, "v") },
		"soft":     func() { q.SoftDeleted = true },
		"only":     func() { q.Deleted = cellwire.DeletedOnly },
		"any":      func() { q.Deleted = cellwire.DeletedAny },
	}
	for _, name := range rapid.SliceOfN(rapid.SampledFrom(slices.Sorted(maps.Keys(conditions))),
		0, 3).Draw(rt, "conditions") {
		conditions[name]()
	}
	for range rapid.IntRange(0, 3).Draw(rt, "sort keys") {
		q.Sort = append(q.Sort, cellwire.SortKey{Key: rapid.SampledFrom(cellwire.SortColumns).Draw(rt, "column"),
			Desc: rapid.Bool().Draw(rt, "descending")})
	}
	q.Limit = rapid.IntRange(1, 9).Draw(rt, "limit")
	q.Brief = rapid.Bool().Draw(rt, "brief")
	return q
}

// TestQueries pages through answers with any conditions in any order, and compares with a filter
// and a sort over all servers.
func TestQueries(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, queries)
}

func queries(t *testing.T, s *celldb.DB) {
	t.Helper()
	checks := 40
	if s.Shared() {
		checks = 15 // each is of hundreds of transactions over a network
	}
	rapid.Check(t, testproc.Few(checks, func(rt *rapid.T) {
		empty(t, s)
		all := populate(rt, s, rapid.IntRange(5, 15).Draw(rt, "servers"))
		for range 20 {
			q := drawQuery(rt)
			var want []cellwire.Row
			for _, server := range all {
				if matches(server, q) {
					row := cellwire.Row{Server: server, Key: keyOf(server, q.Sort)}
					if q.Brief {
						row.Server = cellwire.Server{ID: server.ID, UUID: server.UUID, Name: server.Name}
					}
					want = append(want, row)
				}
			}
			slices.SortFunc(want, func(a, b cellwire.Row) int { return compareKeys(a.Key, b.Key, q.Sort) })
			var got []cellwire.Row
			for {
				page, err := s.Servers(ctx, q, moment)
				testproc.Checkf(rt, err, "%+v", q)
				got = append(got, page.Rows...)
				if !page.More {
					break
				}
				if len(page.Rows) != q.Limit {
					rt.Fatalf("%+v: a page of %d rows has more after it", q, len(page.Rows))
				}
				// As it comes back over the wire.
				text := testproc.Try(json.Marshal(page.Rows[len(page.Rows)-1].Key)).Or(rt)
				testproc.Check(rt, json.Unmarshal(text, &q.After))
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				rt.Fatalf("%+v (-want +got):\n%s", q, diff)
			}
		}
	}))
}

// FuzzQuery sends anything as a query: it is refused as a bad request, or answered.
func FuzzQuery(f *testing.F) {
	s := fresh(f)
	for n := range 5 {
		release(f, s, building(n))
	}
	f.Add([]byte(`{"limit":2,"sort":[{"key":"created_at","desc":true}],"after":[1772600767000000,"x"]}`))
	f.Add([]byte(`{"limit":1,"name_pattern":"(a|b)*$","tags":["'"],"metadata":{"\"":"$"}}`))
	f.Add([]byte(`{"limit":1,"name_pattern":"a)(b"}`))
	f.Add([]byte(`{"limit":1,"sort":[{"key":"key_name"},{"key":"uuid","desc":true}],"after":["z","","y"]}`))
	f.Add([]byte(`{"limit":1,"after":[9223372036854775808]}`))
	f.Add([]byte(`{"limit":-1,"deleted":"x","uuids":["` + "\u0000" + `"]}`))
	f.Add([]byte(`{"limit":3,"changed_since":"0001-01-01T00:00:00Z","changed_before":"9999-12-31T23:59:59Z",` +
		`"not_tags":["a"]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var q cellwire.ServerQuery
		if json.Unmarshal(text, &q) != nil {
			return
		}
		page, err := s.Servers(ctx, q, moment)
		if err != nil {
			if e, ok := err.(*cellwire.Error); !ok || e.Status != 400 { //nolint:errorlint // a refusal comes as it is
				t.Errorf("the query %+v: got %v, want no error but 400", q, err)
			}
			return
		}
		if len(page.Rows) > q.Limit {
			t.Errorf("%+v: %d rows", q, len(page.Rows))
		}
		for _, row := range page.Rows {
			if len(row.Key) != len(q.Sort)+1 || fmt.Sprint(row.Key[len(q.Sort)]) != row.Server.UUID {
				t.Errorf("%+v: the key of %s is %v", q, row.Server.UUID, row.Key)
			}
		}
	})
}
