// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/systemd"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// unit is an enabled unit that runs.
func unit(name string, change ...func(*Service)) Service {
	s := Service{UnitState: systemd.UnitState{Name: name,
		Active: "active", Sub: "running", Result: "success", File: "enabled"}}
	for _, c := range change {
		c(&s)
	}
	return s
}

// TestServices: each state of a service of the control plane.
func TestServices(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const cell, look = "compute-agent-cell@cell2.service",
		"journalctl --unit compute-agent-cell@cell2.service --lines 20 --output cat"
	for name, tc := range map[string]struct {
		change     func(*Service)
		severity   Severity
		found, fix string
	}{
		"runs": {func(*Service) {}, OK, "it runs", ""},
		"stopped": {func(s *Service) { s.Active, s.Sub = "inactive", "dead" }, Error,
			"it is enabled, and does not run", "systemctl start " + cell},
		"invalid": {
			func(s *Service) { s.Active, s.Result, s.Exit = "failed", "exit-code", 78 }, Error,
			"it has failed: its configuration is invalid",
			look + "   # then systemctl restart " + cell,
		},
		"refused": {func(s *Service) { s.Active, s.Result, s.Exit = "failed", "exit-code", 3 }, Error,
			"it has failed: it refused to start", look + "   # then systemctl restart " + cell},
		"killed": {func(s *Service) { s.Active, s.Result, s.Exit = "failed", "signal", 9 }, Error,
			"it has failed: signal 9", look + "   # then systemctl restart " + cell},
		"limit": {
			func(s *Service) { s.Active, s.Result = "failed", "start-limit-hit" }, Error,
			"it has failed: start-limit-hit",
			look + "   # then systemctl restart " + cell,
		},
		"restarts forever": {
			func(s *Service) {
				s.Active, s.Sub, s.Result, s.Exit, s.Restarts = "activating", "auto-restart", "exit-code", 1, 33
			}, Error,
			"it ends again and again: exit code 1, restarted 33 times", look,
		},
		"between two restarts": {func(s *Service) {
			s.Active, s.Sub, s.Result, s.Restarts = "activating", "start",
				"success", 33
		}, Error, "again and again: success", look},
		"restarted often": {func(s *Service) { s.Restarts = 5 }, Warning, "it runs, and was restarted 5 times", look},
		"starting": {func(s *Service) { s.Active, s.Sub = "activating", "start" },
			Warning, "it is activating", look},
		"not enabled": {func(s *Service) { s.File = "disabled" }, Warning,
			"it runs, and is not enabled", "systemctl enable " + cell},
	} {
		t.Run(name, func(t *testing.T) {
			got := result(t,
				run(t.Context(), Env{Services: []Service{unit(cell, tc.change)}, ClockSynced: clockSynced,
					Now: time.Now}, []Check{{"service", "Services", checkServices}}),
				"service.compute-agent-cell@cell2")
			if got.Severity != tc.severity || !strings.Contains(got.Found, tc.found) || got.Fix != tc.fix ||
				(got.Why == "") != (tc.severity == OK) {
				t.Errorf("checkServices: got %+v, want %v with %q and the fix %q", got, tc.severity, tc.found, tc.fix)
			}
		})
	}
}

// TestCells: a cell that does not answer the compute API is an error, with its name and since when;
// without a compute API there is no result.
func TestCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	api := func(s *Service) {
		s.Cells = []cells.CellState{{Name: "cell1", Up: true, Since: noon},
			{Name: "cell2", URL: "https://two", Since: noon.Add(-26 * time.Second), Cause: "connection refused"}}
	}
	e := &Env{Now: func() time.Time { return noon }, Services: []Service{unit(computeAPIUnit, api)}}
	want := []Result{{
		Name: "cells.cell2", Title: "Cell cell2", Severity: Error, Found: "down since " +
			noon.Add(-26*time.Second).UTC().Format(time.RFC3339) + ": connection refused",
		Why: "Its servers are shown as UNKNOWN, and cannot be changed; no new server goes there. Guests keep running.",
		Fix: "systemctl status compute-agent-cell@cell2.service   # on the machine of https://two",
	}}
	testproc.Same(t, cmp.Diff(want, checkCells(t.Context(), e)))
	e.Now = func() time.Time { return noon.Add(time.Minute) }
	testproc.Samef(t, cmp.Diff(want, checkCells(t.Context(), e)), "a minute later, which is no change")
	e.Services = append(e.Services, unit("compute-agent-cell@cell2.service"))
	want[0].Fix = "systemctl status compute-agent-cell@cell2.service"
	testproc.Same(t, cmp.Diff(want, checkCells(t.Context(), e)))
	if first := ControlPlane(e.Services)[0]; first.Name != "cells.cell2" {
		t.Errorf("the first of a status is %+v", first)
	}
	e.Services[0].Cells[1].UUID = apidb.Cell0UUID
	if why := checkCells(t.Context(), e)[0].Why; !strings.HasPrefix(why, "Servers that no host takes stay in BUILD") ||
		strings.Contains(why, "Guests") {
		t.Errorf("without cell0: %s", why)
	}
	e.Services[0].Cells[1].Up = true
	if got := checkCells(t.Context(), e); len(got) != 1 ||
		got[0].Severity != OK || got[0].Found != "2 cells, all answer the compute API" {
		t.Errorf("with all cells: %+v", got)
	}
	e.Services[0].Cells, e.Services[0].CellsErr = nil, errors.New("permission denied")
	if got := checkCells(t.Context(), e); len(got) != 1 ||
		got[0].Severity != Skipped || got[0].Found != "permission denied" {
		t.Errorf("with an API that does not say: %+v", got)
	}
	e.Services = e.Services[1:]
	if got := checkCells(t.Context(), e); len(got) != 0 {
		t.Errorf("without an API: %+v", got)
	}
}

// TestServicesBehindSockets: a service that starts with the first request does not run before.
func TestServicesBehindSockets(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	e := &Env{Services: []Service{
		unit("compute-agent-placement.service", func(s *Service) { s.Active, s.File = "inactive", "static" }),
		unit("compute-agent-placement.socket", func(s *Service) { s.Sub = "listening" }),
		unit("compute-agent.service"), unit("compute-agent-domain-capabilities.service"),
	}}
	got := checkServices(t.Context(), e)
	if len(got) != 1 || got[0].Severity != OK ||
		!strings.Contains(got[0].Found, "compute-agent-placement.socket listens") {
		t.Errorf("checkServices behind a socket: got %+v, want OK", got)
	}
	e.Services[0].Active = "active"
	if got = checkServices(t.Context(), e); got[0].Severity != OK {
		t.Errorf("one that a request has started: %+v", got)
	}
	e.Services = e.Services[2:]
	if got = checkServices(t.Context(), e); len(got) != 0 {
		t.Errorf("the agent alone: %+v", got)
	}
}

// TestMachinesWithoutAgent: a machine of the control plane is not judged by what an agent needs.
func TestMachinesWithoutAgent(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	names := func(services ...Service) (out []string) {
		f := healthy(t)
		f.env.Services = services
		for _, r := range f.examine() {
			out = append(out, r.Name)
		}
		return out
	}
	want := []string{"service.compute-agent-cells-api", "database", "clock"}
	testproc.Samef(t, cmp.Diff(want, names(unit("compute-agent-cells-api.service"))), "checks")
	configured := func(s *Service) {
		s.Config = &config.Config{DenyList: config.DenyList{File: "/none"},
			Enrolment: config.Enrolment{Listen: ":8775", CADir: "/none"}}
	}
	want = []string{"service.compute-agent-cells-api", "files.compute-agent-cells-api.enrolment.ca_dir",
		"deny-list.compute-agent-cells-api", "database", "clock"}
	testproc.Samef(t, cmp.Diff(want, names(unit("compute-agent-cells-api.service", configured))),
		"checks of one with files that are missing")
	if got := names(unit("compute-agent-cells-api.service"), unit("compute-agent.service")); len(got) < 20 {
		t.Errorf("with an agent: %q", got)
	}
}

// TestCertificates: files of services that end soon, have ended, or cannot be used.
func TestCertificates(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, tc := range map[string]struct {
		now        time.Time
		text, want string
		severity   Severity
	}{
		"good": {now: noon, severity: OK, want: "none ends within 14 days"},
		"soon": {now: noon.AddDate(0, 0, 3647),
			severity: Warning, want: "cell.peer_ca_file of compute-agent-cell@cell1.service, "},
		"ended":   {now: noon.AddDate(0, 0, 3653), severity: Error, want: ", ended at 20"},
		"damaged": {now: noon, text: "hello", severity: Error, want: "has no certificates in PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy(t)
			if tc.text == "" {
				authority := testproc.Try(pki.InitAuthority(t.TempDir(), "hosts", noon)).Or(t)
				tc.text = string(authority.PEM())
			}
			f.write("/etc/compute-agent/ca.pem", tc.text, 0o644)
			e := f.withCell(
				"[cell]\nlisten = \"127.0.0.1:8780\"\nauth = \"mtls\"\ncert_file = \"/etc/none.pem\"\nkey_file = " +
					"\"/etc/none.pem\"\npeer_ca_file = \"/etc/compute-agent/ca.pem\"\n")
			e.Now = func() time.Time { return tc.now }
			got := checkCertificates(t.Context(), e)
			if len(got) != 1 || got[0].Severity != tc.severity || !strings.Contains(got[0].Found, tc.want) {
				t.Errorf("checkCertificates: got %+v, want %v with %q", got, tc.severity, tc.want)
			}
		})
	}
}

// TestConfigFile: which file a unit's command names.
func TestConfigFile(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for command, want := range map[string]string{
		"/usr/bin/compute-agent cells serve --name cell1 " +
			"--config /etc/compute-agent/cell1.toml --state-dir /x": "/etc/compute-agent/cell1.toml",
		"/usr/bin/compute-agent placement serve": "", "": "", "compute-agent --config": "",
	} {
		testproc.Equal(t, configFileOf(systemd.UnitState{Command: command}), want, command+": %q")
	}
}

// TestOverrides: what a command says counts, also the address that a way to authenticate needs.
func TestOverrides(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, want := range map[string]map[string]string{
		"compute-agent-cell@cell1.service": {"cell.auth": "peer", "cell.listen": "unix:///run/cell1/api.sock",
			"agent.runtime_dir": "/run/cell1"},
		computeAPIUnit: {"compute_api.auth": "peer",
			"compute_api.listen": "unix:///run/cell1/api.sock", "agent.runtime_dir": "/run/cell1"},
		"compute-agent-placement.service": {"agent.runtime_dir": "/run/cell1"}, // no key has its address
	} {
		got := map[string]string{}
		for _, o := range overridesOf(
			systemd.UnitState{Name: name,
				Command: "/usr/bin/compute-agent serve --auth peer --listen unix:///run/cell1/api.sock " +
					"--runtime-dir=/run/cell1"}) {
			got[o.Key] = o.Value
		}
		testproc.Samef(t, cmp.Diff(want, got), "overrides of %s", name)
	}
}

// TestDenyLists: a service that refuses all hosts for its list runs, and so does one that will
// refuse them after its next start.
func TestDenyLists(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const file = "/var/lib/cell1/denied_hosts"
	list := func(t *testing.T, age time.Duration) string {
		one := testproc.Try(pki.NewDenyList([]pki.Denial{{Host: "h417", Before: noon}})).Or(t)
		return string(one.Dated(10, time.Now().Add(-age)).Text())
	}
	copied := "# Copied now and then from https://api.example:8775\n"
	for name, tc := range map[string]struct {
		text       func(t *testing.T) string // nil: no file
		unit       func(*Service)
		own, link  bool
		more       string // of the section
		severity   Severity
		found, fix string
	}{
		"a copy": {text: func(t *testing.T) string { return copied + list(t, time.Hour) }, severity: OK,
			found: "1 list, all usable"},
		"an old copy": {text: func(t *testing.T) string { return copied + list(t, 25*time.Hour) },
			severity: Error, found: "longer ago than deny_list.max_age (24h0m0s)", fix: "journalctl"},
		"a copy of later": {text: func(t *testing.T) string { return copied + list(t, -time.Hour) },
			severity: Error, found: "or ahead of the clock", fix: "journalctl"},
		"no copy, without hosts": {text: func(*testing.T) string {
			return string(
				new(pki.DenyList).Dated(10, time.Now()).Text())
		}, severity: Error, found: "is not a copy of the list of https://api.example:8775", fix: "journalctl"},
		"an empty file": {text: func(*testing.T) string { return "" }, severity: Error,
			found: "is not a copy of the list of https://api.example:8775", fix: "journalctl"},
		"no header, for a time": {own: true, more: "max_age = \"24h\"\n",
			text: func(*testing.T) string { return "h1 2026-01-31T12:00:00Z\n" }, severity: Error,
			found: "has no header, so that its age is not known, and deny_list.max_age is 24h",
			fix:   "compute-agent ca deny-list --renew --file " + file},
		"a link": {link: true, text: func(t *testing.T) string { return copied + list(t, time.Hour) },
			severity: Skipped, found: "does not follow the symbolic link " + file},
		"a damaged copy": {text: func(*testing.T) string { return copied }, severity: Error,
			found: "has neither a header nor a host", fix: "journalctl"},
		"none yet": {severity: Error,
			found: "the list was not fetched from https://api.example:8775 yet", fix: "journalctl"},
		"stopped": {unit: func(s *Service) { s.Active = "inactive" }, severity: OK,
			found: "1 list, all usable"},
		"no copy": {text: func(t *testing.T) string { return list(t, 0) }, severity: Error,
			found: "has 1 hosts that were denied there", fix: "ls -l " + file},
		"its own": {own: true, text: func(t *testing.T) string { return list(t, 1000*time.Hour) }, severity: OK,
			found: "1 list, all usable"},
		"its own damaged": {own: true, text: func(*testing.T) string { return "" }, severity: Error,
			found: "has neither a header nor a host", fix: "compute-agent ca deny-list --file " + file},
		"no header": {own: true, text: func(*testing.T) string { return "h1 2026-01-31T12:00:00Z\n" },
			severity: Warning, found: "has no header", fix: "compute-agent ca deny-list --renew --file " + file},
		"its own missing": {own: true, severity: Error,
			found: file + " does not exist", fix: "compute-agent ca deny-list --create --file " + file},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy(t)
			f.mkdir("/var/lib/cell1", 0o700)
			f.owners["/var/lib/cell1"] = serviceUID
			if tc.text != nil {
				f.write(file, tc.text(t), 0o640)
			}
			if tc.link {
				f.must(os.Rename(f.path(file), f.path("/etc/list")))
				f.must(os.Symlink("/etc/list", f.path(file)))
			}
			section := "url = \"https://api.example:8775\"\n"
			if tc.own {
				section = "file = \"" + file + "\"\n"
			}
			if tc.unit == nil {
				tc.unit = func(*Service) {}
			}
			e := f.withCell("[deny_list]\n"+section+tc.more, tc.unit)
			got := checkDenyLists(t.Context(), e)
			if len(got) != 1 || got[0].Severity != tc.severity || !strings.Contains(got[0].Found, tc.found) ||
				!strings.HasPrefix(got[0].Fix, tc.fix) {
				t.Errorf("checkDenyLists: got %+v, want %v with %q", got, tc.severity, tc.found)
			}
			if tc.text != nil && tc.severity == OK {
				f.owners["/var/lib/cell1"] = 0
				if got := checkDenyLists(t.Context(), e); got[0].Severity != Error ||
					!strings.Contains(got[0].Found, "compute-agent-cell cannot enter /var/lib/cell1") {
					t.Errorf("closed for the service: %+v", got)
				}
			}
		})
	}
}
