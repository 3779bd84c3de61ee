// SPDX-License-Identifier: Apache-2.0

package serverstate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var (
	then = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now  = then.Add(time.Hour)
)

// record makes a row: "VM/TASK", and of words behind it: hidden, homeless, launched, deleted, due,
// unfreed, soft (has a deleted_at), kept (what it was before a rebuild).
func record(text string) *serverstate.Record {
	words := strings.Fields(text)
	vm, task, _ := strings.Cut(words[0], "/")
	r := &serverstate.Record{Server: cellwire.Server{UUID: "5e000000-0000-4000-8000-000000000001", Host: "h1",
		VMState: vm, TaskState: task}, WantRevision: 5}
	for _, word := range words[1:] {
		switch word {
		case "hidden":
			r.Server.Hidden = true
		case "homeless":
			r.Server.Host = ""
		case "launched":
			r.Server.LaunchedAt = &then
		case "deleted":
			r.Server.Deleted, r.Server.DeletedAt, r.Server.TerminatedAt = true, &then, &then
		case "due":
			r.CleanupDue = true
		case "unfreed":
			r.Unfreed = true
		case "kept":
			r.Former = &serverstate.Former{}
		case "soft":
			r.Server.DeletedAt = &then
		case "running":
			r.Server.PowerState = plugins.PowerRunning
		case "off":
			r.Server.PowerState = plugins.PowerShutdown
		default:
			panic(word)
		}
	}
	return r
}

// text is what record reads.
func text(r *serverstate.Record) string {
	s := &r.Server
	b := s.VMState + "/" + s.TaskState
	for _, word := range []struct {
		text string
		is   bool
	}{{" hidden", s.Hidden}, {" homeless", s.Host == ""},
		{" launched", s.LaunchedAt != nil}, {" deleted", s.Deleted}, {" due", r.CleanupDue},
		{" unfreed", r.Unfreed}, {" soft", s.DeletedAt != nil && !s.Deleted},
		{" running", s.PowerState == plugins.PowerRunning},
		{" off", s.PowerState == plugins.PowerShutdown}, {" kept", r.Former != nil}} {
		if word.is {
			b += word.text
		}
	}
	return b
}

// TestTransitions: what becomes of each row, and what its host then has to do. A result of
// "refused" changes nothing; one of "same" neither.
func TestTransitions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	del := func(kind cellwire.DeleteKind, up bool) func(*serverstate.Record) (bool, bool) {
		return func(r *serverstate.Record) (bool, bool) { changed, _ := r.Delete(kind, up, now); return changed, false }
	}
	power := func(action cellwire.PowerAction) func(*serverstate.Record) (bool, bool) {
		return func(r *serverstate.Record) (bool, bool) { changed, err := r.Power(action); return changed, err != nil }
	}
	broken := func(power plugins.PowerState) func(*serverstate.Record) (bool, bool) {
		return func(r *serverstate.Record) (bool, bool) {
			changed, refused := r.Apply(cellwire.Report{Kind: cellwire.ReportSettled, PowerState: power, Revision: 5,
				Fault: &cellwire.Fault{Message: "no"}}, now)
			if changed && (r.Server.Fault == nil || !r.Server.Fault.Created.Equal(now)) {
				t.Errorf("the fault is %+v", r.Server.Fault)
			}
			return changed, refused != ""
		}
	}
	report := func(kind cellwire.ReportKind, power plugins.PowerState,
		revision int64) func(*serverstate.Record) (bool, bool) {
		return func(r *serverstate.Record) (bool, bool) {
			changed, refused := r.Apply(
				cellwire.Report{UUID: r.Server.UUID, Kind: kind, PowerState: power, Revision: revision}, now)
			return changed, refused != ""
		}
	}
	ops := map[string]func(*serverstate.Record) (changed, refused bool){
		"release": func(r *serverstate.Record) (bool, bool) { return r.Release(), false },
		"discard": func(r *serverstate.Record) (bool, bool) { return false, r.CheckDiscard() != nil },
		"delete":  del(cellwire.DeleteNormal, true),
		"delete-": del(cellwire.DeleteNormal, false),
		"soft":    del(cellwire.DeleteSoft, true),
		"soft-":   del(cellwire.DeleteSoft, false),
		"restore": func(r *serverstate.Record) (bool, bool) {
			changed, err := r.Restore()
			return changed, err != nil
		},
		"reclaim": func(r *serverstate.Record) (bool, bool) { return false, r.CheckReclaim() != nil },
		"freed": func(r *serverstate.Record) (bool, bool) {
			changed, err := r.MarkFreed()
			return changed, err != nil
		},
		"start":     power(cellwire.PowerStart),
		"stop":      power(cellwire.PowerStop),
		"reboot":    power(cellwire.PowerReboot),
		"hard":      power(cellwire.PowerRebootHard),
		"badaction": power("explode"),
		"rebuild": func(r *serverstate.Record) (bool, bool) {
			changed, err := r.Rebuild(cellwire.RebuildRequest{ImageRef: "new"})
			return changed, err != nil
		},
		"spawned":    report(cellwire.ReportSpawned, plugins.PowerRunning, 5),
		"spawnedoff": report(cellwire.ReportSpawned, plugins.PowerShutdown, 5),
		"failed":     report(cellwire.ReportFailed, 0, 5),
		"running":    report(cellwire.ReportPower, plugins.PowerRunning, 5),
		"off":        report(cellwire.ReportPower, plugins.PowerShutdown, 5),
		"crashed":    report(cellwire.ReportPower, plugins.PowerCrashed, 5),
		"nostate":    report(cellwire.ReportPower, plugins.PowerNoState, 5),
		"gone":       report(cellwire.ReportGone, 0, 5),
		"settledon":  report(cellwire.ReportSettled, plugins.PowerRunning, 5),
		"settledoff": report(cellwire.ReportSettled, plugins.PowerShutdown, 5),
		"settledold": report(cellwire.ReportSettled, plugins.PowerShutdown, 4),
		"brokenon":   broken(plugins.PowerRunning),
		"brokenoff":  broken(plugins.PowerShutdown),
		"nonsense":   report("nonsense", 0, 5),
		"badpower":   report(cellwire.ReportPower, 2, 5),
	}
	for _, c := range []struct {
		from, op, to string
		want         cellwire.Want
	}{
		{"building/spawning hidden", "release", "building/spawning", cellwire.WantPresent},
		{"building/spawning", "release", "same", cellwire.WantPresent},
		{"error/ hidden homeless", "release", "error/ homeless", ""},
		{"building/spawning hidden", "discard", "same", ""},
		{"building/spawning", "discard", "refused", cellwire.WantPresent},
		{"deleted/ deleted unfreed", "release", "same", ""},

		{"building/spawning", "delete", "building/deleting", cellwire.WantGone},
		{"building/spawning", "delete-", "deleted/ deleted due unfreed", cellwire.WantGone},
		{"building/spawning hidden", "delete", "deleted/ deleted unfreed", ""},
		{"building/spawning hidden", "delete-", "deleted/ deleted unfreed", ""},
		{"building/deleting", "delete", "same", cellwire.WantGone},
		{"building/deleting", "delete-", "deleted/ deleted due unfreed", cellwire.WantGone},
		{"error/ homeless", "delete", "deleted/ homeless deleted unfreed", ""},
		{"error/", "delete", "error/deleting", cellwire.WantGone},
		{"error/", "delete-", "deleted/ deleted due unfreed", cellwire.WantGone},
		{"active/ launched running", "delete", "active/deleting launched running", cellwire.WantGone},
		{"active/ launched running", "delete-", "deleted/ launched deleted due unfreed", cellwire.WantGone},
		{"soft-delete/ launched soft", "delete", "soft-delete/deleting launched soft", cellwire.WantGone},
		{"soft-delete/restoring launched", "delete", "soft-delete/deleting launched", cellwire.WantGone},
		{"deleted/ deleted due unfreed", "delete", "same", cellwire.WantGone},

		{"active/ launched running", "soft", "active/soft-deleting launched soft running", cellwire.WantShutdown},
		{"active/ launched running", "soft-", "soft-delete/ launched soft running", cellwire.WantShutdown},
		{"active/soft-deleting launched soft", "soft", "same", cellwire.WantShutdown},
		{"active/soft-deleting launched soft", "soft-", "soft-delete/ launched soft", cellwire.WantShutdown},
		{"soft-delete/ launched soft", "soft", "same", cellwire.WantShutdown},
		{"soft-delete/restoring launched", "soft", "soft-delete/soft-deleting launched soft", cellwire.WantShutdown},
		{"active/deleting launched", "soft", "same", cellwire.WantGone},
		{"building/spawning", "soft", "building/deleting", cellwire.WantGone},
		{"building/spawning", "soft-", "deleted/ deleted due unfreed", cellwire.WantGone},
		{"error/ homeless", "soft", "deleted/ homeless deleted unfreed", ""},

		{"soft-delete/ launched soft", "restore", "soft-delete/restoring launched", cellwire.WantRunning},
		{"soft-delete/restoring launched", "restore", "same", cellwire.WantRunning},
		{"active/soft-deleting launched soft", "restore", "refused", cellwire.WantShutdown},
		{"active/ launched", "restore", "refused", cellwire.WantPresent},
		{"soft-delete/deleting launched soft", "restore", "refused", cellwire.WantGone},
		{"deleted/ deleted", "restore", "refused", ""},

		{"soft-delete/ launched soft", "reclaim", "same", cellwire.WantShutdown},
		{"active/soft-deleting launched soft", "reclaim", "same", cellwire.WantShutdown},
		{"deleted/ deleted unfreed", "reclaim", "same", ""},
		{"soft-delete/restoring launched", "reclaim", "refused", cellwire.WantRunning},
		{"active/ launched", "reclaim", "refused", cellwire.WantPresent},

		{"deleted/ deleted due unfreed", "freed", "deleted/ deleted due", cellwire.WantGone},
		{"deleted/ deleted", "freed", "same", ""},
		{"active/ launched", "freed", "refused", cellwire.WantPresent},

		{"building/spawning", "spawned", "active/ launched running", cellwire.WantPresent},
		{"building/spawning", "spawnedoff", "stopped/ launched off", cellwire.WantPresent},
		{"active/ launched running", "spawned", "same", cellwire.WantPresent},
		{"building/deleting", "spawned", "same", cellwire.WantGone},
		{"deleted/ deleted due unfreed", "spawned", "same", cellwire.WantGone},
		{"error/", "spawned", "refused", ""},
		{"building/spawning", "failed", "error/", ""},
		{"error/", "failed", "same", ""},
		{"building/deleting", "failed", "same", cellwire.WantGone},
		{"active/ launched", "failed", "refused", cellwire.WantPresent},

		{"active/ launched running", "off", "stopped/ launched off", cellwire.WantPresent},
		{"active/ launched running", "crashed", "stopped/ launched", cellwire.WantPresent},
		{"active/ launched running", "nostate", "active/ launched", cellwire.WantPresent},
		{"active/ launched running", "running", "same", cellwire.WantPresent},
		{"stopped/ launched off", "running", "active/ launched running", cellwire.WantPresent},
		{"active/soft-deleting launched soft running",
			"off", "active/soft-deleting launched soft off", cellwire.WantShutdown},
		{"soft-delete/ launched soft off", "running", "soft-delete/ launched soft running", cellwire.WantShutdown},
		{"active/deleting launched running", "off", "same", cellwire.WantGone},

		{"active/deleting launched running", "gone", "deleted/ launched deleted", ""},
		{"deleted/ deleted due unfreed", "gone", "deleted/ deleted", ""},
		{"deleted/ deleted", "gone", "same", ""},
		{"active/ launched", "gone", "refused", cellwire.WantPresent},

		{"active/soft-deleting launched soft running",
			"settledoff", "soft-delete/ launched soft off", cellwire.WantShutdown},
		{"active/soft-deleting launched soft running", "settledold", "refused", cellwire.WantShutdown},
		{"soft-delete/ launched soft off", "settledoff", "same", cellwire.WantShutdown},
		{"soft-delete/restoring launched off", "settledon", "active/ launched running", cellwire.WantPresent},
		{"soft-delete/restoring launched off", "settledold", "refused", cellwire.WantRunning},
		{"active/ launched running", "settledon", "refused", cellwire.WantPresent},
		{"active/deleting launched", "settledoff", "same", cellwire.WantGone},

		{"active/ launched running", "stop", "active/powering-off launched running", cellwire.WantShutdown},
		{"stopped/ launched off", "stop", "refused", cellwire.WantPresent},
		{"active/rebooting launched running", "stop", "refused", cellwire.WantShutdown},
		{"active/ running", "stop", "refused", cellwire.WantPresent},
		{"stopped/ launched off", "start", "stopped/powering-on launched off", cellwire.WantRunning},
		{"stopped/powering-on launched off", "start", "refused", cellwire.WantRunning},
		{"active/ launched running", "start", "refused", cellwire.WantPresent},
		{"soft-delete/ launched soft off", "start", "refused", cellwire.WantShutdown},
		{"deleted/ launched deleted", "start", "refused", ""},
		{"building/spawning hidden", "stop", "refused", ""},
		{"error/ homeless", "stop", "refused", ""},
		{"error/ homeless", "hard", "refused", ""},
		{"active/ launched running", "reboot", "active/rebooting launched running", cellwire.WantShutdown},
		{"active/rebooting launched running", "reboot", "refused", cellwire.WantShutdown},
		{"active/rebooting launched running", "hard", "active/rebooting_hard launched running", cellwire.WantShutdown},
		{"active/reboot_started launched off", "hard", "active/rebooting_hard launched off", cellwire.WantShutdown},
		{"active/rebooting_hard launched running", "hard", "same", cellwire.WantShutdown},
		{"active/reboot_started_hard launched off", "hard", "refused", cellwire.WantRunning},
		{"stopped/ launched off", "hard", "stopped/rebooting_hard launched off", cellwire.WantShutdown},
		{"active/deleting launched running", "hard", "refused", cellwire.WantGone},
		{"active/ launched running", "badaction", "refused", cellwire.WantPresent},
		{"active/rebooting launched running", "delete", "active/deleting launched running", cellwire.WantGone},
		{"active/rebooting launched running", "soft",
			"active/soft-deleting launched soft running", cellwire.WantShutdown},

		{"active/powering-off launched running", "off", "active/powering-off launched off", cellwire.WantShutdown},
		{"active/powering-off launched off", "settledoff", "stopped/ launched off", cellwire.WantPresent},
		{"active/powering-off launched running", "settledold", "refused", cellwire.WantShutdown},
		{"active/powering-off launched running", "brokenon", "active/ launched running", cellwire.WantPresent},
		{"stopped/powering-on launched off", "settledon", "active/ launched running", cellwire.WantPresent},
		{"stopped/powering-on launched off", "brokenoff", "stopped/ launched off", cellwire.WantPresent},
		{"active/rebooting launched running", "settledoff", "active/reboot_started launched off", cellwire.WantRunning},
		{"active/reboot_started launched off", "settledold", "refused", cellwire.WantRunning},
		{"active/reboot_started launched off", "settledon", "active/ launched running", cellwire.WantPresent},
		{"stopped/rebooting_hard launched off",
			"settledoff", "stopped/reboot_started_hard launched off", cellwire.WantRunning},
		{"stopped/reboot_started_hard launched off", "settledon", "active/ launched running", cellwire.WantPresent},
		{"active/reboot_started launched off", "brokenoff", "stopped/ launched off", cellwire.WantPresent},
		{"active/soft-deleting launched soft running", "brokenon", "refused", cellwire.WantShutdown},
		{"soft-delete/restoring launched off", "brokenoff", "refused", cellwire.WantRunning},
		{"active/deleting launched running", "brokenoff", "same", cellwire.WantGone},

		{"active/ launched running", "rebuild", "active/rebuilding launched running kept", cellwire.WantCleared},
		{"stopped/ launched off", "rebuild", "stopped/rebuilding launched off kept", cellwire.WantCleared},
		{"error/ launched", "rebuild", "error/rebuilding launched kept", cellwire.WantCleared},
		{"error/", "rebuild", "refused", ""},
		{"active/rebuilding launched", "rebuild", "refused", cellwire.WantCleared},
		{"active/rebooting launched", "rebuild", "refused", cellwire.WantShutdown},
		{"soft-delete/ launched soft off", "rebuild", "refused", cellwire.WantShutdown},
		{"deleted/ launched deleted", "rebuild", "refused", ""},
		{"active/rebuilding launched running kept",
			"settledoff", "active/rebuild_spawning launched off", cellwire.WantRebuilt},
		{"active/rebuilding launched running kept", "brokenon", "active/ launched running", cellwire.WantPresent},
		{"active/rebuilding launched running kept", "brokenoff", "stopped/ launched off", cellwire.WantPresent},
		{"stopped/rebuilding launched off kept", "brokenoff", "stopped/ launched off", cellwire.WantPresent},
		{"error/rebuilding launched kept", "brokenon", "error/ launched running", ""},
		{"active/rebuilding launched running kept", "off", "active/rebuilding launched off kept", cellwire.WantCleared},
		{"active/rebuilding launched kept", "delete-", "deleted/ launched deleted due unfreed", cellwire.WantGone},
		{"active/rebuilding launched kept", "soft", "active/soft-deleting launched soft", cellwire.WantShutdown},
		{"active/rebuilding launched running", "settledold", "refused", cellwire.WantCleared},
		{"active/rebuilding launched running",
			"settledoff", "active/rebuild_spawning launched off", cellwire.WantRebuilt},
		{"active/rebuilding launched running", "brokenon", "error/ launched running", ""},
		{"active/rebuilding launched running", "nostate", "active/rebuilding launched", cellwire.WantCleared},
		{"active/rebuilding launched", "delete", "active/deleting launched", cellwire.WantGone},
		{"active/rebuild_spawning launched", "delete", "active/deleting launched", cellwire.WantGone},
		{"active/rebuild_spawning launched", "delete-", "deleted/ launched deleted due unfreed", cellwire.WantGone},
		{"active/rebuild_spawning launched", "failed", "refused", cellwire.WantRebuilt},
		{"active/rebuild_spawning launched", "settledold", "refused", cellwire.WantRebuilt},
		{"active/rebuild_spawning launched", "settledon", "active/ launched running", cellwire.WantPresent},
		{"stopped/rebuild_spawning launched", "settledon",
			"stopped/powering-off launched running", cellwire.WantShutdown},
		{"error/rebuild_spawning launched", "settledon", "active/ launched running", cellwire.WantPresent},
		{"active/rebuild_spawning launched", "brokenoff", "error/ launched off", ""},
		{"error/ launched", "stop", "error/powering-off launched", cellwire.WantShutdown},
		{"error/ launched", "soft", "error/soft-deleting launched soft", cellwire.WantShutdown},
		{"error/ launched", "delete", "error/deleting launched", cellwire.WantGone},

		{"active/ launched", "nonsense", "refused", cellwire.WantPresent},
		{"active/ launched", "badpower", "refused", cellwire.WantPresent},
	} {
		t.Run(c.from+" "+c.op, func(t *testing.T) {
			r := record(c.from)
			if got := text(r); got != c.from {
				t.Fatalf("the row is written as %q", got)
			}
			changed, refused := ops[c.op](r)
			got := text(r)
			switch c.to {
			case "same":
				if changed || refused || got != c.from {
					t.Errorf("became %q (changed %v, refused %v), want nothing to change", got, changed, refused)
				}
			case "refused":
				if changed || !refused || got != c.from {
					t.Errorf("became %q (changed %v, refused %v), want a refusal", got, changed, refused)
				}
			default:
				if !changed || refused || got != c.to {
					t.Errorf("became %q (changed %v, refused %v), want %q", got, changed, refused, c.to)
				}
			}
			testproc.Equal(t, r.DesiredState(), c.want, "its host has to have it %q")
		})
	}
}

func TestLocal(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for from, want := range map[string]bool{"building/spawning hidden": true, "error/ homeless": true, "active/": false,
		"deleted/ deleted unfreed": true, "deleted/ deleted": false} {
		if _, local := record(from).Delete(cellwire.DeleteNormal, true, now); local != want {
			t.Errorf("%s deleted: local is %v", from, local)
		}
	}
}

// TestFault: a fault is bounded between characters, and there is one in any case.
func TestFault(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := record("building/spawning")
	r.Apply(cellwire.Report{Kind: cellwire.ReportFailed,
		Fault: &cellwire.Fault{Code: 500, Message: strings.Repeat("é", 200), Details: strings.Repeat("x", 70000)}}, now)
	f := r.Server.Fault
	if f.Message != strings.Repeat("é", 127) || len(f.Details) != 65535 || !f.Created.Equal(now) {
		t.Errorf("the fault has a message of %d and details of %d bytes, at %v",
			len(f.Message), len(f.Details), f.Created)
	}
	r = record("building/spawning")
	if r.Apply(cellwire.Report{Kind: cellwire.ReportFailed}, now); r.Server.Fault == nil ||
		r.Server.Fault.Message == "" {
		t.Errorf("without a fault: %+v", r.Server.Fault)
	}
}
