// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"github.com/compute-agent/compute-agent/providertree"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
)

// FromAllocations converts allocations to their message; nil stays nil, which means no reshape.
func FromAllocations(allocations providertree.Allocations) *driverv1.Allocations {
	if allocations == nil {
		return nil
	}
	out := &driverv1.Allocations{Consumers: make(map[string]*driverv1.ConsumerAllocations, len(allocations))}
	for uuid, c := range allocations {
		m := &driverv1.ConsumerAllocations{
			Resources:  FromResources(c.Resources),
			Generation: c.Generation,
			ProjectId:  c.ProjectID, UserId: c.UserID, ConsumerType: c.ConsumerType,
		}
		out.Consumers[uuid] = m
	}
	return out
}

// FromResources converts amounts by provider and class to their messages.
func FromResources(resources providertree.ProviderResources) map[string]*driverv1.Resources {
	out := make(map[string]*driverv1.Resources, len(resources))
	for provider, amounts := range resources {
		out[provider] = &driverv1.Resources{Amounts: amounts}
	}
	return out
}

// ToResources converts messages to amounts. Errors: those of
// [providertree.ProviderResources.Canonical].
func ToResources(msg map[string]*driverv1.Resources) (providertree.ProviderResources, error) {
	out, found := fromMessage(msg).Canonical()
	if len(found) > 0 {
		return nil, found
	}
	return out, nil
}

func fromMessage(msg map[string]*driverv1.Resources) providertree.ProviderResources {
	out := make(providertree.ProviderResources, len(msg))
	for provider, resources := range msg {
		out[provider] = resources.GetAmounts()
	}
	return out
}

// ToAllocations converts a message to allocations; nil stays nil. Whether they fit the tree is not
// checked. Errors: those of [providertree.Allocations.Canonical].
func ToAllocations(msg *driverv1.Allocations) (providertree.Allocations, error) {
	if msg == nil {
		return nil, nil
	}
	given := make(providertree.Allocations, len(msg.GetConsumers()))
	for consumer, m := range msg.GetConsumers() {
		c := providertree.ConsumerAllocations{
			Resources: fromMessage(m.GetResources()), ProjectID: m.GetProjectId(), UserID: m.GetUserId(),
			ConsumerType: m.GetConsumerType(),
		}
		if m != nil {
			c.Generation = m.Generation
		}
		given[consumer] = c
	}
	out, found := given.Canonical()
	if len(found) > 0 {
		return nil, found
	}
	return out, nil
}
