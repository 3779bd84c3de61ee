// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/worker"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func inventory(class string, total, reserved int64, ratio float64, used int64) control.Inventory {
	i := control.Inventory{
		Class: class, Inventory: providertree.Inventory{Total: total, Reserved: reserved, AllocationRatio: ratio},
		Capacity: int64(float64(total-reserved) * ratio),
	}
	if used >= 0 {
		i.Used = &used
	}
	return i
}

func uuid(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }

func sample() control.Tree {
	traits := []string{"COMPUTE_NODE", "CUSTOM_RACK_7", "HW_ARCH_X86_64"}
	for _, t := range []string{"AESNI", "AVX", "AVX2", "BMI", "BMI2", "CLMUL", "SSE", "SSE2"} {
		traits = append(traits, "HW_CPU_X86_"+t)
	}
	traits = append(traits, "OWNER_NOVA")
	return control.Tree{Nodes: []control.NodeTree{
		{Node: "cn1", UUID: uuid(1), Driver: "libvirt", Providers: []control.Provider{
			{UUID: uuid(1), Name: "cn1", Generation: 12, Traits: traits, Aggregates: []string{uuid(90), uuid(91)},
				Inventories: []control.Inventory{
					inventory("DISK_GB", 251, 0, 1, 20),
					inventory("MEMORY_MB", 24000, 512, 1, 4096), inventory("VCPU", 2, 0, 4, 3),
				}},
			{UUID: uuid(2), Name: "cn1_numa_0", Parent: uuid(1), Generation: 3},
			{UUID: uuid(3), Name: "cn1_pci_0000_84_00_0",
				Parent: uuid(2), Generation: 4, ProductName: "NVIDIA Corporation TU104GL [Tesla T4]",
				Inventories: []control.Inventory{inventory("VGPU", 16, 0, 1, -1)}},
			{UUID: uuid(4), Name: "cn1_numa_1", Parent: uuid(1), Generation: 3, Traits: []string{"HW_NUMA_ROOT"}},
		}},
		{Node: "cn2", UUID: uuid(5), Driver: "libvirt", Error: "placement is unavailable"},
	}}
}

func TestTree(t *testing.T) {
	for name, opts := range map[string]render.TreeOptions{"tree.txt": {}, "tree-all-traits.txt": {AllTraits: true}} {
		var b bytes.Buffer
		testproc.Check(t, render.Tree(&b, sample(), opts))
		golden.Text(t, "testdata/"+name, b.String())
	}
	var b bytes.Buffer
	if err := render.Tree(&b, control.Tree{}, render.TreeOptions{}); err != nil || b.Len() == 0 {
		t.Error("an empty tree prints nothing")
	}
}

// TestTreeWithServers: who holds what, guests on their cells and devices, and what is no guest as
// that.
func TestTreeWithServers(t *testing.T) {
	tree := sample()
	at := func(provider int, consumers ...control.Consumer) {
		tree.Nodes[0].Providers[provider].Consumers = consumers
	}
	holds := func(c control.Consumer, class string, n int64) control.Consumer {
		c.Resources = providertree.Resources{class: n}
		return c
	}
	web := control.Consumer{UUID: uuid(11), Kind: control.KindGuest, Name: "web", Guest: "instance-0000000b"}
	db := control.Consumer{UUID: uuid(12), Kind: control.KindGuest, Guest: "db"}
	// as our libvirt driver calls it
	ours := control.Consumer{UUID: uuid(19), Kind: control.KindGuest, Name: "ours", Guest: "instance-" + uuid(19)}
	both := holds(web, "VCPU", 2)
	both.Resources["MEMORY_MB"] = 4096
	at(0, both, holds(ours, "VCPU", 1), holds(db, "VCPU", 1),
		holds(control.Consumer{UUID: uuid(13), Kind: control.KindElsewhere, Guest: "away", GuestOf: "cn2"}, "VCPU", 1),
		holds(control.Consumer{UUID: uuid(14), Kind: control.KindServer, Name: strings.Repeat("long", 20)}, "VCPU", 1),
		holds(control.Consumer{UUID: uuid(15), Kind: control.KindUnchecked, Type: "INSTANCE"}, "VCPU", 1),
		holds(control.Consumer{UUID: uuid(16), Kind: control.KindOther, Type: "MIGRATION"}, "VCPU", 1),
		holds(control.Consumer{UUID: uuid(17), Kind: control.KindOther, Name: "evil\x1b[2J\ncn9"}, "DISK_GB", 20))
	at(2, holds(web, "VGPU", 1))
	tree.Nodes[0].GuestsError = "asking the driver for its guests: no process"
	tree.Nodes[0].WithoutAllocations = []control.Consumer{{UUID: uuid(18), Kind: control.KindGuest, Guest: "new"}}
	drawn := func(width int) string {
		var b bytes.Buffer
		testproc.Check(t, render.Tree(render.NewTerminal(&b, width, false), tree, render.TreeOptions{}))
		return b.String()
	}
	whole := drawn(0)
	golden.Text(t, "testdata/tree-servers.txt", whole)
	golden.Text(t, "testdata/tree-servers-80.txt", drawn(80))
	words := func(text string) []string {
		all := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \n│├└─", r) })
		slices.Sort(all)
		return all
	}
	for _, width := range []int{1, 40, 80, 100, 120, 200} {
		text := drawn(width)
		testproc.Samef(t, gocmp.Diff(words(whole), words(text)), "on a terminal of %d columns (-piped +there)", width)
		for line := range strings.Lines(text) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); width >= 80 && n > width {
				t.Errorf("a line of %d columns on a terminal of %d: %s", n, width, line)
			}
		}
	}
}

// TestTreeEscapesProductNames: a name neither controls the terminal nor forges a line.
func TestTreeEscapesProductNames(t *testing.T) {
	tree := sample()
	tree.Nodes[0].Providers[0].ProductName = "evil\x1b[2J\ncn9"
	var b bytes.Buffer
	testproc.Check(t, render.Tree(&b, tree, render.TreeOptions{}))
	if first, _, _ := strings.Cut(b.String(), "\n"); !strings.HasSuffix(first, `  generation 12  evil\u001b[2J\ncn9`) {
		t.Errorf("got %q", first)
	}
}

// TestTreeWithoutPlacement: the heading says that it is not what Placement has now, why, and how
// old it is.
func TestTreeWithoutPlacement(t *testing.T) {
	tree := sample()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	tree.Nodes[0].Stale, tree.Nodes[0].ReadAt = "connection refused", now.Add(-4*time.Minute)
	var b bytes.Buffer
	testproc.Check(t, render.Tree(&b, tree, render.TreeOptions{Now: now}))
	golden.Text(t, "testdata/tree-stale.txt", b.String())
}

func TestStatus(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	node := resourcetracker.NodeStatus{
		Name: "cn1", UUID: uuid(1), State: resourcetracker.Reporting, LastSuccess: now.Add(-12 * time.Second),
		LastChange: now.Add(-3 * time.Hour),
		Changes:    []string{"set the inventory of cn1: VCPU reserved 0→1"}, Passes: 181, Writes: 4,
	}
	good := health.Status{
		State: resourcetracker.Reporting, Summary: "reporting 1 node", Version: "1.0.0", PID: 42, Host: "cn1",
		Started:     now.Add(-72 * time.Hour),
		ConfigFiles: []string{"/etc/compute-agent/compute-agent.toml"}, Reloaded: now.Add(-5 * time.Minute),
		Placement: health.Placement{URL: "http://127.0.0.1:8778", Bundled: true, Requests: 12, Writes: 4},
		Drivers: []health.Driver{{
			Name: "libvirt",
			Plugin: health.Plugin{Status: pluginhost.Status{State: "healthy", Since: now.Add(-26 * time.Hour),
				Path: "/usr/libexec/compute-agent/plugins/compute-driver-libvirt", PID: 43, Version: "1.0.0",
				Restarts: 1, Replacements: 2},
				Usage: &pluginhost.Usage{Processes: 2, Threads: 14, MemoryBytes: 25<<20 + 700_000, OpenFiles: 19}},
			Report: resourcetracker.Status{State: resourcetracker.Reporting, Nodes: []resourcetracker.NodeStatus{node}},
		}},
	}
	bad := good
	bad.ConfigFiles, bad.Reloaded, bad.Summary = nil, time.Time{}, "degraded"
	node.State, node.LastSuccess, node.Failures = resourcetracker.Degraded, time.Time{}, 7
	node.Error, node.Hint = "reading from Placement: GET /: placement is unavailable: connection refused",
		"check that Placement runs"
	bad.Drivers = []health.Driver{{
		Name: "libvirt",
		Plugin: health.Plugin{Status: pluginhost.Status{State: "backoff", Since: now.Add(-3 * time.Second),
			Path: "/x/compute-driver-libvirt", Restarts: 3}, Error: "the process has ended: signal: killed"},
		Report: resourcetracker.Status{State: resourcetracker.Degraded, Nodes: []resourcetracker.NodeStatus{node},
			Error: "asking the driver for its nodes: no process", Hint: "look at its log"},
	}}
	explained := bad
	explained.Conditions = []health.Condition{
		condition(health.CredentialsRefused, health.Agent, now.Add(-3*time.Hour), "GET /: 401"),
		condition(health.PluginDown, health.OfPlugin("libvirt"), now.Add(-30*time.Second),
			"the process has ended: signal: killed"),
		condition(health.InventoryDraining, health.OfNode("cn1"), now.Add(-72*time.Hour), "",
			"VGPU of cn1_gpu_0: 2 used", "VGPU of cn1_gpu_1: 1 used"),
	}
	explained.Conditions[0].Runbook = health.Define(health.CredentialsRefused).Runbook()
	explained.Summary = "degraded: " + explained.Conditions[0].String() + " (and 1 more)"
	noted := good
	noted.Drivers = slices.Clone(good.Drivers)
	noted.Drivers[0].Report.Nodes = []resourcetracker.NodeStatus{
		good.Drivers[0].Report.Nodes[0],
		{Name: "cn2", UUID: uuid(2), State: resourcetracker.Orphaned,
			Orphaned: "the driver does not confirm that it was removed for good"},
	}
	noted.Drivers[0].Report.Nodes[0].Changes = []string{"create a", "create b", "create c", "fill a", "fill b"}
	noted.Drivers[0].Warnings = []pluginhost.Warning{
		{Name: "gpu-clock-0000:82:00.0", Text: "GPU 0 is slow", Since: now.Add(-3 * time.Minute)},
		{Name: "numa-memory", Text: "libvirt says 64 GiB, the kernel 60; libvirt counts",
			Since: now.Add(-72 * time.Hour)},
	}
	noted.Conditions = []health.Condition{
		condition(health.DriverWarnings, health.OfDriver("libvirt"), now.Add(-72*time.Hour),
			"2: gpu-clock-0000:82:00.0, numa-memory"),
		condition(health.NodeDisabled, health.OfNode("cn1"), now.Add(-time.Minute), "new memory is put in"),
	}
	var card []string
	for i := range 16 {
		card = append(card, fmt.Sprintf("cn1_pci_0000_%02x_00_0: +VGPU 4", 0x82+i))
	}
	reshaped := "reshape cn1: -VGPU; " + strings.Join(card, "; ") + "; with the allocations of 42 consumers"
	written := good
	written.Drivers = slices.Clone(good.Drivers)
	written.Drivers[0].Report.Nodes = nil
	for i, changes := range [][]string{
		{reshaped}, {reshaped, "create a", "create b", "create c", "create d"}, {"create a", reshaped, "create c"},
		{"create " + strings.Repeat("a", 200)}, {"create a", "create b", "create c", "create d"},
	} {
		node := good.Drivers[0].Report.Nodes[0]
		node.Name, node.Changes = fmt.Sprintf("cn%d", i+1), changes
		written.Drivers[0].Report.Nodes = append(written.Drivers[0].Report.Nodes, node)
	}
	gone := bad
	gone.Drivers = []health.Driver{bad.Drivers[0], good.Drivers[0], bad.Drivers[0], bad.Drivers[0]}
	gone.Drivers[0].Plugin.State, gone.Drivers[0].Plugin.SHA256 = "quarantined", strings.Repeat("0123456789abcdef", 4)
	gone.Drivers[0].Plugin.NextAttempt, gone.Drivers[0].MissingSince, gone.Drivers[0].DisablesAt =
		now.Add(9*time.Minute+time.Second), now.Add(-12*time.Minute), now.Add(-2*time.Minute)
	gone.Drivers[1].Plugin.LastError, gone.Drivers[1].Plugin.LastErrorAt =
		"the process has ended: signal: killed", now.Add(-26*time.Hour)
	gone.Drivers[2].Plugin.NextAttempt, gone.Drivers[2].MissingSince, gone.Drivers[2].DisablesAt =
		now.Add(40*time.Second), now.Add(-50*time.Second), now.Add(9*time.Minute+10*time.Second)
	gone.Drivers[3].MissingSince = now.Add(-2 * time.Hour)
	celled := good
	celled.Cell = &health.Cell{URL: "https://cell1.example:8780", Status: worker.Status{
		Up: true, Since: now.Add(-26 * time.Hour), Nodes: []string{"cn1"}, Servers: 12, Busy: 1, Waiting: 1,
		Counts: worker.Counts{Spawns: worker.Outcomes{Succeeded: 14, Failed: 2},
			Destroys: worker.Outcomes{Succeeded: 1}},
	}}
	celled.Identity = &health.Identity{
		Host: "cn1", Nodes: []string{"7f0ba24e-2e4f-4a07-8a4e-0a3a8b1b5d55"}, Since: now.Add(-4 * time.Hour),
		Expires: now.Add(20 * time.Hour), Renews: true, NextRenewal: now.Add(4 * time.Hour),
	}
	cellAway := good
	cellAway.Cell = &health.Cell{URL: "https://cell1.example:8780",
		Status: worker.Status{Since: now.Add(-3 * time.Minute), Error: "connection refused", Servers: 2}}
	cellHeld := good
	cellHeld.Cell = &health.Cell{URL: "https://cell1.example:8780",
		Status: worker.Status{Up: true, Since: now.Add(-3 * time.Minute), Held: []string{"cn1"}, Servers: 2}}
	for name, s := range map[string]health.Status{"status-cell.txt": celled, "status-cell-held.txt": cellHeld,
		"status-cell-away.txt": cellAway, "status-gone.txt": gone, "status.txt": good, "status-degraded.txt": bad,
		"status-explained.txt": explained, "status-noted.txt": noted, "status-written.txt": written} {
		var b bytes.Buffer
		testproc.Check(t, render.Status(&b, s, now))
		golden.Text(t, "testdata/"+name, b.String())
	}
}

func condition(
	code health.Code, subject health.Subject, since time.Time, text string, details ...string,
) health.Condition {
	def := health.Define(code)
	return health.Condition{
		Code: code, Severity: def.Severity, Subject: subject, Title: def.Title, Text: text, Details: details,
		Meaning: def.Meaning, Hint: def.Hint, Since: since,
	}
}

func TestPlan(t *testing.T) {
	var plan control.PlanView
	err := json.Unmarshal([]byte(`{"nodes": [{"node": "cn1", "uuid": "u1", "operations": [{"operation": "create_provider", "text": "create it"}, {"text": "fill it"}]},
		{"node": "cn2", "uuid": "u2", "operations": []}, {"node": "cn3", "uuid": "u3", "error": "no driver"}]}`), &plan)
	testproc.Check(t, err)
	var b bytes.Buffer
	testproc.Check(t, render.Plan(&b, plan))
	golden.Text(t, "testdata/plan.txt", b.String())
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestWriteErrorsAreReported(t *testing.T) {
	if render.Tree(fullDisk{}, sample(), render.TreeOptions{}) == nil {
		t.Error("the error of the writer is lost")
	}
}
