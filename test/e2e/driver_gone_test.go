// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	disabledTrait = "COMPUTE_STATUS_DISABLED"
	guestOfCN1    = "99999999-0000-4000-8000-000000000001"
)

// TestDriverGone: when a driver is missing for longer than its grace period, for any reason, one
// write disables the root of its node, and another one enables it when the driver is back. The
// inventory, its guests, and the node of another driver stay as they are, in the bundled Placement
// and in OpenStack's own. An operator's own setting stays.
func TestDriverGone(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for kind, empty := range placements(t) {
		t.Run(kind, func(t *testing.T) {
			g := &goneWorld{world: newWorld(t, empty(t))}
			g.orders("")
			g.agent = g.run()
			for _, node := range []string{"cn1", "cn2"} {
				g.agent.await(0, wrote, `"node":"`+node+`"`, "Set the traits of "+node)
			}
			g.agent.stop()
			g.claim(holding{guestOfCN1: {"cn1": {"VCPU": 2}}})
			g.before = g.look().timeless()
			g.agent = g.run() // it reads the generations that the claim has changed
			g.agent.await(0, inStep, `"node":"cn1"`)
			g.agent.await(0, inStep, `"node":"cn2"`)
			for _, fault := range []string{"crash", "hang", "stop", "not-ready"} {
				t.Run(fault, func(t *testing.T) {
					defer g.within(t)()
					g.goes(fault, 1)
					g.agent.await(g.agent.Mark(), `"driver":"chaos"`) // it is tried again and again
					g.returns(1, false)
				})
			}
			t.Run("an operator's word", func(t *testing.T) {
				defer g.within(t)()
				g.operator("disable", "--reason", "a fan is broken")
				g.goes("crash", 0)
				g.returns(0, true)
				g.operator("enable")
				g.checkPicture(false, false)
			})
			g.agent.stop()
		})
	}
}

// goneWorld is a host with a driver that has faults, of node cn1, and one that works, of cn2.
type goneWorld struct {
	*world
	agent  *process
	before picture
	writes int64 // so far
}

// orders writes the configuration: the faults of the driver in its next passes. The times are short
// for a driver that is gone, and long for one that a busy machine keeps waiting; that of cn2 is
// never gone.
func (g *goneWorld) orders(update string) {
	g.t.Helper()
	check(g.t, os.WriteFile(g.config, []byte(fmt.Sprintf(`
[agent]
host = "cn1"
state_dir = %q
runtime_dir = %q
[placement_client]
url = %q
[tracker]
update_resources_interval = "100ms"
retry_backoff_min = "20ms"
retry_backoff_max = "100ms"
[plugins]
dir = %q
backoff_min = "50ms"
backoff_max = "100ms"
crash_limit = 1000
[log]
format = "json"
[drivers.chaos]
path = %q
unavailable_grace = "3s"
timeouts = {nodes = "1s", update = "1s", health = "1s", configure = "5s", stop = "1s"}
restart = {health_interval = "2s"}
[drivers.chaos.config]
nodes = [{name = "cn1", inventories = {VCPU = {total = 8}}}]
faults = {update = %q}
[drivers.fake]
unavailable_grace = "1h"
[drivers.fake.config]
nodes = [{name = "cn2", uuid = "22222222-0000-4000-8000-000000000002", inventories = {VCPU = {total = 8}}}]
`, filepath.Join(g.dir, "state"), filepath.Join(g.dir, "run"), g.url, binaries.Dir(), filepath.Join(binaries.Dir(), "compute-driver-fake"), update)), 0o600))
}

// goes makes the driver fail, and checks its node and the number of writes.
func (g *goneWorld) goes(fault string, writes int64) {
	g.t.Helper()
	mark := g.agent.Mark()
	g.writes = g.status().Placement.Writes
	g.orders(fault)
	g.agent.signal(syscall.SIGHUP)
	g.agent.await(mark, `"condition":"driver-gone"`, `"driver":"chaos"`, `"details":["cn1"]`)
	if writes > 0 {
		g.agent.await(mark, wrote, `"node":"cn1"`, "+"+disabledTrait)
	}
	g.checkWrites(writes)
	g.checkPicture(true, writes == 0)
	status := g.status()
	if !slices.ContainsFunc(status.Conditions, func(c health.Condition) bool {
		return c.Code == health.DriverGone && c.Subject == health.OfDriver("chaos") && strings.Contains(c.Text, "unavailable_grace of 3s")
	}) {
		g.t.Errorf("the status does not say so: %+v", status.Conditions)
	}
	text, code := command(g.t, "status", "--config", g.config)
	if code != 1 && code != 0 || !strings.Contains(text, "driver chaos (node cn1, since ") || !strings.Contains(text, "its nodes are disabled until it returns") {
		g.t.Errorf("status (%d):\n%s", code, text)
	}
}

// returns fixes the driver, and checks that its node is as it was before.
func (g *goneWorld) returns(writes int64, stays bool) {
	g.t.Helper()
	g.checkWrites(writes) // the failed passes since have cost none
	mark := g.agent.Mark()
	g.writes = g.status().Placement.Writes
	g.orders("")
	g.agent.signal(syscall.SIGHUP)
	g.agent.await(mark, "resolved", `"condition":"driver-gone"`)
	if writes > 0 {
		g.agent.await(mark, wrote, `"node":"cn1"`, "-"+disabledTrait)
	}
	g.agent.await(mark, "The node is reported again", `"node":"cn1"`)
	g.checkWrites(writes)
	g.checkPicture(stays, stays)
	if text, _ := command(g.t, "status", "--config", g.config); strings.Contains(text, "driver chaos (node") {
		g.t.Errorf("status:\n%s", text)
	}
}

// operator runs a command about the host, and waits until Placement has the result.
func (g *goneWorld) operator(args ...string) {
	g.t.Helper()
	if text, code := command(g.t, append(args, "--config", g.config)...); code != 0 {
		g.t.Fatalf("%v (%d):\n%s", args, code, text)
	}
}

func (g *goneWorld) checkWrites(want int64) {
	g.t.Helper()
	if n := g.status().Placement.Writes - g.writes; n != want {
		g.t.Errorf("%d writes, not %d", n, want)
	}
}

// checkPicture: Placement has what it had before, but for which of the nodes are disabled.
func (g *goneWorld) checkPicture(cn1, cn2 bool) {
	g.t.Helper()
	now := g.look().timeless()
	for node, want := range map[string]bool{"cn1": cn1, "cn2": cn2} {
		if has := slices.Contains(now.Traits[node], disabledTrait); has != want {
			g.t.Errorf("%s is disabled: %t, not %t", node, has, want)
		}
		now.Traits[node] = slices.DeleteFunc(now.Traits[node], func(trait string) bool { return trait == disabledTrait })
	}
	if diff := cmp.Diff(g.before, now); diff != "" {
		g.t.Errorf("other data in Placement has changed: %s", diff)
	}
}
