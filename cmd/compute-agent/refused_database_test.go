// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRealRefusedDatabases: a service does not start on a database that is not its own or that it
// does not know, and systemd does not start it again: exit code 3.
func TestRealRefusedDatabases(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const newer = "INSERT INTO %s (number, done, needs, token, beat) VALUES (99, 1, 99, 'x', 0)"
	run := func(t *testing.T, args ...string) (int, string) {
		var stderr bytes.Buffer
		code := execute(t.Context(), args, new(bytes.Buffer), &stderr)
		return code, stderr.String()
	}
	dbservers.Each(t, func(t *testing.T, fresh func(testing.TB) string) {
		dir := t.TempDir()
		dirs := []string{"--state-dir", filepath.Join(dir, "state"), "--runtime-dir", filepath.Join(dir, "run")}
		// The configuration takes a password from a file only.
		database := func(t *testing.T) (given, whole string) {
			whole = fresh(t)
			return dbservers.WithPasswordFile(t, whole), whole
		}
		serve := map[string][]string{
			"placement": {"placement", "serve", "--listen", "127.0.0.1:0"},
			"API":       {"cells", "api", "--listen", testproc.FreeAddress(t)},
		}
		refused := func(t *testing.T, service, given, says string) {
			t.Helper()
			args := append(append(serve[service], "--database", given), dirs...)
			if code, stderr := run(t, args...); code != cli.ExitProtect || !strings.Contains(stderr, says) {
				t.Errorf("%s: exit code %d, want %d; %q is not in %s", service, code, cli.ExitProtect, says, stderr)
			}
		}
		must := func(t *testing.T, args ...string) {
			t.Helper()
			if code, stderr := run(t, append(args, dirs...)...); code != cli.ExitDone {
				t.Fatalf("%v: exit code %d: %s", args, code, stderr)
			}
		}
		given, whole := database(t)
		must(t, "placement", "db", "upgrade", "--database", given)
		refused(t, "API", given, "schema cannot be used")
		servers := strings.Contains(whole, "@")
		if servers {
			dbservers.Execute(t, whole, fmt.Sprintf(newer, "ledger_migrations"))
			refused(t, "placement", given, "newer program")
			dbservers.Execute(t, whole, "DELETE FROM ledger_migrations WHERE number = 99")
			must(t, "placement", "adopt", "--hand-back", "--database", given)
			refused(t, "placement", given, "adopt")
		}
		given, _ = database(t)
		must(t, "cells", "manage", "db", "upgrade", "--database", given)
		refused(t, "placement", given, "another program")
	})
}

// TestExitCodesOfDatabases: what may pass by itself is a failure, after which systemd starts a
// service again.
func TestExitCodesOfDatabases(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for kind, want := range map[error]int{
		engine.ErrSchema: cli.ExitProtect, engine.ErrNotDatabase: cli.ExitProtect, engine.ErrLost: cli.ExitProtect,
		engine.ErrLocked: cli.ExitFailed, engine.ErrInUse: cli.ExitFailed,
		engine.ErrUnreachable: cli.ExitFailed, engine.ErrDenied: cli.ExitFailed,
		engine.ErrFull: cli.ExitFailed, engine.ErrReadOnly: cli.ExitFailed, engine.ErrIO: cli.ExitFailed,
		engine.ErrCorrupt: cli.ExitFailed,
	} {
		if got := cli.ExitCode(fmt.Errorf("open the database: %w", &engine.Error{Kind: kind})); got != want {
			t.Errorf("%v: exit code %d, want %d", kind, got, want)
		}
	}
}
