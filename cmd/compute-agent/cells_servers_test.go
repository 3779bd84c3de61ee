// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRealManageOnServers: the commands work on a database of servers, say what they did, and show
// no password.
func TestRealManageOnServers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.EachServer(t, func(t *testing.T, empty func(testing.TB) string) {
		dsn := empty(t)
		u := testproc.Try(url.Parse(dsn)).Or(t)
		password, _ := u.User.Password()
		dsn = dbservers.WithPasswordFile(t, dsn)
		backup := filepath.Join(t.TempDir(), "copy")
		shown := u.Scheme + "://" + u.User.Username() + "@" + u.Host + u.Path
		for _, step := range []struct {
			args  string
			fails bool
			says  []string
		}{
			{"list", true, []string{"there is no API database at " + shown}},
			{"db version", false, []string{"no database", "creates it"}},
			{"create --name cell1 --url http://127.0.0.1:1", false, []string{"Created a new API database: " + shown}},
			{"create --name cell2 --url http://127.0.0.1:2", false, []string{"cell2"}},
			{"list", false, []string{"cell1", "cell2"}},
			{"disable cell1", false, []string{"cell1"}},
			{"db version", false, []string{"database      " + shown + "\n", "upgrade       not needed"}},
			{"db upgrade", false, []string{shown + ": up to date at step"}},
			{"db upgrade --to 1", true, []string{shown}},
			{"db online-data-migrations", false, nil},
			{"db backup " + backup, false, []string{"a copy of " + shown}},
			{"db check " + backup, false, []string{"is whole"}},
			{"db restore " + backup, true, []string{shown, "it is not empty"}},
		} {
			out, told, err := manage(t, t.TempDir(), append(strings.Fields(step.args), "--database", dsn)...)
			all := out + told
			if err != nil {
				all += err.Error()
			}
			if (err != nil) != step.fails {
				t.Errorf("%s: %s", step.args, all)
			}
			for _, text := range step.says {
				testproc.Contains(t, all, text, "%s does not say %q: %s", step.args, text)
			}
			if strings.Contains(all, password) {
				t.Errorf("%s shows the password: %s", step.args, all)
			}
		}
	})
}
