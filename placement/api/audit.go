// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/placement/ledger"
)

// changesOf is what a transaction changed, for the audit log. Changes of nothing but generations
// and times are left out.
func changesOf(t ledger.Touched, before, after *ledger.Snapshot) []auditlog.Change {
	var list changes
	for _, e := range t.Classes {
		list.addNamed(auditlog.KindClass, name(e.Before), name(e.After))
	}
	for _, e := range t.Traits {
		list.addNamed(auditlog.KindTrait, traitName(e.Before), traitName(e.After))
	}
	for _, e := range t.Providers {
		list.addProvider(e.Before, e.After)
	}
	for _, e := range t.Hosts {
		c := auditlog.Change{Kind: auditlog.KindAdmission, ID: e.After.Name, Host: e.After.Name}
		list.add(c, admissionValueOf(e.Before), admissionValueOf(e.After))
	}
	for _, e := range t.Consumers {
		list.addConsumer(e.Before, e.After, func(uuid string) string {
			for _, s := range []*ledger.Snapshot{after, before} {
				if p, ok := s.Provider(uuid); ok {
					return p.Name
				}
			}
			return ""
		})
	}
	return list
}

// name and traitName are those of what is there.
func name(c *ledger.ResourceClass) any {
	if c == nil {
		return nil
	}
	return c.Name
}

func traitName(t *ledger.Trait) any {
	if t == nil {
		return nil
	}
	return t.Name
}

// changes is a list of changes that is made.
type changes []auditlog.Change

func (ch *changes) add(c auditlog.Change, before, after any) {
	if c, ok := c.Differs(before, after); ok {
		*ch = append(*ch, c)
	}
}

// addNamed adds a class or trait; the values are its names.
func (ch *changes) addNamed(kind string, before, after any) {
	id := after
	if id == nil {
		id = before
	}
	ch.add(auditlog.Change{Kind: kind, ID: fmt.Sprint(id)}, before, after)
}

// Values of changes, in JSON.
type (
	providerValue struct {
		Name   string `json:"name"`
		Parent string `json:"parent,omitempty"`
		// UUID is there if it changes.
		UUID string `json:"uuid,omitempty"`
	}
	inventoryValue struct {
		Total    int64   `json:"total"`
		Reserved int64   `json:"reserved"`
		MinUnit  int64   `json:"min_unit"`
		MaxUnit  int64   `json:"max_unit"`
		StepSize int64   `json:"step_size"`
		Ratio    float64 `json:"allocation_ratio"`
	}
	consumerValue struct {
		Project string `json:"project"`
		User    string `json:"user"`
		Type    string `json:"type,omitempty"`
	}
	admissionValue struct {
		Classes []string  `json:"classes,omitempty"` // CLASS=AMOUNT
		Traits  []string  `json:"traits,omitempty"`
		Since   time.Time `json:"since,omitzero"`
	}
)

// admissionValueOf returns what a host may report, as a value of the audit log; nil without a host.
func admissionValueOf(h *ledger.Host) any {
	if h == nil {
		return nil
	}
	value := admissionValue{Traits: h.Traits, Since: h.Since}
	for _, class := range slices.Sorted(maps.Keys(h.Classes)) {
		value.Classes = append(value.Classes, fmt.Sprintf("%s=%d", class, h.Classes[class]))
	}
	return value
}

func (ch *changes) addProvider(before, after *ledger.Provider) {
	var was, is any
	shown, none := after, new(ledger.Provider)
	value := func(p *ledger.Provider) providerValue {
		v := providerValue{Name: p.Name, Parent: p.Parent}
		if before != nil && after != nil && before.UUID != after.UUID {
			v.UUID = p.UUID
		}
		return v
	}
	if before != nil {
		was = value(before)
	}
	if after != nil {
		is = value(after)
	}
	if before == nil {
		before = none
	}
	if after == nil {
		shown, after = before, none
	}
	ch.add(auditlog.Change{Kind: auditlog.KindProvider, ID: shown.UUID, Name: shown.Name}, was, is)
	of := auditlog.Change{Provider: shown.UUID, ProviderName: shown.Name}
	for _, class := range classesOf(before.Inventories, after.Inventories) {
		of.Kind, of.ID = auditlog.KindInventory, class
		ch.add(of, inventory(before, class), inventory(after, class))
	}
	of.ID = shown.UUID
	lost, got := differences(before.Traits, after.Traits)
	of.Kind = auditlog.KindTraits
	ch.add(of, lost, got)
	lost, got = differences(before.Aggregates, after.Aggregates)
	of.Kind = auditlog.KindAggregates
	ch.add(of, lost, got)
}

func classesOf(lists ...[]ledger.Inventory) (names []string) {
	for _, list := range lists {
		for i := range list {
			names = append(names, list[i].Class)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func inventory(p *ledger.Provider, class string) any {
	i, ok := p.Inventory(class)
	if !ok {
		return nil
	}
	return inventoryValue{i.Total, i.Reserved, i.MinUnit, i.MaxUnit, i.StepSize, i.AllocationRatio}
}

// differences are the strings that are only in one of two sorted lists; nil for none.
func differences(before, after []string) (lost, got any) {
	only := func(of, others []string) any {
		var list []string
		for _, s := range of {
			if _, found := slices.BinarySearch(others, s); !found {
				list = append(list, s)
			}
		}
		if len(list) == 0 {
			return nil
		}
		return list
	}
	return only(before, after), only(after, before)
}

func (ch *changes) addConsumer(before, after *ledger.Consumer, nameOf func(uuid string) string) {
	var was, is any
	none := new(ledger.Consumer)
	uuid := ""
	if before != nil {
		was, uuid = consumerValue{before.Project, before.User, before.Type}, before.UUID
	} else {
		before = none
	}
	if after != nil {
		is, uuid = consumerValue{after.Project, after.User, after.Type}, after.UUID
	} else {
		after = none
	}
	ch.add(auditlog.Change{Kind: auditlog.KindConsumer, ID: uuid}, was, is)
	for _, provider := range providersOf(before.Allocations, after.Allocations) {
		c := auditlog.Change{Kind: auditlog.KindAllocation,
			ID: uuid, Provider: provider, ProviderName: nameOf(provider)}
		ch.add(c, amounts(before, provider), amounts(after, provider))
	}
}

func providersOf(lists ...[]ledger.Allocation) (uuids []string) {
	for _, list := range lists {
		for i := range list {
			uuids = append(uuids, list[i].Provider)
		}
	}
	slices.Sort(uuids)
	return slices.Compact(uuids)
}

// amounts returns the allocations of a consumer of one provider, by class, as a value of the audit
// log; nil if there are none.
func amounts(c *ledger.Consumer, provider string) any {
	var of map[string]int64
	for i := range c.Allocations {
		if a := &c.Allocations[i]; a.Provider == provider {
			if of == nil {
				of = map[string]int64{}
			}
			of[a.Class] += a.Used
		}
	}
	if of == nil {
		return nil
	}
	return of
}
