// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestMigrations: what both hosts are asked at each stage, in all and as changes, and who is woken.
func TestMigrations(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, migrations)
}

func migrations(t *testing.T, s *celldb.DB) {
	t.Helper()
	hosts(t, s, "h1", "h2", "h3")
	active(t, s, building(1))
	m := cellwire.Migration{UUID: sid(501)}
	to := &cellwire.MigrationDestination{Host: "h2", Node: "n2", NodeUUID: sid(901), Zone: "z2"}
	step := func(step cellwire.MigrationStep) func() error {
		return func() error {
			for range 2 { // repeating it changes nothing
				if _, err := s.Step(ctx, m.UUID, step, moment); err != nil {
					return err
				}
			}
			return nil
		}
	}
	says := func(host string, report cellwire.Report) func() error {
		return func() error {
			report.UUID, report.Migration, report.Revision = sid(1), m.UUID, 1<<40
			reported(t, s, host, report)
			return nil
		}
	}
	running, off := plugins.PowerRunning, plugins.PowerShutdown
	for _, stage := range []struct {
		name   string
		do     func() error
		h1, h2 string // wants
		server string
		open   int
	}{
		{"begin", func() error {
			_, err := s.Migrate(ctx, sid(1),
				cellwire.MigrateRequest{UUID: m.UUID, Type: cellwire.MigrationCold, Host: "h2"}, moment)
			return err
		}, "present", "", "active resize_prep h1", 1},
		{"destination", step(cellwire.MigrationStep{Destination: to}), "departing (pre-migrating)", "",
			"active resize_migrating h1", 1},
		{"departed", says("h1", cellwire.Report{Kind: cellwire.ReportDeparted, PowerState: off, Offer: "here"}),
			"departing (post-migrating)", "arriving (post-migrating)", "active resize_finish h2 z2", 1},
		{"departed again", says("h1", cellwire.Report{Kind: cellwire.ReportDeparted, PowerState: off, Offer: "there"}),
			"departing (post-migrating)", "arriving (post-migrating)", "active resize_finish h2 z2", 1},
		{"arrived", says("h2", cellwire.Report{Kind: cellwire.ReportArrived, PowerState: running}),
			"departing (finished)", "present", "resized  h2 z2", 1},
		{"revert", step(cellwire.MigrationStep{Revert: true}), "departing (reverting)", "leaving (reverting)",
			"resized resize_reverting h2 z2", 1},
		{"left", says("h2", cellwire.Report{Kind: cellwire.ReportLeft}), "departing (reverting)", "",
			"resized resize_reverting h2 z2", 1},
		{"given back", step(cellwire.MigrationStep{GivenBack: true}), "running", "", "resized resize_reverting h1", 1},
		{"settled", says("h1", cellwire.Report{Kind: cellwire.ReportSettled, PowerState: running}),
			"present", "", "active  h1", 0},
	} {
		before := testproc.Try(s.Info(ctx)).Or(t)
		if err := stage.do(); err != nil {
			if stage.name != "revert" || !cellclient.IsConflict(err) { // the second time
				t.Fatalf("%s: %v", stage.name, err)
			}
		}
		for host, want := range map[string]string{"h1": stage.h1, "h2": stage.h2, "h3": ""} {
			var all []string
			if want != "" {
				all = []string{"01: " + want}
			}
			testproc.Samef(t, gocmp.Diff(all, wants(t, s, host, 0)), "%s: %s is asked for", stage.name, host)
			if stage.name == "departed again" {
				all = nil
			}
			if diff := gocmp.Diff(all, wants(t, s, host, before.Revision)); diff != "" {
				t.Errorf("%s: %s is asked for what is new (-want +got) %s", stage.name, host, diff)
			}
		}
		if woken, _, err := s.Changes(ctx, before.Revision); err != nil || stage.name != "departed again" &&
			stage.name != "begin" && stage.open > 0 &&
			(!slices.Contains(woken, "h1") || !slices.Contains(woken, "h2")) {
			t.Errorf("%s: woken are %v, %v", stage.name, woken, err)
		}
		row := testproc.Try(s.Server(ctx, sid(1), moment)).Or(t)
		if got := strings.TrimSpace(fmt.Sprintf("%s %s %s %s",
			row.VMState, row.TaskState, row.Host, row.Zone)); got != stage.server {
			t.Errorf("%s: the server is %q, want %q", stage.name, got, stage.server)
		}
		if open, err := s.MigrationsOf(ctx, sid(1)); err != nil || len(open) != stage.open {
			t.Errorf("%s: open are %+v, %v", stage.name, open, err)
		}
		both := map[string][]string{
			"begin": {"h1"}, "destination": {"h1", "h2"}, "given back": {"h1", "h2"}, "settled": {"h1"},
		}
		expected := both[stage.name]
		if expected == nil {
			expected = []string{"h2", "h1"}
		}
		testproc.Samef(t, gocmp.Diff(expected, hostsOf(t, s, 1)), "%s: the hosts are", stage.name)
		for host, on := range map[string]bool{"h1": true, "h2": len(expected) > 1, "h3": false} {
			found := testproc.Try(s.ServerHosts(ctx, cellwire.HostsRequest{On: []string{host}})).Or(t)
			if (len(found) > 0) != on {
				t.Errorf("%s: on %s there is %v", stage.name, host, found)
			}
		}
	}
	if got, want := history(t, s, sid(1))[1:], []string{
		`2 migrate  by  on "h1" at 0 to 0`, `3 revertResize  by  on "h2" at 0 to 0`,
	}; !slices.Equal(got, want) {
		t.Errorf("the history is %q, want %q", got, want)
	}
}

// TestARevertWhoseGuestCannotBeStarted ends, with the server stopped where it was, and the action
// failed.
func TestARevertWhoseGuestCannotBeStarted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := fresh(t)
	hosts(t, s, "h1", "h2")
	active(t, s, building(1))
	step := func(step cellwire.MigrationStep) {
		t.Helper()
		testproc.Try(s.Step(ctx, sid(501), step, moment)).Or(t)
	}
	_, err := s.Migrate(ctx, sid(1), cellwire.MigrateRequest{UUID: sid(501), Type: cellwire.MigrationCold}, moment)
	testproc.Check(t, err)
	step(cellwire.MigrationStep{Destination: &cellwire.MigrationDestination{Host: "h2",
		Node: "n2", NodeUUID: sid(901)}})
	reported(t, s, "h1", cellwire.Report{UUID: sid(1), Migration: sid(501), Kind: cellwire.ReportDeparted,
		PowerState: plugins.PowerShutdown})
	reported(t, s, "h2", cellwire.Report{UUID: sid(1), Migration: sid(501), Kind: cellwire.ReportArrived,
		PowerState: plugins.PowerRunning})
	step(cellwire.MigrationStep{Revert: true})
	reported(t, s, "h2", cellwire.Report{UUID: sid(1), Migration: sid(501), Kind: cellwire.ReportLeft})
	step(cellwire.MigrationStep{GivenBack: true})
	reported(t, s, "h1", cellwire.Report{
		UUID: sid(1), Revision: 1 << 40, Kind: cellwire.ReportSettled, PowerState: plugins.PowerShutdown,
		Fault: &cellwire.Fault{Code: 500, Message: "its disk is gone"},
	})
	row := testproc.Try(s.Server(ctx, sid(1), moment)).Or(t)
	if row.VMState != cellwire.VMStopped || row.TaskState != "" || row.Host != "h1" ||
		row.PowerState != plugins.PowerShutdown || row.Fault == nil {
		t.Errorf("the server is %+v", row)
	}
	all := testproc.Try(s.Migrations(ctx, cellwire.MigrationQuery{Limit: 1})).Or(t)
	if len(all) != 1 || all[0].Status != cellwire.MigrationReverted {
		t.Errorf("the migrations are %+v", all)
	}
	answer := testproc.Try(s.Actions(ctx, sid(1))).Or(t)
	if last := answer.Actions[0]; last.Name != cellwire.ActionRevert || !last.Failed ||
		last.Details != "its disk is gone" {
		t.Errorf("the last action is %+v", last)
	}
}

// TestMigrateIsRepeated: a request that comes again gets the migration as it is, whatever became of
// it since, and does not begin another one. For another server, the uuid is refused.
func TestMigrateIsRepeated(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := fresh(t)
	hosts(t, s, "h1", "h2")
	active(t, s, building(1))
	active(t, s, building(2))
	request := cellwire.MigrateRequest{UUID: sid(501), Type: cellwire.MigrationCold}
	again := func(what string, want cellwire.MigrationStatus) {
		t.Helper()
		got, err := s.Migrate(ctx, sid(1), request, moment)
		if err != nil || got.UUID != sid(501) || got.ServerUUID != sid(1) || got.Status != want {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	again("at first", cellwire.MigrationAccepted)
	again("while it is open", cellwire.MigrationAccepted)
	testproc.Try(s.Step(ctx, sid(501), cellwire.MigrationStep{
		Failed: &cellwire.Fault{Code: 500, Message: "no host is valid"}}, moment)).Or(t)
	again("while its allocations are not given back", cellwire.MigrationError)
	testproc.Try(s.Step(ctx, sid(501), cellwire.MigrationStep{GivenBack: true}, moment)).Or(t)
	again("after its end", cellwire.MigrationError)
	row := testproc.Try(s.Server(ctx, sid(1), moment)).Or(t)
	testproc.Equal(t, row.TaskState, "", "its task is %q")
	all := testproc.Try(s.Migrations(ctx, cellwire.MigrationQuery{Limit: 5})).Or(t)
	testproc.Equal(t, len(all), 1, "there are %d migrations")
	testproc.Try(s.Migrate(ctx, sid(2), request, moment)).ErrorHas(t, "is one of server "+sid(1), "another server: %v")
}

// TestAnEvacuationThatFails says in its fault, and in the action, how the guest is started again
// that its host has shut down meanwhile; and a hard reboot does that.
func TestAnEvacuationThatFails(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := fresh(t)
	hosts(t, s, "h1", "h2")
	active(t, s, building(1))
	later := celldb.Moment{Now: moment.Now.Add(time.Hour), DownTime: time.Minute}
	_, err := s.Migrate(ctx, sid(1), cellwire.MigrateRequest{UUID: sid(501), Type: cellwire.MigrationEvacuation}, later)
	testproc.Check(t, err)
	_, err = s.Step(ctx, sid(501),
		cellwire.MigrationStep{Destination: &cellwire.MigrationDestination{Host: "h2", Node: "n2", NodeUUID: sid(901)}},
		later)
	testproc.Check(t, err)
	if diff := gocmp.Diff([]string{"01: departing (pre-migrating)"}, wants(t, s, "h1", 0)); diff != "" {
		t.Errorf("its host, back in the middle, is asked for (-want +got) %s", diff)
	}
	services := testproc.Try(s.Services(ctx, later)).Or(t)
	if _, err := s.DeleteService(ctx, services[0].UUID, later); !cellclient.IsInUse(err) {
		t.Errorf("a host to which a server can go back is deleted: %v", err)
	}
	testproc.Same(t, gocmp.Diff([]string{"h2", "h1"}, hostsOf(t, s, 1)))
	reported(t, s, "h2", cellwire.Report{UUID: sid(1), Migration: sid(501), Kind: cellwire.ReportArrived,
		Fault: &cellwire.Fault{Code: 500, Message: "no disk", Details: "ENOSPC"}})
	testproc.Same(t, gocmp.Diff([]string{"h2", "h1"}, hostsOf(t, s, 1)))
	testproc.Try(s.Step(ctx, sid(501), cellwire.MigrationStep{GivenBack: true}, later)).Or(t)
	row := testproc.Try(s.Server(ctx, sid(1), moment)).Or(t)
	const details = "Host h1 keeps its guest, shut down if it came back meanwhile: a hard reboot starts it.\nENOSPC"
	if row.VMState != cellwire.VMError || row.Host != "h1" || row.Fault == nil || row.Fault.Message != "no disk" ||
		row.Fault.Details != details {
		t.Errorf("the server is %+v, with the fault %+v", row, row.Fault)
	}
	answer := testproc.Try(s.Actions(ctx, sid(1))).Or(t)
	if last := answer.Actions[0]; last.Name != cellwire.ActionEvacuate || !last.Failed ||
		last.Details != "no disk\n"+details {
		t.Errorf("the last action is %+v", last)
	}
	if diff := gocmp.Diff([]string{"01: idle"}, wants(t, s, "h1", 0)); diff != "" {
		t.Errorf("its host, which has its guest, is asked for (-want +got) %s", diff)
	}
	testproc.Try(s.Power(ctx, sid(1), cellwire.PowerRebootHard, moment)).Or(t)
	for _, want := range []string{"shutdown", "running"} {
		if diff := gocmp.Diff([]string{"01: " + want}, wants(t, s, "h1", 0)); diff != "" {
			t.Errorf("for a hard reboot its host is asked for (-want +got) %s", diff)
		}
		reported(t, s, "h1", cellwire.Report{UUID: sid(1),
			Revision: 1 << 40, Kind: cellwire.ReportSettled, PowerState: plugins.PowerShutdown})
	}
}

// TestIdleServersAreListed: a host learns of the servers that live there and about which nothing is
// to be done, unless nothing was made of them. So it does not take their guests for unknown.
func TestIdleServersAreListed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := fresh(t)
	hosts(t, s, "h1", "h2")
	active(t, s, building(1))
	release(t, s, building(2))
	reported(t, s, "h1", cellwire.Report{UUID: sid(2),
		Kind: cellwire.ReportFailed, Fault: &cellwire.Fault{Code: 500, Message: "no disk"}})
	later := celldb.Moment{Now: moment.Now.Add(time.Hour), DownTime: time.Minute}
	for _, c := range []struct {
		name string
		do   func() error
		want string
	}{
		{"in error, as an administrator says", func() error {
			_, err := s.Reset(ctx, sid(1), cellwire.ResetRequest{VMState: cellwire.VMError}, moment)
			return err
		}, "01: idle"},
		{"active again", func() error {
			_, err := s.Reset(ctx, sid(1), cellwire.ResetRequest{VMState: cellwire.VMActive}, moment)
			return err
		}, "01: present"},
		{"about to be evacuated", func() error {
			_, err := s.Migrate(ctx, sid(1),
				cellwire.MigrateRequest{UUID: sid(501), Type: cellwire.MigrationEvacuation}, later)
			return err
		}, "01: idle"},
	} {
		before := testproc.Try(s.Info(ctx)).Or(t).Revision
		if err := c.do(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for _, after := range []int64{0, before} {
			testproc.Samef(t, gocmp.Diff([]string{c.want}, wants(t, s, "h1", after)),
				"%s: its host is asked for", c.name)
		}
	}
}

// TestFormerHostsGetNoData: the host that a server has left is asked to remove its guest, and gets
// nothing of what was set since. The server's own host gets all.
func TestFormerHostsGetNoData(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	later := celldb.Moment{Now: moment.Now.Add(time.Hour), DownTime: time.Minute}
	for kind, at := range map[cellwire.MigrationType]celldb.Moment{cellwire.MigrationCold: moment,
		cellwire.MigrationEvacuation: later} {
		t.Run(string(kind), func(t *testing.T) {
			s := fresh(t)
			hosts(t, s, "h1", "h2")
			_, _, err := s.Report(ctx, serverstate.Reporter{Host: "h2"},
				cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{
					{UUID: sid(901), Name: "n2", Abilities: []string{plugins.AbilityMigrate, plugins.AbilityRebuild}},
				}}, moment)
			testproc.Check(t, err)
			active(t, s, building(1))
			testproc.Try(s.Migrate(ctx, sid(1), cellwire.MigrateRequest{UUID: sid(501), Type: kind}, at)).Or(t)
			_, err = s.Step(ctx, sid(501),
				cellwire.MigrationStep{Destination: &cellwire.MigrationDestination{Host: "h2",
					Node: "n2", NodeUUID: sid(901)}}, at)
			testproc.Check(t, err)
			if kind == cellwire.MigrationCold {
				reported(t, s, "h1", cellwire.Report{UUID: sid(1), Migration: sid(501), Kind: cellwire.ReportDeparted,
					PowerState: plugins.PowerShutdown})
			}
			gets := func(host string, want cellwire.Want) cellwire.Server {
				t.Helper()
				info := testproc.Try(s.Info(ctx)).Or(t)
				work, _, err := s.Work(ctx, host, 0, info.Epoch, at)
				testproc.Check(t, err)
				if len(work.Items) != 1 || work.Items[0].Want != want ||
					work.Items[0].Migration == nil && host == "h1" {
					t.Fatalf("host %s gets %+v, not one item that wants %q", host, work.Items, want)
				}
				return work.Items[0].Server
			}
			shown := func(want cellwire.Want) {
				t.Helper()
				all := testproc.Try(s.Server(ctx, sid(1), at)).Or(t)
				got := gets("h1", want)
				expected := cellwire.Server{
					UUID: all.UUID, Name: all.Name, CreatedAt: all.CreatedAt, Revision: all.Revision,
					Host: "h2", Node: "n2", NodeUUID: sid(901), VMState: all.VMState,
				}
				testproc.Samef(t, gocmp.Diff(expected, got), "the former host gets")
			}
			shown(cellwire.WantDeparting)
			reported(t, s, "h2", cellwire.Report{UUID: sid(1), Migration: sid(501), Kind: cellwire.ReportArrived,
				PowerState: plugins.PowerRunning})
			if kind == cellwire.MigrationCold {
				_, err = s.Step(ctx, sid(501), cellwire.MigrationStep{Confirm: true}, at)
				testproc.Check(t, err)
				shown(cellwire.WantLeft)
				return
			}
			testproc.Try(s.Rebuild(ctx, sid(1), cellwire.RebuildRequest{
				UserData: new("bmV3IHNlY3JldA=="),
				Key:      &cellwire.ServerKey{Name: "new", Data: "ssh-ed25519 A"}, ImageRef: "image2",
				Patch: cellwire.ServerPatch{
					Metadata: &cellwire.MetadataPatch{Set: map[string]string{"password": "secret"}},
				},
			}, moment)).Or(t)
			shown(cellwire.WantLeft)
			if got := gets("h2", cellwire.WantCleared); got.UserData == "" || got.KeyData == "" ||
				got.Metadata["password"] == "" {
				t.Errorf("the server's host gets %+v", got)
			}
		})
	}
}

// TestMigrationsAreSentInParts: what a host has to do comes by revision, its own servers and those
// of others, as much at once as fits into an answer.
func TestMigrationsAreSentInParts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, migrationsAreSentInParts)
}

func migrationsAreSentInParts(t *testing.T, s *celldb.DB) {
	t.Helper()
	hosts(t, s, "h1", "h2")
	const count = 12
	want := make([]string, 0, count)
	for n := range count {
		server := building(n)
		server.UserData = strings.Repeat("A", celldb.MaxAnswer/5)
		active(t, s, server)
	}
	for n := range count {
		text := "present"
		if n%2 == 0 { // it departs, and stays on its host; every other one arrives elsewhere
			_, err := s.Migrate(ctx, sid(n), cellwire.MigrateRequest{UUID: sid(500 + n), Type: cellwire.MigrationCold},
				moment)
			testproc.Check(t, err)
			to := &cellwire.MigrationDestination{Host: "h2", Node: "n2", NodeUUID: sid(901)}
			testproc.Try(s.Step(ctx, sid(500+n), cellwire.MigrationStep{Destination: to}, moment)).Or(t)
			text = "departing (pre-migrating)"
			if n%4 == 0 {
				reported(t, s,
					"h1", cellwire.Report{UUID: sid(n), Migration: sid(500 + n), Kind: cellwire.ReportDeparted})
				text = "departing (post-migrating)"
			}
		} else {
			testproc.Try(s.Patch(ctx, sid(n), cellwire.ServerPatch{Name: new("new")}, moment)).Or(t)
		}
		want = append(want, fmt.Sprintf("%02x: %s", n, text))
	}
	testproc.Samef(t, gocmp.Diff(want, wants(t, s, "h1", 0)), "the source is asked for")
	if diff := gocmp.Diff([]string{"00: arriving (post-migrating)", "04: arriving (post-migrating)",
		"08: arriving (post-migrating)"}, wants(t, s, "h2", 0)); diff != "" {
		t.Errorf("the destination is asked for (-want +got) %s", diff)
	}
}

// TestMigrationsKeepHosts: a host that takes part in a migration is not forgotten, nor does a
// server come back to a host that it has not left; but one may be forgotten that servers were
// evacuated from.
func TestMigrationsKeepHosts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := fresh(t)
	hosts(t, s, "h1", "h2")
	active(t, s, building(1))
	later := celldb.Moment{Now: moment.Now.Add(time.Hour), DownTime: time.Minute}
	_, err := s.Migrate(ctx, sid(1), cellwire.MigrateRequest{UUID: sid(501), Type: cellwire.MigrationEvacuation}, later)
	testproc.Check(t, err)
	// A server that is rebuilt where it is has the same task, and its host clears it.
	if diff := gocmp.Diff([]string{"01: idle"}, wants(t, s, "h1", 0)); diff != "" {
		t.Errorf("its host, back before a destination is chosen, is asked for (-want +got) %s", diff)
	}
	to := func(n int) cellwire.MigrationStep {
		return cellwire.MigrationStep{Destination: &cellwire.MigrationDestination{Host: fmt.Sprint("h", n),
			Node: fmt.Sprint("n", n), NodeUUID: sid(899 + n)}}
	}
	testproc.Try(s.Step(ctx, sid(501), to(2), later)).Or(t)
	reported(t, s, "h2", cellwire.Report{UUID: sid(1), Migration: sid(501), Kind: cellwire.ReportArrived,
		PowerState: plugins.PowerRunning})
	testproc.Same(t, gocmp.Diff([]string{"h2"}, hostsOf(t, s, 1)))
	services := testproc.Try(s.Services(ctx, moment)).Or(t)
	hosts(t, s, "h1", "h2")
	_, err = s.Migrate(ctx, sid(1), cellwire.MigrateRequest{UUID: sid(502), Type: cellwire.MigrationCold}, moment)
	testproc.Check(t, err)
	if _, err := s.Step(ctx, sid(502), to(1), moment); !cellclient.IsConflict(err) {
		t.Errorf("to the host that it has not left: %v", err)
	}
	hosts(t, s, "h1", "h2", "h3")
	testproc.Try(s.Step(ctx, sid(502), to(3), moment)).Or(t)
	reported(t, s, "h2", cellwire.Report{UUID: sid(1), Migration: sid(502), Kind: cellwire.ReportDeparted,
		PowerState: plugins.PowerShutdown})
	if _, err := s.DeleteService(ctx, services[1].UUID, later); !cellclient.IsInUse(err) {
		t.Errorf("the source of a migration is forgotten: %v", err)
	}
	if _, err := s.DeleteService(ctx, services[0].UUID, later); err != nil {
		t.Errorf("the source of an evacuation: %v", err)
	}
	testproc.Same(t, gocmp.Diff([]string{"01: departing (post-migrating)"}, wants(t, s, "h2", 0)))
	hosts(t, s, "h1")
	testproc.Same(t, gocmp.Diff([]string{"01: left (done)"}, wants(t, s, "h1", 0)))
}

// TestMigrationReportsOfOthers are refused, and those of a server's host about a migration that is
// over are taken and change nothing.
func TestMigrationReportsOfOthers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := fresh(t)
	hosts(t, s, "h1", "h2", "h3")
	active(t, s, building(1))
	_, err := s.Migrate(ctx, sid(1), cellwire.MigrateRequest{UUID: sid(501), Type: cellwire.MigrationCold}, moment)
	testproc.Check(t, err)
	_, err = s.Step(ctx, sid(501),
		cellwire.MigrationStep{Destination: &cellwire.MigrationDestination{Host: "h2", Node: "n2", NodeUUID: sid(901)}},
		moment)
	testproc.Check(t, err)
	before := testproc.Try(s.Info(ctx)).Or(t)
	for _, tt := range []struct {
		host   string
		report cellwire.Report
		says   string
	}{
		{"h3", cellwire.Report{Kind: cellwire.ReportDeparted, Migration: sid(501)}, "no server"},
		{"h3", cellwire.Report{Kind: cellwire.ReportLeft, Migration: sid(777)}, "no server"},
		{"h2", cellwire.Report{Kind: cellwire.ReportArrived, Migration: sid(501)}, "has nothing to do"},
		{"h1", cellwire.Report{Kind: cellwire.ReportArrived, Migration: sid(501)}, `"departing" is wanted`},
		{"h1", cellwire.Report{Kind: cellwire.ReportDeparted, Migration: sid(501), PowerState: 99}, "no power state"},
		{"h1", cellwire.Report{Kind: cellwire.ReportDeparted, Migration: sid(501),
			Offer: strings.Repeat("x", cellwire.MaxOffer+1)}, "bytes"},
		{"h1", cellwire.Report{Kind: cellwire.ReportDeparted, Migration: sid(501), Offer: "\x00"}, "character 0"},
		{"h2", cellwire.Report{Kind: cellwire.ReportSettled}, "no server"},
		{"h1", cellwire.Report{Kind: cellwire.ReportLeft, Migration: sid(777)}, ""},
	} {
		tt.report.UUID = sid(1)
		applied, err := s.Apply(ctx, tt.host, []cellwire.Report{tt.report}, moment)
		testproc.Check(t, err)
		refused := applied.Refused
		if (refused[0] == "") != (tt.says == "") || !strings.Contains(refused[0], tt.says) {
			t.Errorf("%s of %s: %q, want %q", tt.report.Kind, tt.host, refused[0], tt.says)
		}
	}
	if after, err := s.Info(ctx); err != nil || after != before {
		t.Errorf("it is %+v after %+v, %v", after, before, err)
	}
}

// TestMigrationQueries: conditions, order and pages, also of migrations that began at once.
func TestMigrationQueries(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, migrationQueries)
}

func migrationQueries(t *testing.T, s *celldb.DB) {
	t.Helper()
	hosts(t, s, "h1", "h2")
	later := func(seconds int) celldb.Moment {
		return celldb.Moment{Now: start.Add(time.Duration(seconds) * time.Second), DownTime: time.Hour}
	}
	const count = 6
	for n := range count {
		active(t, s, building(n))
		by := cellwire.WithOrigin(ctx, cellwire.Origin{UserID: "u", ProjectID: fmt.Sprint("p", n%2)})
		_, err := s.Migrate(by, sid(n), cellwire.MigrateRequest{UUID: sid(500 + n), Type: cellwire.MigrationCold},
			later(n/2))
		testproc.Check(t, err)
	}
	_, err := s.Step(ctx, sid(501), cellwire.MigrationStep{Failed: &cellwire.Fault{Message: "no host"}}, later(10))
	testproc.Check(t, err)
	_, err = s.Step(ctx, sid(502),
		cellwire.MigrationStep{Destination: &cellwire.MigrationDestination{Host: "h2", Node: "n2", NodeUUID: sid(901)}},
		later(11))
	testproc.Check(t, err)
	at := func(seconds int) *time.Time { return new(later(seconds).Now) }
	ask := func(q cellwire.MigrationQuery) (got []int) {
		t.Helper()
		if q.Limit == 0 {
			q.Limit = 10
		}
		list := testproc.Try(s.Migrations(ctx, q)).Or(t)
		for _, m := range list {
			n := 0
			testproc.Try(fmt.Sscanf(m.UUID[24:], "%x", &n)).Or(t)
			got = append(got, n-500)
		}
		return got
	}
	for name, tt := range map[string]struct {
		q    cellwire.MigrationQuery
		want []int
	}{
		"all":           {cellwire.MigrationQuery{}, []int{5, 4, 3, 2, 1, 0}},
		"one":           {cellwire.MigrationQuery{UUID: sid(503)}, []int{3}},
		"of a server":   {cellwire.MigrationQuery{ServerUUID: sid(4)}, []int{4}},
		"of a project":  {cellwire.MigrationQuery{ProjectID: "p1"}, []int{5, 3, 1}},
		"of a host":     {cellwire.MigrationQuery{Host: "h2"}, []int{2}},
		"from a host":   {cellwire.MigrationQuery{SourceHost: "h2"}, nil},
		"by status":     {cellwire.MigrationQuery{Status: cellwire.MigrationError}, []int{1}},
		"by type":       {cellwire.MigrationQuery{Type: cellwire.MigrationEvacuation}, nil},
		"changed since": {cellwire.MigrationQuery{ChangedSince: at(2)}, []int{5, 4, 2, 1}},
		"until":         {cellwire.MigrationQuery{ChangedBefore: at(1)}, []int{3, 0}},
		"not a text":    {cellwire.MigrationQuery{Host: "h2\x00"}, nil},
		"nor here":      {cellwire.MigrationQuery{UUID: "\xff"}, nil},
	} {
		testproc.EqualList(t, ask(tt.q), tt.want, "%s: %v", name)
	}
	var got []int
	q := cellwire.MigrationQuery{Limit: 1}
	for range count + 1 {
		list := testproc.Try(s.Migrations(ctx, q)).Or(t)
		if got = append(got, ask(q)...); len(list) > 0 {
			q.After = &list[0]
		}
	}
	testproc.EqualList(t, got, []int{5, 4, 3, 2, 1, 0}, "page by page: %v")
	for _, limit := range []int{-1, 0, cellwire.MaxLimit + 1} {
		if _, err := s.Migrations(ctx, cellwire.MigrationQuery{Limit: limit}); err == nil {
			t.Errorf("the limit %d is taken", limit)
		}
	}
}
