// SPDX-License-Identifier: Apache-2.0

package reportclient

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/providertree"
)

var kindNames = map[Kind]string{
	EnsureClass: "ensure_class", EnsureTrait: "ensure_trait", CreateProvider: "create_provider",
	UpdateProvider: "update_provider",
	DeleteProvider: "delete_provider", SetInventories: "set_inventories",
	SetAggregates: "set_aggregates", SetTraits: "set_traits",
	ReshapeTree: "reshape",
}

func (k Kind) String() string { return kindNames[k] }

// String is the operation as an order, such as "create resource provider cn1 (UUID)".
func (o Operation) String() string {
	return o.describe("ensure", "create", "update", "delete", "set", "reshape")
}

// Done is the operation as a fact, such as "Created resource provider cn1 (UUID)".
func (o Operation) Done() string {
	return o.describe("Ensured", "Created", "Updated", "Deleted", "Set", "Reshaped")
}

func (o Operation) describe(ensure, create, update, remove, set, reshape string) string {
	switch o.Kind {
	case EnsureClass:
		return ensure + " that resource class " + o.Symbol + " exists"
	case EnsureTrait:
		return ensure + " that trait " + o.Symbol + " exists"
	case CreateProvider:
		if o.Parent == "" {
			return fmt.Sprintf("%s resource provider %s (%s)", create, o.Provider, o.UUID)
		}
		return fmt.Sprintf("%s resource provider %s (%s) below %s", create, o.Provider, o.UUID, o.Parent)
	case UpdateProvider:
		return fmt.Sprintf("%s resource provider %s (%s): %s", update, o.Provider, o.UUID, o.describeUpdate())
	case DeleteProvider:
		return fmt.Sprintf("%s resource provider %s (%s)", remove, o.Provider, o.UUID)
	case SetInventories:
		return fmt.Sprintf("%s the inventory of %s: %s",
			set, o.Provider, describeInventories(o.before().Inventories, o.Inventories))
	case SetAggregates:
		return fmt.Sprintf("%s the aggregates of %s: %s",
			set, o.Provider, describeSets(o.before().Aggregates, o.Aggregates))
	case SetTraits:
		return fmt.Sprintf("%s the traits of %s: %s", set, o.Provider, describeSets(o.before().Traits, o.Traits))
	case ReshapeTree:
		return reshape + " " + o.Reshape.describe()
	}
	return fmt.Sprintf("unknown operation %d", int(o.Kind))
}

func (o Operation) before() providertree.Provider {
	if o.Before == nil {
		return providertree.Provider{}
	}
	return *o.Before
}

func (o Operation) describeUpdate() string {
	b := o.before()
	var what []string
	if b.Name != o.Provider {
		what = append(what, fmt.Sprintf("name %s→%s", b.Name, o.Provider))
	}
	if b.ParentUUID != o.Parent {
		what = append(what, fmt.Sprintf("parent %s→%s", cmp.Or(b.ParentUUID, "none"), cmp.Or(o.Parent, "none")))
	}
	return strings.Join(what, ", ")
}

// describeInventories names what differs, class by class and field by field.
func describeInventories(before, after providertree.Inventories) string {
	var out []string
	classes := maps.Clone(before)
	if classes == nil {
		classes = providertree.Inventories{}
	}
	maps.Copy(classes, after)
	for _, class := range slices.Sorted(maps.Keys(classes)) {
		old, had := before[class]
		now, has := after[class]
		switch {
		case !has:
			out = append(out, "-"+class)
		case !had:
			out = append(out, fmt.Sprintf("+%s %d", class, now.Total))
		default:
			if d := describeInventory(old.Normalize(), now.Normalize()); d != "" {
				out = append(out, class+" "+d)
			}
		}
	}
	return strings.Join(out, ", ")
}

func describeInventory(old, now providertree.Inventory) string {
	var out []string
	field := func(name string, a, b any) {
		if a != b {
			out = append(out, fmt.Sprintf("%s %v→%v", name, a, b))
		}
	}
	field("total", old.Total, now.Total)
	field("reserved", old.Reserved, now.Reserved)
	field("min_unit", old.MinUnit, now.MinUnit)
	field("max_unit", old.MaxUnit, now.MaxUnit)
	field("step_size", old.StepSize, now.StepSize)
	field("allocation_ratio", old.AllocationRatio, now.AllocationRatio)
	return strings.Join(out, " ")
}

// describeSets names what comes and goes; a long list is counted instead.
func describeSets(before, after []string) string {
	const most = 6
	list := func(sign string, from, to []string) []string {
		var out []string
		for _, s := range from {
			if _, found := slices.BinarySearch(to, s); !found {
				out = append(out, sign+s)
			}
		}
		if len(out) > most {
			rest := len(out) - most
			out = append(out[:most], fmt.Sprintf("%s%d more", sign, rest))
		}
		return out
	}
	return strings.Join(append(list("+", after, before), list("-", before, after)...), ", ")
}

// MarshalJSON gives the form that `plan --output json` prints.
func (o Operation) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Kind        string                   `json:"operation"`
		UUID        string                   `json:"resource_provider,omitempty"`
		Provider    string                   `json:"name,omitempty"`
		Parent      string                   `json:"parent,omitempty"`
		Symbol      string                   `json:"symbol,omitempty"`
		Inventories providertree.Inventories `json:"inventories,omitempty"`
		Traits      []string                 `json:"traits,omitempty"`
		Aggregates  []string                 `json:"aggregates,omitempty"`
		Reshape     *Reshape                 `json:"reshape,omitempty"`
		Text        string                   `json:"text"`
	}{o.Kind.String(), o.UUID, o.Provider, o.Parent,
		o.Symbol, o.Inventories, o.Traits, o.Aggregates, o.Reshape, o.String()})
}

// describe names what moves: first the inventories, then how many consumers.
func (r *Reshape) describe() string {
	parts := make([]string, 0, len(r.Providers))
	for _, p := range r.Providers {
		what := describeInventories(p.Before, p.After)
		if what == "" {
			what = "inventory unchanged"
		}
		parts = append(parts, fmt.Sprintf("%s: %s", p.Name, what))
	}
	noun := "consumers"
	if len(r.Consumers) == 1 {
		noun = "consumer"
	}
	return fmt.Sprintf("%s; with the allocations of %d %s", strings.Join(parts, "; "), len(r.Consumers), noun)
}
