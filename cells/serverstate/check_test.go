// SPDX-License-Identifier: Apache-2.0

package serverstate_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const nodeUUID = "5e000000-0000-4000-8000-000000000001"

func TestCheckInsert(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	good := func() cellwire.Server {
		return cellwire.Server{UUID: "5e000000-0000-4000-8000-000000000001", ProjectID: "p", CreatedAt: then, Host: "h",
			Node: "n", VMState: cellwire.VMBuilding, TaskState: cellwire.TaskSpawning}
	}
	testproc.Check(t, serverstate.CheckInsert(good()))
	for name, spoil := range map[string]func(*cellwire.Server){
		"no uuid":                func(s *cellwire.Server) { s.UUID = "" },
		"an upper-case uuid":     func(s *cellwire.Server) { s.UUID = strings.ToUpper(s.UUID) },
		"a uuid with braces":     func(s *cellwire.Server) { s.UUID = "{" + s.UUID + "}" },
		"no project":             func(s *cellwire.Server) { s.ProjectID = "" },
		"no time":                func(s *cellwire.Server) { s.CreatedAt = time.Time{} },
		"no host":                func(s *cellwire.Server) { s.Host = "" },
		"no node":                func(s *cellwire.Server) { s.Node = "" },
		"a strange host":         func(s *cellwire.Server) { s.Host = "a/b" },
		"a strange node":         func(s *cellwire.Server) { s.NodeUUID = "x" },
		"another state":          func(s *cellwire.Server) { s.VMState = cellwire.VMActive },
		"another task":           func(s *cellwire.Server) { s.TaskState = cellwire.TaskDeleting },
		"power":                  func(s *cellwire.Server) { s.PowerState = 1 },
		"an error with a host":   func(s *cellwire.Server) { s.VMState, s.TaskState = cellwire.VMError, "" },
		"a life before":          func(s *cellwire.Server) { s.LaunchedAt = &then },
		"a deletion":             func(s *cellwire.Server) { s.Deleted = true },
		"a flavor without limit": func(s *cellwire.Server) { s.Flavor.VCPUs = 1 << 60 },
		"a negative flavor":      func(s *cellwire.Server) { s.Flavor.MemoryMB = -1 },
		"a long name":            func(s *cellwire.Server) { s.Name = strings.Repeat("x", 5000) },
	} {
		s := good()
		spoil(&s)
		var refusal *cellwire.Error
		if err := serverstate.CheckInsert(s); !errors.As(err, &refusal) || refusal.Code != cellwire.CodeBadRequest {
			t.Errorf("with %s: got %v", name, err)
		}
	}
}

// TestDetailsAreBounded: what no node is like is refused.
func TestDetailsAreBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	check := func(d cellwire.NodeDetails) error {
		return serverstate.CheckReport(
			cellwire.HostReport{Nodes: []cellwire.ReportedNode{{UUID: nodeUUID, Name: "n", Details: &d}}})
	}
	for what, d := range map[string]cellwire.NodeDetails{
		"too long":            {HypervisorType: strings.Repeat("x", cellwire.MaxHypervisorType+1)},
		"a null":              {HypervisorType: "a\x00"},
		"no UTF-8":            {HypervisorType: "a\xff"},
		"a negative version":  {HypervisorVersion: -1},
		"more than 31 bits":   {HypervisorVersion: math.MaxInt32 + 1},
		"less than no guest":  {UnknownGuests: -1},
		"no address":          {HostIP: "cn1"},
		"an address and port": {HostIP: "192.0.2.7:80"},
		"a zone":              {HostIP: "fe80::7%eth0"},
		"another form":        {HostIP: "2001:DB8::7"},
	} {
		var refused *cellwire.Error
		if err := check(d); !errors.As(err, &refused) || refused.Status != 400 {
			t.Errorf("%s: %v", what, err)
		}
	}
	testproc.NoError(t, check(cellwire.NodeDetails{HypervisorType: strings.Repeat("x", cellwire.MaxHypervisorType),
		HypervisorVersion: math.MaxInt32, HostIP: "192.0.2.7"}))
}

// TestAbilitiesAreBounded: what no node can do is refused.
func TestAbilitiesAreBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	many := make([]string, cellwire.MaxAbilities+1)
	for i := range many {
		many[i] = fmt.Sprint("a", i)
	}
	longest := strings.Repeat("a", cellwire.MaxAbility)
	for what, abilities := range map[string][]string{
		"too many": many, "empty": {""}, "too long": {longest + "a"}, "a comma": {"a,b"},
		"upper case": {"A"}, "a null": {"a\x00"},
	} {
		err := serverstate.CheckReport(
			cellwire.HostReport{Nodes: []cellwire.ReportedNode{{UUID: nodeUUID, Name: "n", Abilities: abilities}}})
		var refused *cellwire.Error
		if !errors.As(err, &refused) || refused.Status != 400 {
			t.Errorf("%s: %v", what, err)
		}
	}
	testproc.NoError(t, serverstate.CheckReport(
		cellwire.HostReport{Nodes: []cellwire.ReportedNode{{UUID: nodeUUID, Name: "n",
			Abilities: append(many[:cellwire.MaxAbilities-1], longest)}}}))
}
