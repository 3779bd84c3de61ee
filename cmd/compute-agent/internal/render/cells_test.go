// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/cells/scheduler/cloudaudit"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestEvictionListsWhatAHostMayHaveRead: the names of metadata and key pairs are listed.
func TestEvictionListsWhatAHostMayHaveRead(t *testing.T) {
	var out bytes.Buffer
	testproc.Check(t, render.HostEviction(&out, &operator.Eviction{Host: "h417", Servers: []operator.ExposedServer{
		{UUID: uuid(2), Name: "plain", Project: "p1", Where: "here"},
		{UUID: uuid(1), Name: "web", Project: "p1",
			Where: "moved", UserData: true, MetadataKeys: []string{"db", "role"}, KeyPair: "laptop", Image: "image1"},
	}}))
	want := "PROJECT  NAME   UUID                                  WHERE  USER DATA  METADATA  KEY PAIR  IMAGE\n" +
		"p1       plain  " + uuid(2) + "  here   no         -         -         -\n" +
		"p1       web    " + uuid(1) + "  moved  yes        db,role   laptop    image1\n"
	testproc.Contains(t, out.String(), want, "it prints: %s")
}

// TestListHostsShowsTwoHolders: an operator sees which hosts have shown a key of before, when and
// from where, as long as they are enrolled.
func TestListHostsShowsTwoHolders(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	refused := &apidb.KeyConflict{At: at.Add(time.Hour), From: "192.0.2.17", Key: "ab12"}
	enrolled := func(host string, change func(*apidb.Enrolment)) apidb.Enrolment {
		e := apidb.Enrolment{Host: host, State: apidb.Enrolled, EnrolledAt: at.Add(-time.Hour),
			EnrolledFrom: "192.0.2.9", Issued: at}
		change(&e)
		return e
	}
	list := []apidb.Enrolment{
		enrolled("h1", func(*apidb.Enrolment) {}),
		enrolled("h2", func(e *apidb.Enrolment) { e.Conflict, e.RenewedFrom = refused, "198.51.100.7" }),
		enrolled("h3", func(e *apidb.Enrolment) { e.Conflict = refused }),
		enrolled("h4", func(e *apidb.Enrolment) { e.Conflict, e.State = refused, apidb.Evicted }),
		enrolled("h5", func(e *apidb.Enrolment) { e.Agents, e.ExpiresAt = twoAgents(at), at.Add(24*time.Hour) }),
		enrolled("h6", func(e *apidb.Enrolment) {
			e.Agents, e.ExpiresAt, e.State = twoAgents(at), at.Add(24*time.Hour), apidb.Evicted
		}),
	}
	var out bytes.Buffer
	testproc.Check(t, render.HostList(&out, &operator.HostList{Enrolments: operator.Enrolments(list, nil, time.Now())}))
	_, got, _ := strings.Cut(out.String(), "\n\n")
	want := "Hosts whose identity two machines have, or that were restored from a copy (if not, evict them: " +
		"compute-agent cells manage evict-host HOST):\n" +
		"  host h2: renewed last at 2026-11-23T12:00:00Z from 198.51.100.7; " +
		"the key of 192.0.2.17 was refused at 2026-11-23T13:00:00Z\n" +
		"  host h3: joined at 2026-11-23T11:00:00Z from 192.0.2.9; " +
		"the key of 192.0.2.17 was refused at 2026-11-23T13:00:00Z\n" +
		"  2 agents report as host h5: one that started at 2026-11-23T12:00:00Z " +
		"and reports from 192.0.2.8 (boot id b1, machine m); one that started at " +
		"2026-11-23T12:00:00Z and reports from 192.0.2.17 (boot id b2, machine m)\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// twoAgents are those of a host that were both seen just now.
func twoAgents(started time.Time) agentruns.Agents {
	now := time.Now()
	agents := agentruns.Agents{Turn: 2, Until: now.Add(time.Hour).UnixMicro()}
	for i, address := range []string{"192.0.2.8", "192.0.2.17"} {
		agents.All = append(agents.All, agentruns.HostAgent{
			Process: agentruns.Process{Token: address, Boot: fmt.Sprint("b", i+1), Machine: "m", Started: started,
				Address: address}, First: 1, Shown: 2, Seen: now.UnixMicro(),
		})
	}
	return agents
}

// TestCloudAuditOfACellThatStops: a cell that stopped meanwhile is not one that was not compared.
func TestCloudAuditOfACellThatStops(t *testing.T) {
	var out bytes.Buffer
	testproc.Check(t, render.CloudAudit(&out,
		cloudaudit.Report{Unchecked: []cloudaudit.Unchecked{{Cell: "cell1", Why: "it stopped", Partly: true}}}, false))
	testproc.Contains(t, out.String(), "\nCell cell1 was not compared to the end: it stopped\n", "it prints: %s")
}
