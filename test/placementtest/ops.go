// SPDX-License-Identifier: Apache-2.0

package placementtest

import (
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/providertree"
)

// Op is one write, for a ledger and for the model alike.
type Op struct {
	Name string
	// Which of the fields count follows from Name.
	UUID, Class, New string
	Generation       *int64
	Create           ledger.NewProvider
	Update           ledger.ProviderUpdate
	Inventories      []ledger.Inventory
	Names            []string
	Allocations      []ledger.ConsumerAllocations
	Reshape          ledger.Reshape
	Host             ledger.Host
}

// Run does the write in a transaction.
func (op Op) Run(tx *ledger.Tx) error {
	gen := int64(0)
	if op.Generation != nil {
		gen = *op.Generation
	}
	var err error
	switch op.Name {
	case "CreateProvider":
		_, err = tx.CreateProvider(op.Create)
	case "UpdateProvider":
		_, err = tx.UpdateProvider(op.UUID, op.Update)
	case "DeleteProvider":
		err = tx.DeleteProvider(op.UUID)
	case "SetInventories":
		_, err = tx.SetInventories(op.UUID, gen, op.Inventories)
	case "AddInventory":
		_, err = tx.AddInventory(op.UUID, op.Inventories[0])
	case "SetInventory":
		_, err = tx.SetInventory(op.UUID, gen, op.Inventories[0])
	case "DeleteInventory":
		err = tx.DeleteInventory(op.UUID, op.Class)
	case "DeleteInventories":
		err = tx.DeleteInventories(op.UUID)
	case "SetTraits":
		_, err = tx.SetTraits(op.UUID, gen, op.Names)
	case "ClearTraits":
		err = tx.ClearTraits(op.UUID)
	case "SetAggregates":
		_, err = tx.SetAggregates(op.UUID, op.Generation, op.Names)
	case "CreateClass":
		_, _, err = tx.CreateClass(op.Class)
	case "RenameClass":
		err = tx.RenameClass(op.Class, op.New)
	case "DeleteClass":
		err = tx.DeleteClass(op.Class)
	case "CreateTrait":
		_, _, err = tx.CreateTrait(op.Class)
	case "DeleteTrait":
		err = tx.DeleteTrait(op.Class)
	case "ReplaceAllocations":
		err = tx.ReplaceAllocations(op.Allocations)
	case "DeleteAllocations":
		err = tx.DeleteAllocations(op.UUID)
	case "Reshape":
		err = tx.Reshape(op.Reshape)
	case "SetHost":
		_, err = tx.SetHost(op.Host)
	default:
		panic("placementtest: unknown write: " + op.Name)
	}
	return err
}

var (
	opProviders     = []string{"p0", "p1", "p2", "p3", "p4", "p5"}
	opProviderNames = []string{"n0", "n1", "n2", "n3", "n4", "n5"}
	opClasses       = []string{"VCPU", "MEMORY_MB", "CUSTOM_A", "CUSTOM_B", "CUSTOM_NONE"}
	opTraits        = []string{"COMPUTE_NODE", "HW_CPU_X86_AVX", "CUSTOM_T", "CUSTOM_U", "CUSTOM_NONE"}
	opAggregates    = []string{"g0", "g1", "g2"}
	opConsumers     = []string{"c0", "c1", "c2", "c3"}
	opNames         = []string{"CreateProvider", "CreateProvider", "CreateProvider", "UpdateProvider",
		"UpdateProvider", "DeleteProvider",
		"SetInventories", "SetInventories", "SetInventories", "AddInventory", "SetInventory", "DeleteInventory",
		"DeleteInventory", "DeleteInventory", "DeleteInventories",
		"SetTraits", "SetTraits", "ClearTraits", "SetAggregates", "CreateClass", "RenameClass", "DeleteClass",
		"CreateTrait", "DeleteTrait",
		"ReplaceAllocations", "ReplaceAllocations", "ReplaceAllocations", "ReplaceAllocations", "DeleteAllocations",
		"Reshape", "Reshape", "SetHost"}
)

// SetupOps are the writes that most interesting states need first: custom names, and
// two providers with inventories.
func SetupOps() []Op {
	zero := int64(0)
	inv := func(class string, total int64) ledger.Inventory {
		return ledger.Inventory{Class: class, Total: total, MinUnit: 1, MaxUnit: total, StepSize: 1, AllocationRatio: 1}
	}
	return []Op{
		{Name: "CreateClass", Class: "CUSTOM_A"}, {Name: "CreateClass", Class: "CUSTOM_B"},
		{Name: "CreateTrait", Class: "CUSTOM_T"},
		{Name: "CreateProvider", Create: ledger.NewProvider{UUID: "p0", Name: "n0"}},
		{Name: "CreateProvider", Create: ledger.NewProvider{UUID: "p1", Name: "n1", Parent: "p0"}},
		{Name: "SetInventories", UUID: "p0", Generation: &zero,
			Inventories: []ledger.Inventory{inv("VCPU", 8), inv("MEMORY_MB", 16)}},
		{Name: "SetInventories", UUID: "p1", Generation: &zero, Inventories: []ledger.Inventory{inv("CUSTOM_A", 8)}},
	}
}

// DrawOp draws a random write that has a fair chance to succeed on the model's state.
func DrawOp(t *rapid.T, m *Model) Op {
	op := Op{Name: rapid.SampledFrom(opNames).Draw(t, "op")}
	op.UUID = someProvider(t, m)
	if op.Name == "DeleteAllocations" {
		op.UUID = rapid.SampledFrom(opConsumers).Draw(t, "consumer")
	}
	op.Class = rapid.SampledFrom(opClasses).Draw(t, "class")
	op.New = rapid.SampledFrom(opClasses).Draw(t, "new class")
	switch op.Name {
	case "CreateProvider":
		op.Create = ledger.NewProvider{
			UUID:   rapid.SampledFrom(opProviders).Draw(t, "new provider"),
			Name:   rapid.SampledFrom(opProviderNames).Draw(t, "name"),
			Parent: drawParent(t),
		}
	case "UpdateProvider":
		op.Update = ledger.ProviderUpdate{Name: rapid.SampledFrom(opProviderNames).Draw(t, "name"),
			AllowReparent: rapid.Bool().Draw(t, "1.37")}
		if rapid.Bool().Draw(t, "move") {
			parent := drawParent(t)
			op.Update.Parent = &parent
		}
	case "SetInventories":
		op.Inventories = drawOpInventories(t)
	case "AddInventory", "SetInventory":
		op.Inventories = []ledger.Inventory{drawOpInventory(t, op.Class)}
	case "SetTraits":
		op.Names = drawSome(t, opTraits, "traits")
	case "SetAggregates":
		op.Names = drawSome(t, opAggregates, "aggregates")
	case "CreateTrait", "DeleteTrait":
		op.Class = rapid.SampledFrom(opTraits).Draw(t, "trait")
	case "SetHost":
		op.Host = drawHost(t)
	case "ReplaceAllocations":
		op.Allocations = drawAllocations(t, m, 1)
	case "Reshape":
		op.Reshape.Inventories = map[string]ledger.ProviderInventories{}
		for _, uuid := range drawSome(t, slices.Compact(append(sortedKeys(m.Providers), "p5")), "reshaped") {
			op.Reshape.Inventories[uuid] = ledger.ProviderInventories{Generation: drawGeneration(t, m, uuid),
				Inventories: drawOpInventories(t)}
		}
		op.Reshape.Allocations = drawAllocations(t, m, 0)
	}
	if op.Name != "SetAggregates" || rapid.Bool().Draw(t, "1.19") {
		gen := drawGeneration(t, m, op.UUID)
		op.Generation = &gen
	}
	return op
}

func drawHost(t *rapid.T) ledger.Host {
	h := ledger.Host{
		Name: rapid.SampledFrom([]string{"h0", "h1"}).Draw(t, "host"), Classes: map[string]int64{},
		Traits: drawSome(t, []string{"CUSTOM_T", "HW_CPU", "HW_GPU"}, "kinds"),
	}
	slices.Sort(h.Traits)
	for _, class := range drawSome(t, opClasses, "classes") {
		h.Classes[class] = rapid.Int64Range(0, 3).Draw(t, "amount")
	}
	if rapid.Bool().Draw(t, "noted") {
		h.Since = time.Unix(rapid.Int64Range(1, 2).Draw(t, "since"), 0).UTC()
	}
	return h
}

// someProvider draws a provider that mostly exists.
func someProvider(t *rapid.T, m *Model) string {
	from := opProviders
	if len(m.Providers) > 0 && rapid.IntRange(0, 3).Draw(t, "existing") > 0 {
		from = sortedKeys(m.Providers)
	}
	return rapid.SampledFrom(from).Draw(t, "provider")
}

func drawParent(t *rapid.T) string {
	return rapid.SampledFrom(append([]string{"", ""}, opProviders...)).Draw(t, "parent")
}

func drawGeneration(t *rapid.T, m *Model, uuid string) int64 {
	gen := int64(0)
	if p, ok := m.Providers[uuid]; ok {
		gen = p.Generation
	}
	if rapid.IntRange(0, 9).Draw(t, "stale") == 0 {
		gen--
	}
	return gen
}

func drawSome(t *rapid.T, of []string, label string) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(of), 0, 3, rapid.ID[string]).Draw(t, label)
}

func drawOpInventory(t *rapid.T, class string) ledger.Inventory {
	return ledger.Inventory{
		Class: class, Total: rapid.Int64Range(1, 10).Draw(t, "total"),
		Reserved:        rapid.Int64Range(0, 3).Draw(t, "reserved"),
		MinUnit:         rapid.SampledFrom([]int64{1, 1, 2}).Draw(t, "min"),
		MaxUnit:         rapid.SampledFrom([]int64{10, 10, 3}).Draw(t, "max"),
		StepSize:        rapid.SampledFrom([]int64{1, 1, 2}).Draw(t, "step"),
		AllocationRatio: rapid.SampledFrom([]float64{1, 1.5, 0.3, 16}).Draw(t, "ratio"),
	}
}

func drawOpInventories(t *rapid.T) []ledger.Inventory {
	var out []ledger.Inventory
	for _, class := range rapid.SliceOfNDistinct(rapid.SampledFrom(opClasses[:4]), 0, 4, rapid.ID[string]).
		Draw(t, "classes") {
		out = append(out, drawOpInventory(t, class))
	}
	return out
}

func drawAllocations(t *rapid.T, m *Model, least int) []ledger.ConsumerAllocations {
	var out []ledger.ConsumerAllocations
	for _, uuid := range rapid.SliceOfNDistinct(rapid.SampledFrom(opConsumers), least, 3, rapid.ID[string]).
		Draw(t, "consumers") {
		req := ledger.ConsumerAllocations{Consumer: uuid,
			Project: rapid.SampledFrom([]string{"q0", "q1"}).Draw(t, "project"), User: "u0",
			CheckGeneration: rapid.Bool().Draw(t, "1.28"), Resources: providertree.ProviderResources{}}
		if c, ok := m.Consumers[uuid]; ok && rapid.IntRange(0, 4).Draw(t, "stale") > 0 {
			gen := c.Generation
			req.Generation = &gen
		}
		if rapid.Bool().Draw(t, "1.38") {
			typ := rapid.SampledFrom([]string{"INSTANCE", "MIGRATION"}).Draw(t, "type")
			req.Type = &typ
		}
		for range rapid.IntRange(0, 3).Draw(t, "resources") {
			// Mostly of what there is.
			on := someProvider(t, m)
			offers := opClasses
			if p, ok := m.Providers[on]; ok && len(p.Inventories) > 0 && rapid.IntRange(0, 9).Draw(t, "sane") > 0 {
				offers = slices.Sorted(maps.Keys(p.Inventories))
			}
			if req.Resources[on] == nil {
				req.Resources[on] = map[string]int64{}
			}
			req.Resources[on][rapid.SampledFrom(offers).Draw(t, "class")] = rapid.Int64Range(1, 5).Draw(t, "amount")
		}
		out = append(out, req)
	}
	return out
}
