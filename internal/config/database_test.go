// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

// TestDatabaseAddresses: the address of the API database is checked when it is read, and its
// password is shown nowhere.
func TestDatabaseAddresses(t *testing.T) {
	load := func(dsn string) (*Config, error) {
		return Load(machine(write(t, map[string]string{"compute-agent.toml": "[compute_api]\ndatabase = \"" + dsn + "\"\n"})))
	}
	for dsn, problem := range map[string]string{
		"":                     "",
		"sqlite:///var/api.db": "",
		"mysql://nova@db/api":  "",
		"mysql://nova:pass%2Fword@db1,db2:3307/api":                "",
		"mysql+pymysql://nova:password@db/api?charset=utf8":        "",
		"postgres://nova@db/api?password_file=/etc/password":       "",
		"postgresql+psycopg2://nova:password@db/api":               "",
		"sqlite://relative.db":                                     "sqlite:///PATH",
		"/var/api.db":                                              "sqlite:///PATH",
		"oracle://nova:password@db/api":                            "not supported",
		"mysql://nova:password@db":                                 "does not name a database",
		"mysql://nova:password@db/api?password_file=/etc/password": "leave one out",
		"mysql://nova:password@db/api?no_such_option=1":            "no_such_option",
	} {
		c, err := load(dsn)
		switch {
		case (err != nil) != (problem != ""), err != nil && !strings.Contains(err.Error(), problem):
			t.Errorf("%s: %v", dsn, err)
		case err != nil && strings.Contains(err.Error(), "nova:password"):
			t.Errorf("%s: the error shows the password: %v", dsn, err)
		case err == nil:
			for _, e := range c.Entries() {
				if e.Key == "compute_api.database" && (strings.Contains(e.Value, "pass%2F") || strings.Contains(e.Value, "nova:password")) {
					t.Errorf("%s is shown as %s", dsn, e.Value)
				}
			}
		}
	}
	before, err := load("mysql://nova:one@db/api")
	if err != nil {
		t.Fatal(err)
	}
	after, err := load("mysql://nova:two@db/api")
	if err != nil {
		t.Fatal(err)
	}
	if got := Diff(before, after); len(got) != 1 || got[0].Old != `"mysql://nova:xxxxx@db/api"` || got[0].New != got[0].Old {
		t.Errorf("another password: %+v", got)
	}
}
