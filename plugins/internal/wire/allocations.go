// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"

	"github.com/compute-agent/compute-agent/providertree"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
)

// FromAllocations converts allocations to their message; nil stays nil, since that says "no reshape".
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
func FromResources(resources map[string]map[string]int64) map[string]*driverv1.Resources {
	out := make(map[string]*driverv1.Resources, len(resources))
	for provider, amounts := range resources {
		out[provider] = &driverv1.Resources{Amounts: amounts}
	}
	return out
}

// ToResources is the way back. Errors: those of [ToAllocations], in words.
func ToResources(msg map[string]*driverv1.Resources) (map[string]map[string]int64, error) {
	out := make(map[string]map[string]int64, len(msg))
	for provider, resources := range msg {
		uuid, err := providertree.CanonicalUUID(provider)
		if err != nil {
			return nil, fmt.Errorf("resource provider: %w", err)
		}
		if _, twice := out[uuid]; twice {
			return nil, fmt.Errorf("resource provider %s is given twice", uuid)
		}
		amounts := make(map[string]int64, len(resources.GetAmounts()))
		for class, n := range resources.GetAmounts() {
			if err := providertree.ValidateClass(class); err != nil {
				return nil, err
			}
			if n < 1 || n > providertree.MaxUnit {
				return nil, fmt.Errorf("%d of %s on %s: must be between 1 and %d", n, class, uuid, int64(providertree.MaxUnit))
			}
			amounts[class] = n
		}
		out[uuid] = amounts
	}
	return out, nil
}

// ToAllocations converts a message to allocations; nil stays nil.
//
// Errors: [ErrMalformed] for uuids that are none, classes that cannot be, amounts below 1 or above what Placement stores,
// and generations below 0. Whether the allocations fit the tree is not checked here.
func ToAllocations(msg *driverv1.Allocations) (providertree.Allocations, error) {
	if msg == nil {
		return nil, nil
	}
	out := make(providertree.Allocations, len(msg.GetConsumers()))
	for consumer, m := range msg.GetConsumers() {
		c, err := toConsumer(m)
		if err != nil {
			return nil, fmt.Errorf("%w: allocations of consumer %q: %w", ErrMalformed, clip(consumer), err)
		}
		uuid, err := providertree.CanonicalUUID(consumer)
		if err != nil {
			return nil, fmt.Errorf("%w: consumer: %w", ErrMalformed, err)
		}
		if _, twice := out[uuid]; twice {
			return nil, fmt.Errorf("%w: consumer %s is given twice", ErrMalformed, uuid)
		}
		out[uuid] = c
	}
	return out, nil
}

func toConsumer(m *driverv1.ConsumerAllocations) (providertree.ConsumerAllocations, error) {
	c := providertree.ConsumerAllocations{
		ProjectID: m.GetProjectId(), UserID: m.GetUserId(), ConsumerType: m.GetConsumerType(),
	}
	if m != nil && m.Generation != nil {
		g := m.GetGeneration()
		if g < 0 {
			return c, fmt.Errorf("generation %d is negative", g)
		}
		c.Generation = &g
	}
	var err error
	c.Resources, err = ToResources(m.GetResources())
	return c, err
}
