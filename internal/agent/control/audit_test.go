// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/resourcetracker/audit"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// Audit answers with what it was asked.
func (a fakeAgent) Audit(_ context.Context, r audit.Request) (audit.Report, error) {
	return audit.Report{Refused: cmp.Diff(audit.Request{}, r), Nodes: []audit.Node{{Node: r.Node}}}, a.err
}

func (a fakeAgent) HealAllocations(_ context.Context, r audit.HealRequest) (audit.Report, error) {
	return audit.Report{Refused: cmp.Diff(audit.HealRequest{}, r), Nodes: []audit.Node{{Node: r.Node}}}, a.err
}

// TestAuditOverTheSocket: requests and reports come through whole.
func TestAuditOverTheSocket(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path, stop := serve(t, fakeAgent{})
	defer stop()
	client := control.NewClient(path)
	ask := audit.Request{Node: "cn1", Heal: true, DryRun: true, MinAge: time.Hour, Consumers: []string{"a", "b"}}
	report, err := client.Audit(t.Context(), ask)
	if err != nil || report.Refused != cmp.Diff(audit.Request{}, ask) || report.Nodes[0].Node != "cn1" {
		t.Errorf("Audit: got %+v, %v, want the request as it was sent", report, err)
	}
	heal := audit.HealRequest{Node: "cn2", DryRun: true, IncompleteProject: "p", IncompleteUser: "u"}
	report, err = client.HealAllocations(t.Context(), heal)
	if err != nil || report.Refused != cmp.Diff(audit.HealRequest{}, heal) || report.Nodes[0].Node != "cn2" {
		t.Errorf("HealAllocations: got %+v, %v, want the request as it was sent", report, err)
	}
}
