// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// enrolled is a deployment whose hosts have certificates: Placement, a cell, and a compute API with
// an enrolment service, which has a CA.
type enrolled struct {
	t                             *testing.T
	dir                           string
	ca                            *pki.Authority
	placement, cell, api, joining string // addresses
}

// newEnrolled starts it. Agents renew the certificates of hosts at a third of their lifetime.
func newEnrolled(t *testing.T, lifetime string) *enrolled {
	t.Helper()
	e := &enrolled{t: t, dir: testproc.SocketDir(t), placement: testproc.FreeAddress(t), cell: testproc.FreeAddress(t),
		api: testproc.FreeAddress(t), joining: testproc.FreeAddress(t)}
	var err error
	e.ca, err = pki.InitAuthority(e.path("ca"), "ca", time.Now())
	check(t, err)
	check(t, os.WriteFile(e.path("token"), []byte("the compute API's\n"), 0o600))
	check(t, os.WriteFile(e.path("tokens"),
		fmt.Appendf(nil, "%x admin,service compute-api\n", sha256.Sum256([]byte("the compute API's"))), 0o600))
	follows := "[deny_list]\nurl = \"https://%[2]s\"\nca_file = \"%[1]s/ca/ca.pem\"\n"
	e.service("placement",
		"[placement_tls]\ncert_file = \"%[1]s/placement.pem\"\nkey_file = \"%[1]s/placement.pem\"\nhost_ca_file = "+
			"\"%[1]s/ca/ca.pem\"\n"+follows)
	e.service("cell1", "[cell]\nauth = \"mtls\"\npeer_ca_file = \"%[1]s/ca/ca.pem\"\ncert_file = "+
		"\"%[1]s/cell1.pem\"\nkey_file = \"%[1]s/cell1.pem\"\n"+
		"report_interval = \"200ms\"\nservice_down_time = \"10s\"\n"+follows)
	e.service("compute-api",
		"[compute_api]\ncell_ca_file = \"%[1]s/ca/ca.pem\"\ncell_cert_file = \"%[1]s/compute-api.pem\"\n"+
			"cell_key_file = \"%[1]s/compute-api.pem\"\n"+
			"discover_hosts_interval = \"200ms\"\n[placement_client]\nurl = \"https://"+e.placement+
			"\"\nauth = \"token\"\ntoken_file = \"%[1]s/token\"\nca_file = \"%[1]s/ca/ca.pem\"\n"+
			"[enrolment]\nlisten = \"%[2]s\"\nnames = [\"127.0.0.1\"]\nca_dir = \"%[1]s/ca\"\n"+
			"certificate_lifetime = \""+lifetime+"\"\nplacement_url = \"https://"+e.placement+"\"\n")
	placement := spawn(t, nil, "compute-agent", "placement", "serve", "--config", e.path("placement.toml"),
		"--listen", e.placement, "--auth", "token", "--token-file", e.path("tokens"))
	placement.await(0, "Serving the Placement API.")
	cell := spawn(t, nil, "compute-agent", "cells", "serve", "--config", e.path("cell1.toml"),
		"--name", "cell1", "--listen", e.cell)
	cell.await(0, "The cell is serving.")
	e.manage("create", "--name", "cell1", "--url", "https://"+e.cell)
	api := spawn(t, nil, "compute-agent", "cells", "api", "--config", e.path("compute-api.toml"), "--listen", e.api)
	api.await(0, "Enrolment is served")
	return e
}

func (e *enrolled) path(name string) string { return filepath.Join(e.dir, name) }

// service writes the certificate and the configuration of a service.
func (e *enrolled) service(name, text string) {
	e.t.Helper()
	key, content, err := pki.NewKey()
	check(e.t, err)
	csr := testproc.Try(pki.NewRequest(key, name)).Or(e.t)
	request := testproc.Try(pki.ParseRequest(csr)).Or(e.t)
	certificate, err := e.ca.Sign(request, pki.Identity{Kind: pki.Service, Name: name, Names: []string{name}},
		pki.SignOptions{
			Lifetime: time.Hour, Now: time.Now(), Addresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			Client: name == "compute-api",
		})
	check(e.t, err)
	check(e.t, os.WriteFile(e.path(name+".pem"), append(content, certificate...), 0o600))
	check(e.t, os.MkdirAll(e.path(name), 0o700))
	text = fmt.Sprintf(text, e.dir, e.joining) +
		fmt.Sprintf("[agent]\nhost = %q\nstate_dir = %q\nruntime_dir = %q\n[log]\nformat = \"json\"\n",
			name, e.path(name), e.path(name+"/run"))
	check(e.t, os.WriteFile(e.path(name+".toml"), []byte(text), 0o600))
}

// manage runs `cells manage` on the machine of the compute API.
func (e *enrolled) manage(args ...string) string {
	e.t.Helper()
	out, code := command(e.t,
		append([]string{"cells", "manage", args[0], "--config", e.path("compute-api.toml")}, args[1:]...)...)
	if code != 0 {
		e.t.Fatalf("cells manage %v: exit code %d\n%s", args, code, out)
	}
	return out
}

// host is a machine with an agent and the fake driver, and no certificate.
func (e *enrolled) host(name string) *site {
	e.t.Helper()
	dir := testproc.SocketDir(e.t)
	s := &site{t: e.t, dir: dir, config: filepath.Join(dir, "compute-agent.toml")}
	check(e.t, os.WriteFile(s.config, fmt.Appendf(nil, `
[agent]
state_dir = %q
runtime_dir = %q
[placement_client]
retries = 0
[tracker]
update_resources_interval = "100ms"
association_refresh = "2s"
retry_backoff_min = "20ms"
retry_backoff_max = "100ms"
[plugins]
dir = %q
[log]
format = "json"
[drivers.fake.config]
nodes = [{name = %q, inventories = {VCPU = {total = 8}, MEMORY_MB = {total = 16000}, DISK_GB = {total = 100}}}]
instances = {}
`, filepath.Join(dir, "state"), filepath.Join(dir, "run"), binaries.Dir(), name), 0o600))
	return s
}

// join runs join on a host with a token of add-host.
func (e *enrolled) join(s *site, name string, args ...string) (string, int) {
	e.t.Helper()
	var invited struct{ Token, URL string }
	check(e.t, json.Unmarshal([]byte(e.manage("add-host", name, "--cell", "cell1", "--output", "json")), &invited))
	check(e.t, os.WriteFile(filepath.Join(s.dir, "join.token"), []byte(invited.Token+"\n"), 0o600))
	return command(e.t, append([]string{"join", "--api", invited.URL,
		"--token-file", filepath.Join(s.dir, "join.token"), "--config-dir", s.dir, "--user", "root"}, args...)...)
}

// eventually waits until the status of a running agent is as wanted.
func (s *site) eventually(what string, is func(health.Status) bool) health.Status {
	s.t.Helper()
	var last health.Status
	testproc.Eventually(s.t, patience, what, func() error {
		status, err := control.NewClient(config.Agent{RuntimeDir: filepath.Join(s.dir, "run")}.ControlSocket()).
			Status(s.t.Context())
		if last = status; err == nil && !is(status) {
			text, _ := json.Marshal(status)
			err = errors.New(string(text))
		}
		return err
	})
	return last
}

func conditionOf(s health.Status, code health.Code) bool {
	return slices.ContainsFunc(s.Conditions, func(c health.Condition) bool { return c.Code == code })
}

// TestHostsJoinRenewAndAreEvicted: two hosts join with tokens, report with certificates that their
// agents renew without a restart, and one of them is evicted: it is refused, and the other is not.
func TestHostsJoinRenewAndAreEvicted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	e := newEnrolled(t, "45s")
	sites := map[string]*site{}
	for _, name := range []string{"h416", "h417"} {
		s := e.host(name)
		sites[name] = s
		out, code := e.join(s, name)
		if code != 0 || !strings.Contains(out, "This is host "+name+" of cell cell1") {
			t.Fatalf("join: exit code %d\n%s", code, out)
		}
		for file, mode := range map[string]os.FileMode{"state/identity.pem": 0o600, "state/ca.pem": 0o644,
			"conf.d/50-joined.toml": 0o644} {
			info, err := os.Stat(filepath.Join(s.dir, file))
			if check(t, err); info.Mode().Perm() != mode {
				t.Errorf("%s has mode %v", file, info.Mode())
			}
		}
		if out, code := e.joinAgain(s); code != 3 {
			t.Errorf("joining again: exit code %d\n%s", code, out)
		}
		s.run()
	}
	for name, s := range sites {
		first := s.eventually("the host reports with a certificate for its node", func(h health.Status) bool {
			return h.State == resourcetracker.Reporting &&
				h.Cell != nil && h.Cell.Up && h.Identity != nil && len(h.Identity.Nodes) == 1
		})
		if first.Host != name || first.Identity.Host != name ||
			first.Identity.Nodes[0] != first.Drivers[0].Report.Nodes[0].UUID {
			t.Errorf("host %s, identity %+v", first.Host, first.Identity)
		}
		later := s.eventually("the certificate is renewed",
			func(h health.Status) bool { return h.Identity != nil && h.Identity.Renewed > first.Identity.Renewed })
		if later.PID != first.PID || !later.Identity.Expires.After(first.Identity.Expires) {
			t.Errorf("first %+v, later %+v", first.Identity, later.Identity)
		}
	}
	var hosts []struct {
		Host      string `json:"host"`
		Enrolment struct {
			State string `json:"state"`
			By    string `json:"invited_by"`
		} `json:"enrolment"`
	}
	check(t, json.Unmarshal([]byte(e.manage("list-hosts", "--output", "json")), &hosts))
	if len(hosts) != 2 || hosts[0].Enrolment.State != "enrolled" || hosts[0].Enrolment.By == "" {
		t.Errorf("list-hosts: %+v", hosts)
	}

	out := e.manage("evict-host", "h417", "--reason", "stolen from rack 7")
	for _, part := range []string{"Evicted host h417", "stolen from rack 7", "is forced down and disabled",
		"[deny_list] url = \"https://" + e.joining + "\"", "No server is or was on it"} {
		testproc.Contains(t, out, part, "evict-host does not print %q:\n%s", part)
	}
	sites["h417"].eventually("Placement refuses the evicted host",
		func(h health.Status) bool { return conditionOf(h, health.CredentialsRefused) })
	sites["h417"].eventually("the evicted host is not renewed",
		func(h health.Status) bool { return conditionOf(h, health.RenewalRefused) })
	was := sites["h416"].eventually("the other host reports",
		func(h health.Status) bool { return h.Identity != nil && h.Identity.Error == "" })
	sites["h416"].eventually("the other host is renewed still", func(h health.Status) bool {
		return h.Identity != nil && h.Identity.Renewed > was.Identity.Renewed &&
			h.State == resourcetracker.Reporting && h.Cell.Up
	})
	if out := e.manage("list-hosts"); !strings.Contains(out, "evicted") ||
		!strings.Contains(out, "stolen from rack 7") {
		t.Errorf("list-hosts:\n%s", out)
	}
}

// joinAgain runs join once more with the token that the host has.
func (e *enrolled) joinAgain(s *site) (string, int) {
	return command(e.t, "join", "--api", "https://"+
		e.joining, "--token-file", filepath.Join(s.dir, "join.token"), "--config-dir", s.dir)
}
