// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const play = `
nodes = [{ name = "cn1", inventories = { VCPU = { total = 8, allocation_ratio = 4 }, VGPU = { total = 4 } } }]
capabilities = { COMPUTE_RESCUE_BFV = true }

[[then]] # more GPUs are plugged in
after = "30s"
[[then.nodes]]
name = "cn1"
[then.nodes.inventories]
VCPU.total = 8
VGPU.total = 8

[[then]]
after = "60s"
layout = "vgpu-children"

[[then]]
after = "90s"
not_ready = "it is over"
`

// played is a driver that plays a scenario that began some time ago.
func played(t *testing.T, path, content string, ago time.Duration) *Driver {
	t.Helper()
	rewrite(t, path, content, ago)
	return configured(t, `{"scenario":"`+path+`"}`)
}

func rewrite(t *testing.T, path, content string, ago time.Duration) {
	t.Helper()
	write(t, path, content)
	began := time.Now().Add(-ago)
	testproc.Check(t, os.Chtimes(path, began, began))
}

func TestAScenarioGoesOnWithTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "scenario.toml")
	synctest.Test(t, func(t *testing.T) {
		for ago, want := range map[time.Duration][]string{
			0:                {"cn1 VCPU,VGPU "},
			45 * time.Second: {"cn1 VCPU,VGPU "},
			65 * time.Second: {"cn1 VCPU ", "  cn1_gpu_0 VGPU ", "  cn1_gpu_1 VGPU "},
		} {
			d, tree := played(t, path, play, ago), newTree(t, "cn1")
			update(t, d, tree, "cn1")
			testproc.Samef(t, cmp.Diff(want, outline(tree)), "after %v", ago)
			if inv, ok := tree.Inventory(rootUUID, "VGPU"); ok && (inv.Total == 8) != (ago > 0) {
				t.Errorf("after %v: %v", ago, inv)
			}
			if !d.Capabilities("cn1")["COMPUTE_RESCUE_BFV"] {
				t.Errorf("after %v: a key that the step omits lost its value", ago)
			}
		}
		if _, err := played(t, path, play, time.Hour).
			AvailableNodes(context.Background()); !errors.Is(err, plugins.ErrNotReady) {
			t.Error(err)
		}
	})
}

// TestAScenarioIsFollowed: with time, when it is written again, and not when it cannot be read.
func TestAScenarioIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "scenario.toml")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		d := played(t, path, play, 20*time.Second)
		var told atomic.Int64
		watching := make(chan error)
		go func() { watching <- d.Watch(ctx, func(string) { told.Add(1) }) }()
		step := func(what string, wait time.Duration, want int64) {
			t.Helper()
			time.Sleep(wait)
			synctest.Wait()
			if n := told.Swap(0); n != want {
				t.Errorf("%s: told %d times, want %d", what, n, want)
			}
		}
		step("nothing happens", 9*time.Second, 0)
		step("30 s have passed", 3*time.Second, 1)
		step("60 s have passed", 30*time.Second, 1)
		rewrite(t, path, `nodes = [{ name = "cn2" }]`, 0)
		step("it is written again", 2*time.Second, 1)
		if nodes, err := d.AvailableNodes(ctx); err != nil || len(nodes) != 1 || nodes[0].Name != "cn2" {
			t.Error(nodes, err)
		}
		for _, wrong := range []string{"", "nodes = [{ name =", `nodez = 1`} {
			rewrite(t, path, wrong, time.Second)
			step("it cannot be read", 5*time.Second, 0)
			testproc.ErrorHas(t, d.Health(ctx), path, "%q: health: %v", wrong)
			if nodes, err := d.AvailableNodes(ctx); err != nil || len(nodes) != 1 || nodes[0].Name != "cn2" {
				t.Error(nodes, err)
			}
		}
		testproc.Check(t, os.Remove(path))
		step("it is gone", 2*time.Second, 0)
		testproc.ErrorIs(t, d.Health(ctx), os.ErrNotExist, "%v")
		rewrite(t, path, `nodes = [{ name = "cn3" }]
			warnings = { "gpu-clock" = "it is slow" }`, 0)
		step("it is back", 2*time.Second, 1)
		testproc.NoError(t, d.Health(ctx))
		if got := d.Warnings(); len(got) != 1 || got[0].Name != "gpu-clock" {
			t.Errorf("warnings: %v", got)
		}
		cancel()
		testproc.NoError(t, <-watching)
	})
}

// TestMistakesInAScenarioAreNamedByTheirLine, wherever they are.
func TestMistakesInAScenarioAreNamedByTheirLine(t *testing.T) {
	const node = "\nnodes = [{ name = \"cn1\", inventories = { VCPU = { total = 8 } } }]\n"
	for content, want := range map[string]string{
		"":                                       ":1: it is empty",
		"layout = \"flat\"\nlayout_version = =":  ":2: ",
		node + "nodez = 1":                       ":3: nodez is not a key",
		node + "layout = 7":                      ":3: ",
		node + "[[then]]\nafter = \"1s\"\nx = 1": ":5: then.x is not a key",
		node + "layout = \"round\"":              ":3: layout: ",
		"nodes = [\n{ name = \"a\" },\n" +
			"{ name = \"b\", inventories = {\nVCPU = { total = 0 } } },\n]": ":4: nodes[1].inventories.VCPU: ",
		"nodes = [\n{ name = \"a\" },\n{ name = \"a\" },\n]": ":3: nodes[1].name: ",
		"[[nodes]]\nname = \"a\"\n[nodes.inventories]\nVCPU.total = 1\n[[nodes]]\nname = \"b\"\n" +
			"[nodes.inventories]\nVCPU.total = -1": ":8: nodes[1].inventories.VCPU: ",
		node + "[[then]]\nafter = \"soon\"":                         ":4: after: ",
		node + "[[then]]\nlayout = \"numa\"":                        ":3: after: ",
		node + "[[then]]\nafter = \"2s\"\n[[then]]\nafter = \"1s\"": ":6: after: ",
		node + "[faults]\nconfigure = \"hang\"\n" +
			"[[then]]\nafter = \"2s\"\nhealth = \"ill\"": ":4: faults.configure: ",
		node + "[[then]]\nafter = \"2s\"\nfaults.reshape = \"badly\"": ":5: faults.reshape: ",
		node + "faults.reshape = \"lose\"\n[[then]]\nafter = \"2s\"\n" +
			"[[then.nodes]]\nname = \"x\"\nuuid = \"y\"": ":8: nodes[0].uuid: ",
		node + "[[then]]\nafter = \"2s\"\n[[then]]\nafter = \"3s\"\nlayout_version = 9": ":7: layout_version: ",
		node + "scenario = \"/x\"": ":3: scenario: a scenario cannot refer",
		node + "x = nan":           ":3: ",
	} {
		path := filepath.Join(t.TempDir(), "s.toml")
		write(t, path, content)
		var config *plugins.ConfigError
		err := New().Configure(context.Background(),
			json.RawMessage(`{"scenario":"`+path+`"}`), plugins.HostInfo{Name: "h"})
		if !errors.As(err, &config) || config.Key != "scenario" || !strings.Contains(config.Problem, path+want) {
			t.Errorf("%s\nwant %s, got %v", content, want, err)
		}
	}
	for raw, words := range map[string]string{
		`{"scenario":"s.toml"}`: "absolute", `{"scenario":"/nonexistent/s"}`: "no such file",
		`{"scenario":"/dev/zero"}`:          "not a regular file",
		`{"scenario":"/x","layout":"flat"}`: "no other key",
	} {
		var config *plugins.ConfigError
		if err := New().Configure(context.Background(),
			json.RawMessage(raw), plugins.HostInfo{Name: "h"}); !errors.As(err, &config) ||
			config.Key != "scenario" || !strings.Contains(config.Problem, words) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// FuzzScenario: whatever is written, it is a scenario or an error, and one that tells the line.
func FuzzScenario(f *testing.F) {
	for _, seed := range []string{play, "", "then = 1", "[[then]]", "nodes=[{name='a',children=[{}]}]",
		"[then]\nafter='1s'", "then=[1]", "a.b.c=1\n[a]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		acts, err := parseScenario([]byte(content), time.Unix(0, 0), plugins.HostInfo{Name: "h"})
		if err == nil {
			if len(acts) == 0 {
				t.Error("no acts")
			}
			return
		}
		var line int
		if n, _ := fmt.Sscanf(err.Error(), "%d:", &line); n != 1 || line < 1 || line > strings.Count(content, "\n")+1 {
			t.Errorf("%q: %v", content, err)
		}
	})
}
