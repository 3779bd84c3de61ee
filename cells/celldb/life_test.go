// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/wire"
	"github.com/compute-agent/compute-agent/plugins"
)

var (
	then = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now  = then.Add(time.Hour)
)

// record makes a row: "VM/TASK", and of words behind it: hidden, homeless, launched, deleted, due, unfreed, soft (has a deleted_at).
func record(text string) *celldb.Record {
	words := strings.Fields(text)
	vm, task, _ := strings.Cut(words[0], "/")
	r := &celldb.Record{Server: wire.Server{UUID: "5e000000-0000-4000-8000-000000000001", Host: "h1", VMState: vm, TaskState: task}, WantRevision: 5}
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
func text(r *celldb.Record) string {
	s := &r.Server
	b := s.VMState + "/" + s.TaskState
	for _, word := range []struct {
		text string
		is   bool
	}{{" hidden", s.Hidden}, {" homeless", s.Host == ""}, {" launched", s.LaunchedAt != nil}, {" deleted", s.Deleted}, {" due", r.CleanupDue},
		{" unfreed", r.Unfreed}, {" soft", s.DeletedAt != nil && !s.Deleted}, {" running", s.PowerState == plugins.PowerRunning}, {" off", s.PowerState == plugins.PowerShutdown}} {
		if word.is {
			b += word.text
		}
	}
	return b
}

// TestTransitions: what becomes of each row, and what its host then has to do. A result of "refused" changes nothing; one of "same" neither.
func TestTransitions(t *testing.T) {
	del := func(kind wire.DeleteKind, up bool) func(*celldb.Record) (bool, bool) {
		return func(r *celldb.Record) (bool, bool) { changed, _ := r.Delete(kind, up, now); return changed, false }
	}
	report := func(kind wire.ReportKind, power plugins.PowerState, revision int64) func(*celldb.Record) (bool, bool) {
		return func(r *celldb.Record) (bool, bool) {
			changed, refused := r.Apply(wire.Report{UUID: r.Server.UUID, Kind: kind, PowerState: power, Revision: revision}, now)
			return changed, refused != ""
		}
	}
	ops := map[string]func(*celldb.Record) (changed, refused bool){
		"release":    func(r *celldb.Record) (bool, bool) { return r.Release(), false },
		"discard":    func(r *celldb.Record) (bool, bool) { return false, r.Discardable() != nil },
		"delete":     del(wire.DeleteNormal, true),
		"delete-":    del(wire.DeleteNormal, false),
		"soft":       del(wire.DeleteSoft, true),
		"soft-":      del(wire.DeleteSoft, false),
		"restore":    func(r *celldb.Record) (bool, bool) { changed, err := r.Restore(); return changed, err != nil },
		"reclaim":    func(r *celldb.Record) (bool, bool) { return false, r.Reclaimable() != nil },
		"freed":      func(r *celldb.Record) (bool, bool) { changed, err := r.Freed(); return changed, err != nil },
		"spawned":    report(wire.ReportSpawned, plugins.PowerRunning, 5),
		"spawnedoff": report(wire.ReportSpawned, plugins.PowerShutdown, 5),
		"failed":     report(wire.ReportFailed, 0, 5),
		"running":    report(wire.ReportPower, plugins.PowerRunning, 5),
		"off":        report(wire.ReportPower, plugins.PowerShutdown, 5),
		"crashed":    report(wire.ReportPower, plugins.PowerCrashed, 5),
		"nostate":    report(wire.ReportPower, plugins.PowerNoState, 5),
		"gone":       report(wire.ReportGone, 0, 5),
		"settledon":  report(wire.ReportSettled, plugins.PowerRunning, 5),
		"settledoff": report(wire.ReportSettled, plugins.PowerShutdown, 5),
		"settledold": report(wire.ReportSettled, plugins.PowerShutdown, 4),
		"nonsense":   report("nonsense", 0, 5),
		"badpower":   report(wire.ReportPower, 2, 5),
	}
	for _, c := range []struct {
		from, op, to string
		want         wire.Want
	}{
		{"building/spawning hidden", "release", "building/spawning", wire.WantPresent},
		{"building/spawning", "release", "same", wire.WantPresent},
		{"error/ hidden homeless", "release", "error/ homeless", ""},
		{"building/spawning hidden", "discard", "same", ""},
		{"building/spawning", "discard", "refused", wire.WantPresent},
		{"deleted/ deleted unfreed", "release", "same", ""},

		{"building/spawning", "delete", "building/deleting", wire.WantGone},
		{"building/spawning", "delete-", "deleted/ deleted due unfreed", wire.WantGone},
		{"building/spawning hidden", "delete", "deleted/ deleted unfreed", ""},
		{"building/spawning hidden", "delete-", "deleted/ deleted unfreed", ""},
		{"building/deleting", "delete", "same", wire.WantGone},
		{"building/deleting", "delete-", "deleted/ deleted due unfreed", wire.WantGone},
		{"error/ homeless", "delete", "deleted/ homeless deleted unfreed", ""},
		{"error/", "delete", "error/deleting", wire.WantGone},
		{"error/", "delete-", "deleted/ deleted due unfreed", wire.WantGone},
		{"active/ launched running", "delete", "active/deleting launched running", wire.WantGone},
		{"active/ launched running", "delete-", "deleted/ launched deleted due unfreed", wire.WantGone},
		{"soft-delete/ launched soft", "delete", "soft-delete/deleting launched soft", wire.WantGone},
		{"soft-delete/restoring launched", "delete", "soft-delete/deleting launched", wire.WantGone},
		{"deleted/ deleted due unfreed", "delete", "same", wire.WantGone},

		{"active/ launched running", "soft", "active/soft-deleting launched soft running", wire.WantShutdown},
		{"active/ launched running", "soft-", "soft-delete/ launched soft running", wire.WantShutdown},
		{"active/soft-deleting launched soft", "soft", "same", wire.WantShutdown},
		{"active/soft-deleting launched soft", "soft-", "soft-delete/ launched soft", wire.WantShutdown},
		{"soft-delete/ launched soft", "soft", "same", wire.WantShutdown},
		{"soft-delete/restoring launched", "soft", "soft-delete/soft-deleting launched soft", wire.WantShutdown},
		{"active/deleting launched", "soft", "same", wire.WantGone},
		{"building/spawning", "soft", "building/deleting", wire.WantGone},
		{"building/spawning", "soft-", "deleted/ deleted due unfreed", wire.WantGone},
		{"error/ homeless", "soft", "deleted/ homeless deleted unfreed", ""},

		{"soft-delete/ launched soft", "restore", "soft-delete/restoring launched", wire.WantRunning},
		{"soft-delete/restoring launched", "restore", "same", wire.WantRunning},
		{"active/soft-deleting launched soft", "restore", "refused", wire.WantShutdown},
		{"active/ launched", "restore", "refused", wire.WantPresent},
		{"soft-delete/deleting launched soft", "restore", "refused", wire.WantGone},
		{"deleted/ deleted", "restore", "refused", ""},

		{"soft-delete/ launched soft", "reclaim", "same", wire.WantShutdown},
		{"active/soft-deleting launched soft", "reclaim", "same", wire.WantShutdown},
		{"deleted/ deleted unfreed", "reclaim", "same", ""},
		{"soft-delete/restoring launched", "reclaim", "refused", wire.WantRunning},
		{"active/ launched", "reclaim", "refused", wire.WantPresent},

		{"deleted/ deleted due unfreed", "freed", "deleted/ deleted due", wire.WantGone},
		{"deleted/ deleted", "freed", "same", ""},
		{"active/ launched", "freed", "refused", wire.WantPresent},

		{"building/spawning", "spawned", "active/ launched running", wire.WantPresent},
		{"building/spawning", "spawnedoff", "stopped/ launched off", wire.WantPresent},
		{"active/ launched running", "spawned", "same", wire.WantPresent},
		{"building/deleting", "spawned", "same", wire.WantGone},
		{"deleted/ deleted due unfreed", "spawned", "same", wire.WantGone},
		{"error/", "spawned", "refused", ""},
		{"building/spawning", "failed", "error/", ""},
		{"error/", "failed", "same", ""},
		{"building/deleting", "failed", "same", wire.WantGone},
		{"active/ launched", "failed", "refused", wire.WantPresent},

		{"active/ launched running", "off", "stopped/ launched off", wire.WantPresent},
		{"active/ launched running", "crashed", "stopped/ launched", wire.WantPresent},
		{"active/ launched running", "nostate", "active/ launched", wire.WantPresent},
		{"active/ launched running", "running", "same", wire.WantPresent},
		{"stopped/ launched off", "running", "active/ launched running", wire.WantPresent},
		{"active/soft-deleting launched soft running", "off", "active/soft-deleting launched soft off", wire.WantShutdown},
		{"soft-delete/ launched soft off", "running", "soft-delete/ launched soft running", wire.WantShutdown},
		{"active/deleting launched running", "off", "same", wire.WantGone},

		{"active/deleting launched running", "gone", "deleted/ launched deleted", ""},
		{"deleted/ deleted due unfreed", "gone", "deleted/ deleted", ""},
		{"deleted/ deleted", "gone", "same", ""},
		{"active/ launched", "gone", "refused", wire.WantPresent},

		{"active/soft-deleting launched soft running", "settledoff", "soft-delete/ launched soft off", wire.WantShutdown},
		{"active/soft-deleting launched soft running", "settledold", "refused", wire.WantShutdown},
		{"soft-delete/ launched soft off", "settledoff", "same", wire.WantShutdown},
		{"soft-delete/restoring launched off", "settledon", "active/ launched running", wire.WantPresent},
		{"soft-delete/restoring launched off", "settledold", "refused", wire.WantRunning},
		{"active/ launched running", "settledon", "refused", wire.WantPresent},
		{"active/deleting launched", "settledoff", "same", wire.WantGone},

		{"active/ launched", "nonsense", "refused", wire.WantPresent},
		{"active/ launched", "badpower", "refused", wire.WantPresent},
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
			if got := r.Want(); got != c.want {
				t.Errorf("its host has to have it %q, want %q", got, c.want)
			}
		})
	}
}

func TestLocal(t *testing.T) {
	for from, want := range map[string]bool{"building/spawning hidden": true, "error/ homeless": true, "active/": false, "deleted/ deleted unfreed": true, "deleted/ deleted": false} {
		if _, local := record(from).Delete(wire.DeleteNormal, true, now); local != want {
			t.Errorf("%s deleted: local is %v", from, local)
		}
	}
}

// TestFault: a fault is bounded between characters, and there is one in any case.
func TestFault(t *testing.T) {
	r := record("building/spawning")
	r.Apply(wire.Report{Kind: wire.ReportFailed, Fault: &wire.Fault{Code: 500, Message: strings.Repeat("é", 200), Details: strings.Repeat("x", 70000)}}, now)
	f := r.Server.Fault
	if f.Message != strings.Repeat("é", 127) || len(f.Details) != 65535 || !f.Created.Equal(now) {
		t.Errorf("the fault has a message of %d and details of %d bytes, at %v", len(f.Message), len(f.Details), f.Created)
	}
	r = record("building/spawning")
	if r.Apply(wire.Report{Kind: wire.ReportFailed}, now); r.Server.Fault == nil || r.Server.Fault.Message == "" {
		t.Errorf("without a fault: %+v", r.Server.Fault)
	}
}

func TestAlive(t *testing.T) {
	m := celldb.Moment{Now: now, DownTime: time.Minute}
	for ago, want := range map[time.Duration]bool{0: true, time.Minute: true, time.Minute + 1: false, -time.Minute: true, -2 * time.Minute: false} {
		if got := m.Alive(now.Add(-ago)); got != want {
			t.Errorf("seen %v ago: alive is %v", ago, got)
		}
	}
	if m.Alive(time.Time{}) {
		t.Error("a host that was never seen is alive")
	}
}

func TestCheckInsert(t *testing.T) {
	good := func() wire.Server {
		return wire.Server{UUID: "5e000000-0000-4000-8000-000000000001", ProjectID: "p", CreatedAt: then, Host: "h", Node: "n", VMState: wire.VMBuilding, TaskState: wire.TaskSpawning}
	}
	if err := celldb.CheckInsert(good()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*wire.Server){
		"no uuid":                func(s *wire.Server) { s.UUID = "" },
		"an upper-case uuid":     func(s *wire.Server) { s.UUID = strings.ToUpper(s.UUID) },
		"a uuid with braces":     func(s *wire.Server) { s.UUID = "{" + s.UUID + "}" },
		"no project":             func(s *wire.Server) { s.ProjectID = "" },
		"no time":                func(s *wire.Server) { s.CreatedAt = time.Time{} },
		"no host":                func(s *wire.Server) { s.Host = "" },
		"no node":                func(s *wire.Server) { s.Node = "" },
		"a strange host":         func(s *wire.Server) { s.Host = "a/b" },
		"a strange node":         func(s *wire.Server) { s.NodeUUID = "x" },
		"another state":          func(s *wire.Server) { s.VMState = wire.VMActive },
		"another task":           func(s *wire.Server) { s.TaskState = wire.TaskDeleting },
		"power":                  func(s *wire.Server) { s.PowerState = 1 },
		"an error with a host":   func(s *wire.Server) { s.VMState, s.TaskState = wire.VMError, "" },
		"a life before":          func(s *wire.Server) { s.LaunchedAt = &then },
		"a deletion":             func(s *wire.Server) { s.Deleted = true },
		"a flavor without limit": func(s *wire.Server) { s.Flavor.VCPUs = 1 << 60 },
		"a negative flavor":      func(s *wire.Server) { s.Flavor.MemoryMB = -1 },
		"a long name":            func(s *wire.Server) { s.Name = strings.Repeat("x", 5000) },
	} {
		s := good()
		spoil(&s)
		var refusal *wire.Error
		if err := celldb.CheckInsert(s); !errors.As(err, &refusal) || refusal.Code != wire.CodeBadRequest {
			t.Errorf("with %s: got %v", name, err)
		}
	}
}
