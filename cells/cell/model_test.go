// SPDX-License-Identifier: Apache-2.0

package cell_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// modelServer is a server in the naive model: only what the contract speaks of.
type modelServer struct {
	there, hidden, deleted bool
	vm, task               string
	power                  plugins.PowerState
	launched               bool
	unfreed, cleanup       bool
}

// model is a naive cell: servers by number, each on the host of its parity; servers below
// modelCell0 are without one.
type model struct {
	servers map[int]*modelServer
	up      map[string]bool
}

const (
	modelServers = 4
	modelCell0   = 0 // the server that could not be placed
)

func hostOf(n int) string {
	if n == modelCell0 {
		return ""
	}
	return fmt.Sprint("h", n%2+1)
}

// apply says the status with which a call has to be answered, and for a delete whether it is local.
func (m *model) apply(op string, n int) (status int, local bool) {
	s := m.servers[n]
	up := m.up[hostOf(n)]
	if !s.there && op != "insert" && op != "discard" {
		return 404, false
	}
	switch op {
	case "insert":
		if !s.there {
			*s = modelServer{there: true, hidden: true, vm: "building", task: "spawning"}
			if hostOf(n) == "" {
				s.vm, s.task = "error", ""
			}
		}
	case "release":
		s.hidden = false
	case "discard":
		if s.there && !s.hidden {
			return 409, false
		}
		*s = modelServer{}
		return 204, false
	case "delete", "soft":
		if s.deleted {
			return 200, s.unfreed
		}
		if op == "soft" && s.launched {
			switch {
			case s.task == "deleting":
			case s.vm == "soft-delete" && s.task == "":
			case up:
				s.task = "soft-deleting"
			default:
				s.vm, s.task = "soft-delete", ""
			}
			return 200, false
		}
		if up && !s.hidden {
			s.task = "deleting"
			return 200, false
		}
		*s = modelServer{there: true, deleted: true, vm: "deleted", launched: s.launched, unfreed: true,
			cleanup: !s.hidden && hostOf(n) != ""}
		return 200, true
	case "restore":
		if s.vm != "soft-delete" || s.task == "deleting" {
			return 409, false
		}
		s.task = "restoring"
	case "start", "stop", "reboot", "reboot-hard":
		begins := map[string]string{
			"start stopped/": "powering-on", "stop active/": "powering-off", "reboot active/": "rebooting",
			"reboot-hard active/":  "rebooting_hard",
			"reboot-hard stopped/": "rebooting_hard", "reboot-hard active/rebooting": "rebooting_hard",
			"reboot-hard active/reboot_started":  "rebooting_hard",
			"reboot-hard active/rebooting_hard":  "rebooting_hard",
			"reboot-hard stopped/rebooting_hard": "rebooting_hard",
		}
		task, may := begins[op+" "+s.vm+"/"+s.task]
		switch {
		case s.deleted || s.hidden:
			return 404, false
		case !may:
			return 409, false
		}
		s.task = task
	case "freed":
		if !s.deleted {
			return 409, false
		}
		s.unfreed = false
		return 204, false
	}
	return 200, false
}

// report says whether a report of the server's own host has to be taken.
func (m *model) report(kind cellwire.ReportKind, n int, power plugins.PowerState) (taken bool) {
	s := m.servers[n]
	if !s.there || s.hidden || hostOf(n) == "" {
		return false
	}
	late := s.deleted || s.task == "deleting"
	sync := func() {
		s.power = power
		switch {
		case s.task != "":
		case s.vm == "active" && (power == 4 || power == 6):
			s.vm = "stopped"
		case s.vm == "stopped" && power == 1:
			s.vm = "active"
		}
	}
	switch kind {
	case cellwire.ReportGone:
		switch {
		case s.deleted:
			s.unfreed, s.cleanup = false, false
		case s.task == "deleting":
			*s = modelServer{there: true, deleted: true, vm: "deleted", launched: s.launched}
		default:
			return false
		}
	case cellwire.ReportSpawned:
		switch {
		case late:
		case s.vm == "error":
			return false
		case s.vm == "building":
			s.vm, s.task, s.launched = "active", "", true
			sync()
		}
	case cellwire.ReportFailed:
		switch {
		case late, s.vm == "error":
		case s.vm == "building":
			s.vm, s.task, s.power = "error", "", 0
		default:
			return false
		}
	case cellwire.ReportPower:
		if !late {
			sync()
		}
	case cellwire.ReportSettled:
		switch {
		case late:
		case s.task == "rebooting", s.task == "rebooting_hard":
			s.task, s.power =
				map[string]string{"rebooting": "reboot_started", "rebooting_hard": "reboot_started_hard"}[s.task], power
		case s.task == "powering-off":
			s.vm, s.task = "stopped", ""
			sync()
		case s.task == "restoring", s.task == "powering-on", s.task == "reboot_started",
			s.task == "reboot_started_hard":
			s.vm, s.task = "active", ""
			sync()
		case s.task == "soft-deleting" || s.vm == "soft-delete":
			s.vm, s.task, s.power = "soft-delete", "", power
		default:
			return false
		}
	}
	return true
}

// want is what the host must receive for a server.
func (m *model) want(n int) cellwire.Want {
	s := m.servers[n]
	switch {
	case !s.there, s.hidden, hostOf(n) == "", s.deleted && !s.cleanup:
		return ""
	case s.deleted, s.task == "deleting":
		return cellwire.WantGone
	case s.vm == "error":
		return ""
	case s.task == "restoring", s.task == "powering-on", s.task == "reboot_started", s.task == "reboot_started_hard":
		return cellwire.WantRunning
	case s.task == "soft-deleting", s.task == "powering-off", s.task == "rebooting",
		s.task == "rebooting_hard", s.vm == "soft-delete":
		return cellwire.WantShutdown
	}
	return cellwire.WantPresent
}

// agentView is what an agent that only ever asks for what is new knows.
type agentView struct {
	after int64
	known map[int]cellwire.Want
}

// TestModel does what may be done to servers in any order, with hosts that come and go, and
// compares all that can be seen with a naive model. Agents that only ask for changes know as
// much as those that ask for everything.
func TestModel(t *testing.T) {
	testproc.Parallel(t, testproc.Heavy)
	checks := 30
	if dbservers.OnServer(t) {
		checks = 10
	}
	rapid.Check(t, testproc.Few(checks, func(rt *rapid.T) {
		w := unattended(t)
		defer w.close()
		host := map[string]string{}
		for _, h := range []string{"h1", "h2"} {
			host[h] = w.register(h).Service.UUID
		}
		m := &model{servers: map[int]*modelServer{}, up: map[string]bool{"h1": true, "h2": true}}
		for n := range modelServers {
			m.servers[n] = &modelServer{}
		}
		epoch := w.work("h1", 0, "").Epoch
		views := map[string]*agentView{"h1": {known: map[int]cellwire.Want{}}, "h2": {known: map[int]cellwire.Want{}}}
		server := rapid.IntRange(0, modelServers-1)
		rt.Repeat(map[string]func(*rapid.T){
			"call": func(rt *rapid.T) {
				n := server.Draw(rt, "server")
				op := rapid.SampledFrom([]string{"insert", "insert", "release", "release", "discard", "delete", "soft",
					"soft", "restore", "restore", "freed", "start", "stop", "reboot", "reboot-hard"}).Draw(rt, "op")
				status, local := m.apply(op, n)
				got := w.call(op, n)
				if got.Code != status {
					rt.Fatalf("%s of server %d: answered %d %s, want %d", op, n, got.Code, got.Body, status)
				}
				if op == "delete" || op == "soft" {
					if answer := decodeAs[cellwire.DeleteAnswer](rt, got.Body.Bytes()); status == 200 &&
						answer.Local != local {
						rt.Fatalf("%s of server %d: local is %v, want %v", op, n, answer.Local, local)
					}
				}
			},
			"report": func(rt *rapid.T) {
				n := server.Draw(rt, "server")
				h := rapid.SampledFrom([]string{"h1", "h2"}).Draw(rt, "host")
				kind := rapid.SampledFrom([]cellwire.ReportKind{cellwire.ReportSpawned, cellwire.ReportFailed,
					cellwire.ReportPower, cellwire.ReportGone, cellwire.ReportSettled}).Draw(rt, "kind")
				power := rapid.SampledFrom([]plugins.PowerState{0, 1, 3, 4, 6, 7}).Draw(rt, "power")
				taken := h == hostOf(n) && m.report(kind, n, power)
				why := w.reports(h, cellwire.Report{UUID: sid(n), Kind: kind, PowerState: power, Revision: 1 << 40})
				if (why[0] == "") != taken {
					rt.Fatalf("%s reports %s of server %d: refused with %q, want taken: %v", h, kind, n, why[0], taken)
				}
			},
			"host": func(rt *rapid.T) {
				h := rapid.SampledFrom([]string{"h1", "h2"}).Draw(rt, "host")
				m.up[h] = rapid.Bool().Draw(rt, "up")
				down := !m.up[h]
				do[cellwire.Service](w, "PATCH", "/v1/services/"+host[h], cellwire.ServicePatch{ForcedDown: &down})
			},
			"restart": func(*rapid.T) {
				w.close()
				w.open()
			},
			"": func(rt *rapid.T) { check(rt, w, m, views, epoch) },
		})
	}))
}

func check(rt *rapid.T, w *world, m *model, views map[string]*agentView, epoch string) {
	unfinished := do[cellwire.Unfinished](w, "GET", "/v1/servers/unfinished?hidden_for=0", nil)
	listed := map[string]bool{}
	for _, u := range unfinished.Hidden {
		listed["hidden "+u.UUID] = true
	}
	for _, u := range unfinished.Unfreed {
		listed["unfreed "+u.UUID] = true
	}
	for n, s := range m.servers {
		if listed["hidden "+sid(n)] != s.hidden || listed["unfreed "+sid(n)] != s.unfreed {
			rt.Fatalf("server %d is %+v, and unfinished are %+v", n, *s, unfinished)
		}
		if !s.there {
			if got := w.send("GET", "/v1/servers/"+sid(n), nil); got.Code != 404 {
				rt.Fatalf("server %d is not there, and answered as %s", n, got.Body)
			}
			continue
		}
		got := w.server(n)
		seen := modelServer{true, got.Hidden, got.Deleted,
			got.VMState, got.TaskState, got.PowerState, got.LaunchedAt != nil, s.unfreed, s.cleanup}
		if seen != *s {
			rt.Fatalf("server %d is %+v, want %+v", n, seen, *s)
		}
	}
	for h, view := range views {
		changes := w.work(h, view.after, epoch)
		view.after = changes.Revision
		if changes.Complete {
			clear(view.known)
		}
		for n, want := range wants(w.t, changes) {
			view.known[n] = want
		}
		all := wants(w.t, w.work(h, 0, epoch))
		for n := range m.servers {
			want := m.want(n)
			if hostOf(n) != h {
				want = ""
			}
			if all[n] != want {
				rt.Fatalf("%s gets %[3]q for server %[2]d, want %[4]q", h, n, all[n], want)
			}
			if want != "" && view.known[n] != want {
				rt.Fatalf("%s, which asks for changes, knows %q of server %d, want %q", h, view.known[n], n, want)
			}
		}
	}
}
