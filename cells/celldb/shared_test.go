// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// onServers runs f for the address of a new database of each engine that several processes share.
func onServers(t *testing.T, f func(t *testing.T, address string)) {
	t.Helper()
	dbservers.Each(t, func(t *testing.T, fresh func(testing.TB) string) {
		dbservers.AboutServers(t)
		f(t, fresh(t))
	})
}

// opened is a store that is closed when the test ends.
func opened(t *testing.T, address string) *celldb.DB {
	t.Helper()
	s := open(t, address)
	t.Cleanup(func() { closeStore(t, s) })
	return s
}

// TestServersCreateAndReopen: several processes may make the tables of a new database at the same
// time; it has one epoch, keeps what was written, belongs to one cell, and no error or text shows
// the password.
func TestServersCreateAndReopen(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onServers(t, serversCreateAndReopen)
}

func serversCreateAndReopen(t *testing.T, address string) {
	t.Helper()
	var stores [3]*celldb.DB
	var wg sync.WaitGroup
	for i := range stores {
		wg.Go(func() { stores[i] = opened(t, address) })
	}
	wg.Wait()
	first, err := stores[0].Info(ctx)
	if err != nil || first.Name != "cell1" || len(first.Epoch) != 36 || first.Revision != 1 {
		t.Errorf("it is %+v, %v", first, err)
	}
	release(t, stores[1], building(1))
	if got, err := stores[2].Server(ctx, sid(1), moment); err != nil || got.Name != "server-1" || got.Hidden {
		t.Errorf("another process has %+v, %v", got, err)
	}
	after, err := opened(t, address).Info(ctx)
	if err != nil || after.Epoch != first.Epoch || after.Revision != 3 {
		t.Errorf("opened again it is %+v, %v; it was %+v", after, err, first)
	}
	if has, knows, err := stores[0].SchemaVersion(ctx); err != nil || has != knows || has < 1 {
		t.Errorf("the schema has had %d of %d steps, %v", has, knows, err)
	}
	_, secret, _ := strings.Cut(strings.SplitN(address, "@", 2)[0], "://")
	_, secret, _ = strings.Cut(secret, ":")
	other, err := celldb.Open(ctx, address, "cell2", celldb.Options{})
	if err == nil {
		closeStore(t, other)
	}
	if !errors.Is(err, celldb.ErrName) || !strings.Contains(err.Error(), `"cell1"`) ||
		strings.Contains(err.Error(), secret) {
		t.Errorf("opened as another cell: %v", err)
	}
	if where := stores[0].Address(); secret == "" || strings.Contains(where, secret) ||
		!strings.Contains(where, "://") {
		t.Errorf("it is shown as %s", where)
	}
}

// TestServersCheck: a database of servers that lacks a table or a column, or that is another cell's
// by now, is not whole, and is whole again when that is back.
func TestServersCheck(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onServers(t, serversCheck)
}

func serversCheck(t *testing.T, address string) {
	t.Helper()
	s := opened(t, address)
	whole := func() {
		t.Helper()
		s.LookAgain()
		for range 2 {
			testproc.Check(t, s.Check(ctx))
		}
	}
	whole()
	for _, c := range []struct{ breaks, fixes, says string }{
		{"ALTER TABLE instances RENAME TO x", "ALTER TABLE x RENAME TO instances",
			"of the table instances; stop the cell and restore a backup"},
		{"ALTER TABLE compute_nodes RENAME TO x", "ALTER TABLE x RENAME TO compute_nodes",
			"of the table compute_nodes"},
		{"ALTER TABLE cell RENAME TO x", "ALTER TABLE x RENAME TO cell",
			"its tables are not those of this program's schema"},
		{"ALTER TABLE services RENAME COLUMN version TO x",
			"ALTER TABLE services RENAME COLUMN x TO version", "no column version of the table services"},
		{"UPDATE cell SET epoch = 'x'", "UPDATE cell SET epoch = '" + epoch(t, s) + "'",
			"replaced by another database"},
	} {
		testproc.Check(t, s.Execute(ctx, c.breaks))
		s.LookAgain()
		for range 2 {
			if err := s.Check(ctx); !errors.Is(err, celldb.ErrUnavailable) ||
				!strings.Contains(err.Error(), s.Address()) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", c.breaks, err)
			}
		}
		testproc.Check(t, s.Execute(ctx, c.fixes))
		whole()
	}
}

func epoch(t *testing.T, s *celldb.DB) string {
	t.Helper()
	info := testproc.Try(s.Info(ctx)).Or(t)
	return info.Epoch
}

// TestChanges: a process learns from the database which hosts others have changed, each once, and
// nothing about a heartbeat.
func TestChanges(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onServers(t, func(t *testing.T, address string) {
		t.Helper()
		mine, others := opened(t, address), opened(t, address)
		since := int64(0)
		changed := func(want ...string) {
			t.Helper()
			hosts, until, err := mine.Changes(ctx, since)
			slices.Sort(hosts)
			if err != nil || !slices.Equal(hosts, want) {
				t.Errorf("since %d: %v, %v; want %v", since, hosts, err, want)
			}
			since = until
		}
		changed()
		service, _, err := others.Report(
			ctx, serverstate.Reporter{Host: "h1"}, cellwire.HostReport{Version: "1"}, moment,
		)
		testproc.Check(t, err)
		changed("h1")
		if _, _, err := others.Report(ctx, serverstate.Reporter{Host: "h1"},
			cellwire.HostReport{Version: "1"}, moment); err != nil {
			t.Fatal(err)
		}
		changed()
		insert(t, others, building(1))
		changed() // hidden
		testproc.Try(others.Release(ctx, sid(1), moment)).Or(t)
		second := building(2)
		second.Host = "h2"
		release(t, others, second)
		changed("h1", "h2")
		changed()
		disabled := true
		testproc.Try(others.PatchService(ctx, service.UUID, cellwire.ServicePatch{Disabled: &disabled}, moment)).Or(t)
		changed("h1")
	})
}

// TestTwoProcesses: two processes write to one database at the same time. Each change has its own
// revision, and what one acknowledged the other sees at once.
func TestTwoProcesses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onServers(t, func(t *testing.T, address string) {
		t.Helper()
		const each = 15
		stores := []*celldb.DB{opened(t, address), opened(t, address)}
		var wg sync.WaitGroup
		for i, s := range stores {
			wg.Go(func() {
				host := fmt.Sprint("h", i)
				for n := range each {
					server := building(i*each + n)
					server.Host = host
					if _, err := s.Insert(ctx, server, moment); err != nil {
						t.Error(err)
					}
					if _, err := s.Release(ctx, server.UUID, moment); err != nil {
						t.Error(err)
					}
					if _, _, err := s.Report(ctx, serverstate.Reporter{Host: host},
						cellwire.HostReport{Version: "1"}, moment); err != nil {
						t.Error(err)
					}
					applied, err := stores[1-i].Apply(ctx,
						host,
						[]cellwire.Report{{UUID: server.UUID, Kind: cellwire.ReportSpawned,
							PowerState: plugins.PowerRunning}}, moment)
					if err != nil || applied.Refused[0] != "" {
						t.Errorf("the other process: %q, %v", applied.Refused, err)
					}
				}
			})
		}
		wg.Wait()
		page, err := stores[0].Servers(ctx, cellwire.ServerQuery{Limit: 10 * each}, moment)
		if err != nil || len(page.Rows) != 2*each {
			t.Fatalf("%d servers, %v", len(page.Rows), err)
		}
		seen := map[int64]bool{}
		for _, row := range page.Rows {
			if seen[row.Server.Revision] || row.Server.VMState != cellwire.VMActive {
				t.Errorf("server %s is %s with revision %d", row.Server.UUID, row.Server.VMState, row.Server.Revision)
			}
			seen[row.Server.Revision] = true
		}
		// One more of each service, which was made by its first report.
		if info, err := stores[1].Info(ctx); err != nil || info.Revision != 1+2*(3*each+1) {
			t.Errorf("the revision is %d, %v", info.Revision, err)
		}
	})
}

// TestEnginesAgree runs the same random operations on a server and on a file, and asks them the
// same: all answers and refusals are equal.
func TestEnginesAgree(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.AboutServers(t)
	s, reference := opened(t, dbservers.Fresh(t)), fresh(t)
	const checks = 8 // each is of hundreds of transactions over a network
	rapid.Check(t, testproc.Few(checks, func(rt *rapid.T) {
		empty(t, s)
		empty(t, reference)
		all := func(what string, f func(s *celldb.DB) (any, error)) {
			rt.Helper()
			want, wantErr := f(reference)
			got, err := f(s)
			if fmt.Sprint(err) != fmt.Sprint(wantErr) {
				rt.Fatalf("%s: the server says %v, and SQLite %v", what, err, wantErr)
			}
			if diff := gocmp.Diff(want, got, ignored); diff != "" {
				rt.Fatalf("%s (-SQLite +server):\n%s", what, diff)
			}
		}
		operations(rt, all)
		for range 25 {
			q := drawQuery(rt)
			all(fmt.Sprintf("%+v", q), func(s *celldb.DB) (any, error) { return s.Servers(ctx, q, moment) })
		}
	}))
}

// ignored are what differs from one database to the other, and does not matter.
var ignored = gocmp.FilterPath(func(p gocmp.Path) bool {
	switch p.Last().String() {
	case ".ID", ".Revision", ".Epoch":
		return true
	}
	for _, step := range p {
		if f, ok := step.(gocmp.StructField); ok && f.Name() == "UUID" {
			parent := p.Index(-2)
			return parent != nil && parent.Type().Name() == "Service"
		}
	}
	return false
}, gocmp.Ignore())

// operations draws what clients of a cell do.
func operations(rt *rapid.T, all func(what string, f func(s *celldb.DB) (any, error))) {
	const servers = 6
	word := rapid.SampledFrom(words)
	host := rapid.SampledFrom([]string{"h1", "h2", "H1", "h1 "})
	one := rapid.IntRange(1, servers)
	m := moment
	for range rapid.IntRange(10, 40).Draw(rt, "operations") {
		m.Now = m.Now.Add(time.Duration(rapid.IntRange(0, 40).Draw(rt, "seconds")) * time.Second)
		at, n, h := m, one.Draw(rt, "server"), host.Draw(rt, "host")
		switch op := rapid.SampledFrom([]string{"insert", "insert", "release", "release", "discard", "delete",
			"restore", "freed", "power", "power", "call",
			"report", "apply", "apply", "mapped", "patch", "remove"}).Draw(rt, "op"); op {
		case "insert":
			server := building(n)
			server.Host, server.Name = h, word.Draw(rt, "name")
			server.Tags = rapid.SliceOfNDistinct(word, 0, 3, rapid.ID).Draw(rt, "tags")
			server.Metadata = rapid.MapOfN(word, word, 0, 2).Draw(rt, "metadata")
			all(op, func(s *celldb.DB) (any, error) { return s.Insert(ctx, server, at) })
		case "release":
			all(op, func(s *celldb.DB) (any, error) { return s.Release(ctx, sid(n), at) })
		case "discard":
			all(op, func(s *celldb.DB) (any, error) { return nil, s.Discard(ctx, sid(n)) })
		case "delete":
			kind := rapid.SampledFrom(
				[]cellwire.DeleteKind{cellwire.DeleteNormal, cellwire.DeleteSoft, cellwire.DeleteReclaim}).
				Draw(rt, "kind")
			all(op, func(s *celldb.DB) (any, error) { return s.Delete(ctx, sid(n), kind, at) })
		case "restore":
			all(op, func(s *celldb.DB) (any, error) { return s.Restore(ctx, sid(n), at) })
		case "power":
			action := rapid.SampledFrom([]cellwire.PowerAction{cellwire.PowerStart, cellwire.PowerStop,
				cellwire.PowerReboot, cellwire.PowerRebootHard}).Draw(rt, "action")
			all(op, func(s *celldb.DB) (any, error) { return s.Power(ctx, sid(n), action, at) })
			all("actions", func(s *celldb.DB) (any, error) { return s.Actions(ctx, sid(n)) })
		case "call":
			patch := cellwire.ServerPatch{Name: new(word.Draw(rt, "name")),
				Tags: &cellwire.TagsPatch{Add: []string{word.Draw(rt, "tag")}}}
			all(op, func(s *celldb.DB) (any, error) { return s.Patch(ctx, sid(n), patch, at) })
		case "freed":
			all(op, func(s *celldb.DB) (any, error) { return nil, s.MarkFreed(ctx, sid(n)) })
		case "report":
			nodes := rapid.SliceOfNDistinct(
				rapid.SampledFrom([]cellwire.ReportedNode{{UUID: sid(91), Name: "n1"},
					{UUID: sid(92), Name: "n2", Abilities: []string{"console"}}, {UUID: sid(93), Name: "n1 "}}), 0, 2,
				func(n cellwire.ReportedNode) string { return n.UUID }).Draw(rt, "nodes")
			report := cellwire.HostReport{Version: rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "version"),
				Nodes: nodes, Stopping: rapid.IntRange(0, 4).Draw(rt, "stopping") == 0}
			all(op, func(s *celldb.DB) (any, error) {
				service, refused, err := s.Report(ctx, serverstate.Reporter{Host: h}, report, at)
				return []any{service, refused}, err
			})
		case "apply":
			kinds := rapid.SliceOfN(
				rapid.SampledFrom([]cellwire.ReportKind{cellwire.ReportSpawned, cellwire.ReportFailed,
					cellwire.ReportPower, cellwire.ReportGone, cellwire.ReportSettled}), 1, 3).Draw(rt, "kinds")
			reports := make([]cellwire.Report, len(kinds))
			for i, kind := range kinds {
				reports[i] = cellwire.Report{UUID: sid(one.Draw(rt, "of")), Kind: kind,
					PowerState: 1, Revision: 1 << 40}
			}
			all(op, func(s *celldb.DB) (any, error) { return s.Apply(ctx, h, reports, at) })
		case "mapped":
			all(op, func(s *celldb.DB) (any, error) {
				return nil, s.MarkMapped(ctx, []string{sid(91), sid(93), sid(99)})
			})
		case "patch", "remove":
			patch := cellwire.ServicePatch{}
			if rapid.Bool().Draw(rt, "disable") {
				yes, reason := true, word.Draw(rt, "reason")
				patch.Disabled, patch.DisabledReason = &yes, &reason
			} else {
				patch.ForcedDown = new(rapid.Bool().Draw(rt, "down"))
			}
			all(op, func(s *celldb.DB) (any, error) {
				id, err := serviceOf(s, h)
				if err != nil || id == "" {
					return nil, err
				}
				if op == "remove" {
					got, err := s.DeleteService(ctx, id, at)
					return got, withoutID(err, id)
				}
				return s.PatchService(ctx, id, patch, at)
			})
		}
		all("work", func(s *celldb.DB) (any, error) {
			work, changed, err := s.Work(ctx, h, 0, "", at)
			return []any{work, changed}, err
		})
		all("states", func(s *celldb.DB) (any, error) { return s.States(ctx, []string{sid(n), sid(1), sid(99)}) })
	}
	all("services", func(s *celldb.DB) (any, error) { return s.Services(ctx, m) })
	all("discovery", func(s *celldb.DB) (any, error) { return s.Discovery(ctx, "p", m) })
	all("unmapped", func(s *celldb.DB) (any, error) { return s.ComputeNodes(ctx, true, m) })
	all("unfinished", func(s *celldb.DB) (any, error) { return s.Unfinished(ctx, m.Now, m.Now) })
	all("counts", func(s *celldb.DB) (any, error) { return s.CountStates(ctx) })
}

// serviceOf is the uuid of a host's service, "" without one.
func serviceOf(s *celldb.DB, host string) (string, error) {
	services, err := s.Services(ctx, moment)
	for _, one := range services {
		if one.Host == host {
			return one.UUID, err
		}
	}
	return "", err
}

// withoutID is an error as all databases have it.
func withoutID(err error, id string) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.ReplaceAll(err.Error(), id, "ID"))
}

// TestUnstorable: a text that some engine does not keep is refused or matches nothing, in all of
// them.
func TestUnstorable(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, func(t *testing.T, s *celldb.DB) {
		t.Helper()
		const zero = "p\x00"
		release(t, s, building(1))
		for name, spoil := range map[string]func(*cellwire.Server){
			"project":     func(s *cellwire.Server) { s.ProjectID = zero },
			"name":        func(s *cellwire.Server) { s.Name = "\xff" },
			"image":       func(s *cellwire.Server) { s.ImageRef = strings.Repeat("x", 256) },
			"description": func(s *cellwire.Server) { s.Description = new(strings.Repeat("x", 1021)) },
		} {
			server := building(2)
			spoil(&server)
			var refusal *cellwire.Error
			if _, err := s.Insert(ctx, server, moment); !errors.As(err, &refusal) || refusal.Status != 400 {
				t.Errorf("with a %s that cannot be kept: %v", name, err)
			}
		}
		for _, q := range []cellwire.ServerQuery{
			{ProjectID: zero}, {UUIDs: []string{zero}},
			{Hosts: []string{zero, "\xff"}}, {TagsAll: []string{zero}}, {TagsAny: []string{zero}},
			{Metadata: map[string]string{zero: zero}}, {NamePattern: `\x00`},
		} {
			q.Limit = 9
			if page, err := s.Servers(ctx, q, moment); err != nil || len(page.Rows) != 0 {
				t.Errorf("%+v: %d rows, %v", q, len(page.Rows), err)
			}
		}
		if u, err := s.Usage(ctx, zero); err != nil || u.Instances != 0 {
			t.Errorf("usage: %+v, %v", u, err)
		}
		if applied, err := s.Apply(ctx, "h1", []cellwire.Report{{UUID: zero}}, moment); err != nil ||
			applied.Refused[0] == "" {
			t.Errorf("a report: %q, %v", applied.Refused, err)
		}
	})
}
