// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"io"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/audit"
)

func findings() audit.Report {
	written := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	here := []audit.Share{{Provider: uuid(1), Name: "cn1", Class: "VCPU", Amount: 2},
		{Provider: uuid(2), Name: "cn1_gpu", Class: "CUSTOM_GPU", Amount: 1}}
	far := []audit.Share{{Provider: uuid(9), Class: "VCPU", Amount: 2}}
	look := "openstack resource provider allocation show " + uuid(11)
	return audit.Report{Nodes: []audit.Node{
		{Node: "cn1", UUID: uuid(1), Guests: 9, Consumers: 8, Orphans: []audit.Orphan{
			{Consumer: uuid(11), ProjectID: "p", UserID: "u", Here: here, Elsewhere: far, Written: written,
				Age: 90 * time.Minute, Seen: &audit.Seen{First: written, Gone: written.Add(time.Hour)}, Look: look},
			{Consumer: uuid(12), ProjectID: "p\x1b[2J",
				UserID: "u", Here: here, Kept: "it may be a migration", Look: look},
			{Consumer: uuid(13), Here: here, Written: written, Seen: &audit.Seen{First: written},
				Done: audit.Deleted, Look: look},
			{Consumer: uuid(14), Here: here, Written: written, Done: audit.Failed,
				Problem: "another client wrote to it", Look: look},
		}, Unaccounted: []audit.Guest{
			{UUID: uuid(21), Name: "vm1", Has: here},
			{UUID: uuid(22), Name: "vm\x1b[2J", Has: here, Elsewhere: far, Kept: "it may be on its way"},
			{UUID: uuid(23), Here: here, Has: here,
				Kept: "find out",
				Differences: []audit.Difference{{Provider: uuid(1), Name: "cn1", Class: "VCPU", Driver: 3,
					Placement: 2}, {Provider: uuid(9), Class: "DISK_GB", Driver: 1}}},
			{UUID: uuid(24), Name: "vm4", Has: here, Done: audit.Created},
			{UUID: uuid(25), Name: "vm5", Has: here, Done: audit.Failed, Problem: "there is no capacity"},
		}, Overcommitted: []audit.Overcommitted{{Name: "cn1", Class: "VCPU", Total: 8, Reserved: 2,
			AllocationRatio: 1.5, Capacity: 9, Used: 10}}},
		{Node: "cn2", UUID: uuid(3), Guests: 1, Consumers: 1},
		{Node: "driver libvirt", Error: "it cannot list guests"},
	}, Refused: "nothing is written, since not everybody who must be asked could tell"}
}

func TestAudit(t *testing.T) {
	print(t, "audit.txt", func(w io.Writer) error { return render.Audit(w, findings()) })
	print(t, "allocations-heal.txt", func(w io.Writer) error { return render.Healed(w, findings()) })
	print(t, "allocations-heal-nothing.txt", func(w io.Writer) error { return render.Healed(w, audit.Report{}) })
}

func TestMigration(t *testing.T) {
	node := func(n int, outcome control.MigrationOutcome) control.MigratedNode {
		return control.MigratedNode{NodePlan: control.NodePlan{Node: "cn", UUID: uuid(n)}, Outcome: outcome}
	}
	would, done, refused, failed := node(2, control.MigrationNeeded), node(3, control.MigrationDone),
		node(4, control.MigrationRefused), node(5, control.MigrationFailed)
	would.Operations, would.Reshape, would.Unfinished =
		[]reportclient.Operation{{Kind: reportclient.DeleteProvider, Provider: "cn1_old", UUID: uuid(3)}}, preview(),
		true
	done.Changes = []string{"this", "that"}
	refused.Error, refused.Violations, refused.Hint = "it does not fit", []string{"a", "b"}, "free capacity"
	failed.Error, failed.UUID = "the driver is down", ""
	print(t, "migration.txt", func(w io.Writer) error {
		return render.Migration(w,
			control.Migration{Nodes: []control.MigratedNode{node(1, control.MigrationNotNeeded),
				would, done, refused, failed}})
	})
}
