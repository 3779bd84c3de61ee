// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestBuildsElsewhere: a server that its host says it cannot build waits for another host, as often
// as was asked for, and each attempt is an action.
func TestBuildsElsewhere(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, buildsElsewhere)
}

func buildsElsewhere(t *testing.T, s *celldb.DB) {
	t.Helper()
	hosts(t, s, "h1", "h2")
	server := building(1)
	server.Retries = 2
	insert(t, s, server)
	testproc.Try(
		s.Release(cellwire.WithOrigin(ctx, cellwire.Origin{RequestID: "req-1", UserID: "u"}), sid(1), moment),
	).Or(t)
	is := func(want string) {
		t.Helper()
		row := testproc.Try(s.Server(ctx, sid(1), moment)).Or(t)
		if got := fmt.Sprintf("%s %s %s", row.VMState, row.TaskState, row.Host); got != want {
			t.Errorf("the server is %q, not %q", got, want)
		}
	}
	fails := func(host string) {
		t.Helper()
		reported(
			t,
			s,
			host,
			cellwire.Report{
				UUID:  sid(1),
				Kind:  cellwire.ReportFailed,
				Fault: &cellwire.Fault{Code: 500, Message: host + " cannot", Details: "ENOSPC"},
			},
		)
	}
	due := func() cellwire.Migration {
		t.Helper()
		list := testproc.Try(s.MigrationsDue(ctx)).Or(t)
		if len(list) != 1 || list[0].Type != cellwire.MigrationBuild || list[0].Status != cellwire.MigrationAccepted {
			t.Fatalf("due are %+v", list)
		}
		return list[0]
	}
	for range 2 { // a repetition changes nothing
		fails("h1")
	}
	is("building scheduling h1")
	if got := wants(t, s, "h1", 0); len(got) > 0 {
		t.Errorf("the host that cannot is asked for %v", got)
	}
	to := &cellwire.MigrationDestination{Host: "h2", Node: "n2", NodeUUID: sid(901), Zone: "z2"}
	first := due()
	if _, err := s.Step(ctx, first.UUID, cellwire.MigrationStep{Abort: sid(700)}, moment); !cellclient.IsConflict(
		err) || !strings.Contains(err.Error(), "the owner of the server can delete it") {
		t.Errorf("the build of a new server is aborted: %v", err)
	}
	if _, err := s.Step(ctx, first.UUID,
		cellwire.MigrationStep{Destination: &cellwire.MigrationDestination{Host: "h1", Node: "n1", NodeUUID: sid(900)}},
		moment); err == nil {
		t.Error("the host that cannot is chosen again")
	}
	testproc.Try(s.Step(ctx, first.UUID, cellwire.MigrationStep{Destination: to}, moment)).Or(t)
	is("building spawning h2")
	testproc.Same(t, gocmp.Diff([]string{"01: present"}, wants(t, s, "h2", 0)))
	fails("h2")
	is("building scheduling h2")
	second := due()
	tried := testproc.Try(
		s.Migrations(ctx, cellwire.MigrationQuery{ServerUUID: sid(1), Type: cellwire.MigrationBuild, Limit: 10}),
	).Or(t)
	if len(tried) != 2 || first.UUID == second.UUID {
		t.Errorf("tried are %+v", tried)
	}
	if shown := testproc.Try(s.Migrations(ctx, cellwire.MigrationQuery{Limit: 10})).Or(t); len(shown) > 0 {
		t.Errorf("builds are listed as migrations: %+v", shown)
	}
	testproc.Try(
		s.Step(ctx, second.UUID,
			cellwire.MigrationStep{Failed: &cellwire.Fault{Code: 500, Message: "No valid host", Details: "all full"}},
			moment),
	).Or(t)
	is("error  h2")
	row := testproc.Try(s.Server(ctx, sid(1), moment)).Or(t)
	if row.Fault == nil || row.Fault.Message != "h2 cannot" || row.Fault.Details != "ENOSPC\nNo other host: all full" {
		t.Errorf("the fault is %+v", row.Fault)
	}
	answer := testproc.Try(s.Actions(ctx, sid(1))).Or(t)
	var done []string
	for _, a := range slices.Backward(answer.Actions) {
		done = append(
			done,
			fmt.Sprintf("%d %s of %s on %s: %t %s", a.Number, a.Name, a.RequestID, a.Host, a.Failed,
				strings.ReplaceAll(a.Details, "\n", ", ")),
		)
	}
	testproc.Same(t, gocmp.Diff([]string{
		"1 create of req-1 on h1: true h1 cannot, ENOSPC", "2 create of req-1 on h2: true h2 cannot, ENOSPC",
	}, done))
}

// TestBuildsElsewhereEnd: after the last attempt the server is in error, and one that is deleted
// meanwhile is built nowhere.
func TestBuildsElsewhereEnd(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := fresh(t)
	hosts(t, s, "h1", "h2")
	for n, retries := range []int{0, 1} {
		server := building(n)
		server.Retries = retries
		release(t, s, server)
		reported(t, s, "h1",
			cellwire.Report{UUID: server.UUID, Kind: cellwire.ReportFailed, Fault: &cellwire.Fault{Message: "no"}})
		row := testproc.Try(s.Server(ctx, server.UUID, moment)).Or(t)
		if (row.VMState == cellwire.VMError) != (retries == 0) {
			t.Errorf("with %d retries the server is %s", retries, row.VMState)
		}
	}
	testproc.Try(s.Delete(ctx, sid(1), cellwire.DeleteSoft, moment)).Or(t)
	m := testproc.Try(s.MigrationsDue(ctx)).Or(t)[0]
	to := &cellwire.MigrationDestination{Host: "h2", Node: "n2", NodeUUID: sid(901)}
	if _, err := s.Step(ctx, m.UUID, cellwire.MigrationStep{Destination: to}, moment); err == nil {
		t.Error("a server that is being deleted is built")
	}
	reported(t, s, "h1", cellwire.Report{UUID: sid(1), Kind: cellwire.ReportGone})
	m = testproc.Try(s.MigrationsDue(ctx)).Or(t)[0]
	testproc.Try(s.Step(ctx, m.UUID, cellwire.MigrationStep{GivenBack: true}, moment)).Or(t)
	if left := testproc.Try(s.MigrationsDue(ctx)).Or(t); len(left) > 0 {
		t.Errorf("due are %+v", left)
	}
	bad := building(9)
	bad.Retries = -1
	if _, err := s.Insert(ctx, bad, moment); err == nil {
		t.Error("a negative number of retries is taken")
	}
}
