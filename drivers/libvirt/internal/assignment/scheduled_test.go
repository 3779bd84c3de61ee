// SPDX-License-Identifier: Apache-2.0

package assignment_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// serving is a Placement with the tree of a host.
type serving struct {
	t       *rapid.T
	handler http.Handler
}

// RoundTrip asks it.
func (s serving) RoundTrip(r *http.Request) (*http.Response, error) {
	served := r.Clone(r.Context())
	if served.Body == nil {
		served.Body = http.NoBody
	}
	served.RequestURI, served.RemoteAddr = r.URL.RequestURI(), "127.0.0.1:1"
	answer := httptest.NewRecorder()
	s.handler.ServeHTTP(answer, served)
	return answer.Result(), nil
}

func (s serving) write(method, path string, body any) {
	text := testproc.Try(json.Marshal(body)).Or(s.t)
	r := httptest.NewRequest(method, path, bytes.NewReader(text))
	r.Header.Set("X-Auth-Token", "admin")
	r.Header.Set("OpenStack-API-Version", "placement 1.38")
	r.Header.Set("Content-Type", "application/json")
	if answer, err := s.RoundTrip(r); err != nil || answer.StatusCode >= 300 {
		s.t.Fatalf("%s %s: %+v, %v", method, path, answer, err)
	}
}

func (s serving) provider(n int, parent string, traits []string, inventory map[string]int64) string {
	uuid := id(0x7000 + n)
	body := map[string]any{"uuid": uuid, "name": fmt.Sprint("p", n)}
	if parent != "" {
		body["parent_provider_uuid"] = parent
	}
	s.write(http.MethodPost, "/resource_providers", body)
	inventories := map[string]any{}
	for class, total := range inventory {
		inventories[class] = map[string]any{"total": total, "max_unit": total}
	}
	s.write(http.MethodPut, "/resource_providers/"+
		uuid+"/inventories", map[string]any{"resource_provider_generation": 0, "inventories": inventories})
	s.write(http.MethodPut, "/resource_providers/"+
		uuid+"/traits", map[string]any{"resource_provider_generation": 1, "traits": traits})
	return uuid
}

// anyFlavor is one that asks for cells in some way.
func anyFlavor(t *rapid.T) plugins.Flavor {
	specs := map[string]string{}
	one := func(what string, of ...string) string { return rapid.SampledFrom(of).Draw(t, what) }
	f := plugins.Flavor{VCPUs: rapid.Int64Range(1, 3).Draw(t, "VCPUs") * 2,
		MemoryMB: rapid.Int64Range(1, 6).Draw(t, "memory") * 512, ExtraSpecs: specs}
	switch one("policy", "", "dedicated", "mixed") {
	case "dedicated":
		specs["hw:cpu_policy"] = "dedicated"
	case "mixed":
		specs["hw:cpu_policy"], specs["hw:cpu_dedicated_mask"] = "mixed", one("mask", "0", "^0", "1")
	}
	if specs["hw:cpu_policy"] != "" && rapid.Bool().Draw(t, "emulator") {
		specs["hw:emulator_threads_policy"] = "isolate"
	}
	if size := one("pages", "", "", "2MB", "large"); size != "" {
		specs["hw:mem_page_size"] = size
	}
	switch one("nodes", "", "1", "2", "uneven") {
	case "1":
		specs["hw:numa_nodes"] = "1"
	case "2":
		specs["hw:numa_nodes"] = "2"
	case "uneven":
		specs["hw:numa_nodes"], specs["hw:numa_cpus.0"],
			specs["hw:numa_mem.0"] = "2", strconv.Itoa(int(f.VCPUs-1)), "128"
		specs["hw:numa_cpus.1"], specs["hw:numa_mem.1"] =
			fmt.Sprintf("0-%d", f.VCPUs-2), strconv.Itoa(int(f.MemoryMB-128))
	}
	if rapid.IntRange(0, 2).Draw(t, "device") == 0 {
		specs["resources:VGPU"], specs["hw:pci_numa_affinity_policy"] = "1", one("affinity", "legacy", "required")
	}
	return f
}

// TestGuestsAreWhereTheSchedulerPutsThem: whatever flavors come one after the other: what the
// scheduler has Placement grant, the driver can make, and the domain's processors and memory are
// bound to just the cells that they were granted of, its devices to one of these.
func TestGuestsAreWhereTheSchedulerPutsThem(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	made := map[int]int{}
	rapid.Check(t, func(t *rapid.T) {
		dir := testproc.Try(os.MkdirTemp("", "scheduled-")).Or(t)
		defer func() { testproc.NoError(t, os.RemoveAll(dir)) }()
		server := testproc.Try(placement.New(context.Background(), placement.Config{
			Database: "sqlite://" + filepath.Join(dir, "p.db"), Auth: placement.Auth{Strategy: placement.NoAuth},
			Policy: api.Legacy, Logger: zerolog.Nop(),
		})).Or(t)
		defer func() { testproc.NoError(t, server.Close()) }()
		s := serving{t, server.Handler()}
		client := testproc.Try(placementcalls.New(placementclient.Config{
			Endpoint:  func(context.Context) (string, error) { return "http://placement/", nil },
			Authorize: func(_ context.Context, h http.Header) error { h.Set("X-Auth-Token", "admin"); return nil },
			Transport: s,
		})).Or(t)
		r := scheduledHost(t, s)
		for n := range rapid.IntRange(1, 8).Draw(t, "guests") {
			flavor := anyFlavor(t)
			request, err := resourcerequest.New(cellwire.Flavor{ID: "1", Flavor: flavor}, nil)
			testproc.Checkf(t, err, "%+v", flavor)
			var found []resourcerequest.Candidate
			for _, stage := range request.Stages(true) {
				for _, one := range stage {
					more := testproc.Try(client.Candidates(context.Background(), one)).Or(t)
					found = append(found, more...)
				}
				if len(found) > 0 {
					break
				}
			}
			if len(found) == 0 {
				continue
			}
			c := rapid.SampledFrom(found).Draw(t, "candidate")
			uuid := id(0x1000 + n)
			testproc.Check(t,
				client.Claim(context.Background(), cellwire.Server{UUID: uuid, ProjectID: "p", UserID: "u"}, nil, c))
			r.Instance = plugins.InstanceSpec{UUID: uuid, Name: "a", Flavor: flavor, Allocations: allocations{}}
			for provider, classes := range c.Allocations {
				r.Instance.Allocations[provider] = map[string]int64(classes)
			}
			d, err := assignment.Decide(r)
			testproc.Checkf(t, err, "%+v granted %v", flavor, c.Allocations)
			text, err := domain.Write(
				domain.Spec{Node: "cn1", Instance: r.Instance, Decision: d, Type: "kvm", Arch: "x86_64"})
			testproc.Check(t, err)
			guest := testproc.Try(domain.Parse(text)).Or(t)
			made[bound(t, r, guest, d)]++
			r.Domains = append(r.Domains, guest)
			for _, share := range d.Cells {
				for i, pages := range r.Machine.Cells[share.Host].Pages {
					if pages.SizeKiB == d.PageKiB {
						r.Machine.Cells[share.Host].Pages[i].Free -= share.MemoryKiB / pages.SizeKiB
					}
				}
			}
			for _, mdev := range d.Mdevs {
				for i := range r.Machine.Parents {
					if p := &r.Machine.Parents[i]; p.Name == mdev.Parent && mdev.Made {
						p.Types[0].Available--
					}
				}
			}
		}
	})
	t.Logf("guests by how many cells they have: %v", made)
	if made[1] == 0 || made[2] == 0 {
		t.Error("no guest has one cell, or none has two")
	}
}

// scheduledHost is a host of two or three cells, and its tree.
func scheduledHost(t *rapid.T, s serving) assignment.Request {
	m := host(rapid.IntRange(2, 3).Draw(t, "cells"), 4)
	r := assignment.Request{Machine: m, Providers: map[string]assignment.Provider{}, Shared: []int{}}
	for _, class := range []string{"CUSTOM_HUGEPAGES_2M", "CUSTOM_HUGEPAGES_1G"} {
		s.write(http.MethodPut, "/resource_classes/"+class, nil)
	}
	root := s.provider(0, "", []string{"COMPUTE_NODE"}, map[string]int64{"DISK_GB": 100})
	r.Providers[root] = assignment.Provider{Kind: assignment.Root}
	for i, cell := range m.Cells {
		var shared, dedicated int64
		for _, cpu := range cell.CPUs {
			if m.CPUs[cpu].Core%4 == 0 {
				r.Shared = append(r.Shared, cpu)
				shared++
			} else {
				r.Dedicated = append(r.Dedicated, cpu)
				dedicated++
			}
		}
		inventory := map[string]int64{"VCPU": 4 * shared,
			"PCPU": dedicated, "MEMORY_MB": int64(cell.MemoryKiB / 1024 / 4)}
		for _, pages := range cell.Pages {
			inventory[map[uint64]string{2048: "CUSTOM_HUGEPAGES_2M", 1 << 20: "CUSTOM_HUGEPAGES_1G"}[pages.SizeKiB]] =
				int64(pages.Total)
		}
		provider := s.provider(2*i+1, root, []string{resourcerequest.TraitNUMARoot}, inventory)
		r.Providers[provider] = assignment.Provider{Kind: assignment.Cell, Cell: i}
		device := s.provider(2*i+2, provider, []string{"COMPUTE_NODE"}, map[string]int64{"VGPU": 2})
		r.Providers[device] = assignment.Provider{Kind: assignment.MdevParent,
			Parent: gpu(i).DeviceName(), Type: "nvidia-222"}
	}
	return r
}

// bound compares what a domain is bound to with what it was granted.
func bound(t *rapid.T, r assignment.Request, guest domain.Domain, d domain.Decision) (cells int) {
	facts := assignment.NewHost(r.Machine).Facts(guest)
	got, want := map[int]map[string]int64{}, map[int]map[string]int64{}
	add := func(cell int, class string, n int64) {
		if got[cell] == nil {
			got[cell] = map[string]int64{}
		}
		got[cell][class] += n
	}
	for cell, n := range facts.Dedicated {
		add(cell, "PCPU", int64(n))
	}
	for cell, n := range facts.Floating {
		add(cell, "VCPU", int64(n))
	}
	if r.Instance.Flavor.ExtraSpecs["hw:emulator_threads_policy"] == "isolate" {
		for cell, n := range facts.Emulator {
			add(cell, "PCPU", int64(n))
		}
	}
	for cell, kib := range facts.MemoryKiB {
		add(cell, "MEMORY_MB", int64(kib/1024))
		if d.PageKiB > 0 {
			add(cell, map[uint64]string{2048: "CUSTOM_HUGEPAGES_2M", 1 << 20: "CUSTOM_HUGEPAGES_1G"}[d.PageKiB],
				int64(kib/d.PageKiB))
		}
	}
	var devices []int
	for uuid, classes := range r.Instance.Allocations {
		switch p := r.Providers[uuid]; p.Kind {
		case assignment.Cell:
			want[p.Cell] = classes
		case assignment.MdevParent:
			for i := range r.Machine.Parents {
				if r.Machine.Parents[i].Name == p.Parent {
					devices = append(devices, r.Machine.Parents[i].Cell)
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || facts.Unbound > 0 || facts.UnboundKiB > 0 {
		t.Fatalf("%+v: granted and bound: %s\n%+v", r.Instance.Flavor, diff, facts)
	}
	for _, cell := range devices {
		if want[cell] == nil {
			t.Fatalf("%+v has a device of cell %d, and cells %v", r.Instance.Flavor, cell, want)
		}
	}
	return len(want)
}
