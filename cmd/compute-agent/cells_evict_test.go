// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// managed is the state directory of a compute API that does not run, with an authority, and runs
// the commands of `cells manage` there: each ends with an exit code, and says something.
func managed(t *testing.T, configuration string) (dir string, run func(want int, args ...string) string) {
	t.Helper()
	dir = t.TempDir()
	testproc.Try(pki.InitAuthority(filepath.Join(dir, "ca"), "ca", time.Now())).Or(t)
	configured := filepath.Join(dir, "api.toml")
	text := fmt.Appendf(nil, "[enrolment]\nlisten = \"127.0.0.1:1\"\nca_dir = %q\n%s",
		filepath.Join(dir, "ca"), configuration)
	testproc.Check(t, os.WriteFile(configured, text, 0o600))
	return dir, func(want int, args ...string) string {
		t.Helper()
		var out bytes.Buffer
		args = append(append([]string{"cells", "manage"}, args...), "--config", configured, "--state-dir", dir)
		if code := execute(t.Context(), args, &out, &out); code != want {
			t.Errorf("%v ends with %d:\n%s", args, code, &out)
		}
		return out.String()
	}
}

// TestAllowHost: a host that was evicted by a clock that was ahead is not invited before it is
// allowed, and each answer says what to do next.
func TestAllowHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir, manage := managed(t, "")
	run := func(want int, part string, args ...string) {
		t.Helper()
		if out := manage(want, args...); !strings.Contains(out, part) {
			t.Errorf("%v says nothing of %q:\n%s", args, part, out)
		}
	}
	run(cli.ExitDone, "", "create", "--name", "cell1", "--url", "http://127.0.0.1:1")
	run(cli.ExitDone, "", "add-host", "h417", "--cell", "cell1")
	run(cli.ExitFailed, "did you mean h417?", "allow-host", "h471")
	run(cli.ExitFailed, "Evicted host h417", "evict-host", "H417")
	run(cli.ExitProtect, "add-host h417 --again", "allow-host", "h417")
	store := testproc.Try(apidb.Open(t.Context(), filepath.Join(dir, cells.APIDatabase), apidb.Options{})).Or(t)
	_, err := store.ChangeEnrolment(t.Context(), "h417", func(e *apidb.Enrolment) error {
		e.DeniedBefore = e.DeniedBefore.AddDate(1, 0, 0)
		return nil
	})
	testproc.Check(t, errors.Join(err, store.Close()))
	run(cli.ExitDone, " (cells manage allow-host)\n", "list-hosts")
	run(cli.ExitProtect, "cells manage allow-host", "add-host", "h417", "--cell", "cell1", "--again")
	run(cli.ExitDone, "Host h417 is refused with certificates from before", "allow-host", "h417")
	run(cli.ExitDone, "Invited again host h417", "add-host", "h417", "--cell", "cell1", "--again")
}

// TestDeleteHostOfNoCell: the nodes of a host that is evicted, and mapped to no cell, are freed;
// each cell that may have it is named.
func TestDeleteHostOfNoCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	_, run := managed(t, "[placement_client]\nurl = \"http://127.0.0.1:1\"\nretries = 0\n")
	run(cli.ExitDone, "create", "--name", "cell1", "--url", servedCell(t))
	run(cli.ExitDone, "create", "--name", "cell2", "--url", "http://127.0.0.1:1")
	run(cli.ExitDone, "add-host", "h417", "--cell", "cell2", "--node", secondNode+"=h417")
	run(cli.ExitFailed, "evict-host", "h417")
	out := run(cli.ExitDone, "delete-host", "h417", "--with-servers", "unknown")
	testproc.Contains(t, out, "Host h417 was mapped to no cell; what was kept of its name and its nodes is removed.",
		"it says: %s")
	testproc.Contains(t, out, "It is not known whether cell cell2 has the host", "it says: %s")
	if strings.Contains(out, "Cell  ") || strings.Contains(out, "cell1") {
		t.Errorf("of a cell that is not its own:\n%s", out)
	}
}

// TestRevokeBesideTheService: the compute API that has the database open knows the hosts, whatever
// the case of the name that is given.
func TestRevokeBesideTheService(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := testproc.SocketDir(t)
	configured, list := filepath.Join(dir, "api.toml"), filepath.Join(dir, "denied")
	text := fmt.Appendf(nil,
		"[agent]\nstate_dir = %q\nruntime_dir = %[1]q\n[compute_api]\nlisten = %q\n[deny_list]\nfile = %q\n",
		dir, testproc.FreeAddress(t), list)
	testproc.Check(t, os.WriteFile(configured, text, 0o600))
	testproc.Check(t, pki.CreateDenyFile(list))
	store := testproc.Try(apidb.Open(t.Context(), filepath.Join(dir, cells.APIDatabase), apidb.Options{})).Or(t)
	testproc.Try(store.ChangeEnrolment(t.Context(), "h50", func(e *apidb.Enrolment) error {
		e.State, e.CellUUID = apidb.Enrolled, "00000001-0000-0000-0000-000000000000"
		return nil
	})).Or(t)
	testproc.Check(t, store.Close())
	var log bytes.Buffer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- execute(ctx, []string{"cells", "api", "--config", configured}, &log, &log) }()
	testproc.Eventually(t, testproc.Patience, "the compute API has the database", func() error {
		if sqldb.HolderOf(filepath.Join(dir, cells.APIDatabase)).Socket == "" {
			return errors.New("no socket yet")
		}
		return nil
	})
	for name, want := range map[string]struct {
		code int
		text string
	}{"H50": {cli.ExitDone, "h50 is on the deny list"}, "h51": {cli.ExitProtect, "did you mean h50?"}} {
		var out bytes.Buffer
		code := execute(t.Context(), []string{"ca", "revoke", name, "--config", configured}, &out, &out)
		if code != want.code || !strings.Contains(out.String(), want.text) {
			t.Errorf("%s ends with %d: %s", name, code, &out)
		}
	}
	stop()
	if code := <-ended; code != cli.ExitDone {
		t.Errorf("exit code %d: %s", code, &log)
	}
}
