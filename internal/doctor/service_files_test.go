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

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/systemd"
	"github.com/compute-agent/compute-agent/test/testproc"
)

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
				t.Errorf("the check: got %+v, want %v with %q and the fix %q", got, tc.severity, tc.found, tc.fix)
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
				t.Errorf("the check of links: got %+v, want %v with %q", all, tc.severity, tc.found)
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
		t.Errorf("checkFiles: got %+v, want a fix that only lists the file", all)
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
		t.Errorf("checkFiles of a service that reads all files: got %+v, want it skipped", got)
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
		t.Errorf("the check of an invalid configuration: got %+v, want an error with line and fix", got)
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
