// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// The parts of a decision's hosts.
const (
	decisionHosts = 10_000
	cellsOfAHost  = 2
)

// part is one provider of a host.
type part struct {
	below  int // the number of its parent, -1 for the root
	has    map[string]int64
	traits []string
}

// flatHost has all on its root; hostOfCells has two cells with half of it each and a GPU of 4.
var (
	flatHost = []part{{-1, map[string]int64{"VCPU": 64, "MEMORY_MB": 256 << 10, "DISK_GB": 2000},
		[]string{"COMPUTE_NODE", "HW_CPU_X86_AVX2"}}}
	hostOfCells = []part{
		{-1, map[string]int64{"DISK_GB": 2000}, []string{"COMPUTE_NODE", "HW_CPU_X86_AVX2"}},
		{0, map[string]int64{"VCPU": 32, "MEMORY_MB": 128 << 10}, []string{"HW_NUMA_ROOT", "HW_CPU_X86_AVX2"}},
		{0, map[string]int64{"VCPU": 32, "MEMORY_MB": 128 << 10}, []string{"HW_NUMA_ROOT", "HW_CPU_X86_AVX2"}},
		{1, map[string]int64{"VGPU": 4}, nil},
		{2, map[string]int64{"VGPU": 4}, nil},
	}
)

// decisionUUID is that of a part of a host.
func decisionUUID(host, part int) string {
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", host+1, part)
}

// placementOf is a Placement of this project with hosts, in a file, and its nodes.
func placementOf(b *testing.B, kind func(host int) []part) (*placement.Server, []apidb.Node) {
	b.Helper()
	path := filepath.Join(b.TempDir(), "placement.db")
	made := testproc.Try(store.Open(b.Context(), path, store.Options{Upgrade: true, Logger: zerolog.Nop()})).Or(b)
	l := testproc.Try(transactor.Open(b.Context(), made, transactor.Options{})).Or(b)
	var nodes []apidb.Node
	for first := 0; first < decisionHosts; first += 1000 {
		_, err := l.Update(b.Context(), func(tx *ledger.Tx) error {
			for host := first; host < first+1000; host++ {
				for n, p := range kind(host) {
					if err := p.create(tx, host, n); err != nil {
						return err
					}
				}
			}
			return nil
		})
		check(b, err)
	}
	check(b, l.Close())
	for host := range decisionHosts {
		name := fmt.Sprint("host", host)
		nodes = append(nodes, apidb.Node{UUID: decisionUUID(host, 0), Name: name, Host: name, CellUUID: "cell"})
	}
	server, err := placement.New(b.Context(),
		placement.Config{Database: "sqlite:///" + path, Auth: placement.Auth{Strategy: placement.NoAuth},
			Policy: api.Legacy, Logger: zerolog.Nop()})
	check(b, err)
	b.Cleanup(func() { check(b, server.Close()) })
	return server, nodes
}

func (p part) create(tx *ledger.Tx, host, n int) error {
	uuid, parent := decisionUUID(host, n), ""
	if p.below >= 0 {
		parent = decisionUUID(host, p.below)
	}
	if _, err := tx.CreateProvider(ledger.NewProvider{UUID: uuid, Name: fmt.Sprintf("host%d-%d", host, n),
		Parent: parent}); err != nil {
		return err
	}
	for class, total := range p.has {
		if _, err := tx.AddInventory(uuid,
			ledger.Inventory{Class: class, Total: total,
				MinUnit: 1, MaxUnit: total, StepSize: 1, AllocationRatio: 1}); err != nil {
			return err
		}
	}
	at, _ := tx.Provider(uuid)
	_, err := tx.SetTraits(uuid, at.Generation, p.traits)
	return err
}

// BenchmarkDecision is a whole decision about a server among 10,000 hosts: the request, the
// candidates of Placement, weighing, and the claim. p50-ms and p99-ms are of single decisions.
func BenchmarkDecision(b *testing.B) {
	flavor := func(cpus, memory int64, specs ...string) cellwire.Flavor {
		f := cellwire.Flavor{ID: "1",
			Flavor: plugins.Flavor{VCPUs: cpus, MemoryMB: memory, RootGB: 1, ExtraSpecs: map[string]string{}}}
		for i := 0; i < len(specs); i += 2 {
			f.ExtraSpecs[specs[i]] = specs[i+1]
		}
		return f
	}
	plain := flavor(1, 512)
	gpu := flavor(2, 2048, "resources:VGPU", "1", "hw:pci_numa_affinity_policy", "required")
	for _, cloud := range []struct {
		name    string
		kind    func(host int) []part
		flavors map[string]cellwire.Flavor
		stages  map[string]int
	}{
		{"flat", func(int) []part { return flatHost },
			map[string]cellwire.Flavor{"plain": plain}, map[string]int{"plain": 1}},
		{"cells", func(int) []part { return hostOfCells }, map[string]cellwire.Flavor{
			"plain": plain, "gpu": gpu, "two cells": flavor(4, 4096, "hw:numa_nodes", "2"),
			"divided": flavor(40, 1024), "none": flavor(65, 512),
		}, map[string]int{"plain": 1, "gpu": 1, "two cells": 1, "divided": 2, "none": 0}},
		{"mixed", func(host int) []part { return [][]part{flatHost, hostOfCells}[host%cellsOfAHost] },
			map[string]cellwire.Flavor{"plain": plain}, map[string]int{"plain": 1}},
	} {
		b.Run(cloud.name, func(b *testing.B) {
			server, nodes := placementOf(b, cloud.kind)
			listening := httptest.NewServer(server.Handler())
			b.Cleanup(listening.Close)
			var serial int
			for _, way := range []string{"in process", "http"} {
				cfg := placementclient.Config{Authorize: asAdmin,
					Endpoint:  func(context.Context) (string, error) { return listening.URL, nil },
					Transport: http.DefaultTransport}
				if way == "in process" {
					cfg.Transport = &link{to: server.Handler(), counts: map[string]int{}}
				}
				client := testproc.Try(placementcalls.New(cfg)).Or(b)
				decision := scheduler.NewDecision(client, nodes)
				for name, f := range cloud.flavors {
					b.Run(name+"/"+way, func(b *testing.B) {
						var took []time.Duration
						b.ReportAllocs()
						for b.Loop() {
							serial++
							began := time.Now()
							stage, err := decision.Claim(b.Context(), apidb.RequestSpec{Server: cellwire.Server{
								UUID:      fmt.Sprintf("eeeeeeee-0000-4000-8000-%012x", serial),
								ProjectID: "p", UserID: "u", Flavor: f,
							}})
							took = append(took, time.Since(began))
							if err != nil || stage != cloud.stages[name] {
								b.Fatalf("stage %d: %v", stage, err)
							}
						}
						slices.Sort(took)
						for _, percent := range []int{50, 99} {
							b.ReportMetric(float64(took[(len(took)-1)*percent/100].Microseconds())/1000,
								fmt.Sprintf("p%d-ms", percent))
						}
					})
				}
			}
		})
	}
}
