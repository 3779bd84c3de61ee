// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"errors"
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// update is one UpdateProviderTree under way.
type update struct {
	tree        *providertree.Tree
	root        providertree.Provider
	allocations providertree.Allocations // as they will be returned
	given       bool                     // there are allocations
	renames     map[string]string
	nth         int
}

// treeDeed is something that the answer to UpdateProviderTree should not be.
type treeDeed struct {
	says string
	do   func(a *update) error
}

// treeDeeds are those of UpdateProviderTree alone. The tree has what it should have when they begin.
var treeDeeds = map[string]treeDeed{
	"no-root":    {"removes the node from its tree", func(a *update) error { _, err := a.tree.Remove(a.root.UUID); return err }},
	"generation": {"changes a generation", func(a *update) error { return a.tree.SetGeneration(a.root.UUID, max(a.root.Generation, 0)+5) }},
	"foreign":    {"removes all other providers, whosoever they are", foreign},
	"flicker":    {"reports another inventory each time", flicker},
	"huge":       {"answers with more than 16 MiB", huge},
	"reshape":    {"needs a reshape, and fails at it over every consumer", reshape},
	"again":      {"needs a reshape even with allocations", func(*update) error { return &plugins.ReshapeNeeded{Reason: "again and again"} }},
	"uninvited":  {"returns allocations without having been given any", uninvited},
	"lose":       {"returns allocations without the first consumer", func(a *update) error { return a.first(func(consumer string) { delete(a.allocations, consumer) }) }},
	"invent":     {"returns allocations with one VCPU too many", invent},
	"rename":     {"renames a resource class", func(a *update) error { a.renames = map[string]string{"CUSTOM_A": "A"}; return nil }},
}

// foreign removes children before their parents.
func foreign(a *update) error {
	uuids := a.tree.Subtree(a.root.UUID)
	for i := len(uuids) - 1; i > 0; i-- {
		if _, err := a.tree.Remove(uuids[i]); err != nil {
			return err
		}
	}
	return nil
}

func flicker(a *update) error {
	_, err := a.tree.SetInventory(a.root.UUID, "VCPU", providertree.Inventory{Total: 8 + int64(a.nth%2)})
	return err
}

func huge(a *update) error {
	unit := providertree.Resource{Identifier: "x", Metadata: strings.Repeat("m", 65<<20)}
	_, err := a.tree.SetResources(a.root.UUID, map[string][]providertree.Resource{"CUSTOM_X": {unit}})
	return err
}

func reshape(a *update) error {
	if !a.given {
		return &plugins.ReshapeNeeded{Reason: "VGPU moves to a child"}
	}
	failed := &plugins.ReshapeFailed{Reason: "no room"}
	for consumer, c := range a.allocations {
		for provider, amounts := range c.Resources {
			for class, n := range amounts {
				failed.Offenders = append(failed.Offenders, plugins.Offender{Consumer: consumer, Provider: provider, Class: class, Problem: fmt.Sprintf("%d are too many", n)})
			}
		}
	}
	return failed
}

func uninvited(a *update) error {
	if a.allocations == nil {
		a.allocations = providertree.Allocations{}
	}
	return nil
}

func invent(a *update) error {
	return a.first(func(consumer string) {
		for _, amounts := range a.allocations[consumer].Resources {
			amounts["VCPU"]++
			return
		}
	})
}

// first does something to one consumer. Without allocations there is nothing to do.
func (a *update) first(change func(consumer string)) error {
	if !a.given {
		return nil
	}
	for consumer := range a.allocations {
		change(consumer)
		return nil
	}
	return errors.New("nobody holds anything that could be lost")
}
