// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/systemd"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestDatabaseAddresses: the address of a database is checked when it is read. One with a password
// is refused, and the password is shown nowhere.
func TestDatabaseAddresses(t *testing.T) {
	load := func(dsn string) (*Config, error) {
		return Load(machine(
			write(t, map[string]string{"compute-agent.toml": "[compute_api]\ndatabase = \"" + dsn + "\"\n"})))
	}
	for dsn, problem := range map[string]string{
		"":                              "",
		"sqlite:///var/api.db":          "",
		"mysql://nova@db/api":           "",
		"mysql://nova@db1,db2:3307/api": "",
		"mysql+pymysql://nova@db/api?charset=utf8":                 "",
		"mysql+pymysql://nova:password@db/api?charset=utf8":        "may not hold a password",
		"postgres://nova@db/api?password_file=/etc/password":       "",
		"postgresql+psycopg2://nova:password@db/api":               "may not hold a password",
		"sqlite://relative.db":                                     "sqlite:///PATH",
		"/var/api.db":                                              "sqlite:///PATH",
		"oracle://nova:password@db/api":                            "not supported",
		"mysql://nova:password@db":                                 "does not name a database",
		"mysql://nova:password@db/api?password_file=/etc/password": "leave one out",
		"mysql://nova:password@db/api?no_such_option=1":            "no_such_option",
	} {
		_, err := load(dsn)
		switch {
		case (err != nil) != (problem != ""), err != nil && !strings.Contains(err.Error(), problem):
			t.Errorf("%s: %v", dsn, err)
		case err != nil && strings.Contains(err.Error(), "nova:password"):
			t.Errorf("%s: the error shows the password: %v", dsn, err)
		}
	}
}

// TestPasswordThatIsACredential: the password of a database may be a credential of systemd, which a
// service has to have, and which others that read the same file need not.
func TestPasswordThatIsACredential(t *testing.T) {
	dir := t.TempDir()
	file, credentials := filepath.Join(dir, "c.toml"), filepath.Join(dir, "of@unit")
	testproc.Check(t, errors.Join(
		os.WriteFile(file,
			[]byte("[cell]\ndatabase = \"mysql://cell@db/cell1?charset=utf8&password_file=db-password\"\n"), 0o600),
		os.Mkdir(credentials, 0o700), os.WriteFile(filepath.Join(credentials, "db-password"), []byte("hush\n"), 0o600)))
	passed := "CREDENTIALS_DIRECTORY=" + credentials
	for name, tc := range map[string]struct {
		environ, uses []string
		unit          string
		want          string // "" for an error
	}{
		"of its own": {[]string{"HOME=/none", passed}, []string{"cell"},
			"", filepath.Join(credentials, "db-password")},
		"of its own, not passed": {[]string{"HOME=/none"}, []string{"cell"}, "", ""},
		"of another service": {[]string{"HOME=/none"},
			[]string{"placement"}, "", "/run/credentials/compute-agent-cell@.service/db-password"},
		"of an instance": {[]string{"HOME=/none"}, []string{}, "compute-agent-cell@cell1.service",
			"/run/credentials/compute-agent-cell@cell1.service/db-password"},
		"of a cell, for the API": {[]string{"HOME=/none"},
			[]string{}, "compute-agent-cells-api.service", "/run/credentials/compute-agent-cell@.service/db-password"},
	} {
		cfg, err := Load(Options{File: file, Environ: tc.environ, Uses: tc.uses, Unit: tc.unit})
		if tc.want == "" {
			testproc.ErrorIs(t, err, systemd.ErrNoCredential, name+": %v")
			continue
		}
		testproc.Check(t, err)
		a := testproc.Try(engine.ParseAddress(cfg.Cell.Database)).Or(t)
		if a.PasswordFile != tc.want {
			t.Errorf("%s: %s in %s", name, a.PasswordFile, cfg.Cell.Database)
		}
	}
}
