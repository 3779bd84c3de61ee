// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"
	"strings"
)

// writes are the kinds of writes.
var writes = []choice{
	{6, (*generator).createProvider}, {6, (*generator).updateProvider}, {2, (*generator).deleteProvider},
	{9, (*generator).setInventories}, {4, (*generator).setInventory}, {4, (*generator).cutInventory},
	{5, (*generator).addInventory}, {3, (*generator).deleteInventory},
	{5, (*generator).setAggregates}, {5, (*generator).setTraits}, {1, (*generator).clearTraits},
	{3, (*generator).writeTrait}, {4, (*generator).writeClass},
	{16, (*generator).putAllocations}, {9, (*generator).postAllocations},
	{3, (*generator).deleteAllocations}, {9, (*generator).reshape},
	{3, (*generator).overCommit},
}

// provider picks one that is likely there; now and then something that no provider can be found
// with.
func (g *generator) provider() string {
	if !g.rare(8) {
		return pick(g, g.providers)
	}
	first := g.providers[0]
	return pick(g, []string{"foo", nowhere, strings.ToUpper(first),
		strings.ReplaceAll(first, "-", ""), "{" + first + "}"})
}

func (g *generator) class() string {
	if !g.rare(10) {
		return pick(g, classNames)
	}
	return pick(g, oddClasses)
}

func (g *generator) trait() string {
	if !g.rare(10) {
		return pick(g, traitNames)
	}
	return pick(g, oddTraits)
}

// generationOf is most often the right one.
func (g *generator) generationOf(uuid string) string {
	if !g.rare(20) {
		return gen(uuid)
	}
	return "{{gen " + uuid + " " + pick(g, []string{"-1", "+1"}) + "}}"
}

// inventory is one record, with small numbers and odd ratios.
func (g *generator) inventory() object {
	inv := object{"total": pick(g, []int{1, 2, 4, 8, 10, 16, 16, 100})}
	if g.chance(25) {
		inv["reserved"] = pick(g, []int{0, 1, 2, 4, 16})
	}
	if g.chance(15) {
		inv["min_unit"] = pick(g, []int{1, 2, 3})
	}
	if g.chance(20) {
		inv["max_unit"] = pick(g, []int{1, 2, 4, 50})
	}
	if g.chance(20) {
		inv["step_size"] = pick(g, []int{1, 2, 3})
	}
	if g.chance(35) {
		inv["allocation_ratio"] = pick(g, []any{1, 1.0, 0.5, 16.0, 1.1, 0.33, 0, 2, 1.5})
	}
	return inv
}

func (g *generator) inventories(n int) object {
	all := object{}
	for _, name := range some(g, classNames, n) {
		all[name] = g.inventory()
	}
	if g.rare(6) {
		all[pick(g, oddClasses)] = g.inventory()
	}
	return all
}

func (g *generator) name() string { return fmt.Sprintf("n%d", g.IntN(len(g.providers)+1)) }

func (g *generator) parent() any {
	if g.chance(25) {
		return nil
	}
	return g.provider()
}

func (g *generator) createProvider() Step {
	v := g.version(0)
	body := object{"name": g.name(), "uuid": g.provider()}
	if g.rare(6) {
		delete(body, "uuid") // Each service draws its own.
	}
	if v >= 14 && g.chance(65) || g.rare(8) {
		body["parent_provider_uuid"] = g.parent()
	}
	return at("POST provider", "POST", "/resource_providers", v).with(body)
}

func (g *generator) updateProvider() Step {
	v := g.version(0)
	if g.chance(40) {
		v = g.version(37)
	}
	body := object{"name": g.name()}
	if v >= 14 && g.chance(65) || g.rare(8) {
		body["parent_provider_uuid"] = g.parent()
	}
	return at("PUT provider", "PUT", "/resource_providers/"+g.provider(), v).with(body)
}

func (g *generator) deleteProvider() Step {
	return at("DELETE provider", "DELETE", "/resource_providers/"+g.provider(), g.version(0))
}

func (g *generator) setInventories() Step {
	uuid := g.provider()
	inventories := g.inventories(g.IntN(4))
	g.believe(uuid, inventories)
	return at("PUT inventories", "PUT", "/resource_providers/"+uuid+"/inventories", g.version(0)).
		with(object{"resource_provider_generation": g.generationOf(uuid), "inventories": inventories})
}

func (g *generator) setInventory() Step {
	uuid := g.provider()
	body := g.inventory()
	body["resource_provider_generation"] = g.generationOf(uuid)
	if g.rare(15) {
		body["resource_class"] = g.class()
	}
	return at("PUT inventory", "PUT", "/resource_providers/"+uuid+"/inventories/"+g.class(), g.version(0)).with(body)
}

// cutInventory takes capacity away from under what is allocated.
func (g *generator) cutInventory() Step {
	uuid := g.giver()
	class := g.class()
	if len(g.gives[uuid]) > 0 {
		class = pick(g, g.gives[uuid])
	}
	body := object{"resource_provider_generation": g.generationOf(uuid), "total": 1 + g.IntN(3)}
	return at("PUT inventory", "PUT", "/resource_providers/"+uuid+"/inventories/"+class, g.version(0)).with(body)
}

// overCommit begins a story: something is allocated, its inventory is cut below that, and the
// consumer claims again, alone or with another.
func (g *generator) overCommit() Step {
	uuid, class, v := pick(g, g.providers), pick(g, classNames), g.version(30)
	slots := g.slots(2)
	claim := func(slot, amount int) object {
		body := g.allocation(v, slot)
		body["allocations"] = object{uuid: object{"resources": object{class: amount}}}
		if g.chance(30) && len(g.gives[g.providers[0]]) > 0 {
			body["allocations"] = object{uuid: object{"resources": object{class: amount}},
				g.providers[0]: object{"resources": g.resources(g.providers[0])}}
		}
		return body
	}
	put := func(slot, amount int) Step {
		return at("PUT allocations", "PUT", fmt.Sprintf("/allocations/{{c%d}}", slot), v).with(claim(slot, amount))
	}
	inventory := func(total int) Step {
		return at("PUT inventory", "PUT", "/resource_providers/"+uuid+"/inventories/"+class, v).
			with(object{"resource_provider_generation": gen(uuid), "total": total,
				"allocation_ratio": pick(g, []any{1.0, 1.1, 0.5})})
	}
	first := 1 + g.IntN(5)
	again := put(slots[0], 1+g.IntN(first+1))
	switch g.IntN(3) {
	case 0:
		again = at("POST allocations", "POST", "/allocations", v).with(object{
			fmt.Sprintf("{{c%d}}", slots[0]): claim(slots[0], 1+g.IntN(first)),
			fmt.Sprintf("{{c%d}}", slots[1]): claim(slots[1], 1+g.IntN(3))})
	case 1:
		again = at("POST reshaper", "POST", "/reshaper", v).with(object{
			"inventories": object{uuid: object{"resource_provider_generation": gen(uuid),
				"inventories": object{class: object{"total": 1 + g.IntN(first)}}}},
			"allocations": object{fmt.Sprintf("{{c%d}}", slots[0]): claim(slots[0], 1+g.IntN(first))}})
	}
	g.pending = append(g.pending, put(slots[0], first), inventory(1+g.IntN(2)), again)
	return at("POST inventory", "POST", "/resource_providers/"+uuid+"/inventories", v).
		with(object{"resource_class": class, "total": 8 + g.IntN(8)})
}

func (g *generator) addInventory() Step {
	body := g.inventory()
	body["resource_class"] = g.class()
	uuid := g.provider()
	if g.chance(20) {
		body["resource_provider_generation"] = g.generationOf(uuid)
	}
	return at("POST inventory", "POST", "/resource_providers/"+uuid+"/inventories", g.version(0)).with(body)
}

func (g *generator) deleteInventory() Step {
	path := "/resource_providers/" + g.provider() + "/inventories"
	if g.chance(70) {
		return at("DELETE inventory", "DELETE", path+"/"+g.class(), g.version(0))
	}
	return at("DELETE inventories", "DELETE", path, g.version(5))
}

func (g *generator) setAggregates() Step {
	v, uuid := g.version(1), g.provider()
	list := some(g, aggregates, g.IntN(3))
	if g.rare(12) {
		list = append(list, pick(g, []string{"x", strings.ToUpper(aggregates[0]), aggregates[0], ""}))
	}
	st := at("PUT aggregates", "PUT", "/resource_providers/"+uuid+"/aggregates", v)
	if v < 19 != g.rare(8) {
		return st.with(list)
	}
	return st.with(object{"aggregates": list, "resource_provider_generation": g.generationOf(uuid)})
}

func (g *generator) setTraits() Step {
	uuid := g.provider()
	list := some(g, traitNames, g.IntN(4))
	if g.rare(15) {
		list = append(list, pick(g, oddTraits), traitNames[0])
	}
	return at("PUT traits of provider", "PUT", "/resource_providers/"+uuid+"/traits", g.version(6)).
		with(object{"resource_provider_generation": g.generationOf(uuid), "traits": list})
}

func (g *generator) clearTraits() Step {
	return at("DELETE traits of provider", "DELETE", "/resource_providers/"+g.provider()+"/traits", g.version(6))
}

func (g *generator) writeTrait() Step {
	name := pick(g, append([]string{"CUSTOM_N", "CUSTOM_T", "CUSTOM_T", "CUSTOM_U"}, oddTraits...))
	method := pick(g, []string{"PUT", "PUT", "DELETE"})
	return at(method+" trait", method, "/traits/"+name, g.version(6))
}

func (g *generator) writeClass() Step {
	name := pick(g, append([]string{"CUSTOM_N", "CUSTOM_A", "CUSTOM_B", "VCPU"}, oddClasses...))
	v := g.version(2)
	switch g.IntN(4) {
	case 0:
		return at("POST class", "POST", "/resource_classes", v).with(object{"name": name})
	case 1:
		return at("DELETE class", "DELETE", "/resource_classes/"+name, v)
	case 2:
		v = 2 + g.IntN(5)
		return at("PUT class", "PUT", "/resource_classes/"+name, v).
			with(object{"name": pick(g, []string{"CUSTOM_N", "CUSTOM_A", "CUSTOM_B", "VCPU", "x"})})
	}
	return at("PUT class", "PUT", "/resource_classes/"+name, v)
}

// giver picks a provider that likely has inventory.
func (g *generator) giver() string {
	uuid := g.provider()
	for range 8 {
		if len(g.gives[uuid]) > 0 || g.chance(5) {
			break
		}
		uuid = g.provider()
	}
	return uuid
}

// resources are asked of a provider; of what it has, most of the time.
func (g *generator) resources(uuid string) object {
	from := g.gives[uuid]
	if len(from) == 0 || g.chance(8) {
		from = classNames
	}
	all := object{}
	for _, name := range some(g, from, 1+g.IntN(2)) {
		all[name] = pick(g, []int{1, 1, 1, 1, 1, 2, 2, 2, 3, 4, 6, 12})
	}
	if g.rare(3) {
		all[pick(g, oddClasses)] = 1
	}
	return all
}

// allocation is what one consumer asks for, in the form of a microversion.
func (g *generator) allocation(v, slot int) object {
	n := pick(g, []int{0, 1, 1, 1, 1, 1, 2, 2, 3})
	if v < 28 {
		n = max(n, 1-g.IntN(20)/19)
	}
	body := object{}
	if v < 12 {
		var list []any
		for range n {
			uuid := g.giver()
			list = append(list, object{"resource_provider": object{"uuid": uuid}, "resources": g.resources(uuid)})
		}
		body["allocations"] = list
	} else {
		all := object{}
		for range n {
			uuid := g.giver()
			one := object{"resources": g.resources(uuid)}
			if g.chance(15) {
				one["generation"] = g.IntN(5)
			}
			all[uuid] = one
		}
		body["allocations"] = all
	}
	if v >= 8 {
		body["project_id"], body["user_id"] = pick(g, projects), pick(g, users)
	}
	if v >= 28 {
		body["consumer_generation"] = fmt.Sprintf("{{cgen %d +0}}", slot)
		if g.rare(24) {
			body["consumer_generation"] = pick(g, []any{nil, 0, 1, 5, -1})
		}
	}
	if v >= 34 && g.chance(25) {
		body["mappings"] = pick(g, []any{object{"": []string{g.providers[0]}}, object{"a": []string{g.providers[1]}},
			object{"_a-B9": []string{g.providers[0], g.providers[0]}}})
		if g.chance(10) {
			body["mappings"] = pick(g,
				[]any{object{}, object{"a": []string{}}, object{"!": 3}, object{"x": []string{"z"}}})
		}
	}
	if v >= 38 {
		body["consumer_type"] = pick(g, types)
		if g.rare(12) {
			body["consumer_type"] = pick(g, []string{"unknown", "instance", "A B", "", "all"})
		}
	}
	return body
}

// formOf is the version whose form of the body is used: that of the request, but for a few.
func (g *generator) formOf(v int) int {
	if g.rare(9) {
		return pick(g, edges)
	}
	return v
}

func (g *generator) putAllocations() Step {
	v, slot := g.version(0), g.IntN(consumerMax)
	if g.rare(3) {
		return at("PUT allocations", "PUT", "/allocations/"+pick(g, []string{"x", "", nowhere + "0"}),
			v).with(g.allocation(v, slot))
	}
	return at("PUT allocations", "PUT", fmt.Sprintf("/allocations/{{c%d}}", slot), v).
		with(g.allocation(g.formOf(v), slot))
}

func (g *generator) slots(n int) []int {
	slots := make([]int, consumerMax)
	for i := range slots {
		slots[i] = i
	}
	return some(g, slots, n)
}

func (g *generator) claims(v, n int) object {
	all := object{}
	for _, slot := range g.slots(n) {
		all[fmt.Sprintf("{{c%d}}", slot)] = g.allocation(max(v, 12), slot)
	}
	return all
}

func (g *generator) postAllocations() Step {
	v := g.version(13)
	return at("POST allocations", "POST", "/allocations", v).with(g.claims(g.formOf(v), 1+g.IntN(3)))
}

func (g *generator) deleteAllocations() Step {
	return at("DELETE allocations", "DELETE", fmt.Sprintf("/allocations/{{c%d}}", g.IntN(consumerMax)), g.version(0))
}

func (g *generator) reshape() Step {
	v := g.version(30)
	inventories := object{}
	for range 1 + g.IntN(3) {
		uuid := g.giver()
		of := g.inventories(g.IntN(4))
		inventories[uuid] = object{"resource_provider_generation": g.generationOf(uuid), "inventories": of}
		g.believe(uuid, of)
	}
	return at("POST reshaper", "POST", "/reshaper", v).
		with(object{"inventories": inventories, "allocations": g.claims(max(g.formOf(v), 28), g.IntN(4))})
}
