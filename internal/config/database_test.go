// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

// TestDatabaseAddresses: the address of a database is checked when it is read. One with a password
// is refused, and the password is shown nowhere.
func TestDatabaseAddresses(t *testing.T) {
	load := func(dsn string) (*Config, error) {
		return Load(machine(write(t, map[string]string{"compute-agent.toml": "[compute_api]\ndatabase = \"" + dsn + "\"\n"})))
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
