// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestTroublePlacementUnreachable(t *testing.T) {
	o := newOutputs(t)
	ours := o.url
	o.url = "http://" + testproc.FreeAddress(t)
	o.configure("flat", "")
	o.edit("[plugins]", "retries = 0\n[plugins]")
	o.degraded("unreachable", nil, "problem:", "what to do:")
	o.url = ours
	o.configure("flat", "")
	o.healthy("unreachable, fixed")
}

func TestTroublePlacementFails(t *testing.T) {
	o := newOutputs(t)
	ours := o.http
	o.answer(http.StatusServiceUnavailable,
		`{"errors": [{"status": 503, "title": "Service Unavailable", "detail": "the database cannot be reached"}]}`)
	o.configure("flat", "")
	o.edit("[plugins]", "retries = 0\n[plugins]")
	o.degraded("503", nil, "problem:", "what to do:")
	o.http = ours
	o.healthy("503, fixed")
}

func TestTroubleCredentials(t *testing.T) {
	o := newOutputs(t)
	lines := ""
	for _, role := range []string{"reader", "service"} {
		token, line, err := osapi.NewToken([]string{role}, "agent", "")
		check(t, err)
		o.file(role, token+"\n")
		lines += line + "\n"
	}
	o.file("wrong", "not-a-token\n")
	o.file("tokens", lines)
	server := testproc.Try(placement.New(t.Context(), placement.Config{
		StateDir: t.TempDir(), Auth: placement.Auth{Strategy: placement.Token,
			TokenFile: filepath.Join(o.dir, "tokens")}, Policy: api.Secure, Logger: zerolog.Nop(),
	})).Or(t)
	t.Cleanup(func() { check(t, server.Close()) })
	o.http = server.Handler()
	with := func(file string) {
		o.configure("flat", "")
		o.edit("[plugins]", fmt.Sprintf("auth = \"token\"\ntoken_file = %q\n[plugins]", filepath.Join(o.dir, file)))
	}
	for _, c := range []struct{ name, file string }{{"401", "wrong"}, {"403", "reader"}} {
		with(c.file)
		o.degraded(c.name, nil, "critical:", "what ")
		with("service")
		o.healthy(c.name + ", fixed")
	}
}

func TestTroubleConfiguration(t *testing.T) {
	o := newOutputs(t)
	o.configure("flat", "")
	o.edit("update_resources_interval", "update_resource_interval")
	o.doesNotStart(cli.ExitConfig)
	o.page("78")
	o.edit("update_resource_interval", "update_resources_interval")
	o.shows(cli.ExitDone, "config check", "valid")
	o.page("78, fixed")
}

func TestTroubleNoDriver(t *testing.T) {
	o := newOutputs(t)
	o.configure("flat", "")
	whole := read(t, filepath.Join(o.dir, "agent.toml"))
	head, _, _ := strings.Cut(whole, "[drivers")
	o.file("agent.toml", head)
	o.doesNotStart(cli.ExitConfig)
	o.page("no driver")
	o.file("agent.toml", whole)
	o.healthy("no driver, fixed")
}

func TestTroubleDriverMissing(t *testing.T) {
	o := newOutputs(t)
	o.configure("flat", "")
	o.edit("[drivers.fake.config]", "[drivers.acme.config]")
	o.degraded("not installed", pluginIs("not-installed", "is not installed"), "driver acme:", "problem   ")
	o.edit("[drivers.acme.config]",
		"[drivers.acme.restart]\nbackoff_min = \"50m\"\nbackoff_max = \"1h\"\n[drivers.acme.config]")
	check(t, testproc.WriteExecutable(filepath.Join(o.dir, "compute-driver-acme"), []byte("#!/bin/sh\necho hello\n")))
	o.degraded("not a plugin", pluginIs("backoff", "(backoff)"), "driver acme:", "problem   ")
	o.configure("flat", "")
	o.healthy("not installed, fixed")
}

func TestTroubleDriverCrashes(t *testing.T) {
	o := newOutputs(t)
	o.configure("flat", `faults.update = "crash"`, "retry_backoff_min = \"10ms\"", "[drivers.fake.restart]",
		`backoff_min = "10ms"`, "crash_limit = 2")
	o.degraded("quarantined", pluginIs("quarantined", ""),
		"driver fake 1.0.0:", "(plugin-", "problem   ", "what to do", "next retry")
	o.configure("flat", "")
	o.healthy("quarantined, fixed")
}

func TestTroubleLessInventory(t *testing.T) {
	o := newOutputs(t)
	o.settle()
	o.edit("VGPU = {total = 8}", "VGPU = {total = 2}")
	stop := o.agent()
	o.shows(cli.ExitDone, "status", "info:", "inventory-retiring", "is kept at", "means", "what to do")
	o.shows(cli.ExitDone, "tree")
	stop()
	o.page("inventory in use")
	for n := range 3 {
		o.request(http.MethodDelete, fmt.Sprintf("/allocations/99999999-0000-4000-8000-00000000000%d", n+1), "", nil)
	}
	stop = o.agent()
	o.shows(cli.ExitDone, "tree")
	stop()
	o.page("inventory in use, fixed")
}

func TestTroubleNoValidHost(t *testing.T) {
	o := newOutputs(t)
	o.settle()
	defer o.agent()()
	o.shows(cli.ExitDone, "placement explain 'resources=VGPU:3' --url "+o.url)
	o.page("no valid host")
	o.shows(cli.ExitDone, "disable --reason 'new memory'")
	o.shows(cli.ExitDone, "placement explain 'resources=VGPU:1&required=!COMPUTE_STATUS_DISABLED' --url "+o.url)
	o.shows(cli.ExitDone, "status", "disabled")
	o.page("disabled")
	o.shows(cli.ExitDone, "enable")
	o.shows(cli.ExitDone, "placement explain 'resources=VGPU:1&required=!COMPUTE_STATUS_DISABLED' --url "+o.url)
	o.page("disabled, fixed")
}

func TestTroubleDatabaseInUse(t *testing.T) {
	o := newOutputs(t)
	o.configure("flat", "")
	code, _, stderr := o.run("placement", "serve",
		"--listen", "127.0.0.1:0", "--state-dir", filepath.Join(o.dir, "placement"))
	testproc.Equal(t, code, cli.ExitFailed, "exit code %d")
	o.add("journalctl -u compute-agent-placement -o cat -n 1", stderr[strings.LastIndex(stderr, "compute-agent: "):])
	o.page("database in use")
}

func TestTroubleOtherMachine(t *testing.T) {
	o := newOutputs(t)
	o.host("cn1", own("cn1"))
	o.agent()()
	o.host("cn9", own("cn9"))
	o.doesNotStart(cli.ExitProtect)
	o.page("identity")
	o.shows(cli.ExitDone, "adopt --rename --yes")
	o.healthy("identity, fixed")
}

func TestTroubleTwoHosts(t *testing.T) {
	o := newOutputs(t)
	o.request(http.MethodPost, "/resource_providers", `{"name": "cn1", "uuid": "`+secondNode+`"}`, nil)
	o.request(http.MethodPut, "/resource_providers/"+
		secondNode+"/traits", `{"resource_provider_generation": 0, "traits": ["COMPUTE_NODE", "OWNER_NOVA"]}`, nil)
	o.configure("flat", "")
	o.degraded("two hosts", nil, "critical:", "what", "means", "held")
	o.request(http.MethodDelete, "/resource_providers/"+secondNode, "", nil)
	o.healthy("two hosts, fixed")
}

func TestTroubleNoAgent(t *testing.T) {
	o := newOutputs(t)
	o.configure("flat", "")
	o.shows(cli.ExitFailed, "status")
	o.page("no agent")
	o.healthy("no agent, fixed")
}

func TestTroubleReshape(t *testing.T) {
	o := newOutputs(t)
	o.settle()
	o.configure("vgpu-children", `faults.reshape = "lose"`)
	stop := o.agentUntil("a node that is held",
		func(view health.Status) bool { return view.State == resourcetracker.Degraded && len(view.Drivers) > 0 })
	o.shows(cli.ExitFailed, "status", "critical:", "what", "means", "held")
	o.shows(cli.ExitProtect, "plan --reshape")
	stop()
	o.page("reshape refused")
	o.configure("flat", "")
	o.healthy("reshape refused, fixed")
}

func TestTroubleConflict(t *testing.T) {
	o := newOutputs(t)
	o.settle()
	const path, body = "/resource_providers/" + cn1 +
		"/inventories/VGPU", `{"resource_provider_generation": 1, "total": 4}`
	req := httptest.NewRequest(http.MethodPut, path, strings.NewReader(body))
	command := "curl -X PUT"
	for _, header := range []string{"X-Auth-Token: admin",
		"OpenStack-API-Version: placement 1.36", "Content-Type: application/json"} {
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Set(name, value)
		command += " -H '" + header + "'"
	}
	w := httptest.NewRecorder()
	o.http.ServeHTTP(w, req)
	o.add(command+" -d '"+body+"' "+o.url+path, w.Body.String(), "placement.concurrent_update")
	o.page("409")
}

func TestTroubleProviderYAML(t *testing.T) {
	o := newOutputs(t)
	o.configure("flat", "")
	o.file("provider_config/site.yaml",
		"meta:\n  schema_version: '1.0'\nproviders:\n  - identification: {name: cn1}\n    traits: {additional: "+
			"[HW_CPU_X86_VMX]}\n")
	o.shows(cli.ExitConfig, "config check")
	o.page("provider.yaml")
	o.file("provider_config/site.yaml",
		"meta:\n  schema_version: '1.0'\nproviders:\n  - identification: {name: cn1}\n    traits: {additional: "+
			"[CUSTOM_RACK_7]}\n")
	o.shows(cli.ExitDone, "config check", "provider.yaml is valid")
	o.page("provider.yaml, fixed")
}

func TestTroubleCellDown(t *testing.T) {
	o := newOutputs(t)
	o.configure("flat", "")
	address := testproc.FreeAddress(t)
	for _, args := range [][]string{{"cells", "manage", "db", "upgrade"},
		{"cells", "manage", "create", "--name", "cell1", "--url", "http://" + address}} {
		if code, _, stderr := o.run(args...); code != cli.ExitDone {
			t.Fatalf("%q: %d %s", args, code, stderr)
		}
	}
	o.shows(cli.ExitDone, "cells manage list")
	o.page("cell down")
	serveAt(t, address, newWatchedCell(t).Handler())
	o.shows(cli.ExitDone, "cells manage list")
	o.page("cell down, fixed")
}

// serveAt serves a handler at an address, until the test ends.
func serveAt(t *testing.T, address string, handler http.Handler) {
	t.Helper()
	l := testproc.Try((&net.ListenConfig{}).Listen(t.Context(), "tcp", address)).Or(t)
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: handler}}
	server.Start()
	t.Cleanup(server.Close)
}

func TestRealTroubleHostDown(t *testing.T) {
	o := newOutputs(t)
	address := testproc.FreeAddress(t)
	o.configure("flat", "", fmt.Sprintf("[cell_client]\nurl = \"http://%s\"", address))
	unreachable := func(view health.Status) bool {
		return view.State == resourcetracker.Reporting &&
			len(view.Conditions) > 0 && view.Conditions[0].Code == health.CellUnreachable
	}
	stop := o.agentUntil("the cell is unreachable", unreachable)
	o.shows(cli.ExitDone, "status", "warning:", "means", "what to do", "runbook", "cell   ")
	o.page("host down")
	serveAt(t, address, newWatchedCell(t).Handler())
	o.eventually("the cell answers", o.statusHas("all is well"))
	o.shows(cli.ExitDone, "status", "all is well", "cell   ")
	o.page("host down, fixed")
	stop()
}

func TestTroubleEvicted(t *testing.T) {
	o := newOutputs(t)
	database, cellAddress, joining := "sqlite://"+filepath.Join(o.dir, "api.db"),
		testproc.FreeAddress(t), testproc.FreeAddress(t)
	o.configure("flat", "", fmt.Sprintf(
		"[compute_api]\ndatabase = %q\n[enrolment]\nlisten = %q\nnames = [\"127.0.0.1\"]\nca_dir = %q",
		database, joining, filepath.Join(o.dir, "ca")))
	manage := func(args ...string) string {
		t.Helper()
		code, stdout, stderr := o.run(append([]string{"cells", "manage"}, args...)...)
		if code != cli.ExitDone {
			t.Fatalf("%q: %d %s", args, code, stderr)
		}
		return stdout
	}
	serveAt(t, cellAddress, newWatchedCell(t).Handler())
	manage("db", "upgrade")
	manage("create", "--name", "cell1", "--url", "http://"+cellAddress)
	ca := testproc.Try(pki.InitAuthority(filepath.Join(o.dir, "ca"), "ca", time.Now())).Or(t)
	self := testproc.Try(user.Current()).Or(t)
	host := filepath.Join(o.dir, "host")
	o.file("host/compute-agent.toml", fmt.Sprintf(
		"[agent]\nhost = \"cn1\"\nstate_dir = \"%s/state\"\nruntime_dir = \"%[1]s/run\"\n", o.dir))
	invite := func(args ...string) {
		t.Helper()
		var invited struct{ Token string }
		check(t, json.Unmarshal(
			[]byte(manage(append([]string{"add-host", "cn1", "--cell", "cell1", "--output", "json"}, args...)...)),
			&invited))
		o.file("host/join.token", invited.Token+"\n")
	}
	join := func(code int) {
		t.Helper()
		defer enrolmentAt(t, joining, database, ca)() // commands need the database after it
		var out bytes.Buffer
		if got := execute(t.Context(),
			[]string{"join", "--api", "https://" + joining,
				"--token-file", filepath.Join(host, "join.token"), "--config-dir", host, "--user", self.Username},
			&out, &out); got != code {
			t.Fatalf("join ended with %d, not %d: %s", got, code, out.String())
		}
		o.add("compute-agent join --api https://api.example:8775 --token-file /root/join.token",
			strings.ReplaceAll(out.String(), joining, "api.example:8775"))
	}
	invite()
	manage("evict-host", "cn1", "--reason", "stolen from rack 7")
	join(cli.ExitFailed)
	o.shows(cli.ExitDone, "cells manage list-hosts")
	o.page("evicted")
	invite("--again")
	join(cli.ExitDone)
	o.shows(cli.ExitDone, "cells manage list-hosts")
	o.page("evicted, fixed")
}

// enrolmentAt serves enrolment at an address, until stop.
func enrolmentAt(t *testing.T, address, database string, ca *pki.Authority) (stop func()) {
	t.Helper()
	store := testproc.Try(apidb.Open(t.Context(), database, apidb.Options{})).Or(t)
	service := testproc.Try(enrolment.New(enrolment.Config{
		Store: store, Authority: ca, Names: []string{"127.0.0.1"},
		Placement: enrolment.PlacementPlace{URL: "https://placement.example:8778"}, Logger: zerolog.Nop(),
	})).Or(t)
	l := testproc.Try((&net.ListenConfig{}).Listen(t.Context(), "tcp", address)).Or(t)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- service.Serve(ctx, l) }()
	return func() {
		end()
		check(t, <-ended, store.Close())
	}
}

func TestTroubleExpiredCertificate(t *testing.T) {
	o := newOutputs(t)
	issued := time.Date(2024, 11, 1, 0, 0, 0, 0, time.UTC)
	ca := testproc.Try(pki.InitAuthority(filepath.Join(o.dir, "ca"), "ca", issued)).Or(t)
	key := testproc.Try(pki.FileKey(filepath.Join(o.dir, "host.key"))).Or(t)
	csr := testproc.Try(pki.NewRequest(key, "cn1")).Or(t)
	text, err := ca.SignPEM(csr, pki.Identity{Kind: pki.Host, Name: "cn1"},
		pki.SignOptions{Lifetime: time.Hour, Now: issued})
	check(t, err)
	o.file("state/identity.pem", string(text))
	var out bytes.Buffer
	code := execute(t.Context(), []string{"ca", "show", filepath.Join(o.dir, "state", "identity.pem")}, &out, &out)
	testproc.Equal(t, code, cli.ExitDone, "exit code %d")
	o.add("compute-agent ca show /var/lib/compute-agent/identity.pem", out.String())
	o.page("expired")
}

func TestRealTroubleDiskFull(t *testing.T) {
	o := newOutputs(t)
	o.configure("flat", "")
	agent := testproc.Try(exec.LookPath("compute-agent")).Or(t)
	cmd := exec.CommandContext(t.Context(), agent, "run", "--config", filepath.Join(o.dir, "agent.toml"))
	state := filepath.Join(o.dir, "state")
	testproc.OnSmallDisk(t, state, "1m", "")(cmd)
	p := testproc.Start(t, "compute-agent", cmd)
	p.KilledBy(t)
	p.Await(t, 0, "Set the traits of cn1")
	filler := filepath.Join(p.Inside(state), "filler")
	testproc.Fill(t, filler)
	o.eventually("the disk is full for the agent", o.statusHas("state-directory-not-writable"))
	o.shows(cli.ExitFailed, "status", "critical:", "(state-", "means", "what to do", "runbook")
	o.page("disk full")
	check(t, os.Remove(filler))
	o.eventually("there is space for the agent", o.statusHas("all is well"))
	o.shows(cli.ExitDone, "status", "all is well")
	o.page("disk full, fixed")
}

// TestTroublePageIsTested: each output of the page is written by a test.
func TestTroublePageIsTested(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	source, page := read(t, "docs_trouble_test.go"), read(t, "../../docs/troubleshooting.md")
	blocks := regexp.MustCompile(`<!-- output: (.*) -->`).FindAllStringSubmatch(page, -1)
	for _, block := range blocks {
		if name := strings.TrimSuffix(block[1], ", fixed"); !strings.Contains(source, `"`+block[1]+`"`) &&
			!strings.Contains(source, `{"`+name+`", "`) {
			t.Errorf("no test writes the output %q", block[1])
		}
	}
	if len(blocks) < 30 || strings.Count(page, "<!-- end -->") != len(blocks) {
		t.Errorf("there are %d outputs, and %d ends", len(blocks), strings.Count(page, "<!-- end -->"))
	}
}
