// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"strings"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

type (
	stepReq  = *driverv1.ReshapeStepRequest
	stepped  = *driverv1.ReshapeStepResponse
	guestsIs = *driverv1.GuestsResponse
)

// withFault is the configuration of the fake driver with a fault of its reshape.
func withFault(how string) string {
	return `{` + machine + `, "layout": "numa", "faults": {"reshape": "` + how + `"}}`
}

// moves changes the responses of reshapes.
func moves(change func(req updateReq, r updated)) breakage {
	return after("UpdateProviderTree", func(_ *raw, req updateReq, r updated) {
		if len(req.GetAllocations().GetConsumers()) > 0 {
			change(req, r)
		}
	})
}

const guestList = `{` + machine +
	`, "guest_list": [{"uuid": "6c6a2b6e-6d3b-4c5e-9a55-9a2c2f1f7a03", "name": "web", "resources": {"": {"VCPU": 2}}}]}`

func steps(change func(req stepReq, r stepped)) breakage {
	return after("ReshapeStep", func(_ *raw, req stepReq, r stepped) { change(req, r) })
}

func numberedOne(check string, b breakage) brokenPlugin {
	return brokenPlugin{check: check, config: numbered(4), former: numbered(1), breakage: b}
}

var _ = broken(map[string]brokenPlugin{
	"moves inventory in silence": {check: "reshape/needed",
		breakage: around("UpdateProviderTree",
			func(_ *raw, _ context.Context, req any, next func() (any, error)) (any, error) {
				reply, err := next()
				if protocol.FailureOf(err).Kind == protocol.KindReshapeNeeded {
					r := req.(updateReq)
					r.Allocations = &driverv1.Allocations{}
					if reply, err = next(); err == nil {
						reply.(updated).Allocations, reply.(updated).ClassRenames = nil, nil
					}
				}
				return reply, err
			})},
	"gives no reason": {check: "reshape/needed-again",
		breakage: around("UpdateProviderTree",
			func(_ *raw, _ context.Context, _ any, next func() (any, error)) (any, error) {
				reply, err := next()
				if protocol.FailureOf(err).Kind == protocol.KindReshapeNeeded {
					err = protocol.Failure{Kind: protocol.KindReshapeNeeded}.Err()
				}
				return reply, err
			})},
	"returns ReshapeNeeded forever": {check: "reshape/done", config: withFault("again")},
	"fails without violations": {check: "reshape/done", config: layoutConfig("numa"), former: layoutConfig("flat"),
		breakage: around("UpdateProviderTree",
			func(_ *raw, _ context.Context, req any, next func() (any, error)) (any, error) {
				if req.(updateReq).GetAllocations() != nil {
					return nil, protocol.Failure{Kind: protocol.KindReshapeFailed, Words: "no"}.Err()
				}
				return next()
			})},
	"takes no consumers for no allocations": {check: "reshape/empty-allocations",
		breakage: around("UpdateProviderTree",
			func(_ *raw, _ context.Context, req any, next func() (any, error)) (any, error) {
				if r := req.(updateReq); len(r.GetAllocations().GetConsumers()) == 0 {
					r.Allocations = nil
				}
				return next()
			})},
	"names no consumer that does not fit": {check: "reshape/too-full",
		breakage: around("UpdateProviderTree",
			func(_ *raw, _ context.Context, _ any, next func() (any, error)) (any, error) {
				reply, err := next()
				if protocol.FailureOf(err).Kind == protocol.KindReshapeFailed {
					err = protocol.Failure{Kind: protocol.KindReshapeFailed, Words: "not enough capacity"}.Err()
				}
				return reply, err
			})},
	"is random": {check: "reshape/repeatable", breakage: moves(func(_ updateReq, r updated) {
		if counter.Add(1)%2 == 0 {
			swapGPUs(r)
		}
	})},
	"forgets consumers": {check: "reshape/consumers", config: withFault("forget")},
	"loses a unit":      {check: "reshape/conserves", config: withFault("lose")},
	"invents a unit":    {check: "reshape/conserves", config: withFault("invent")},
	"swaps consumers":   {check: "reshape/conserves", config: withFault("swap")},
	"moves what stays": {check: "reshape/reason", only: true, config: slots("vgpu-children"),
		former: slots("flat"), breakage: moves(moveSlot)},
	"gives guests each other's cells": {
		check: "reshape/guests", only: true, config: boundGuests,
		former: layoutConfig("flat"), breakage: moves(swapGuests),
	},
	"cannot move its own guests": {check: "reshape/guests",
		only: true, config: boundGuests, former: layoutConfig("flat"), breakage: around("UpdateProviderTree",
			func(_ *raw, _ context.Context, req any, next func() (any, error)) (any, error) {
				for id := range req.(updateReq).GetAllocations().GetConsumers() {
					if id == boundOne || id == boundTwo {
						return nil, protocol.Failure{Kind: protocol.KindReshapeFailed, Words: "unknown",
							Violations: []protocol.Violation{{Consumer: id, Problem: "has no guest"}}}.Err()
					}
				}
				return next()
			})},
	"disowns consumers": {check: "reshape/owners", breakage: after("UpdateProviderTree", noProjects)},
	"moves no allocation": {check: "reshape/housed",
		breakage: moves(func(req updateReq, r updated) { r.Allocations = req.GetAllocations() })},
	"reports large steps": {check: "reshape/capacity", breakage: moves(func(_ updateReq, r updated) {
		for _, p := range r.GetTree().GetProviders() {
			for _, inv := range p.GetInventories() {
				inv.StepSize = 7
			}
		}
	})},
	"reports too little": {check: "reshape/capacity", breakage: moves(func(_ updateReq, r updated) {
		for _, p := range r.GetTree().GetProviders() {
			if inv := p.GetInventories()["DISK_GB"]; inv != nil {
				inv.Total = 1
			}
		}
	})},
	"crowds one child": {check: "reshape/spread", config: withFault("crowd")},
	"moves what is not its own": {check: "reshape/foreign", breakage: moves(func(_ updateReq, r updated) {
		for _, c := range r.GetAllocations().GetConsumers() {
			for _, res := range c.GetResources() {
				delete(res.Amounts, externalClass)
			}
		}
	})},
	"forgets traits when it reshapes": {check: "reshape/complete", breakage: moves(func(_ updateReq, r updated) {
		for _, p := range r.GetTree().GetProviders() {
			p.Traits = slices.DeleteFunc(p.Traits, func(t string) bool { return t == "HW_NUMA_ROOT" })
		}
	})},
	"declares a rename that it did not make": {check: "reshape/renames", breakage: moves(func(_ updateReq, r updated) {
		r.ClassRenames = map[string]string{"VGPU": "CUSTOM_GPU"}
	})},
	"renames for some and not for others": {check: "reshape/renames", breakage: moves(renameForOne)},
	"is never done": {check: "reshape/settled",
		breakage: around("UpdateProviderTree",
			func(_ *raw, _ context.Context, req any, next func() (any, error)) (any, error) {
				if r := req.(updateReq); r.GetAllocations() == nil &&
					slices.ContainsFunc(r.GetTree().GetProviders(), called("_gpu_0")) {
					return nil, protocol.Failure{Kind: protocol.KindReshapeNeeded, Words: "VGPU must move"}.Err()
				}
				return next()
			})},
	"moves what it has moved": {check: "reshape/idempotent", breakage: moves(func(req updateReq, r updated) {
		if slices.ContainsFunc(req.GetTree().GetProviders(), called("_gpu_0")) {
			swapGPUs(r)
		}
	})},

	"has a layout version above the maximum": numberedOne(
		"layouts/version",
		after("Configure", func(_ *raw, _ any, r *driverv1.ConfigureResponse) { r.ShapeVersion = 10_000 })),
	"changes its current layout": numberedOne("layouts/present", steps(func(req stepReq, r stepped) {
		if len(req.GetTree().GetProviders()) > 1 {
			r.Tree.Providers[0].Traits = append(r.Tree.Providers[0].Traits, "CUSTOM_RESHAPED")
		}
	})),
	"migrates an empty tree": numberedOne("layouts/empty", steps(func(req stepReq, r stepped) {
		if len(req.GetTree().GetProviders()) == 1 {
			r.Tree.Providers[0].Traits = append(r.Tree.Providers[0].Traits, "CUSTOM_RESHAPED")
		}
	})),
	"steps anywhere": numberedOne("layouts/bounds", around(
		"ReshapeStep", func(_ *raw, _ context.Context, req any, _ func() (any, error)) (any, error) {
			r := req.(stepReq)
			return &driverv1.ReshapeStepResponse{Tree: r.GetTree(), Allocations: r.GetAllocations()}, nil
		})),
	"loses a consumer on the way": numberedOne(
		"layouts/steps",
		steps(func(_ stepReq, r stepped) { delete(r.GetAllocations().GetConsumers(), consumerName(1)) })),

	"does what it did not announce": {check: "abilities/unannounced", config: guestList,
		breakage: breakage{capabilities: []string{protocol.CapabilityWatch}}},
	"calls itself capable of COMPUTE_NODE": {check: "abilities/capability-traits",
		breakage: after("UpdateProviderTree", func(_ *raw, _ updateReq, r updated) {
			r.CapabilityTraits = map[string]bool{"COMPUTE_NODE": true}
		})},
	"is capable unannounced": {check: "abilities/capability-traits-announced", breakage: capableUnannounced()},
	"lists a guest twice": {check: "abilities/guests",
		config: guestList, breakage: after("Guests", func(_ *raw, _ any, r guestsIs) {
			r.Guests = append(r.Guests, r.Guests...)
		})},
	"has guests on unknown providers": {check: "abilities/guests", config: guestList,
		breakage: after("Guests", func(_ *raw, _ any, r guestsIs) {
			r.Guests[0].Resources.Resources =
				map[string]*driverv1.Resources{chance: {Amounts: map[string]int64{"VCPU": 1}}}
		})},
	"has no guests on unknown nodes": {check: "abilities/guests-unknown-node", config: guestList,
		breakage: instead("Guests", &driverv1.GuestsResponse{})},
	"calls its node deleted": {check: "abilities/node-deleted",
		breakage: instead("NodeDeleted", &driverv1.NodeDeletedResponse{Deleted: true})},
	"calls unknown nodes deleted": {check: "abilities/node-unknown",
		breakage: instead("NodeDeleted", &driverv1.NodeDeletedResponse{Deleted: true})},
})

// slots is a configuration with a class on two children in every layout.
func slots(layout string) string {
	return `{"nodes": [{"name": "cn1", "inventories": {"VCPU": {"total": 16}, "VGPU": {"total": 8}}, "children": [
		{"name": "a", "inventories": {"CUSTOM_SLOT": {"total": 16}}}, {"name": "b", "inventories": {"CUSTOM_SLOT": {"total": 16}}}]}], "layout": "` + layout + `"}`
}

// moveSlot moves one slot of a consumer from one child to the other, although both keep theirs.
func moveSlot(req updateReq, r updated) {
	if slices.ContainsFunc(req.GetTree().GetProviders(), called("_gpu_0")) {
		return // it is reshaped already
	}
	for _, p := range r.GetTree().GetProviders() {
		held := r.GetAllocations().GetConsumers()[consumerName(0)].GetResources()[p.GetUuid()].GetAmounts()
		switch {
		case held == nil: // another set of consumers
		case strings.HasSuffix(p.GetName(), "_a"):
			held["CUSTOM_SLOT"]++
		case strings.HasSuffix(p.GetName(), "_b"):
			held["CUSTOM_SLOT"]--
		}
	}
}

// The guests of boundGuests, each on a cell of its own.
const (
	boundOne = "6c6a2b6e-6d3b-4c5e-9a55-9a2c2f1f7a11"
	boundTwo = "6c6a2b6e-6d3b-4c5e-9a55-9a2c2f1f7a12"

	boundGuests = `{` + machine + `, "layout": "numa", "guests": {"` + boundOne + `": "numa_0", "` + boundTwo + `": "numa_1"}, "guest_list": [
		{"uuid": "` + boundOne + `", "resources": {"numa_0": {"VCPU": 1}}}, {"uuid": "` + boundTwo + `", "resources": {"numa_1": {"VCPU": 1}}}]}`
)

// swapGuests gives two guests what the other one has.
func swapGuests(_ updateReq, r updated) {
	all := r.GetAllocations().GetConsumers()
	if one, two := all[boundOne], all[boundTwo]; one != nil && two != nil {
		one.Resources, two.Resources = two.Resources, one.Resources
	}
}

func capableUnannounced() breakage {
	b := after("UpdateProviderTree",
		func(_ *raw, _ updateReq, r updated) { r.CapabilityTraits = map[string]bool{"COMPUTE_RESCUE_BFV": true} })
	b.capabilities = []string{protocol.CapabilityWatch}
	return b
}

// renameForOne renames VGPU in the tree and for one consumer, and leaves the others with the
// removed class.
func renameForOne(_ updateReq, r updated) {
	const former, present = "VGPU", "CUSTOM_GPU"
	r.ClassRenames = map[string]string{former: present}
	for _, p := range r.GetTree().GetProviders() {
		if inv := p.GetInventories()[former]; inv != nil {
			p.Inventories[present] = inv
			delete(p.Inventories, former)
		}
	}
	for _, res := range r.GetAllocations().GetConsumers()[consumerName(1)].GetResources() {
		if n := res.GetAmounts()[former]; n > 0 {
			res.Amounts[present] = n
			delete(res.Amounts, former)
		}
	}
}

// swapGPUs exchanges the allocations of two GPUs.
func swapGPUs(r updated) {
	var gpus []string
	for _, p := range r.GetTree().GetProviders() {
		if strings.Contains(p.GetName(), "_gpu_") {
			gpus = append(gpus, p.GetUuid())
		}
	}
	for _, c := range r.GetAllocations().GetConsumers() {
		a, b := c.GetResources()[gpus[0]], c.GetResources()[gpus[1]]
		delete(c.Resources, gpus[0])
		delete(c.Resources, gpus[1])
		if a != nil {
			c.Resources[gpus[1]] = a
		}
		if b != nil {
			c.Resources[gpus[0]] = b
		}
	}
}
