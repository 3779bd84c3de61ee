// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// auditLines is what the command audit prints about a state directory.
func auditLines(t *testing.T, dir string, args ...string) []string {
	t.Helper()
	var out, problems bytes.Buffer
	if code := execute(t.Context(), append([]string{"audit", "--state-dir", dir}, args...), &out,
		&problems); code != cli.ExitDone {
		t.Fatalf("exit code %d: %s", code, &problems)
	}
	return slices.Collect(strings.Lines(out.String()))
}

// TestAuditOfPlacementServe: a Placement keeps an audit log without any configuration, in its state
// directory, counts its records, and keeps it over restarts.
func TestAuditOfPlacementServe(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	for start := 1; start <= 2; start++ {
		address := testproc.FreeAddress(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan int, 1)
		var log bytes.Buffer
		go func() {
			ended <- execute(ctx,
				[]string{"placement", "serve", "--listen", address, "--state-dir", dir, "--runtime-dir", dir}, &log,
				&log)
		}()
		testproc.Eventually(t, testproc.Patience, "a trait is created", func() error {
			r, err := http.NewRequestWithContext(ctx,
				http.MethodPut, fmt.Sprintf("http://%s/traits/CUSTOM_T%d", address, start), nil)
			if err != nil {
				return err
			}
			r.Header = http.Header{"X-Auth-Token": {"admin"}, "Openstack-Api-Version": {"placement 1.39"}}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusCreated {
				return fmt.Errorf("%s, %w", resp.Status, err)
			}
			return nil
		})
		if text := page(t, "unix", filepath.Join(dir, "placement-admin.sock"), "/metrics"); !strings.Contains(text,
			`compute_agent_audit_records_total{destination="file",outcome="written"} 1`) {
			t.Errorf("the metrics do not count the record")
		}
		stop()
		if code := <-ended; code != cli.ExitDone {
			t.Errorf("exit code %d: %s", code, &log)
		}
	}
	lines := auditLines(t, dir)
	if len(lines) != 2 || !strings.HasSuffix(lines[1],
		"  placement  admin/admin  PUT /traits/CUSTOM_T2  trait CUSTOM_T2: added CUSTOM_T2\n") {
		t.Errorf("the log is %q", lines)
	}
	if info, err := os.Stat(filepath.Join(dir, "audit.log")); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestAuditOfManageCommands: what `cells manage` changes is recorded as changed by the user of the
// operating system who ran it, by the command itself or by the service that has the database; one
// that only reads makes no file.
func TestAuditOfManageCommands(t *testing.T) {
	t.Setenv("SUDO_USER", "alice")
	dir := t.TempDir()
	if _, _, err := manage(t, dir, "create", "--name", "cell1", "--url", "http://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := manage(t, dir, "update", "cell1", "--name", "cell2"); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	address := testproc.FreeAddress(t)
	go func() {
		ended <- execute(ctx, []string{"cells", "api", "--listen", address, "--state-dir", dir, "--runtime-dir", dir},
			&log, &log)
	}()
	testproc.Eventually(t, testproc.Patience, "the compute API has the database", func() error {
		if sqldb.HolderOf(filepath.Join(dir, "compute_api.db")).Socket == "" {
			return fmt.Errorf("no socket yet")
		}
		return nil
	})
	if _, _, err := manage(t, dir, "disable", "cell2"); err != nil {
		t.Fatal(err)
	}
	stop()
	if code := <-ended; code != cli.ExitDone {
		t.Errorf("exit code %d: %s", code, &log)
	}
	user := "  compute-api  " + sqldb.CommandUser(t.Context()) + "  cells manage "
	lines := auditLines(t, dir)
	want := []string{
		"create --name=cell1 --url=http://127.0.0.1:1  cell ",
		"update --name=cell2 -- cell1  cell ", "disable -- cell2  cell ",
	}
	ends := []string{"created disabled false, name cell1, url http://127.0.0.1:1\n",
		": name cell1 → cell2\n", ": disabled false → true\n"}
	if len(lines) != len(want) || !strings.Contains(user, "(sudo by alice)") {
		t.Fatalf("the log is %q", lines)
	}
	for i, line := range lines {
		if !strings.Contains(line, user+want[i]) || !strings.HasSuffix(line, ends[i]) {
			t.Errorf("line %q, want %q…%q", line, user+want[i], ends[i])
		}
	}
	other := t.TempDir()
	if _, _, err := manage(t, other, "create", "--name", "cell1", "--url", "http://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	testproc.Check(t, os.Remove(filepath.Join(other, "audit.log")))
	if _, _, err := manage(t, other, "list"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(other, "audit.log")); !os.IsNotExist(err) {
		t.Errorf("a command that reads made the file: %v", err)
	}
}

// TestAuditOfRestores: a restore is one record in the log of the service whose database it is; one
// that is refused has none.
func TestAuditOfRestores(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct {
		service, of string   // the commands for its database
		create      []string // makes one; nil: the service does
		rows        int      // in it
	}{
		{"placement", "placement db", []string{"placement", "db", "upgrade"}, 2},
		{"compute-api", "cells manage db", []string{"cells", "manage", "create", "--name", "cell1",
			"--url", "http://127.0.0.1:1"}, 1},
		{"cell", "cells", nil, 1},
	} {
		t.Run(c.service, func(t *testing.T) {
			old, dir := t.TempDir(), t.TempDir()
			backup := filepath.Join(old, "backup")
			run := func(code int, dir string, args ...string) {
				t.Helper()
				var out bytes.Buffer
				if got := execute(t.Context(), append(args, "--state-dir", dir), &out, &out); got != code {
					t.Fatalf("%q ended with %d, not %d: %s", args, got, code, &out)
				}
			}
			if c.create != nil {
				run(cli.ExitDone, old, c.create...)
			} else {
				cell, err := celldb.Open(t.Context(), filepath.Join(old, "cell.db"), "cell1", celldb.Options{})
				check(t, err)
				check(t, cell.Close())
			}
			run(cli.ExitDone, old, append(strings.Fields(c.of), "backup", backup)...)
			run(cli.ExitDone, dir, append(strings.Fields(c.of), "restore", backup)...)
			if c.service == "compute-api" { // the others have only rows that each database has
				run(cli.ExitProtect, dir, append(strings.Fields(c.of), "restore", backup)...)
			}
			lines := auditLines(t, dir)
			if len(lines) != 1 {
				t.Fatalf("the log is %q", lines)
			}
			for _, part := range []string{
				fmt.Sprintf("  %s  %s  %s restore ", c.service, sqldb.CommandUser(t.Context()), c.of),
				"restored_from " + backup, dir, fmt.Sprintf("rows %d", c.rows),
			} {
				if !strings.Contains(lines[0], part) {
					t.Errorf("the record is %q, without %q", lines[0], part)
				}
			}
		})
	}
}
