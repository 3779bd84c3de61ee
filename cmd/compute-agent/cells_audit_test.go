// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/scheduler/cloudaudit"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestManageAudit: what `cells manage audit` prints, and its exit codes.
func TestManageAudit(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	service := testproc.Try(placement.New(t.Context(), placement.Config{
		Database: "sqlite://" + filepath.Join(dir, "placement.db"), Auth: placement.Auth{Strategy: placement.NoAuth},
		Policy: api.Legacy, Logger: zerolog.Nop(),
	})).Or(t)
	t.Cleanup(func() { testproc.NoError(t, service.Close()) })
	server := httptest.NewServer(service.Handler())
	t.Cleanup(server.Close)
	file := filepath.Join(dir, "config.toml")
	testproc.Check(t, os.WriteFile(file, fmt.Appendf(nil, "[placement_client]\nurl = %q\nretries = 0\n", server.URL),
		0o600))
	create := func(name, url string) {
		t.Helper()
		if _, _, err := manage(t, dir, "create", "--name", name, "--url", url); err != nil {
			t.Fatal(err)
		}
	}
	audit := func(code int, args ...string) string {
		t.Helper()
		out, _, err := manage(t, dir, append([]string{"audit", "--config", file}, args...)...)
		var exit *cli.ExitError
		if errors.As(err, &exit) != (code != cli.ExitDone) ||
			exit != nil && exit.Code != code || exit == nil && err != nil {
			t.Errorf("%v: %v, want exit code %d:\n%s", args, err, code, out)
		}
		return out
	}
	create("cell1", servedCell(t))
	const nothing = "Compared 1 cell, 0 nodes, 0 servers, 0 resource providers and 0 consumers.\nNothing was found " +
		"that does not fit together.\n"
	testproc.Equal(t, audit(cli.ExitDone), nothing, "without anything: %s")

	const provider = "99999999-0000-4000-8000-000000000009"
	ask := func(method, path string, body any) {
		testproc.Send(t, nil, method, server.URL+path, "placement 1.38", body).Good(t)
	}
	ask("POST", "/resource_providers", map[string]any{"uuid": provider, "name": "cn9"})
	ask("PUT", "/resource_providers/"+provider+"/traits",
		map[string]any{"resource_provider_generation": 0, "traits": []string{"COMPUTE_NODE"}})
	found := audit(cli.ExitFailed)
	for _, part := range []string{"\nprovider-without-host\n  Resource provider cn9 (" + provider + ")", "\n  hint: ",
		"\n1 finding; --repair corrects 0.\n"} {
		testproc.Contains(t, found, part, "a provider without a host: %s")
	}
	repaired := audit(cli.ExitFailed, "--repair")
	for _, part := range []string{"\n  not repaired: it may be of an agent without a cell", "\n  hint: ",
		"\n1 finding, 0 repaired, 1 left.\n"} {
		testproc.Contains(t, repaired, part, "with repair: %s")
	}
	var report cloudaudit.Report
	testproc.Check(t, json.Unmarshal([]byte(audit(cli.ExitFailed, "--output", "json")), &report))
	if len(report.Findings) != 1 || report.Findings[0].Kind != cloudaudit.FindingNoHost ||
		report.Findings[0].Provider != provider || report.Cells != 1 {
		t.Errorf("as JSON: %+v", report)
	}

	create("cell2", "http://127.0.0.1:1")
	without := audit(cli.ExitProtect)
	for _, part := range []string{
		"\nCell cell2 was not compared: ", "\n  not checked: its servers, nodes and guests; ",
		"\nNothing was found in what could be compared. This is not all.\n",
	} {
		testproc.Contains(t, without, part, "with a cell that is down: %s")
	}
	if strings.Contains(without, "\nprovider-without-host\n") {
		t.Errorf("it is not known whether a host of the cell that is down has it:\n%s", without)
	}
	server.Close()
	without = audit(cli.ExitProtect)
	for _, part := range []string{"\nPlacement was not compared: reading the resource providers: ",
		"\n  not checked: all findings about allocations and resource providers: "} {
		testproc.Contains(t, without, part, "without Placement: %s")
	}
}
