// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// drivers writes a configuration with one driver for each table, NAME and the nodes that it
// reports; a table that begins with "!" is of a driver that cannot name its nodes.
func (s *site) drivers(tables ...string) {
	s.t.Helper()
	s.configure("flat", "")
	path := filepath.Join(s.dir, "agent.toml")
	head, _, _ := strings.Cut(read(s.t, path), "[drivers")
	for i := 0; i < len(tables); i += 2 {
		name, broken := strings.CutPrefix(tables[i], "!")
		more := "nodes = [" + tables[i+1] + "]"
		if broken {
			more += "\nnot_ready = \"it waits\""
		}
		head += fmt.Sprintf("[drivers.%[1]s]\npath = %[2]q\n[drivers.%[1]s.config]\n%[3]s\n",
			name, filepath.Join(s.dir, "compute-driver-fake"), more)
	}
	check(s.t, os.WriteFile(path, []byte(head), 0o600))
}

// node is one with some VCPU, as a driver is configured with it.
func node(name, uuid string, vcpu int, more string) string {
	return fmt.Sprintf(`{name = %q, uuid = %q, inventories = {VCPU = {total = %d}%s}}`, name, uuid, vcpu, more)
}

// drive runs the agent until every driver has had its first turn, whatever came of it.
func (s *site) drive() (client *control.Client, stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan int, 1)
	var log bytes.Buffer
	go func() {
		ended <- execute(ctx, []string{"run", "--config", filepath.Join(s.dir, "agent.toml")}, io.Discard, &log)
	}()
	client = control.NewClient(filepath.Join(s.dir, "run", "agent.sock"))
	s.eventually("the first turn of all drivers", func() bool {
		view, err := client.Status(s.t.Context())
		for _, d := range view.Drivers {
			if d.Report.State == "starting" {
				return false
			}
		}
		return err == nil && len(view.Drivers) > 0
	})
	return client, func() {
		cancel()
		if code := <-ended; code != cli.ExitDone {
			s.t.Errorf("the agent ended with %d:\n%s", code, log.String())
		}
	}
}

// total is the inventory of a class of a provider, 0 if there is none.
func (s *site) total(uuid, class string) int64 {
	s.t.Helper()
	var out struct {
		Inventories map[string]struct{ Total, Reserved int64 }
	}
	s.request("GET", "/resource_providers/"+uuid+"/inventories", "", &out)
	return out.Inventories[class].Total
}

// claimed are the texts of the condition node-claimed-twice.
func (s *site) claimed(client *control.Client) []string {
	s.t.Helper()
	view := testproc.Try(client.Status(s.t.Context())).Or(s.t)
	var out []string
	for _, c := range view.Conditions {
		if c.Code == health.NodeClaimedTwice {
			out = append(out, c.Text)
		}
	}
	return out
}

const (
	contestedNode = "aaaaaaaa-0000-4000-8000-00000000000c"
	aNode         = "aaaaaaaa-0000-4000-8000-00000000000a"
	bNode         = "aaaaaaaa-0000-4000-8000-00000000000b"
)

// TestNodeOfTwoDriversStaysItsOwners: the driver that reported a node first keeps it, also when the
// newcomer answers first or the owner does not answer at all, by uuid or by name. Nothing else
// stops: neither the agent nor the other nodes of either driver.
func TestNodeOfTwoDriversStaysItsOwners(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.drivers("zeta", node("cn1", contestedNode, 16, ""))
	_, stop := s.drive()
	stop()
	for name, tables := range map[string][]string{
		"both answer": {"alpha", node("cn1", contestedNode, 1, "") + "," + node("a1", aNode, 2, ""),
			"zeta", node("cn1", contestedNode, 16, "") + "," + node("b1", bNode, 3, "")},
		"the uuid in capitals": {"alpha", node("cn1", strings.ToUpper(contestedNode), 1, ""),
			"zeta", node("cn1", contestedNode, 16, "")},
		"the name, with another uuid": {"alpha", node("CN1", bNode, 1, ""), "zeta", node("cn1", contestedNode, 16, "")},
		"the owner does not answer": {"alpha", node("cn1", contestedNode, 1, ""),
			"!zeta", node("cn1", contestedNode, 16, "")},
		"the owner is not configured": {"alpha", node("cn1", contestedNode, 1, "")},
	} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			s.drivers(tables...)
			client, stop := s.drive()
			defer stop()
			testproc.Equal(t, s.total(contestedNode, "VCPU"), 16, "the node has %d VCPU, and its owner reports 16")
			if texts := s.claimed(client); len(texts) != 1 || !strings.Contains(texts[0], "belongs to driver zeta") ||
				!strings.Contains(texts[0], "driver alpha names it") {
				t.Errorf("conditions: %q", texts)
			}
			s.says(cli.ExitDone, []string{"node", "list"}, "zeta", "what driver alpha reports for it is not written")
			s.says(cli.ExitFailed, []string{"status"}, "held, it belongs to driver zeta", "compute-agent node give")
			s.says(cli.ExitConfig, []string{"config", "check"}, "drivers.alpha: node", "belongs to driver zeta")
			if name == "both answer" {
				if a, b := s.total(aNode, "VCPU"), s.total(bNode, "VCPU"); a != 2 || b != 3 {
					t.Errorf("the other nodes have %d and %d VCPU, want 2 and 3", a, b)
				}
			}
		})
	}
}

// TestFirstStartWithTwoDriversOfOneNode: neither driver gets the node by chance, until an operator
// gives it to one; that outlives the agent.
func TestFirstStartWithTwoDriversOfOneNode(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	tables := []string{"alpha", node("cn1", contestedNode, 1, "") + "," + node("a1", aNode, 2, ""),
		"zeta", node("cn1", contestedNode, 16, "")}
	s.drivers(tables...)
	s.says(cli.ExitConfig, []string{"config", "check"}, "is named by the drivers alpha and zeta")
	s.says(cli.ExitProtect, []string{"plan", "--reshape"}, "is named by the drivers alpha and zeta")
	for range 2 {
		client, stop := s.drive()
		s.hasNames("a1")
		if texts := s.claimed(client); len(texts) != 1 ||
			!strings.Contains(texts[0], "is named by the drivers alpha and zeta") {
			t.Errorf("conditions: %q", texts)
		}
		stop()
	}
	client, stop := s.drive()
	s.says(cli.ExitProtect, []string{"node", "remove", "cn1", "--yes"}, "several drivers report this node")
	s.says(cli.ExitUsage, []string{"node", "give", "cn1"}, "--to DRIVER")
	s.says(cli.ExitUsage, []string{"node", "give", "cn1", "--to", "zeta"}, "can be assigned to driver zeta",
		"give --yes")
	s.says(cli.ExitProtect, []string{"node", "give", "cn1", "--to", "omega", "--yes"}, "no driver \"omega\" is enabled")
	s.says(cli.ExitProtect, []string{"node", "give", "a1", "--to", "zeta", "--yes"},
		"driver zeta does not report this node")
	s.says(cli.ExitDone, []string{"node", "give", "cn1", "--to", "zeta", "--yes"},
		"now belongs to driver zeta", "it belonged to no driver")
	s.eventually("the owner's inventory",
		func() bool { return len(s.names()) == 2 && s.total(contestedNode, "VCPU") == 16 })
	s.eventually("the newcomer is held", func() bool { return len(s.claimed(client)) == 1 })
	s.says(cli.ExitProtect, []string{"node", "give", "cn1", "--to", "zeta", "--yes"}, "already belongs to driver zeta")
	stop()
	client, stop = s.drive()
	defer stop()
	if texts := s.claimed(client); len(texts) != 1 || !strings.Contains(texts[0], "belongs to driver zeta") ||
		s.total(contestedNode, "VCPU") != 16 {
		t.Errorf("after a restart: %q, %d VCPU", texts, s.total(contestedNode, "VCPU"))
	}
}

// TestGiveNode: what only the former driver reported goes, but for what is allocated. With an agent
// that runs and without.
func TestGiveNode(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, running := range map[string]bool{"while the agent runs": true, "while it is stopped": false} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			old := []string{"old", node("cn1", contestedNode, 16, ", PCPU = {total = 4}, CUSTOM_GPU = {total = 2}")}
			s.drivers(old...)
			_, stop := s.drive()
			stop()
			s.request("PUT", "/allocations/"+alice,
				`{"allocations": {"`+contestedNode+
					`": {"resources": {"VCPU": 2, "CUSTOM_GPU": 1}}}, "project_id": "p", "user_id": "u", `+
					`"consumer_generation": null}`, nil)
			s.drivers("renamed", node("cn1", contestedNode, 8, ""))
			if running {
				_, stop := s.drive()
				defer stop()
				s.says(cli.ExitDone, []string{"node", "give", "cn1", "--to", "renamed", "--yes"},
					"now belongs to driver renamed", "belonged to driver old")
			} else {
				s.says(cli.ExitDone, []string{"node", "give", "cn1", "--to", "renamed", "--dry-run"},
					"belongs to driver old and can be assigned to driver renamed")
				s.says(cli.ExitDone, []string{"node", "give", "cn1", "--to", "renamed", "--yes"},
					"from the next start of the agent")
				_, stop := s.drive()
				defer stop()
			}
			s.eventually("the new driver's inventory",
				func() bool { return s.total(contestedNode, "VCPU") == 8 && s.total(contestedNode, "PCPU") == 0 })
			if got := s.total(contestedNode, "CUSTOM_GPU"); got != 1 {
				t.Errorf("of CUSTOM_GPU, which a guest has one of, there are %d", got)
			}
			s.eventually("the node is its own", func() bool {
				_, stdout, _ := s.run("node", "list")
				return strings.Contains(stdout, "renamed") && strings.Contains(stdout, "reporting")
			})
			s.request("PUT", "/allocations/"+alice,
				`{"allocations": {}, "project_id": "p", "user_id": "u", "consumer_generation": 1}`, nil)
		})
	}
}

// TestRemovedNodeIsTheNewcomers: the former driver is gone, and so is what it reported; then the
// node is new, and the other driver's.
func TestRemovedNodeIsTheNewcomers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.drivers("old", node("cn1", contestedNode, 16, ""))
	_, stop := s.drive()
	stop()
	s.drivers("next", node("cn1", contestedNode, 8, ""))
	_, stop = s.drive()
	defer stop()
	s.says(cli.ExitDone, []string{"node", "remove", "cn1", "--yes"}, "Removed node")
	s.eventually("the new driver's node",
		func() bool { return len(s.names()) == 1 && s.total(contestedNode, "VCPU") == 8 })
}
