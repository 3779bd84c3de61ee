// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"errors"
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// treeUpdate is one UpdateProviderTree under way.
type treeUpdate struct {
	tree        *providertree.Tree
	root        providertree.Provider
	allocations providertree.Allocations // as they will be returned
	given       bool                     // there are allocations
	renames     map[string]string
	nth         int
}

// treeFault is something wrong with the answer to UpdateProviderTree.
type treeFault struct {
	text string
	do   func(a *treeUpdate) error
}

// treeFaults are those of UpdateProviderTree alone. They begin with the right answer.
var treeFaults = map[string]treeFault{
	"no-root": {"removes the node from its tree",
		func(a *treeUpdate) error { _, err := a.tree.Remove(a.root.UUID); return err }},
	"generation": {"changes a generation",
		func(a *treeUpdate) error { return a.tree.SetGeneration(a.root.UUID, max(a.root.Generation, 0)+5) }},
	"foreign": {"removes all other providers below the node, also unmanaged ones", removeOthers},
	"flicker": {"reports another inventory each time", flicker},
	"huge":    {"answers with more than 64 MiB", huge},
	"reshape": {"needs a reshape, and fails it over every consumer", failedReshape},
	"again": {"needs a reshape even with allocations",
		func(*treeUpdate) error { return &plugins.ReshapeNeeded{Reason: "again and again"} }},
	"uninvited": {"returns allocations without having been given any", uninvited},
	"lose": {"returns allocations without the first consumer",
		func(a *treeUpdate) error {
			return a.onFirstConsumer(func(consumer string) { delete(a.allocations, consumer) })
		}},
	"invent": {"returns allocations with one VCPU too many", oneTooMany},
	"rename": {"renames a resource class",
		func(a *treeUpdate) error { a.renames = map[string]string{"CUSTOM_A": "A"}; return nil }},
}

// removeOthers removes children before their parents.
func removeOthers(a *treeUpdate) error {
	uuids := a.tree.Subtree(a.root.UUID)
	for i := len(uuids) - 1; i > 0; i-- {
		if _, err := a.tree.Remove(uuids[i]); err != nil {
			return err
		}
	}
	return nil
}

func flicker(a *treeUpdate) error {
	_, err := a.tree.SetInventory(a.root.UUID, "VCPU", providertree.Inventory{Total: 8 + int64(a.nth%2)})
	return err
}

func huge(a *treeUpdate) error {
	unit := providertree.Resource{Identifier: "x", Metadata: strings.Repeat("m", 65<<20)}
	_, err := a.tree.SetResources(a.root.UUID, map[string][]providertree.Resource{"CUSTOM_X": {unit}})
	return err
}

func failedReshape(a *treeUpdate) error {
	if !a.given {
		return &plugins.ReshapeNeeded{Reason: "VGPU moves to a child"}
	}
	failed := &plugins.ReshapeFailed{Reason: "no capacity"}
	for consumer, c := range a.allocations {
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

func uninvited(a *treeUpdate) error {
	if a.allocations == nil {
		a.allocations = providertree.Allocations{}
	}
	return nil
}

func oneTooMany(a *treeUpdate) error {
	return a.onFirstConsumer(func(consumer string) {
		for _, amounts := range a.allocations[consumer].Resources {
			amounts["VCPU"]++
			return
		}
	})
}

// onFirstConsumer runs a change of one consumer. Without allocations there is nothing to do.
func (t *treeUpdate) onFirstConsumer(change func(consumer string)) error {
	if !t.given {
		return nil
	}
	for consumer := range t.allocations {
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

// listFaults are those of Instances alone.
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

// instanceFaults are those of Spawn and SetPower alone.
var instanceFaults = map[string]instanceFault{
	"other":   {"answers about another instance", func(i *plugins.Instance) { i.UUID = inventedUUID }},
	"blank":   {"answers about no instance", func(i *plugins.Instance) { *i = plugins.Instance{} }},
	"unheard": {"answers with an invalid power state", func(i *plugins.Instance) { i.Power = -7 }},
}
