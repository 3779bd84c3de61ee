// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestEnrolmentsShowTwoHolders: what is known of a key of before, and of several agents, is in the
// enrolment of a host.
func TestEnrolmentsShowTwoHolders(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	agents := agentruns.Agents{Turn: 2, Until: now.Add(time.Hour).UnixMicro()}
	for _, address := range []string{"192.0.2.8", "192.0.2.17"} {
		agents.All = append(agents.All, agentruns.HostAgent{
			Process: agentruns.Process{Token: address, Address: address}, First: 1, Shown: 2, Seen: now.UnixMicro(),
		})
	}
	hosts := operator.Enrolments([]apidb.Enrolment{
		{Host: "h2", State: apidb.Enrolled, RenewedFrom: "198.51.100.7",
			Conflict: &apidb.KeyConflict{At: now, From: "192.0.2.17", Key: "ab12"}},
		{Host: "h5", State: apidb.Enrolled, Agents: agents, ExpiresAt: now.Add(24 * time.Hour), CellUUID: "c1"},
	}, []apidb.Cell{{UUID: "c1", Name: "cell1"}}, now)
	conflict := hosts[0].Enrolment
	testproc.Same(t, cmp.Diff(&operator.KeyConflict{At: now, From: "192.0.2.17", Key: "ab12"}, conflict.Conflict))
	if conflict.Renewed != "198.51.100.7" || conflict.Agents != nil {
		t.Errorf("with a refused key: %+v", conflict)
	}
	if two := hosts[1]; len(two.Enrolment.Agents) != 2 || two.Cell != "cell1" || two.Enrolment.Conflict != nil {
		t.Errorf("with two agents: %+v", two)
	}
}
