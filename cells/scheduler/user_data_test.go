// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/cellmappings"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// byPattern is a world of two cells, whose hosts a pattern finds.
func byPattern(t *testing.T, patterns ...string) *world {
	t.Helper()
	return withTokens(t, 2, func(o *scheduler.Options, _ *quota.Options) { o.DiscoverPatterns = patterns })
}

// seeded is a server with user data, active on a host.
func (w *world) seeded(host, userData string) string {
	w.t.Helper()
	uuid := w.created(func(r *scheduler.CreateRequest) { r.UserData, r.ForcedHost = userData, host })
	w.schedule()
	w.work()
	if row := w.row(uuid); row.Host != host || row.VMState != cellwire.VMActive {
		w.t.Fatalf("server %s is %s on %q: %+v", uuid, row.VMState, row.Host, row.Fault)
	}
	return uuid
}

// TestUserDataHost: which hosts get new user data of a server that is there.
func TestUserDataHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	pattern := []string{"h*"}
	for name, c := range map[string]struct {
		patterns []string
		state    apidb.EnrolmentState // of h1 at last; "": no enrolment
		noauth   bool
		host     string
		refused  bool
	}{
		"a pattern found it":        {patterns: pattern, refused: true},
		"it is enrolled":            {patterns: pattern, state: apidb.Enrolled, host: "h1"},
		"it was evicted":            {patterns: pattern, state: apidb.Evicted, refused: true},
		"it is invited again":       {patterns: pattern, state: apidb.Invited, refused: true},
		"another pattern":           {patterns: []string{"x*"}, host: "h1"},
		"no pattern":                {},
		"its cell asks for nothing": {patterns: pattern, noauth: true, host: "h1"},
	} {
		dbservers.Case(t, name, func(t *testing.T) {
			w := byPattern(t, c.patterns...)
			if c.noauth {
				w = begin(t, []int{0},
					func(o *scheduler.Options, _ *quota.Options) { o.DiscoverPatterns = c.patterns })
			}
			w.add(1, "h1")
			w.discoverWith(cellmappings.DiscoverOptions{Patterns: []string{"*"}})
			uuid := w.seeded("h1", "")
			if c.state != "" {
				w.enrolled(1, "h1", c.state)
			}
			host, err := w.scheduler.UserDataHost(ctx, w.sites[1].cell, uuid)
			if host != c.host || errors.Is(err, cellmappings.ErrNotEnrolled) != c.refused || !c.refused && err != nil {
				t.Errorf("UserDataHost: got %q, %v", host, err)
			}
			if len(c.patterns) == 0 {
				return
			}
			if _, err := w.scheduler.UserDataHost(ctx,
				w.sites[1].cell, "5e000000-0000-4000-8000-000000000009"); !cellclient.IsNotFound(err) {
				t.Errorf("a server that is not there: %v", err)
			}
		})
	}
}

// TestUserDataMovesToEnrolledHostsOnly: a server with user data is neither evacuated nor migrated
// to a host that a pattern found, one without is.
func TestUserDataMovesToEnrolledHostsOnly(t *testing.T) {
	t.Parallel()
	for _, kind := range []cellwire.MigrationType{cellwire.MigrationCold, cellwire.MigrationEvacuation} {
		for _, userData := range []string{"", "c2VjcmV0"} {
			for _, wanted := range []string{"", "h2"} {
				for _, enrolled := range []bool{false, true} {
					name := fmt.Sprintf("%s with user data %q to %q, enrolled %t", kind, userData, wanted, enrolled)
					dbservers.Case(t, name, func(t *testing.T) {
						testproc.Parallel(t, testproc.Light)
						w := byPattern(t, "h2")
						h1, _ := w.add(1, "h1"), w.add(1, "h2")
						w.discoverWith(cellmappings.DiscoverOptions{Patterns: []string{"*"}})
						uuid := w.seeded("h1", userData)
						if enrolled {
							w.enrolled(1, "h2", apidb.Enrolled)
						}
						if kind == cellwire.MigrationEvacuation {
							w.dies(h1)
						}
						w.must(w.migrate(uuid, kind, wanted))
						w.moves()
						row, goes := w.row(uuid), userData == "" || enrolled
						moves := row.Host == "h2" || row.TaskState == cellwire.TaskResizeMigrating
						const reason = "1 on hosts that are not enrolled by a person, and the server has user data"
						why := row.Fault != nil && strings.Contains(row.Fault.Details, reason)
						if moves != goes || why == goes {
							t.Errorf("on %s, %s, %+v", row.Host, row.TaskState, row.Fault)
						}
					})
				}
			}
		}
	}
}

// TestUserDataAndAHostThatIsNotEnrolledAnyMore: the destination was chosen, the process ended, and
// the destination is evicted when the next one goes on: the server stays where it is.
func TestUserDataAndAHostThatIsNotEnrolledAnyMore(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, userData := range []string{"", "c2VjcmV0"} {
		w := byPattern(t, "h2")
		h1, h2 := w.add(1, "h1"), w.add(1, "h2")
		w.discoverWith(cellmappings.DiscoverOptions{Patterns: []string{"*"}})
		w.enrolled(1, "h2", apidb.Enrolled)
		uuid := w.seeded("h1", userData)
		w.must(w.migrate(uuid, cellwire.MigrationCold, ""))
		w.scheduler.SetAfter(func(step string) error {
			if step == "move" {
				return errors.New("the process ends")
			}
			return nil
		})
		w.moves()
		w.restart()
		w.holds(map[string]*agent{uuid: h2, w.open(uuid)[0].UUID: h1})
		w.enrolled(1, "h2", apidb.Evicted)
		w.pass(time.Minute)
		w.beat()
		w.moves()
		if userData == "" { // its allocations have it so
			w.is(uuid, cellwire.VMActive, cellwire.TaskResizeMigrating, h1)
			continue
		}
		w.is(uuid, cellwire.VMActive, "", h1)
		w.holds(map[string]*agent{uuid: h1})
		if row := w.row(uuid); row.Fault == nil || !strings.Contains(row.Fault.Details, "not enrolled by a person") {
			t.Errorf("its fault is %+v", row.Fault)
		}
	}
}
