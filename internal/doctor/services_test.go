// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
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
				t.Errorf("%+v", got)
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

// serviceUID is the user of the cell's service, and its group.
const serviceUID = 991

// withCell is a machine with a cell that has a configuration; its unit may be changed.
func (f *fixture) withCell(text string, change ...func(*Service)) *Env {
	f.t.Helper()
	const file = "/etc/compute-agent/cell1.toml"
	f.write(file, text, 0o640)
	command := systemd.UnitState{Command: "/usr/bin/compute-agent cell serve --config " + file +
		" --state-dir=/var/lib/cell1"}
	cfg, err := config.Load(config.Options{
		File: configFileOf(command), Overrides: overridesOf(command), Root: f.root, Environ: []string{},
		UID: func() int { return 0 }, Uses: []string{},
	})
	f.must(err)
	cell := unit("compute-agent-cell@cell1.service", append(change, func(s *Service) {
		s.Config, s.User, s.Groups = cfg, "compute-agent-cell", []string{"compute-agent-cell"}
	})...)
	return &Env{
		Root: f.root, Services: []Service{cell}, Stat: f.stat, Now: func() time.Time { return noon },
		LookupGroup: func(string) (int, error) { return serviceUID, nil },
		LookupUser:  func(name string) (Account, error) { return Account{Name: name, UID: serviceUID}, nil },
	}
}

// TestFilesOfServices: what keeps a service from using a file shows before its next start: the
// command is root's, and the service another user.
func TestFilesOfServices(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const (
		token, key, certificate = "/etc/compute-agent/cell-tokens", "/etc/compute-agent/cell.key",
			"/etc/compute-agent/cell.pem"
		digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef compute-api nova\n"
		of     = "cell.token_file of compute-agent-cell@cell1.service: "
	)
	pair := func(t *testing.T) (certificate, key string) {
		private, text, err := pki.NewKey()
		testproc.Check(t, err)
		request := testproc.Try(pki.ParseRequest(testproc.Try(pki.NewRequest(private, "cell1")).Or(t))).Or(t)
		authority := testproc.Try(pki.InitAuthority(t.TempDir(), "site", noon)).Or(t)
		id := pki.Identity{Kind: pki.Service, Name: "cell1", Names: []string{"cell1"}}
		signed := testproc.Try(authority.Sign(request, id, pki.SignOptions{Now: noon, Lifetime: time.Hour})).Or(t)
		return string(signed), string(text)
	}
	for name, tc := range map[string]struct {
		change     func(f *fixture)
		severity   Severity
		found, fix string
	}{
		"good": {func(*fixture) {}, OK, "3 files, all usable", ""},
		"of another user": {
			func(f *fixture) { f.owners[token], f.groups[token] = 5, serviceUID }, Error,
			of + token + " belongs to user 5, which is neither root nor compute-agent-cell", "chown root " + token,
		},
		"closed": {
			func(f *fixture) { f.groups[token] = 0 }, Error,
			of + "compute-agent-cell cannot read " + token + ", which belongs to user 0 and group 0 with mode 0640",
			"chgrp compute-agent-cell " + token + " && chmod g+r " + token,
		},
		"directory closed": {func(f *fixture) { f.mkdir("/etc/compute-agent", 0o700) }, Error,
			of + "compute-agent-cell cannot enter /etc/compute-agent",
			"chgrp compute-agent-cell /etc/compute-agent && chmod g+x /etc/compute-agent"},
		"open": {func(f *fixture) { f.chmod(token, 0o644) }, Error, of + token +
			" has mode 0644, so that other users can read or change it", "chmod g-w,o= " + token},
		"missing": {func(f *fixture) { f.remove(token) }, Error,
			of + token + " does not exist", "ls -l " + token},
		"a directory": {func(f *fixture) { f.remove(token); f.mkdir(token, 0o755) }, Error, of + token +
			" is not a regular file", "ls -ld " + token},
		"damaged": {func(f *fixture) { f.write(token, "hello\n", 0o640) }, Error, of + token +
			" line 1: 1 fields", "editor " + token},
		"unknown to root": {func(f *fixture) { f.denied[token] = true }, Skipped, of + token +
			" cannot be looked at; run this command as root", ""},
		"an open key": {func(f *fixture) { f.chmod(key, 0o644) }, Error,
			"cell.key_file of compute-agent-cell@cell1.service: " + key + " has mode 0644", "chmod g-w,o= " + key},
		"another key": {
			func(f *fixture) { _, other := pair(f.t); f.write(key, other, 0o640) }, Error,
			"the certificate " + certificate + " with the key " + key + ": tls: private key does not match public key",
			"editor " + key,
		},
		"a certificate that all may change": {func(f *fixture) { f.chmod(certificate, 0o666) }, Error,
			"all users can change it", "chmod o-w " + certificate},
		"a certificate that is gone": {func(f *fixture) { f.remove(certificate) }, Error,
			"cell.cert_file of compute-agent-cell@cell1.service: " + certificate +
				" does not exist", "ls -l " + certificate},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy(t)
			f.write(token, digest, 0o640)
			shown, secret := pair(t)
			f.write(certificate, shown, 0o644)
			f.write(key, secret, 0o640)
			f.groups[token], f.groups[key] = serviceUID, serviceUID
			tc.change(f)
			e := f.withCell("[cell]\nlisten = \"127.0.0.1:8780\"\nauth = \"token\"\ntoken_file = \"" + token +
				"\"\ncert_file = \"" + certificate + "\"\nkey_file = \"" + key + "\"\n" +
				"[placement_client]\nauth = \"token\"\ntoken_file = \"/etc/another-service\"\n")
			got := checkFiles(t.Context(), e)
			if name == "directory closed" {
				got = got[len(got)-1:] // it closes all three
			}
			if len(got) != 1 || got[0].Severity != tc.severity ||
				!strings.Contains(got[0].Found, tc.found) || got[0].Fix != tc.fix {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestFilesByTheirKeys: what else a service reads, and what the modes mean there.
func TestFilesByTheirKeys(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	f := healthy(t)
	for _, path := range []string{"/etc/tokens", "/etc/password", "/etc/cells.key", "/ca/ca.key",
		"/etc/database", "/etc/policy"} {
		f.write(path, "hello\n", 0o644)
	}
	f.write("/etc/compute-agent/api.toml", `[compute_api]
auth = "keystone"
database = "mysql://nova@db/nova_api?password_file=/etc/database"
cell_cert_file = "/etc/none"
cell_key_file = "/etc/cells.key"
key_file = "passed.key"
cert_file = "passed.pem"
policy_file = "/etc/policy"
[keystone]
auth_url = "https://keystone.example/v3"
username = "nova"
password_file = "/etc/password"
[placement_tls]
cert_file = "/etc/of-placement"
key_file = "/etc/of-placement"
[enrolment]
listen = "0.0.0.0:8775"
ca_dir = "/ca"
names = ["api.example"]
`, 0o640)
	e := f.withCell("")
	cfg, err := config.Load(config.Options{File: "/etc/compute-agent/api.toml", Root: f.root,
		UID: func() int { return 0 }, Uses: []string{}})
	testproc.Check(t, err)
	e.Services = []Service{
		unit(computeAPIUnit, func(s *Service) { s.Config, s.User = cfg, "compute-agent-cells-api" }),
		unit("compute-agent-placement.service", func(s *Service) {
			s.Config, s.Command = &config.Config{},
				"/usr/bin/compute-agent placement serve --auth token --token-file=/etc/tokens"
		}),
	}
	var got []string
	for _, r := range checkFiles(t.Context(), e) {
		got = append(got, string(r.Severity)+" "+strings.TrimPrefix(r.Name, "files."))
	}
	const api = "compute-agent-cells-api."
	want := []string{
		"warning " + api + "compute_api.cell_key_file", "error " + api + "compute_api.cell_cert_file",
		"error " + api + "keystone.password_file",
		"error " + api + "enrolment.ca_dir", "error " +
			api + "compute_api.database", "error compute-agent-placement.token-file",
	}
	slices.Sort(want)
	slices.Sort(got)
	testproc.Same(t, cmp.Diff(want, got))
	cfg.ComputeAPI.Auth, cfg.Enrolment.Listen = config.AuthNoauth, "" // with them two files are not used
	if got := checkFiles(t.Context(), e); len(got) != len(want)-2 || slices.ContainsFunc(got, func(r Result) bool {
		return strings.Contains(r.Name, "keystone") || strings.Contains(r.Name, "enrolment")
	}) {
		t.Errorf("files that are not used are judged: %+v", got)
	}
	e.LookupUser = func(string) (Account, error) { return Account{}, errors.New("no such user") }
	if got := checkFiles(t.Context(), e); got[0].Severity != Skipped || got[0].Found != "the user of "+
		computeAPIUnit+": no such user" {
		t.Errorf("without the user: %+v", got[0])
	}
}

// TestLinksOfUsers: root does not follow a link that a service's user can have made, and says
// nothing of what is there. Links of root are followed.
func TestLinksOfUsers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const section = "[cell]\nlisten = \"127.0.0.1:8780\"\nauth = \"token\"\ncert_file = \"/etc/none.pem\"\nkey_file " +
		"= \"/etc/none.pem\"\npeer_ca_file = \"/var/lib/cell1/ca.pem\"\n"
	const token = "token_file = \"/var/lib/cell1/tokens\"\n"
	world := func(f *fixture, text, link string) *Env {
		f.write("/etc/compute-agent/secret", "hello\n", 0o640)
		f.mkdir(filepath.Dir(link), 0o755)
		f.must(os.Symlink("../../../etc/compute-agent/secret", f.path(link)))
		return f.withCell(text)
	}
	for name, tc := range map[string]struct {
		text, link string
		change     func(*fixture)
		check      func(*Env) []Result
		severity   Severity
		found      string
	}{
		"tokens": {
			section + token, "/var/lib/cell1/tokens", func(f *fixture) { f.owners["/var/lib/cell1"] = serviceUID },
			func(e *Env) []Result { return checkFiles(t.Context(), e) }, Skipped,
			"does not follow the symbolic link /var/lib/cell1/tokens",
		},
		"a directory that others can write to": {
			section + token, "/var/lib/cell1/tokens", func(f *fixture) { f.chmod("/var/lib/cell1", 0o777) },
			func(e *Env) []Result { return checkFiles(t.Context(), e) }, Skipped,
			"does not follow the symbolic link /var/lib/cell1/tokens",
		},
		"of root": {
			section + token, "/var/lib/cell1/tokens",
			func(f *fixture) { f.groups["/var/lib/cell1/tokens"] = serviceUID },
			func(e *Env) []Result { return checkFiles(t.Context(), e) }, Error,
			"/var/lib/cell1/tokens line 1: 1 fields",
		},
		"a certificate": {
			section + token, "/var/lib/cell1/ca.pem", func(f *fixture) { f.owners["/var/lib/cell1"] = serviceUID },
			func(e *Env) []Result { return checkCertificates(t.Context(), e) }, Skipped,
			"does not follow the symbolic link /var/lib/cell1/ca.pem",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy(t)
			e := world(f, tc.text, tc.link)
			tc.change(f)
			all := tc.check(e)
			i := slices.IndexFunc(all, func(r Result) bool { return strings.Contains(r.Found, tc.link) })
			if i < 0 || all[i].Severity != tc.severity || !strings.Contains(all[i].Found, tc.found) {
				t.Errorf("%+v", all)
			}
		})
	}
	f := healthy(t)
	f.remove("/var/lib/cell1")
	e := world(f, section+token, "/var/lib/cell1/other")
	f.owners["/var/lib/cell1"] = 5
	f.write("/var/lib/cell1/tokens", "hello\n", 0o640)
	all := checkFiles(t.Context(), e)
	i := slices.IndexFunc(all, func(r Result) bool { return strings.Contains(r.Found, "/var/lib/cell1/tokens") })
	// it may be another file by the time of the command
	if i < 0 || !strings.HasPrefix(all[i].Fix, "ls -l /var/lib/cell1/tokens ") {
		t.Errorf("%+v", all)
	}
}

// TestDatabasePasswords: the file of a password is judged wherever the address of the database is,
// and so is a credential of systemd.
func TestDatabasePasswords(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const unitName = "compute-agent-cell@cell1.service"
	for _, path := range []string{"/etc/password", credentialsDir + unitName + "/password"} {
		f := healthy(t)
		f.write(path, "hello\n", 0o644)
		file := strings.TrimPrefix(path, credentialsDir+unitName+"/")
		for _, flag := range []bool{true, false} {
			address, text, command := "mysql://nova@db/cell?password_file="+file+"&charset=utf8", "",
				"/usr/bin/compute-agent cells serve"
			if flag {
				command += " --database " + address
			} else {
				text = "[cell]\ndatabase = \"" + address + "\"\n"
			}
			u := systemd.UnitState{Name: unitName, Command: command}
			f.write("/etc/compute-agent/cell1.toml", text, 0o640)
			cfg, err := config.Load(config.Options{File: "/etc/compute-agent/cell1.toml", Overrides: overridesOf(u),
				Root: f.root, Environ: []string{}, UID: func() int { return 0 }, Uses: []string{}})
			testproc.Check(t, err)
			e := f.withCell("", func(s *Service) { s.Command = command })
			e.Services[0].Config = cfg
			got := checkFiles(t.Context(), e)
			if len(got) != 1 || got[0].Name != "files.compute-agent-cell@cell1.cell.database" ||
				!strings.Contains(got[0].Found, path+" has mode 0644") {
				t.Errorf("%s, with the flag: %t: %+v", path, flag, got)
			}
		}
	}
}

// TestServicesThatReadAllFiles: a file that only the capability of a unit lets it read is no error,
// of a service of the control plane and of the agent.
func TestServicesThatReadAllFiles(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	f := healthy(t)
	f.write("/etc/tokens", "hello\n", 0o600)
	e := f.withCell("[cell]\nlisten = \"127.0.0.1:8780\"\nauth = \"token\"\ntoken_file = \"/etc/tokens\"\n",
		func(s *Service) { s.ReadsAll = true })
	if got := checkFiles(t.Context(), e); len(got) != 1 ||
		got[0].Severity != Skipped || !strings.Contains(got[0].Found, "CAP_DAC_READ_SEARCH") {
		t.Errorf("%+v", got)
	}
	f.chmod(configFile, 0o600)
	if got := result(t, f.examine(), "config"); got.Severity != Error ||
		!strings.Contains(got.Found, "cannot be read by") {
		t.Errorf("a configuration that is closed to the agent: %+v", got)
	}
	f = healthy(t)
	f.chmod(configFile, 0o600)
	f.env.Services = []Service{unit("compute-agent.service",
		func(s *Service) { s.User, s.ReadsAll = ServiceUser, true })}
	if got := result(t, f.examine(), "config"); got.Severity != OK {
		t.Errorf("with the capability: %+v", got)
	}
}

// TestTwoCells: the results of two cells of one machine have different names.
func TestTwoCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	f := healthy(t)
	e := f.withCell("[cell]\nlisten = \"127.0.0.1:8780\"\nauth = \"token\"\ntoken_file = \"/etc/none\"\n")
	e.Services = append(e.Services, e.Services[0])
	e.Services[1].Name = "compute-agent-cell@cell2.service"
	var got []string
	for _, r := range checkFiles(t.Context(), e) {
		got = append(got, r.Name)
	}
	testproc.Same(t, cmp.Diff([]string{"files.compute-agent-cell@cell1.cell.token_file",
		"files.compute-agent-cell@cell2.cell.token_file"}, got))
}

// TestUnusableConfiguration: that files are not checked is reported, with the reason.
func TestUnusableConfiguration(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	f := healthy(t)
	const file = "/etc/compute-agent/cell1.toml"
	f.write(file, "[cell]\nlisten = 5\n", 0o640)
	_, err := config.Load(config.Options{File: file,
		Root: f.root, Environ: []string{}, UID: func() int { return 0 }, Uses: []string{}})
	e := f.withCell("", func(s *Service) { s.Active = "failed" })
	s := &e.Services[0]
	s.Config, s.ConfigErr, s.Command = nil, err, "/usr/bin/compute-agent cells serve --config "+file
	judge := func() Result {
		return result(t, run(t.Context(), *e, []Check{{"service", "Services", checkServices}}),
			"service.compute-agent-cell@cell1.config")
	}
	e.ClockSynced = clockSynced
	if got := judge(); got.Severity != Error ||
		!strings.Contains(got.Found, "its configuration "+file+" cannot be used: "+file+":2: cell.listen") ||
		got.Fix != "compute-agent config check --config "+file {
		t.Errorf("%+v", got)
	}
	s.Active = "active"
	if got := judge(); got.Severity != Warning || !strings.Contains(got.Found, "cell.listen") || got.Fix == "" {
		t.Errorf("of a service that runs, as its unit may have variables: %+v", got)
	}
	s.Active, s.Command = "inactive", s.Command+" --listen ${LISTEN}"
	if got := judge(); got.Severity != Skipped || !strings.Contains(got.Found, "without the variables") {
		t.Errorf("with a variable in the command: %+v", got)
	}
	s.Command = strings.TrimSuffix(s.Command, " --listen ${LISTEN}")
	f.owners["/etc/compute-agent"] = serviceUID
	f.must(os.Rename(f.path(file), f.path("/etc/other")))
	f.must(os.Symlink("/etc/other", f.path(file)))
	if got := judge(); got.Severity != Error || got.Found != "its configuration "+file+" cannot be used" {
		t.Errorf("where a user can have put a link: %+v", got)
	}
	s.ConfigErr, e.Self = os.ErrPermission, 1000
	if got := judge(); got.Severity != Skipped || !strings.Contains(got.Found, "run this command as root") {
		t.Errorf("of another user: %+v", got)
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
				t.Errorf("%+v", got)
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
