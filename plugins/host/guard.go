// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/internal/wire"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
)

// Sizes beyond which a reply is taken for a defect.
const (
	maxProviders         = 50_000
	maxConsumers         = 100_000
	maxNodes             = 10_000
	maxSymbolsOfProvider = 10_000 // traits, aggregates, classes or named resources of one provider
	maxCapabilities      = 100
)

// edited is an answer that holds an edited tree: to UpdateProviderTree or to ReshapeStep.
type edited interface {
	GetTree() *driverv1.ProviderTree
	GetAllocations() *driverv1.Allocations
	GetClassRenames() map[string]string
}

// checkReply is the border: what a driver answered is turned into a tree, or refused with words that
// its author can act on.
func checkReply(before *providertree.Tree, node string, given providertree.Allocations, reply edited) (*providertree.Tree, providertree.Allocations, error) {
	if err := checkSizes(reply); err != nil {
		return nil, nil, err
	}
	after, err := wire.ToTree(reply.GetTree())
	if err != nil {
		return nil, nil, err
	}
	if err := checkRoot(before, after, node); err != nil {
		return nil, nil, err
	}
	if err := checkGenerations(before, after); err != nil {
		return nil, nil, err
	}
	allocations, err := wire.ToAllocations(reply.GetAllocations())
	switch {
	case err != nil:
		return nil, nil, err
	case given == nil && allocations != nil:
		return nil, nil, errors.New("it holds allocations, though none were given: a driver that must move inventory in use answers ReshapeNeeded")
	case given != nil && allocations == nil:
		return nil, nil, errors.New("the allocations that were given are missing in it")
	case given == nil && len(reply.GetClassRenames()) > 0:
		return nil, nil, errors.New("it renames resource classes, though no allocations were given")
	}
	if err := plugins.ClassRenames(reply.GetClassRenames()).Validate(); err != nil {
		return nil, nil, err
	}
	return after, allocations, nil
}

// checkSizes looks at the message before anything is made of it.
func checkSizes(reply edited) error {
	if n := len(reply.GetTree().GetProviders()); n > maxProviders {
		return fmt.Errorf("the tree has %d resource providers, at most %d are allowed", n, maxProviders)
	}
	for _, p := range reply.GetTree().GetProviders() {
		n := max(len(p.GetTraits()), len(p.GetAggregates()), len(p.GetInventories()), len(p.GetResources()))
		if n > maxSymbolsOfProvider {
			return fmt.Errorf("resource provider %q has %d traits, aggregates, classes or named resources, at most %d of each are allowed",
				clip(p.GetName(), 100), n, maxSymbolsOfProvider)
		}
	}
	if n := len(reply.GetClassRenames()); n > maxSymbolsOfProvider {
		return fmt.Errorf("%d resource classes are renamed, at most %d are allowed", n, maxSymbolsOfProvider)
	}
	if n := len(reply.GetAllocations().GetConsumers()); n > maxConsumers {
		return fmt.Errorf("there are allocations of %d consumers, at most %d are allowed", n, maxConsumers)
	}
	return nil
}

// checkRoot checks that the node is still what it was: the same provider, and a root.
func checkRoot(before, after *providertree.Tree, node string) error {
	was, known := before.ProviderByName(node)
	if !known {
		return nil // nothing to compare with; the caller asked for a node that its tree does not hold
	}
	is, ok := after.Provider(was.UUID)
	switch {
	case !ok:
		return fmt.Errorf("the node's own resource provider %q (%s) is missing in the tree", node, was.UUID)
	case is.Name != was.Name:
		return fmt.Errorf("the node's own resource provider %s was renamed from %q to %q: its name is not the driver's to change", was.UUID, was.Name, is.Name)
	case is.ParentUUID != was.ParentUUID:
		return fmt.Errorf("the node's own resource provider %q (%s) was put below %s", node, was.UUID, is.ParentUUID)
	}
	return nil
}

// checkGenerations checks that those of Placement came back as they were. A wrong one would make the agent overwrite what
// somebody else wrote.
func checkGenerations(before, after *providertree.Tree) error {
	for p := range after.All() {
		want := providertree.NoGeneration
		if was, ok := before.Provider(p.UUID); ok {
			want = was.Generation
		}
		if p.Generation != want {
			return fmt.Errorf("the generation of resource provider %q (%s) is %d, was %d: generations are Placement's to change", p.Name, p.UUID, p.Generation, want)
		}
	}
	return nil
}

// checkNodes checks the answer to AvailableNodes.
func checkNodes(nodes []plugins.Node) error {
	if len(nodes) > maxNodes {
		return fmt.Errorf("%d nodes, at most %d are allowed", len(nodes), maxNodes)
	}
	names, uuids := map[string]bool{}, map[string]bool{}
	for i := range nodes {
		n := &nodes[i]
		if err := providertree.ValidateProviderName(n.Name); err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
		if names[n.Name] {
			return fmt.Errorf("node %q is listed twice", n.Name)
		}
		names[n.Name] = true
		if n.UUID == "" {
			continue
		}
		uuid, err := providertree.CanonicalUUID(n.UUID)
		if err != nil {
			return fmt.Errorf("node %q: %w", n.Name, err)
		}
		if uuids[uuid] {
			return fmt.Errorf("node %q: uuid %s is that of another node", n.Name, uuid)
		}
		n.UUID, uuids[uuid] = uuid, true
	}
	return nil
}

// checkInfo checks the answer to Info.
func checkInfo(info *driverv1.InfoResponse) error {
	if !driverName.MatchString(info.GetName()) {
		return fmt.Errorf("the driver calls itself %q: a name is 1 to 63 lower case letters, digits and hyphens", clip(info.GetName(), 100))
	}
	if n := len(info.GetCapabilities()); n > maxCapabilities {
		return fmt.Errorf("%d capabilities, at most %d are allowed", n, maxCapabilities)
	}
	return nil
}
