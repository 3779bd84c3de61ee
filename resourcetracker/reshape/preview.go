// SPDX-License-Identifier: Apache-2.0

package reshape

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
)

// Preview is a reshape before and after, side by side.
type Preview struct {
	// Providers are the providers whose inventory or allocations change, in the order of the tree,
	// and after them those that will be deleted.
	Providers []ProviderPreview `json:"resource_providers"`
	// Consumers is how many consumers have allocations in the tree, and Moved for how many of them
	// these change.
	Consumers int `json:"consumers"`
	Moved     int `json:"moved"`
	// Payload is the request to the reshaper; nil if there would be none.
	Payload *PayloadPreview `json:"payload,omitempty"`
	// Renames are the resource classes that get another name, by their former ones.
	Renames map[string]string `json:"class_renames,omitempty"`
	// OverCommitted are inventories that stay and have more allocations than capacity. Placement
	// before 14.0.0 (2025.2) refuses a reshape of consumers with allocations of these.
	OverCommitted []string `json:"over_committed,omitempty"`
}

// PayloadPreview says how large the request to the reshaper is.
type PayloadPreview struct {
	Providers int `json:"resource_providers"`
	Consumers int `json:"consumers"`
	// Bytes is the size of the reshape as the journal keeps it, before and after.
	Bytes int `json:"bytes"`
}

// ProviderPreview is one resource provider in a reshape.
type ProviderPreview struct {
	UUID   string `json:"uuid"`
	Name   string `json:"name"`
	Parent string `json:"parent_provider_uuid,omitempty"`
	// New and Removed say that the provider comes or goes.
	New     bool `json:"new,omitempty"`
	Removed bool `json:"removed,omitempty"`
	// Before and After count the consumers that hold something there.
	Before  int            `json:"consumers_before"`
	After   int            `json:"consumers_after"`
	Classes []ClassPreview `json:"resource_classes"`
}

// ClassPreview is one inventory of a provider in a reshape. Nil is an inventory that is not there.
type ClassPreview struct {
	Class  string          `json:"resource_class"`
	Before *InventoryCount `json:"before"`
	After  *InventoryCount `json:"after"`
}

// InventoryCount is how much there is of an inventory, and how much is allocated.
type InventoryCount struct {
	Total int64 `json:"total"`
	Used  int64 `json:"used"`
}

// Preview returns the preview of the reshape; plan is the plan that writes it.
func (d Draft) Preview(plan reportclient.Plan) *Preview {
	out := &Preview{Providers: []ProviderPreview{}, Consumers: len(d.Before), Renames: d.Renames}
	for consumer, before := range d.Before {
		if !before.Resources.Equal(d.After[consumer].Resources) {
			out.Moved++
		}
	}
	was, is := d.Before.Usages(), d.After.Usages()
	order := d.Desired.UUIDs()
	for _, uuid := range d.Known.UUIDs() {
		if !d.Desired.Exists(uuid) {
			order = append(order, uuid)
		}
	}
	for _, uuid := range order {
		out.OverCommitted = append(out.OverCommitted, d.overCommitted(uuid, was[uuid], is[uuid])...)
		if p := d.previewProvider(uuid, was[uuid], is[uuid]); len(p.Classes) > 0 || p.New || p.Removed {
			out.Providers = append(out.Providers, p)
		}
	}
	for _, op := range plan.Operations {
		if op.Reshape == nil {
			continue
		}
		size, err := json.Marshal(op.Reshape)
		if err == nil {
			out.Payload = &PayloadPreview{Providers: len(op.Reshape.Providers),
				Consumers: len(op.Reshape.Consumers), Bytes: len(size)}
		}
	}
	return out
}

// overCommitted lists the inventories of a provider that are over their capacity before and after.
func (d Draft) overCommitted(uuid string, was, is providertree.Resources) (over []string) {
	for _, class := range slices.Sorted(maps.Keys(is)) {
		before, had := d.Known.Inventory(uuid, class)
		after, has := d.Desired.Inventory(uuid, class)
		if had && has && was[class] > before.Capacity() && is[class] > after.Capacity() {
			p, _ := d.Desired.Provider(uuid)
			over = append(over, fmt.Sprintf("%s on %s: %d allocated, capacity %d",
				class, p.Name, is[class], after.Capacity()))
		}
	}
	return over
}

// previewProvider holds only the classes of which something changes.
func (d Draft) previewProvider(uuid string, was, is providertree.Resources) ProviderPreview {
	before, had := d.Known.Provider(uuid)
	after, has := d.Desired.Provider(uuid)
	p := ProviderPreview{UUID: uuid, Name: after.Name,
		Parent: after.ParentUUID, New: !had, Removed: !has, Classes: []ClassPreview{}}
	if !has {
		p.Name, p.Parent = before.Name, before.ParentUUID
	}
	for _, c := range d.Before {
		if len(c.Resources[uuid]) > 0 {
			p.Before++
		}
	}
	for _, c := range d.After {
		if len(c.Resources[uuid]) > 0 {
			p.After++
		}
	}
	classes := slices.Concat(unionKeys(before.Inventories, after.Inventories), unionKeys(was, is))
	slices.Sort(classes)
	for _, class := range slices.Compact(classes) {
		c := ClassPreview{Class: class}
		if inv, found := before.Inventories[class]; found || was[class] != 0 {
			c.Before = &InventoryCount{Total: inv.Total, Used: was[class]}
		}
		if inv, found := after.Inventories[class]; found || is[class] != 0 {
			c.After = &InventoryCount{Total: inv.Total, Used: is[class]}
		}
		if !before.Inventories[class].Equal(after.Inventories[class]) || was[class] != is[class] {
			p.Classes = append(p.Classes, c)
		}
	}
	return p
}
