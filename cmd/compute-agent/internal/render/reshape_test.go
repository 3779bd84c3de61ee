// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func print(t *testing.T, name string, f func(io.Writer) error) {
	t.Helper()
	var b bytes.Buffer
	testproc.Check(t, f(&b))
	golden.Text(t, "testdata/"+name, b.String())
}

func preview() *reshape.Preview {
	count := func(total, used int64) *reshape.InventoryCount {
		return &reshape.InventoryCount{Total: total, Used: used}
	}
	return &reshape.Preview{
		OverCommitted: []string{"VCPU on cn1: 70 allocated, capacity 64"},
		Consumers:     42, Moved: 3, Renames: map[string]string{"CUSTOM_GOLD": "VGPU"},
		Payload: &reshape.PayloadPreview{Providers: 3, Consumers: 3, Bytes: 1758},
		Providers: []reshape.ProviderPreview{
			{UUID: uuid(1), Name: "cn1", Before: 42,
				After: 40, Classes: []reshape.ClassPreview{{Class: "CUSTOM_GOLD", Before: count(16, 6)}}},
			{UUID: uuid(2), Name: "cn1_pci_0000_84_00_0",
				New: true, After: 2, Classes: []reshape.ClassPreview{{Class: "VGPU", After: count(8, 4)}}},
			{UUID: uuid(3), Name: "cn1_old", Removed: true,
				Before: 1, Classes: []reshape.ClassPreview{{Class: "VGPU", Before: count(1, 1)}}},
			{UUID: uuid(4), Name: "cn1_more", After: 1,
				Classes: []reshape.ClassPreview{{Class: "VGPU", Before: count(8, 0), After: count(9, 3)}}},
		},
	}
}

func TestPlanOfAReshape(t *testing.T) {
	plan := control.Plan{Nodes: []control.NodePlan{
		{Node: "cn1", UUID: uuid(1), Reshape: preview(),
			Operations: []reportclient.Operation{{Kind: reportclient.DeleteProvider,
				Provider: "cn1_old", UUID: uuid(3)}}},
		{Node: "cn2", UUID: uuid(9), Reshape: &reshape.Preview{Consumers: 1, Moved: 1}, Refused: true,
			Error: "the driver's reshape does not pass the agent's checks",
			Violations: []string{"consumer a: all its allocations would be lost",
				"consumer b: its consumer generation was changed"}, Hint: "go back"},
		{Node: "cn3", UUID: uuid(10), Refused: true, Error: "the driver cannot move the allocations"},
		{Node: "cn4", UUID: uuid(11), Warnings: []string{"the trait X is not known"},
			Reshape: &reshape.Preview{Consumers: 2},
			Operations: []reportclient.Operation{{Kind: reportclient.DeleteProvider,
				Provider: "cn4_old", UUID: uuid(3)}}},
		{Node: "cn5", UUID: uuid(12),
			Reshape: &reshape.Preview{Consumers: 2, Providers: preview().Providers[3:]}, Refused: true,
			Error: "no",
			ViolationGroups: []reshape.ViolationGroup{{Problem: "no capacity",
				Concerns: []string{"consumer a", "consumer b"}, Hint: "free capacity"}},
			Violations: []string{"consumer a: no capacity", "consumer b: no capacity"}},
	}}
	raw := testproc.Try(json.Marshal(plan)).Or(t)
	var view control.PlanView
	testproc.Check(t, json.Unmarshal(raw, &view))
	print(t, "plan-reshape.txt", func(w io.Writer) error { return render.Plan(w, view) })
}

func TestHeldNode(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := health.Status{Version: "1.0", Host: "cn1", Summary: "degraded: node cn1: no",
		Started: now.Add(-time.Hour), Drivers: []health.Driver{{
			Name:   "libvirt",
			Plugin: health.Plugin{Status: pluginhost.Status{State: "healthy", Since: now.Add(-time.Hour), Path: "/p"}},
			Report: resourcetracker.Status{Nodes: []resourcetracker.NodeStatus{{
				Name: "cn1", UUID: uuid(1), State: resourcetracker.Degraded, Held: true,
				Error: "the driver cannot move the allocations", Hint: "see each",
				Violations: []string{"consumer a: it has no guest", "consumer b: it has no guest"},
			}}},
		}}}
	print(t, "status-held.txt", func(w io.Writer) error { return render.Status(w, s, now) })
}

func entries() []journal.Entry {
	begun := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	inv := func(class string, total int64) providertree.Inventories {
		return providertree.Inventories{class: {Total: total}}
	}
	holds := func(provider string) providertree.ProviderResources {
		return providertree.ProviderResources{provider: {"VGPU": 2},
			uuid(90): {"DISK_GB": 10}, uuid(91): {"DISK_GB": 5}}
	}
	r := &reportclient.Reshape{
		Names: map[string]string{uuid(91): "nfs"},
		Providers: []reportclient.ReshapedProvider{
			{UUID: uuid(1), Name: "cn1", Generation: 7, Before: inv("VGPU", 8)},
			{UUID: uuid(2), Name: "cn1_gpu", Generation: 1, After: inv("VGPU", 8)},
		},
		Consumers: []reportclient.ReshapedConsumer{{UUID: uuid(50), Before: holds(uuid(1)), After: holds(uuid(2))}},
	}
	return []journal.Entry{
		{ID: 1, Root: uuid(1), Outcome: reportclient.ReshapeUnknown, Err: journal.ErrUnreadable,
			File: "/state/reshapes/000001-x.json"},
		{ID: 2, Root: uuid(1), Node: "cn1", Begun: begun, Ended: begun.Add(time.Second),
			Outcome: reportclient.ReshapeHappened, Reshape: r, File: "/state/reshapes/000002-x.json"},
		{ID: 3, Root: uuid(1), Node: "cn1", Begun: begun.Add(time.Hour),
			Outcome: reportclient.ReshapeRefused, Compared: true, Reshape: r},
		{ID: 4, Root: uuid(1), Node: "cn1", Begun: begun.Add(2 * time.Hour),
			Outcome: reportclient.ReshapeHappened, Undoes: 2, Reshape: r},
		{ID: 5, Root: uuid(1), Err: journal.ErrUnreadable},
		{ID: 6, Root: uuid(2), Node: "cn2", Begun: begun.Add(3 * time.Hour), Reshape: r},
	}
}

func TestReshapeHistory(t *testing.T) {
	print(t, "reshape-history.txt", func(w io.Writer) error { return render.ReshapeHistory(w, entries()) })
	print(t, "reshape-history-empty.txt", func(w io.Writer) error { return render.ReshapeHistory(w, nil) })
}

func TestReshapeShow(t *testing.T) {
	print(t, "reshape-show.txt", func(w io.Writer) error { return render.Reshape(w, entries()[1]) })
	print(t, "reshape-show-renamed.txt", func(w io.Writer) error {
		e := entries()[1]
		renamed := *e.Reshape
		renamed.Providers = slices.Clone(renamed.Providers)
		renamed.Providers[0].Name = "cn1_gpu" // which goes, and the new one has its name
		e.Reshape = &renamed
		return render.Reshape(w, e)
	})
	print(t, "reshape-show-damaged.txt", func(w io.Writer) error { return render.Reshape(w, entries()[0]) })
}

func TestRefusal(t *testing.T) {
	print(t, "refusal.txt", func(w io.Writer) error {
		return render.Refusal(w, "it does not fit", []reshape.ViolationGroup{
			{Problem: "there is no capacity",
				Concerns: []string{"consumer a, 2 VCPU of cn1", "consumer b, 1 VCPU of cn1"}},
			{Problem: "it is pinned", Concerns: []string{"consumer c"}, Hint: "migrate it"},
			{Problem: "the tree has no root"},
		}, "free capacity")
	})
	if err := render.Refusal(brokenWriter{}, "x", nil, ""); err == nil {
		t.Error("an error of the writer is lost")
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("no") }
