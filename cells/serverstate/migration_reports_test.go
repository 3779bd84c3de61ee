// SPDX-License-Identifier: Apache-2.0

package serverstate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestFaultsOfMigrations: what the fault of a server says after a migration that ended.
func TestFaultsOfMigrations(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const ended = "An administrator ended the migration of instance 5e000000-0000-4000-8000-000000000001."
	for _, c := range []struct{ from, event, message, details string }{
		{"active/resize_prep running on h1; cold accepted h1>", "unplaced", "no host", "why"},
		{"error/rebuilding fault on h1; evacuation accepted h1>", "unplaced", "no host", "why"},
		{"building/scheduling on h1; build accepted h1>", "unplaced", "no host", "why"},
		{"building/scheduling fault on h1; build accepted h1>", "unplaced", "before", "No other host: why"},
		{"active/resize_migrating running on h1; cold pre-migrating h1>h2", "h1 departed fault", "reported", "why"},
		{"active/rebuilding running on h2; evacuation pre-migrating h1>h2", "h2 arrived fault", "reported",
			"Host h1 keeps its guest, shut down if it came back meanwhile: a hard reboot starts it.\nwhy"},
		{"resized/resize_reverting running on h2; cold reverting h1>h2 asked", "h1 departed missing fault",
			"Revert of the migration of instance 5e000000-0000-4000-8000-000000000001 failed: host h1 has no guest " +
				"of it any more", "why"},
		{"active/resize_migrating running on h1; cold pre-migrating h1>h2", "abort -h1",
			ended, "It was pre-migrating, and host h1 was down."},
		{"resized/resize_reverting running on h2; cold reverting h1>h2 asked", "abort",
			ended, "It was reverting, and host h1 had not said that it has the guest."},
	} {
		r := moving(c.from)
		happens(r, c.event)
		want := &cellwire.Fault{Code: r.Server.Fault.Code, Message: c.message, Details: c.details, Created: now}
		testproc.Samef(t, cmp.Diff(want, r.Server.Fault), "%s, %s: the fault", c.from, c.event)
	}
}

// TestGivenBackWithoutFence: without the word that no claim of before can arrive, a migration that
// has no destination stays open for as long as one may be on its way, also if clocks differ a
// little. That counts from its last change.
func TestGivenBackWithoutFence(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for age, ends := range map[time.Duration]bool{
		0: false, 10*time.Minute - time.Second: false,
		10 * time.Minute: true, -time.Second: false, -10 * time.Minute: true,
	} {
		for _, updated := range []bool{false, true} {
			for event, ends := range map[string]bool{"given-back": ends, "given-back fenced": true} {
				r := moving("active/ running on h1; cold error h1> giveback")
				m := r.Migrations[0]
				if m.CreatedAt = now.Add(-age); updated {
					m.CreatedAt, m.UpdatedAt = now.Add(-time.Hour), new(now.Add(-age))
				}
				if changed, refused := happens(r, event); changed != ends || m.Open == ends || (refused == "") != ends {
					t.Errorf("%s after %s (updated: %t): changed %t, refused %q", event, age, updated, changed, refused)
				}
			}
		}
	}
}

// TestMigrationsMatter: for which reports the migrations of a server are read.
func TestMigrationsMatter(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const off, running, none = plugins.PowerShutdown, plugins.PowerRunning, plugins.PowerNoState
	for _, c := range []struct {
		from   string
		report cellwire.Report
		want   bool
	}{
		{"active/ launched running", cellwire.Report{Kind: cellwire.ReportPower, PowerState: off}, false},
		{"active/ launched running", cellwire.Report{Kind: cellwire.ReportPower, PowerState: running}, false},
		{"active/ launched running", cellwire.Report{Kind: cellwire.ReportPower, PowerState: none}, true},
		{"active/ launched", cellwire.Report{Kind: cellwire.ReportPower, PowerState: none}, false},
		{"active/ launched", cellwire.Report{Kind: cellwire.ReportPower, PowerState: running}, true},
		{"building/spawning", cellwire.Report{Kind: cellwire.ReportSpawned, PowerState: running}, false},
		{"active/ launched running", cellwire.Report{Kind: cellwire.ReportDeparted, PowerState: running}, true},
		{"active/ launched running", cellwire.Report{Kind: cellwire.ReportArrived, PowerState: running}, true},
		{"active/ launched running", cellwire.Report{Kind: cellwire.ReportLeft, PowerState: running}, true},
		{"active/rebooting launched running", cellwire.Report{Kind: cellwire.ReportSettled, PowerState: off}, false},
		{"active/rebuilding launched running", cellwire.Report{Kind: cellwire.ReportSettled, PowerState: off}, true},
		{"active/resize_prep launched running", cellwire.Report{Kind: cellwire.ReportPower, PowerState: off}, true},
		{"active/resize_migrating launched", cellwire.Report{Kind: cellwire.ReportPower, PowerState: none}, true},
		{"active/resize_finish launched running", cellwire.Report{Kind: cellwire.ReportPower, PowerState: off}, true},
		{"active/resize_reverting launched off", cellwire.Report{Kind: cellwire.ReportSettled, PowerState: off}, true},
		{"active/deleting launched off", cellwire.Report{Kind: cellwire.ReportPower, PowerState: off}, true},
		{"deleted/ launched deleted", cellwire.Report{Kind: cellwire.ReportGone}, true},
		{"resized/ launched running", cellwire.Report{Kind: cellwire.ReportPower, PowerState: off}, true},
	} {
		r := record(c.from)
		if got := serverstate.MigrationsMatter(&r.Server, &c.report); got != c.want {
			t.Errorf("%s, %s with power state %d: %t, want %t", c.from, c.report.Kind, c.report.PowerState, got, c.want)
		}
	}
}

// TestHosts: a server may be where it is, where it goes, and where it can go back to.
func TestHosts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for from, want := range map[string]string{
		"active/ running on h1":                                                                  "h1",
		"active/resize_prep running on h1; cold accepted h1>h2?":                                 "h1",
		"active/resize_migrating running on h1; cold pre-migrating h1>h2":                        "h1 h2",
		"resized/ running on h2; cold finished h1>h2":                                            "h2 h1",
		"resized/ running on h2; cold confirming h1>h2":                                          "h2",
		"error/rebuilding fault on h2; evacuation failed h1>h2 giveback":                         "h2 h1",
		"active/ running on h1; cold error h1>h2 closed":                                         "h1",
		"active/ running on h1; cold error h1>h2 giveback closed":                                "h1",
		"active/resize_migrating running on h2; evacuation done h1>h2; cold pre-migrating h2>h3": "h2 h3",
	} {
		testproc.Equal(t, strings.Join(moving(from).Hosts(), " "), want, from+": on %s")
	}
}
