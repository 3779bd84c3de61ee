// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/systemd"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// unit is an enabled unit that runs.
func unit(name string, change ...func(*Service)) Service {
	s := Service{UnitState: systemd.UnitState{Name: name, Active: "active", Sub: "running", Result: "success", File: "enabled"}}
	for _, c := range change {
		c(&s)
	}
	return s
}

// TestServices: each state of a service of the control plane.
func TestServices(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const cell, look = "compute-agent-cell@cell2.service", "journalctl --unit compute-agent-cell@cell2.service --lines 20 --output cat"
	for name, tc := range map[string]struct {
		change     func(*Service)
		severity   Severity
		found, fix string
	}{
		"runs":    {func(*Service) {}, OK, "it runs", ""},
		"stopped": {func(s *Service) { s.Active, s.Sub = "inactive", "dead" }, Error, "it is enabled, and does not run", "systemctl start " + cell},
		"invalid": {
			func(s *Service) { s.Active, s.Result, s.Exit = "failed", "exit-code", 78 }, Error, "it has failed: its configuration is invalid",
			look + "   # then systemctl restart " + cell,
		},
		"refused": {func(s *Service) { s.Active, s.Result, s.Exit = "failed", "exit-code", 3 }, Error, "it has failed: it refused to start", look + "   # then systemctl restart " + cell},
		"killed":  {func(s *Service) { s.Active, s.Result, s.Exit = "failed", "signal", 9 }, Error, "it has failed: signal 9", look + "   # then systemctl restart " + cell},
		"limit": {
			func(s *Service) { s.Active, s.Result = "failed", "start-limit-hit" }, Error, "it has failed: start-limit-hit",
			look + "   # then systemctl restart " + cell,
		},
		"restarts forever": {
			func(s *Service) {
				s.Active, s.Sub, s.Result, s.Exit, s.Restarts = "activating", "auto-restart", "exit-code", 1, 33
			}, Error,
			"it ends again and again: exit code 1, restarted 33 times", look,
		},
		"between two restarts": {func(s *Service) { s.Active, s.Sub, s.Result, s.Restarts = "activating", "start", "success", 33 }, Error, "again and again: success", look},
		"restarted often":      {func(s *Service) { s.Restarts = 5 }, Warning, "it runs, and was restarted 5 times", look},
		"starting":             {func(s *Service) { s.Active, s.Sub = "activating", "start" }, Warning, "it is activating", look},
		"not enabled":          {func(s *Service) { s.File = "disabled" }, Warning, "it runs, and is not enabled", "systemctl enable " + cell},
	} {
		t.Run(name, func(t *testing.T) {
			got := result(t, run(t.Context(), Env{Services: []Service{unit(cell, tc.change)}, ClockSynced: clockSynced, Now: time.Now}, []Check{{"service", "Services", checkServices}}), "service.compute-agent-cell@cell2")
			if got.Severity != tc.severity || !strings.Contains(got.Found, tc.found) || got.Fix != tc.fix || (got.Why == "") != (tc.severity == OK) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestCells: a cell that does not answer the compute API is an error, with its name and since when;
// without a compute API there is no result.
func TestCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	api := func(s *Service) {
		s.Cells = []Cell{{Name: "cell1", Up: true, Since: noon}, {Name: "cell2", URL: "https://two", Since: noon.Add(-26 * time.Second), Cause: "connection refused"}}
	}
	e := &Env{Now: func() time.Time { return noon }, Services: []Service{unit(ComputeAPIUnit, api)}}
	want := []Result{{
		Name: "cells.cell2", Title: "Cell cell2", Severity: Error, Found: "down for 26s: connection refused",
		Why: "Its servers are shown as UNKNOWN, and cannot be changed; no new server goes there. Guests keep running.",
		Fix: "systemctl status compute-agent-cell@cell2.service   # on the machine of https://two",
	}}
	testproc.Same(t, cmp.Diff(want, checkCells(t.Context(), e)))
	e.Services = append(e.Services, unit("compute-agent-cell@cell2.service"))
	want[0].Fix = "systemctl status compute-agent-cell@cell2.service"
	testproc.Same(t, cmp.Diff(want, checkCells(t.Context(), e)))
	if first := ControlPlane(e.Services)[0]; first.Name != "cells.cell2" {
		t.Errorf("the first of a status is %+v", first)
	}
	e.Services[0].Cells[1].Cell0 = true
	if why := checkCells(t.Context(), e)[0].Why; !strings.HasPrefix(why, "Servers that no host takes stay in BUILD") || strings.Contains(why, "Guests") {
		t.Errorf("without cell0: %s", why)
	}
	e.Services[0].Cells[1].Up = true
	if got := checkCells(t.Context(), e); len(got) != 1 || got[0].Severity != OK || got[0].Found != "2 cells, all answer the compute API" {
		t.Errorf("with all cells: %+v", got)
	}
	e.Services[0].Cells, e.Services[0].CellsErr = nil, errors.New("permission denied")
	if got := checkCells(t.Context(), e); len(got) != 1 || got[0].Severity != Skipped || got[0].Found != "permission denied" {
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
	if len(got) != 1 || got[0].Severity != OK || !strings.Contains(got[0].Found, "compute-agent-placement.socket listens") {
		t.Errorf("%+v", got)
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
		"good":    {now: noon, severity: OK, want: "none ends within 14 days"},
		"soon":    {now: noon.AddDate(0, 0, 3647), severity: Warning, want: "cell.peer_ca_file of compute-agent-cell@cell1.service, "},
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
			e := &Env{Root: f.root, Now: func() time.Time { return tc.now }, Services: []Service{unit("compute-agent-cell@cell1.service", func(s *Service) {
				s.Config = &config.Config{Cell: config.Cell{PeerCAFile: "/etc/compute-agent/ca.pem"}}
			})}}
			got := checkCertificates(t.Context(), e)
			if len(got) != 1 || got[0].Severity != tc.severity || !strings.Contains(got[0].Found, tc.want) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestConfigFile: which file a unit's command names.
func TestConfigFile(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for command, want := range map[string]string{
		"/usr/bin/compute-agent cells serve --name cell1 --config /etc/compute-agent/cell1.toml --state-dir /x": "/etc/compute-agent/cell1.toml",
		"/usr/bin/compute-agent placement serve": "", "": "", "compute-agent --config": "",
	} {
		testproc.Equal(t, ConfigFile(systemd.UnitState{Command: command}), want, command+": %q")
	}
}
