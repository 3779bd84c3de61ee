// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"os"
	"regexp"
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

// exits is a cell with a server on h1, and hosts that die: h1 is the old one of a move, h2 the new
// one, and h3 a third.
type exits struct {
	t      *testing.T
	s      *celldb.DB
	now    celldb.Moment
	dead   map[string]bool
	moving string // the uuid of the last migration
	count  int
}

func (e *exits) check(err error) {
	e.t.Helper()
	testproc.Check(e.t, err)
}

// beat has the hosts that live report.
func (e *exits) beat() {
	e.t.Helper()
	for i, name := range []string{"h1", "h2", "h3"} {
		if e.dead[name] {
			continue
		}
		node := cellwire.ReportedNode{
			UUID:      sid(900 + i),
			Name:      "n" + name[1:],
			Abilities: []string{plugins.AbilityMigrate, plugins.AbilityRebuild},
		}
		_, _, err := e.s.Report(ctx, serverstate.Reporter{Host: name},
			cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{node}}, e.now)
		e.check(err)
	}
}

// dies has a host never report again.
func (e *exits) dies(host string) {
	e.t.Helper()
	e.dead[host] = true
	e.now.Now = e.now.Now.Add(time.Hour)
	e.beat()
}

func (e *exits) says(host string, report cellwire.Report) {
	e.t.Helper()
	report.UUID, report.Revision = sid(1), 1<<40
	if slices.Contains(
		[]cellwire.ReportKind{cellwire.ReportArrived, cellwire.ReportDeparted, cellwire.ReportLeft}, report.Kind,
	) {
		report.Migration = e.moving
	}
	reported(e.t, e.s, host, report)
}

func (e *exits) settled(host string) {
	e.t.Helper()
	e.says(host, cellwire.Report{Kind: cellwire.ReportSettled, PowerState: plugins.PowerRunning})
}

func (e *exits) power(action cellwire.PowerAction) {
	e.t.Helper()
	testproc.Try(e.s.Power(ctx, sid(1), action, e.now)).Or(e.t)
}

func (e *exits) delete(kind cellwire.DeleteKind) {
	e.t.Helper()
	testproc.Try(e.s.Delete(ctx, sid(1), kind, e.now)).Or(e.t)
}

func (e *exits) restore() {
	e.t.Helper()
	testproc.Try(e.s.Restore(ctx, sid(1), e.now)).Or(e.t)
}

func (e *exits) rebuild() {
	e.t.Helper()
	testproc.Try(e.s.Rebuild(ctx, sid(1), cellwire.RebuildRequest{ImageRef: "other"}, e.now)).Or(e.t)
}

func (e *exits) reset(state string) {
	e.t.Helper()
	testproc.Try(e.s.Reset(ctx, sid(1), cellwire.ResetRequest{VMState: state}, e.now)).Or(e.t)
}

func (e *exits) migrate(kind cellwire.MigrationType) {
	e.t.Helper()
	e.count++
	e.moving = sid(500 + e.count)
	_, err := e.s.Migrate(ctx, sid(1), cellwire.MigrateRequest{UUID: e.moving, Type: kind}, e.now)
	e.check(err)
}

func (e *exits) step(step cellwire.MigrationStep) {
	e.t.Helper()
	testproc.Try(e.s.Step(ctx, e.moving, step, e.now)).Or(e.t)
}

func (e *exits) to(host string) {
	e.t.Helper()
	n := int(host[1] - '0')
	e.step(
		cellwire.MigrationStep{
			Destination: &cellwire.MigrationDestination{Host: host, Node: "n" + host[1:], NodeUUID: sid(899 + n)},
		},
	)
}

// abort ends a migration, for what is refused while the host is up, and gives the allocations back
// if the cell asks for that.
func (e *exits) abort() {
	e.t.Helper()
	for range 2 { // repeating it changes nothing
		e.step(cellwire.MigrationStep{Abort: sid(700 + e.count)})
	}
	e.giveBack()
}

func (e *exits) giveBack() {
	e.t.Helper()
	for _, m := range testproc.Try(e.s.MigrationsOf(ctx, sid(1))).Or(e.t) {
		if m.GiveBack {
			e.step(cellwire.MigrationStep{GivenBack: true, Fenced: m.DestNode == ""})
		}
	}
}

func (e *exits) arrives(host string, fault *cellwire.Fault) {
	e.t.Helper()
	e.says(host, cellwire.Report{Kind: cellwire.ReportArrived, PowerState: plugins.PowerRunning, Fault: fault})
}

// evacuate has the server made on h3.
func (e *exits) evacuate() {
	e.t.Helper()
	e.migrate(cellwire.MigrationEvacuation)
	e.to("h3")
	e.arrives("h3", nil)
}

// moves migrates the server from h1 to h2, as far as a status.
func (e *exits) moves(until cellwire.MigrationStatus) {
	e.t.Helper()
	e.migrate(cellwire.MigrationCold)
	for _, stage := range []struct {
		status cellwire.MigrationStatus
		do     func()
	}{
		{cellwire.MigrationPre, func() { e.to("h2") }},
		{cellwire.MigrationPost, func() {
			e.says("h1", cellwire.Report{Kind: cellwire.ReportDeparted, PowerState: plugins.PowerShutdown})
		}},
		{cellwire.MigrationFinished, func() { e.arrives("h2", nil) }},
	} {
		if until == cellwire.MigrationAccepted {
			return
		}
		stage.do()
		if stage.status == until {
			return
		}
	}
}

// exitRows are what waits for a host that never comes back, or for Placement: the words are those
// of the table in docs/cells.md.
var exitRows = []struct {
	task, down, exit string
	before           func(e *exits)
	host             string // that dies
	is               string // vm_state, task_state and host then
	do               func(e *exits)
	becomes          string
	left             bool // the host, back, is asked to remove what it has
}{
	{"`spawning`", "its host", "`os-resetState` to `error`, or `DELETE`", nil, "h1",
		"building spawning h1", func(e *exits) { e.reset(cellwire.VMError) }, "error  h1", false},
	{"`deleting`", "its host", "`DELETE` once more", func(e *exits) { e.delete(cellwire.DeleteNormal) }, "h1",
		"active deleting h1",
		func(e *exits) { e.delete(cellwire.DeleteNormal) }, "deleted  h1", false},
	{"`soft-deleting`", "its host", "`DELETE` once more", func(e *exits) { e.delete(cellwire.DeleteSoft) },
		"h1", "active soft-deleting h1",
		func(e *exits) { e.delete(cellwire.DeleteSoft) }, "soft-delete  h1", false},
	{"`restoring`", "its host", "`os-resetState` to `active`, and `evacuate`", func(e *exits) {
		e.delete(cellwire.DeleteSoft)
		e.settled("h1")
		e.restore()
	}, "h1", "soft-delete restoring h1", func(e *exits) { e.reset(cellwire.VMActive); e.evacuate() },
		"active  h3", true},
	{"`powering-off`", "its host", "`evacuate`", func(e *exits) { e.power(cellwire.PowerStop) }, "h1",
		"active powering-off h1", (*exits).evacuate, "active  h3", true},
	{"`powering-on`", "its host", "`evacuate`", func(e *exits) {
		e.power(cellwire.PowerStop)
		e.says("h1", cellwire.Report{Kind: cellwire.ReportSettled, PowerState: plugins.PowerShutdown})
		e.power(cellwire.PowerStart)
	}, "h1", "stopped powering-on h1", (*exits).evacuate, "active  h3", true},
	{"`rebooting`", "its host", "`evacuate`", func(e *exits) { e.power(cellwire.PowerReboot) }, "h1",
		"active rebooting h1", (*exits).evacuate, "active  h3", true},
	{"`rebooting_hard`", "its host", "`evacuate`", func(e *exits) { e.power(cellwire.PowerRebootHard) }, "h1",
		"active rebooting_hard h1", (*exits).evacuate, "active  h3", true},
	{"`reboot_started`", "its host", "`evacuate`", func(e *exits) { e.power(cellwire.PowerReboot); e.settled("h1") },
		"h1", "active reboot_started h1",
		(*exits).evacuate, "active  h3", true},
	{"`reboot_started_hard`", "its host", "`evacuate`",
		func(e *exits) { e.power(cellwire.PowerRebootHard); e.settled("h1") }, "h1", "active reboot_started_hard h1",
		(*exits).evacuate, "active  h3", true},
	{"`rebuilding`", "its host", "`evacuate`", (*exits).rebuild, "h1",
		"active rebuilding h1", (*exits).evacuate, "active  h3", true},
	{"`rebuild_spawning`", "its host", "`evacuate`", func(e *exits) { e.rebuild(); e.settled("h1") }, "h1",
		"active rebuild_spawning h1", (*exits).evacuate, "active  h3", true},
	{"`rebuilding` (evacuation)", "the new host", "abort it, and `evacuate` once more", func(e *exits) {
		e.dies("h1")
		e.migrate(cellwire.MigrationEvacuation)
		e.to("h2")
	}, "h2", "active rebuilding h2", func(e *exits) { e.abort(); e.evacuate() }, "active  h3", true},
	{"`rebuilding` (evacuation)", "Placement",
		"ends by itself if that answers others, or abort it: the server is what it was", func(e *exits) {
			e.dies("h1")
			e.migrate(cellwire.MigrationEvacuation)
		}, "", "active rebuilding h1", (*exits).abort, "active  h1", false},
	{"`resize_prep`", "Placement", "ends by itself if that answers others, or abort it: the server is what it was",
		func(e *exits) { e.moves(cellwire.MigrationAccepted) }, "",
		"active resize_prep h1", (*exits).abort, "active  h1", false},
	{"`resize_prep`", "the old host", "ends by itself when no host is chosen, or becomes `resize_migrating`",
		func(e *exits) { e.moves(cellwire.MigrationAccepted) },
		"h1", "active resize_prep h1",
		func(e *exits) { e.step(cellwire.MigrationStep{Failed: &cellwire.Fault{Message: "none"}}); e.evacuate() },
		"active  h3", true},
	{"`resize_migrating`", "the old host", "abort it, and `evacuate`",
		func(e *exits) { e.moves(cellwire.MigrationPre) }, "h1", "active resize_migrating h1",
		func(e *exits) { e.abort(); e.evacuate() }, "active  h3", true},
	{"`resize_migrating`", "the new host", "becomes `resize_finish`", func(e *exits) { e.moves(cellwire.MigrationPre) },
		"h2", "active resize_migrating h1",
		func(e *exits) {
			e.says("h1", cellwire.Report{Kind: cellwire.ReportDeparted, PowerState: plugins.PowerShutdown})
			e.abort()
			e.settled("h1")
		}, "active  h1", true},
	{"`resize_finish`", "the new host", "abort it: the server goes back",
		func(e *exits) { e.moves(cellwire.MigrationPost) }, "h2", "active resize_finish h2",
		func(e *exits) { e.abort(); e.settled("h1") }, "active  h1", true},
	{"`resize_finish`", "the old host", "ends by itself: the server goes back, and `evacuate`",
		func(e *exits) { e.moves(cellwire.MigrationPost) }, "h1", "active resize_finish h2",
		func(e *exits) { e.arrives("h2", &cellwire.Fault{Message: "no disk"}); e.giveBack(); e.evacuate() },
		"active  h3", true},
	{"none (`VERIFY_RESIZE`)", "the new host", "`revertResize`, and abort that: the server goes back",
		func(e *exits) { e.moves(cellwire.MigrationFinished) }, "h2", "resized  h2",
		func(e *exits) { e.step(cellwire.MigrationStep{Revert: true}); e.abort(); e.settled("h1") },
		"active  h1", true},
	{"none (`VERIFY_RESIZE`)", "the old host", "`confirmResize`, and abort that: the server stays",
		func(e *exits) { e.moves(cellwire.MigrationFinished) }, "h1", "resized  h2",
		func(e *exits) { e.step(cellwire.MigrationStep{Confirm: true}); e.abort() }, "active  h2", true},
	{"`resize_reverting`", "the new host", "abort it: the server goes back", func(e *exits) {
		e.moves(cellwire.MigrationFinished)
		e.step(cellwire.MigrationStep{Revert: true})
	}, "h2", "resized resize_reverting h2", func(e *exits) { e.abort(); e.settled("h1") }, "active  h1", true},
	{"`resize_reverting`", "the old host, which has not said yet that its guest is there",
		"abort it: the server stays in `VERIFY_RESIZE`", func(e *exits) {
			e.moves(cellwire.MigrationFinished)
			e.says("h1", cellwire.Report{Kind: cellwire.ReportDeparted, PowerState: plugins.PowerShutdown})
			e.step(cellwire.MigrationStep{Revert: true})
		}, "h1", "resized resize_reverting h2",
		func(e *exits) { e.step(cellwire.MigrationStep{Abort: sid(700)}) }, "resized  h2", false},
	{"`resize_reverting`", "the old host", "`evacuate`, as soon as it is there again", func(e *exits) {
		e.moves(cellwire.MigrationFinished)
		e.step(cellwire.MigrationStep{Revert: true})
		e.says("h2", cellwire.Report{Kind: cellwire.ReportLeft})
		e.giveBack()
	}, "h1", "resized resize_reverting h1", (*exits).evacuate, "active  h3", true},
}

// TestEveryTaskHasAWayOut: a server that waits for what never comes back is brought out of that,
// whatever it was to do there, and the host removes what it has if it comes back after all.
func TestEveryTaskHasAWayOut(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, row := range exitRows {
		t.Run(row.task+", "+row.down, func(t *testing.T) {
			e := &exits{t: t, s: fresh(t), now: moment, dead: map[string]bool{}}
			e.beat()
			if row.before == nil {
				release(t, e.s, building(1))
			} else {
				active(t, e.s, building(1))
				row.before(e)
			}
			if row.host != "" {
				e.dies(row.host)
			}
			is := func() string {
				s := testproc.Try(e.s.Server(ctx, sid(1), e.now)).Or(t)
				return s.VMState + " " + s.TaskState + " " + s.Host
			}
			if got := is(); got != row.is {
				t.Fatalf("the server is %q, not %q", got, row.is)
			}
			row.do(e)
			if got := is(); got != row.becomes {
				t.Errorf("the server is %q, not %q", got, row.becomes)
			}
			if row.left {
				got := wants(t, e.s, row.host, 0)
				if len(got) != 1 || !strings.HasPrefix(got[0], "01: left (") {
					t.Fatalf("the host, back again, is asked for %v", got)
				}
				for _, m := range testproc.Try(e.s.MigrationsOf(ctx, sid(1))).Or(t) {
					if m.SourceHost == row.host {
						e.moving = m.UUID
						e.says(row.host, cellwire.Report{Kind: cellwire.ReportLeft})
					}
				}
				if got := wants(t, e.s, row.host, 0); len(got) > 0 {
					t.Errorf("the host, which has left, is asked for %v", got)
				}
				if got := is(); got != row.becomes {
					t.Errorf("after that the server is %q, not %q", got, row.becomes)
				}
			}
		})
	}
}

// TestAbortIsRefused: while the host that a migration waits for is up, and where it waits for none.
func TestAbortIsRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for status, why := range map[cellwire.MigrationStatus]string{
		cellwire.MigrationPre:      "is pre-migrating, and host h1, which is up, ends it",
		cellwire.MigrationPost:     "is post-migrating, and host h2, which is up, ends it",
		cellwire.MigrationFinished: "is finished, and waits for no host",
	} {
		t.Run(string(status), func(t *testing.T) {
			e := &exits{t: t, s: fresh(t), now: moment, dead: map[string]bool{}}
			e.beat()
			active(t, e.s, building(1))
			e.moves(status)
			if _, err := e.s.Step(
				ctx, e.moving, cellwire.MigrationStep{Abort: sid(700)}, e.now,
			); err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("%v, not %s", err, why)
			}
			if _, err := e.s.Reset(
				ctx, sid(1), cellwire.ResetRequest{VMState: cellwire.VMActive}, e.now,
			); err == nil || !strings.Contains(err.Error(), "is being moved") {
				t.Errorf("it is reset while it moves: %v", err)
			}
		})
	}
}

// TestAbortWithoutDestination: a migration that has no destination ends, and the server is what it
// was, asked for by its host as before; the migration stays open until what it may have claimed is
// given back, and what is asked for meanwhile is not touched by that.
func TestAbortWithoutDestination(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for n, c := range []struct {
		kind   cellwire.MigrationType
		before func(e *exits)
		is     string
		wants  string // of the host, when it is back
	}{
		{cellwire.MigrationCold, func(*exits) {}, "active", "present"},
		{cellwire.MigrationCold, func(e *exits) {
			e.power(cellwire.PowerStop)
			e.says("h1", cellwire.Report{Kind: cellwire.ReportSettled, PowerState: plugins.PowerShutdown})
		}, "stopped", "present"},
		{cellwire.MigrationEvacuation, func(e *exits) { e.dies("h1") }, "active", "present"},
		{cellwire.MigrationEvacuation, func(e *exits) { e.reset(cellwire.VMError); e.dies("h1") }, "error", "idle"},
	} {
		s := fresh(t)
		e := &exits{t: t, s: s, now: moment, dead: map[string]bool{}}
		e.beat()
		active(t, s, building(1))
		c.before(e)
		row := testproc.Try(s.Server(ctx, sid(1), e.now)).Or(t)
		e.migrate(c.kind)
		abort := cellwire.MigrationStep{Abort: sid(700)}
		for range 2 { // repeating it changes nothing
			e.step(abort)
		}
		is := testproc.Try(s.Server(ctx, sid(1), e.now)).Or(t)
		if is.VMState != c.is || is.TaskState != "" || is.Host != "h1" || is.Node != row.Node ||
			is.PowerState != row.PowerState {
			t.Errorf("%d: it was %+v, and is %+v", n, row, is)
		}
		testproc.Same(t, gocmp.Diff(row.Fault, is.Fault))
		open := testproc.Try(s.MigrationsOf(ctx, sid(1))).Or(t)
		if len(open) != 1 || !open[0].GiveBack || len(open[0].Hosts()) > 0 {
			t.Fatalf("%d: open are %+v", n, open)
		}
		if got := wants(t, s, "h1", 0); !slices.Contains(got, "01: "+c.wants) {
			t.Errorf("%d: the host is asked for %v", n, got)
		}
		e.step(cellwire.MigrationStep{Failed: &cellwire.Fault{Message: "none"}}) // changes nothing
		if _, err := s.Step(ctx, e.moving, cellwire.MigrationStep{Destination: &cellwire.MigrationDestination{
			Host: "h2", Node: "n2", NodeUUID: sid(901),
		}}, e.now); !cellclient.IsConflict(err) {
			t.Errorf("%d: it gets a destination: %v", n, err)
		}
		if _, err := s.Migrate(
			ctx, sid(1), cellwire.MigrateRequest{UUID: sid(600), Type: c.kind}, e.now,
		); !cellclient.IsConflict(err) || !strings.Contains(err.Error(), "not given back yet") {
			t.Errorf("%d: it moves again: %v", n, err)
		}
		action := testproc.Try(s.Actions(ctx, sid(1))).Or(t).Actions[0]
		if !action.Failed || action.Details != "An administrator ended the migration of instance "+sid(1)+"." {
			t.Errorf("%d: the action is %+v", n, action)
		}
		e.reset(cellwire.VMActive)
		e.power(cellwire.PowerRebootHard)
		e.giveBack()
		after := testproc.Try(s.Server(ctx, sid(1), e.now)).Or(t)
		if open := testproc.Try(s.MigrationsOf(ctx, sid(1))).Or(t); len(open) > 0 ||
			after.TaskState != cellwire.TaskRebootingHard || after.Host != "h1" {
			t.Errorf("%d: the server is %+v, and open are %+v", n, after, open)
		}
	}
}

// TestDeletedAfterAbort: a server is deleted while what its migration may have is given back.
func TestDeletedAfterAbort(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, dead := range []bool{false, true} {
		e := &exits{t: t, s: fresh(t), now: moment, dead: map[string]bool{}}
		e.beat()
		active(t, e.s, building(1))
		e.migrate(cellwire.MigrationCold)
		e.step(cellwire.MigrationStep{Abort: sid(700)})
		if dead {
			e.dies("h1")
		}
		e.delete(cellwire.DeleteNormal)
		if !dead {
			testproc.Same(t, gocmp.Diff([]string{"01: gone (error)"}, wants(t, e.s, "h1", 0)))
			e.says("h1", cellwire.Report{Kind: cellwire.ReportGone})
		}
		if s := testproc.Try(e.s.Server(ctx, sid(1), e.now)).Or(t); !s.Deleted {
			t.Errorf("the server is %+v", s)
		}
		e.giveBack()
		if left := testproc.Try(e.s.MigrationsOf(ctx, sid(1))).Or(t); len(left) > 0 {
			t.Errorf("open are %+v", left)
		}
	}
}

// TestTableOfExits: docs/cells.md has the rows of the test above, and each task that waits for a
// host is in one.
func TestTableOfExits(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	text := string(testproc.Try(os.ReadFile("../../docs/cells.md")).Or(t))
	_, table, _ := strings.Cut(text, "\n| task | what is down forever | what ends it |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var rows []string
	for _, row := range exitRows {
		rows = append(rows, "| "+row.task+" | "+row.down+" | "+row.exit+" |")
	}
	testproc.Same(t, gocmp.Diff(rows, strings.Split(table, "\n")))
	source := string(testproc.Try(os.ReadFile("../cellwire/server.go")).Or(t))
	for _, task := range regexp.MustCompile(`\tTask\w+ += "([^"]+)"`).FindAllStringSubmatch(source, -1) {
		if task[1] != cellwire.TaskScheduling &&
			!strings.Contains(table, "`"+task[1]+"`") { // that one is on no host yet
			t.Errorf("the table has no row for %s", task[1])
		}
	}
}
