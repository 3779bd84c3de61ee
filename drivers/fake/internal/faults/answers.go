// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"errors"
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// TreeUpdate is the right answer to one UpdateProviderTree, which faults change.
type TreeUpdate struct {
	// Tree is the tree that the driver edited.
	Tree *providertree.Tree
	// Root is the node's provider in it.
	Root providertree.Provider
	// Allocations are a copy of those that the driver returns; nil: none.
	Allocations providertree.Allocations
	// Given says that the request had allocations.
	Given bool
	// Renames are the renames of resource classes that the driver reports; nil: its own.
	Renames map[string]string
	// Nth is how many calls there were, with this one.
	Nth int
}

// treeFault is something wrong with the answer to UpdateProviderTree.
type treeFault struct {
	text string
	do   func(a *TreeUpdate) error
}

// treeFaults are the faults of UpdateProviderTree alone. Each changes the right answer.
var treeFaults = map[string]treeFault{
	"no-root": {"removes the node from its tree",
		func(a *TreeUpdate) error { _, err := a.Tree.Remove(a.Root.UUID); return err }},
	"generation": {"changes a generation",
		func(a *TreeUpdate) error { return a.Tree.SetGeneration(a.Root.UUID, max(a.Root.Generation, 0)+5) }},
	"foreign": {"removes all other providers below the node, also unmanaged ones", removeOthers},
	"flicker": {"reports another inventory each time", flicker},
	"huge":    {"answers with more than 64 MiB", huge},
	"reshape": {"needs a reshape, and fails it over every consumer", failedReshape},
	"again": {"needs a reshape even with allocations",
		func(*TreeUpdate) error { return &plugins.ReshapeNeeded{Reason: "again and again"} }},
	"uninvited": {"returns allocations without having been given any", uninvited},
	"lose": {"returns allocations without the first consumer",
		func(a *TreeUpdate) error {
			return a.onFirstConsumer(func(consumer string) { delete(a.Allocations, consumer) })
		}},
	"invent": {"returns allocations with one VCPU too many", oneTooMany},
	"rename": {"renames a resource class",
		func(a *TreeUpdate) error { a.Renames = map[string]string{"CUSTOM_A": "A"}; return nil }},
}

// removeOthers removes children before their parents.
func removeOthers(a *TreeUpdate) error {
	uuids := a.Tree.Subtree(a.Root.UUID)
	for i := len(uuids) - 1; i > 0; i-- {
		if _, err := a.Tree.Remove(uuids[i]); err != nil {
			return err
		}
	}
	return nil
}

func flicker(a *TreeUpdate) error {
	_, err := a.Tree.SetInventory(a.Root.UUID, "VCPU", providertree.Inventory{Total: 8 + int64(a.Nth%2)})
	return err
}

func huge(a *TreeUpdate) error {
	unit := providertree.Resource{Identifier: "x", Metadata: strings.Repeat("m", 65<<20)}
	_, err := a.Tree.SetResources(a.Root.UUID, map[string][]providertree.Resource{"CUSTOM_X": {unit}})
	return err
}

func failedReshape(a *TreeUpdate) error {
	if !a.Given {
		return &plugins.ReshapeNeeded{Reason: "VGPU moves to a child"}
	}
	failed := &plugins.ReshapeFailed{Reason: "no capacity"}
	for consumer, c := range a.Allocations {
		for provider, amounts := range c.Resources {
			for class, n := range amounts {
				failed.Violations = append(failed.Violations,
					plugins.Violation{Consumer: consumer,
						Provider: provider, Class: class, Problem: fmt.Sprintf("%d are too many", n)})
			}
		}
	}
	return failed
}

func uninvited(a *TreeUpdate) error {
	if a.Allocations == nil {
		a.Allocations = providertree.Allocations{}
	}
	return nil
}

func oneTooMany(a *TreeUpdate) error {
	return a.onFirstConsumer(func(consumer string) {
		for _, amounts := range a.Allocations[consumer].Resources {
			amounts["VCPU"]++
			return
		}
	})
}

// onFirstConsumer runs a change of one consumer. Without allocations there is nothing to do.
func (t *TreeUpdate) onFirstConsumer(change func(consumer string)) error {
	if !t.Given {
		return nil
	}
	for consumer := range t.Allocations {
		change(consumer)
		return nil
	}
	return errors.New("no consumer has allocations that could be lost")
}

// What instances have in spoiled answers.
const (
	inventedUUID = "00000000-dead-4bad-8bad-00000000beef"
	notAUUID     = "../../etc/passwd"
)

// invalidEvents is the fault of events about instances that cannot exist.
const invalidEvents = "garbled"

// listFault is something wrong with a list of instances.
type listFault struct {
	text string
	do   func([]plugins.Instance) []plugins.Instance
}

// listFaults are the faults of Instances alone.
var listFaults = map[string]listFault{
	"twice": {"lists an instance twice", func([]plugins.Instance) []plugins.Instance {
		return []plugins.Instance{{UUID: inventedUUID, Power: plugins.PowerRunning},
			{UUID: strings.ToUpper(inventedUUID), Power: plugins.PowerShutdown}}
	}},
	"nameless": {"lists an instance whose uuid is invalid", func(is []plugins.Instance) []plugins.Instance {
		return append(is, plugins.Instance{UUID: notAUUID, Power: plugins.PowerRunning})
	}},
	"strange-power": {"lists an instance in an invalid power state", func(is []plugins.Instance) []plugins.Instance {
		return append(is, plugins.Instance{UUID: inventedUUID, Power: 42})
	}},
	"crowd": {"lists 100,001 instances", func([]plugins.Instance) []plugins.Instance {
		out := make([]plugins.Instance, 100_001)
		for i := range out {
			out[i] = plugins.Instance{UUID: fmt.Sprintf("00000000-dead-4bad-8bad-%012d", i),
				Power: plugins.PowerRunning}
		}
		return out
	}},
	"essay": {"lists an instance with a name of 8 MiB", func(is []plugins.Instance) []plugins.Instance {
		return append(is, plugins.Instance{UUID: inventedUUID, Name: strings.Repeat("z", longLine),
			Power: plugins.PowerRunning})
	}},
}

// instanceFault is something wrong with the answer about one instance.
type instanceFault struct {
	text string
	do   func(*plugins.Instance)
}

// instanceFaults are the faults of Spawn and SetPower alone.
var instanceFaults = map[string]instanceFault{
	"other":   {"answers about another instance", func(i *plugins.Instance) { i.UUID = inventedUUID }},
	"blank":   {"answers about no instance", func(i *plugins.Instance) { *i = plugins.Instance{} }},
	"unheard": {"answers with an invalid power state", func(i *plugins.Instance) { i.Power = -7 }},
}
