// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// dictated is a driver that reports what a scenario says.
type dictated struct {
	node      string
	providers []noted
	former    []noted // of earlier requests
	// careless: it makes the whole tree what it says, as some drivers do. Else it leaves alone what
	// it never said.
	careless bool
	moves    []dictatedMove
	homes    map[string]string // of consumers of which it knows where their share is: the provider
	strict   bool              // it refuses to move consumers whose devices it does not know
	once     bool              // it says that it needs a reshape although nothing moves, until it was given allocations
	renames  map[string]string
}

// dictatedMove is "move VGPU@cn1 VGPU@cn1_gpu_0 VGPU@cn1_gpu_1", with "only alice bob" if the
// others stay.
type dictatedMove struct {
	from [2]string // class, provider
	to   [][2]string
	only []string
}

// dictate parses the lines of a scenario for its driver.
func dictate(lines []string, careless bool, before *dictated) (*dictated, error) {
	d := &dictated{node: "cn1", careless: careless, homes: map[string]string{}, renames: map[string]string{}}
	if before != nil {
		d.former = append(slices.Clone(before.former), before.providers...)
	}
	for _, line := range lines {
		words := strings.Fields(line)
		switch words[0] {
		case "move":
			var m dictatedMove
			places := &m.to
			for i, w := range words[1:] {
				class, provider, ok := strings.Cut(w, "@")
				switch {
				case w == "only":
					places = nil
				case places == nil:
					m.only = append(m.only, w)
				case !ok:
					return nil, fmt.Errorf("%q in %q is not CLASS@PROVIDER", w, line)
				case i == 0:
					m.from = [2]string{class, provider}
				default:
					m.to = append(m.to, [2]string{class, provider})
				}
			}
			d.moves = append(d.moves, m)
		case "home":
			d.homes[uuidFor(words[1])] = words[2]
		case "strict":
			d.strict = true
		case "reshape":
			d.once = true
		case "rename":
			d.renames[words[1]] = words[2]
		default:
			p, err := parseProvider(line)
			if err != nil {
				return nil, err
			}
			d.providers = append(d.providers, p)
		}
	}
	return d, nil
}

func (d *dictated) ClassRenames() map[string]string { return d.renames }

func (d *dictated) AvailableNodes(context.Context) ([]plugins.Node, error) {
	return []plugins.Node{{Name: d.node, UUID: nodeUUID}}, nil
}

func (d *dictated) UpdateProviderTree(
	_ context.Context, tree *providertree.Tree, node string, given providertree.Allocations,
) (*providertree.Tree, providertree.Allocations, error) {
	root, _ := tree.ProviderByName(node)
	if given == nil && d.needsReshape(tree) {
		return nil, nil, &plugins.ReshapeNeeded{Reason: "the scenario wants it"}
	}
	d.once = d.once && given == nil
	if err := d.say(tree, root.UUID); err != nil {
		return nil, nil, err
	}
	after, err := d.move(tree, given)
	if err != nil {
		return nil, nil, err
	}
	return tree, after, d.unsay(tree, root.UUID)
}

// needsReshape: something is where a move begins, and none of the places where it ends has any yet.
func (d *dictated) needsReshape(tree *providertree.Tree) bool {
	for _, m := range d.moves {
		arrived := slices.ContainsFunc(m.to, func(p [2]string) bool { return hasInventory(tree, p) })
		if hasInventory(tree, m.from) && !arrived {
			return true
		}
	}
	return d.once
}

func hasInventory(tree *providertree.Tree, at [2]string) bool {
	p, _ := tree.ProviderByName(at[1])
	_, has := p.Inventories[at[0]]
	return has
}

// say adds what the scenario says. A provider that is there under its name is the one that is
// meant.
func (d *dictated) say(tree *providertree.Tree, root string) error {
	for _, p := range d.providers {
		rp, found := tree.ProviderByName(p.name)
		if !found {
			parent, _ := tree.ProviderByName(p.parent)
			id, err := providertree.ChildUUID(root, p.name)
			if err != nil {
				return err
			}
			if err := tree.AddChild(parent.UUID, id, p.name); err != nil {
				return err
			}
			rp.UUID = id
		}
		for class, inv := range p.inventories {
			if _, err := tree.SetInventory(rp.UUID, class, inv.value()); err != nil {
				return err
			}
		}
		_, err := tree.AddTraits(rp.UUID, p.traits...)
		_, err2 := tree.AddAggregates(rp.UUID, uuidsFor(p.aggregates)...)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
	}
	return nil
}

func (i inventory) value() providertree.Inventory {
	return providertree.Inventory{Total: i.Total, Reserved: i.Reserved, AllocationRatio: i.Ratio, MinUnit: i.MinUnit,
		MaxUnit: i.MaxUnit, StepSize: i.StepSize}
}

func uuidsFor(names []string) []string {
	var out []string
	for _, n := range names {
		out = append(out, uuidFor(n))
	}
	return out
}

// move moves what is allocated, in the order of the moves.
func (d *dictated) move(
	tree *providertree.Tree, allocations providertree.Allocations,
) (providertree.Allocations, error) {
	if allocations == nil {
		return nil, nil
	}
	place := func(at [2]string) plugins.Place {
		p, _ := tree.ProviderByName(at[1])
		return plugins.Place{Provider: p.UUID, Class: at[0]}
	}
	for _, m := range d.moves {
		from := place(m.from)
		var to []plugins.Place
		for _, at := range m.to {
			to = append(to, place(at))
		}
		moves, err := d.distribute(tree, allocations, m, from, to)
		if err != nil {
			return nil, err
		}
		if allocations, err = moves.Apply(allocations); err != nil {
			return nil, err
		}
	}
	return allocations, nil
}

func (d *dictated) distribute(
	tree *providertree.Tree, allocations providertree.Allocations, m dictatedMove,
	from plugins.Place, to []plugins.Place,
) (plugins.Moves, error) {
	if m.only != nil {
		var moves plugins.Moves
		for _, consumer := range m.only {
			held := allocations[uuidFor(consumer)].Resources[from.Provider][from.Class]
			moves = append(moves, plugins.Move{Consumer: uuidFor(consumer), From: from, To: to[0], Amount: held})
		}
		return moves, nil
	}
	var violations []plugins.Violation
	moves, err := plugins.Distribution{From: from, To: to,
		Where: func(consumer string, amount int64) []plugins.Portion {
			for _, place := range to {
				if p, _ := tree.Provider(place.Provider); p.Name == d.homes[consumer] {
					return []plugins.Portion{{Place: place, Amount: amount}}
				}
			}
			if d.strict {
				violations = append(violations,
					plugins.Violation{Consumer: consumer,
						Provider: from.Provider, Class: from.Class, Problem: "no device of it is known"})
			}
			return nil
		}}.Distribute(tree, allocations)
	if violations != nil {
		return nil, &plugins.ReshapeFailed{Reason: "the devices of some consumers are unknown", Violations: violations}
	}
	return moves, err
}

// unsay takes away what it does not say: what it said before, or, careless, everything.
func (d *dictated) unsay(tree *providertree.Tree, root string) error {
	now := map[string]noted{}
	for _, p := range d.providers {
		now[p.name] = p
	}
	said := func(name string) bool {
		return d.careless || slices.ContainsFunc(d.former, func(p noted) bool { return p.name == name })
	}
	subtree := tree.Subtree(root)
	slices.Reverse(subtree)
	for _, id := range subtree {
		rp, _ := tree.Provider(id)
		p, still := now[rp.Name]
		if !still && id != root {
			if said(rp.Name) && len(tree.Children(id)) == 0 {
				if _, err := tree.Remove(id); err != nil {
					return err
				}
			}
			continue
		}
		if err := d.unsayOn(tree, rp, p); err != nil {
			return err
		}
	}
	return nil
}

func (d *dictated) unsayOn(tree *providertree.Tree, rp providertree.Provider, now noted) error {
	said := func(has func(noted) bool) bool {
		return d.careless || slices.ContainsFunc(d.former, func(p noted) bool { return p.name == rp.Name && has(p) })
	}
	for class := range rp.Inventories {
		has := func(p noted) bool { _, has := p.inventories[class]; return has }
		if !has(now) && (said(has) || d.moved(class, rp.Name)) {
			if _, err := tree.RemoveInventory(rp.UUID, class); err != nil {
				return err
			}
		}
	}
	for _, trait := range rp.Traits {
		has := func(p noted) bool { return slices.Contains(p.traits, trait) }
		if !has(now) && said(has) {
			if _, err := tree.RemoveTraits(rp.UUID, trait); err != nil {
				return err
			}
		}
	}
	for _, aggregate := range rp.Aggregates {
		has := func(p noted) bool { return slices.Contains(uuidsFor(p.aggregates), aggregate) }
		if !has(now) && said(has) {
			if _, err := tree.RemoveAggregates(rp.UUID, aggregate); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *dictated) moved(class, provider string) bool {
	return slices.ContainsFunc(d.moves, func(m dictatedMove) bool { return m.from == [2]string{class, provider} })
}
