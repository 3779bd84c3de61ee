// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math/rand/v2"
	"net/http"

	"github.com/google/uuid"
)

// provider makes a provider with inventories (class to inventory) and traits.
func (s *steps) provider(id, name, parent string, inventories object, traits ...string) {
	p := object{"uuid": id, "name": name}
	if parent != "" {
		p["parent_provider_uuid"] = parent
	}
	s.send(http.MethodPost, "/resource_providers", p)
	s.send(http.MethodPut, "/resource_providers/"+id+"/inventories",
		object{"resource_provider_generation": 0, "inventories": inventories})
	if len(traits) > 0 {
		s.send(http.MethodPut, "/resource_providers/"+
			id+"/traits", object{"resource_provider_generation": 1, "traits": traits})
	}
}

// NewUUID makes a UUID from a source of random numbers, so that data are the same in each run.
func NewUUID(random *rand.Rand) string {
	var id uuid.UUID
	for i := range id {
		id[i] = byte(random.Uint32())
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id.String()
}

// Tree is one host of the nested data set: a root with a disk, and NUMA nodes with two devices
// each. Every second NUMA node is the one that NestedQuery is for, with two FPGAs; the others have
// an FPGA and a VGPU.
type Tree struct {
	Root string
	NUMA []NUMA
}

// NUMA is a NUMA node with its devices.
type NUMA struct {
	UUID    string
	Devices [2]string
}

// NewTree makes up a tree with 1 + 3 x nodes providers. With 2 nodes it is the one of Placement's
// nested-perfload job.
func NewTree(random *rand.Rand, nodes int) Tree {
	t := Tree{Root: NewUUID(random), NUMA: make([]NUMA, nodes)}
	for i := range t.NUMA {
		t.NUMA[i] = NUMA{UUID: NewUUID(random), Devices: [2]string{NewUUID(random), NewUUID(random)}}
	}
	return t
}

// NestedQuery is the query of the nested-perfload job. Each tree has two candidates for each of its
// NUMA nodes with CUSTOM_FOO.
const NestedQuery = "/allocation_candidates?resources=DISK_GB:10&required=COMPUTE_VOLUME_MULTI_ATTACH&" +
	"resources_COMPUTE=VCPU:1,MEMORY_MB:256" +
	"&required_COMPUTE=CUSTOM_FOO&resources_FPGA=FPGA:1&group_policy=none&same_subtree=_COMPUTE,_FPGA"

// RequestsPerTree is how many requests Load sends for a tree of two NUMA nodes.
const RequestsPerTree = 18

// Load sends a tree as the job does, request by request.
func (t Tree) Load(ctx context.Context, c *Client) error {
	s := steps{ctx: ctx, c: c}
	s.send(http.MethodPut, "/traits/CUSTOM_FOO", nil)
	s.provider(t.Root, t.Root, "", object{"DISK_GB": object{"total": 20480}}, "COMPUTE_VOLUME_MULTI_ATTACH")
	for i, numa := range t.NUMA {
		if i%2 == 0 {
			s.provider(numa.UUID, "numa-"+numa.UUID, t.Root, object{
				"VCPU":      object{"total": 4, "reserved": 2},
				"MEMORY_MB": object{"total": 2048, "min_unit": 512, "step_size": 256},
			}, "HW_NUMA_ROOT")
		} else {
			s.provider(numa.UUID, "numa-"+numa.UUID, t.Root, object{
				"VCPU": object{"total": 4}, "MEMORY_MB": object{"total": 2048, "min_unit": 256, "max_unit": 1024},
			}, "HW_NUMA_ROOT", "CUSTOM_FOO")
		}
		for d, device := range numa.Devices {
			if i%2 == 0 && d == 1 {
				s.provider(device, "pgpu-"+device, numa.UUID, object{"VGPU": object{"total": 8}})
			} else {
				s.provider(device, "fpga-"+device, numa.UUID, object{"FPGA": object{"total": 1}})
			}
		}
	}
	return s.err
}

// FlatQuery is for hosts without children.
const FlatQuery = "/allocation_candidates?resources=VCPU:1,DISK_GB:10,MEMORY_MB:256&required=HW_CPU_X86_SSE2&" +
	"member_of=in:" + flatAggregate

const flatAggregate = "14a5c8a3-5a99-4e8f-88be-00d85fcb1c17"

// LoadFlat sends a host without children: inventories, traits and an aggregate.
func LoadFlat(ctx context.Context, c *Client, id string) error {
	s := steps{ctx: ctx, c: c}
	s.provider(id, id, "", object{
		"VCPU": object{"total": 72}, "MEMORY_MB": object{"total": 320000, "reserved": 512},
		"DISK_GB": object{"total": 1000000},
	}, "HW_CPU_X86_SSE2", "HW_CPU_X86_AVX2")
	s.send(http.MethodPut, "/resource_providers/"+
		id+"/aggregates", object{"resource_provider_generation": 2, "aggregates": []string{flatAggregate}})
	return s.err
}
