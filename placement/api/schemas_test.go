// SPDX-License-Identifier: Apache-2.0

package api

import (
	"slices"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/openapi/apidoc"
)

// The schemas of bodies, for the reference and the OpenAPI document. Package wire reads and writes
// the bodies themselves, without schemas; tests compare each body that they send or get with its
// schema.

// What the keys of objects are.
const (
	patternSymbol = "^[A-Z0-9_]{1,255}$"
	patternUUID   = "^[0-9a-fA-F-]{36}$"
	patternSuffix = "^[a-zA-Z0-9_-]{0,64}$"
	patternCustom = "^CUSTOM_[A-Z0-9_]+$"
)

// keyNames are the names of the patterns in the reference.
var keyNames = map[string]string{patternSymbol: "class", patternUUID: "uuid", patternSuffix: "suffix"}

var (
	schemaText       = jsonkit.Schema{jsonkit.Type("string")}
	schemaUUID       = described(jsonkit.Schema{jsonkit.Type("string")}, "A UUID.")
	schemaName       = jsonkit.Schema{jsonkit.Type("string"), jsonkit.MinLength(1), jsonkit.MaxLength(wire.MaxName)}
	schemaGeneration = described(jsonkit.Schema{jsonkit.Type("integer")}, "The generation of the resource provider.")
	schemaCount      = jsonkit.Schema{jsonkit.Type("integer"), jsonkit.Minimum(0)}
	schemaSymbol     = jsonkit.Schema{jsonkit.Type("string"), jsonkit.Pattern(patternSymbol)}
	schemaLinks      = list(jsonkit.ClosedObject(members("rel", schemaText, "href", schemaText), "rel", "href"))
	schemaAmounts    = jsonkit.Schema{jsonkit.Type("object"), jsonkit.PatternProperties(patternSymbol, schemaCount)}
)

// schemasOf are those of parameters of a query, by name; all others are any text.
var schemasOf = map[string]jsonkit.Schema{
	"uuid": schemaUUID, "in_tree": schemaUUID,
	"limit":        {jsonkit.Type("integer"), jsonkit.Minimum(1)},
	"group_policy": {jsonkit.Type("string"), jsonkit.Enum("none", "isolate")},
	"associated":   {jsonkit.Type("string"), jsonkit.Pattern("^(?i:true|false)$")},
	"project_id":   schemaName, "user_id": schemaName, "consumer_type": schemaName,
}

// How schemas are made.
var (
	described = jsonkit.Schema.Described
	list      = apidoc.List
	orNull    = apidoc.OrNull
	members   = apidoc.Members
	whole     = apidoc.Whole
	always    = apidoc.Always
)

// bodyAt is a body by microversion.
func bodyAt(schema func(wire.Version) jsonkit.Schema) apidoc.Body {
	return func(minor int) jsonkit.Schema { return schema(wire.Version(minor)) }
}

func errorSchema(v wire.Version) jsonkit.Schema {
	item := members("status", jsonkit.Schema{jsonkit.Type("integer")}, "title", schemaText,
		"detail", described(schemaText, "What is wrong."))
	names := []string{"status", "title", "detail"}
	if v.Has(wire.ErrorCodes) {
		item = append(item, members(
			"code", described(schemaText, "A code that clients can compare."),
			"not_admitted", described(list(schemaSymbol), "Of "+string(wire.CodeHostCapacity)+
				": the classes and kinds of traits that a person has to admit, at most 20."),
		)...)
	}
	item = append(item, members(
		"request_id", described(schemaText, "The id of the request in the server's log."),
		"max_version", described(schemaText, "Of 406: the highest microversion."),
		"min_version", described(schemaText, "Of 406: the lowest microversion."),
	)...)
	return whole(members("errors", list(jsonkit.ClosedObject(item, names...))))
}

var versionsSchema = whole(members("versions", list(whole(members(
	"id", schemaText, "max_version", schemaText, "min_version", schemaText,
	"status", schemaText, "links", schemaLinks)))))

func providerSchema(v wire.Version) jsonkit.Schema {
	p := members("uuid", schemaUUID, "name", schemaText, "generation", schemaGeneration, "links", schemaLinks)
	if v.Has(wire.NestedProviders) {
		p = append(p, members("parent_provider_uuid", described(orNull("string"), "The parent; null for a root."),
			"root_provider_uuid", schemaUUID)...)
	}
	return whole(p)
}

func providersSchema(v wire.Version) jsonkit.Schema {
	return whole(members("resource_providers", list(providerSchema(v))))
}

var providerName = jsonkit.Schema{jsonkit.Type("string"), jsonkit.MinLength(1), jsonkit.MaxLength(wire.MaxProviderName)}

func providerCreateSchema(v wire.Version) jsonkit.Schema {
	p := members("name", providerName, "uuid", described(schemaUUID, "The server chooses one without it."))
	if v.Has(wire.NestedProviders) {
		p = append(p, members("parent_provider_uuid", described(orNull("string"),
			"The parent; null or nothing makes a root."))...)
	}
	return jsonkit.ClosedObject(p, "name")
}

func providerUpdateSchema(v wire.Version) jsonkit.Schema {
	p := members("name", providerName)
	if v.Has(wire.NestedProviders) {
		p = append(p, members("parent_provider_uuid", described(orNull("string"),
			"The parent. It stays without this member; until 1.36 it can only be given to a root."))...)
	}
	return jsonkit.ClosedObject(p, "name")
}

// inventoryMembers are what an inventory has; written ones have bounds.
func inventoryMembers(written bool) jsonkit.Properties {
	unit := func(minimum float64) jsonkit.Schema {
		if !written {
			return jsonkit.Schema{jsonkit.Type("integer")}
		}
		return jsonkit.Schema{jsonkit.Type("integer"), jsonkit.Minimum(minimum), jsonkit.Maximum(providertree.MaxUnit)}
	}
	ratio := jsonkit.Schema{jsonkit.Type("number")}
	if written {
		ratio = append(ratio, jsonkit.Maximum(providertree.MaxRatio))
	}
	return members(
		"total", described(unit(1), "How much there is."),
		"reserved", described(unit(0),
			"How much of it is not for consumers; 0 by default. All of it can be from 1.26 on."),
		"min_unit", described(unit(1), "The smallest amount of one allocation; 1 by default."),
		"max_unit", described(unit(1), "The largest amount of one allocation; 2147483647 by default."),
		"step_size", described(unit(1), "Amounts are multiples of it; 1 by default."),
		"allocation_ratio", described(ratio, "(total - reserved) times this can be allocated; 1.0 by default."),
	)
}

var (
	generationMember = members("resource_provider_generation", schemaGeneration)
	inventorySchema  = whole(append(inventoryMembers(false), generationMember...))
	inventorySet     = jsonkit.ClosedObject(append(inventoryMembers(true), generationMember...), "total",
		"resource_provider_generation")
	inventoryCreate = jsonkit.ClosedObject(
		append(append(inventoryMembers(true), generationMember...), members("resource_class", schemaSymbol)...),
		"total", "resource_class")
	inventoriesSchema = whole(append(members(
		"inventories", jsonkit.Schema{jsonkit.Type("object"),
			jsonkit.PatternProperties(patternSymbol, whole(inventoryMembers(false)))}), generationMember...))
	inventoriesSet = whole(
		append(members("inventories", jsonkit.Schema{jsonkit.Type("object"), jsonkit.PatternProperties(
			".*", jsonkit.ClosedObject(append(inventoryMembers(true), generationMember...), "total"))}),
			generationMember...))

	providerUsagesSchema = whole(append(members("usages", schemaAmounts), generationMember...))
	providerTraitsSchema = whole(append(members("traits", list(schemaText)), generationMember...))
	providerTraitsSet    = whole(append(members("traits", list(schemaName)), generationMember...))
	traitsSchema         = whole(members("traits", list(schemaText)))
	classSchema          = whole(members("name", schemaText, "links", schemaLinks))
	classesSchema        = whole(members("resource_classes", list(classSchema)))
	classCreate          = whole(
		members("name", jsonkit.Schema{jsonkit.Type("string"), jsonkit.MaxLength(wire.MaxName),
			jsonkit.Pattern(patternCustom)}))
)

func aggregatesSchema(v wire.Version) jsonkit.Schema {
	p := members("aggregates", list(schemaUUID))
	if v.Has(wire.AggregateGenerations) {
		p = append(p, generationMember...)
	}
	return whole(p)
}

func aggregatesSet(v wire.Version) jsonkit.Schema {
	set := append(list(schemaUUID), jsonkit.UniqueItems())
	if !v.Has(wire.AggregateGenerations) {
		return set
	}
	return whole(append(members("aggregates", set), generationMember...))
}

func providerAllocationsSchema(v wire.Version) jsonkit.Schema {
	held := members("resources", schemaAmounts)
	if v.Has(wire.ConsumerGenerations) {
		held = append(held, members("consumer_generation", jsonkit.Schema{jsonkit.Type("integer")})...)
	}
	return whole(append(members(
		"allocations", described(jsonkit.Schema{jsonkit.Type("object"),
			jsonkit.PatternProperties(patternUUID, whole(held))}, "By consumer."),
	), generationMember...))
}

func allocationsSchema(v wire.Version) jsonkit.Schema {
	p := members("allocations", described(jsonkit.Schema{jsonkit.Type("object"), jsonkit.PatternProperties(patternUUID,
		whole(members("resources", schemaAmounts,
			"generation", described(orNull("integer"), "The generation of the resource provider."))))},
		"By resource provider. {}, and no other member, for an unknown consumer."))
	if v.Has(wire.AllocationsByUUID) {
		p = append(p, members("project_id", schemaText, "user_id", schemaText)...)
	}
	if v.Has(wire.ConsumerGenerations) {
		p = append(p, members("consumer_generation", jsonkit.Schema{jsonkit.Type("integer")})...)
	}
	if v.Has(wire.ConsumerTypes) {
		p = append(p, members("consumer_type", schemaText)...)
	}
	return jsonkit.ClosedObject(p, "allocations")
}

// amountsSet are the resources of an allocation that is written.
var amountsSet = jsonkit.Schema{jsonkit.Type("object"), jsonkit.MinProperties(1),
	jsonkit.PatternProperties(patternSymbol, jsonkit.Schema{jsonkit.Type("integer"), jsonkit.Minimum(1)})}

// heldSet is what is written of one provider.
var heldSet = members("resources", amountsSet,
	"generation", described(jsonkit.Schema{jsonkit.Type("integer")}, "Not used."))

// allocationsBy is the member allocations of a body: by provider, or a list before 1.12. From 1.12
// on, held are the members of each.
func allocationsBy(v wire.Version, amounts jsonkit.Schema, held jsonkit.Properties, emptied bool) jsonkit.Schema {
	if !v.Has(wire.AllocationsByUUID) {
		s := list(whole(members("resource_provider", whole(members("uuid", schemaUUID)), "resources", amounts)))
		if !emptied {
			s = append(s, jsonkit.MinItems(1))
		}
		return s
	}
	s := jsonkit.Schema{jsonkit.Type("object"),
		jsonkit.PatternProperties(patternUUID, jsonkit.ClosedObject(held, "resources"))}
	if !emptied {
		s = append(s, jsonkit.MinProperties(1))
	}
	return described(s, "By resource provider.")
}

var mappingsSet = jsonkit.Schema{
	jsonkit.Type("object"),
	jsonkit.MinProperties(1),
	jsonkit.Described("Which resource providers serve each request group. Only the form is checked."),
}

// consumerSet is what a consumer gets; emptied: it can be nothing.
func consumerSet(v wire.Version, emptied bool) jsonkit.Schema {
	p := members("allocations", allocationsBy(v, amountsSet, heldSet, emptied))
	if v.Has(wire.ProjectAndUser) {
		p = append(p, members("project_id", schemaName, "user_id", schemaName)...)
	}
	if v.Has(wire.ConsumerGenerations) {
		p = append(p, members("consumer_generation", described(orNull("integer"), "null for a new consumer."))...)
	}
	if v.Has(wire.ConsumerTypes) {
		p = append(p, members("consumer_type", schemaSymbol)...)
	}
	names := make([]string, len(p))
	for i := range p {
		names[i] = p[i].Name
	}
	if v.Has(wire.Mappings) {
		p = append(p, members("mappings", mappingsSet)...)
	}
	return jsonkit.ClosedObject(p, names...)
}

func allocationsPut(v wire.Version) jsonkit.Schema {
	return consumerSet(v, v.Has(wire.ConsumerGenerations))
}

func allocationsPost(v wire.Version) jsonkit.Schema {
	return described(jsonkit.Schema{jsonkit.Type("object"),
		jsonkit.MinProperties(1), jsonkit.PatternProperties(patternUUID, consumerSet(v, true))}, "By consumer.")
}

func reshapeSchema(v wire.Version) jsonkit.Schema {
	return whole(members(
		"inventories", described(jsonkit.Schema{jsonkit.Type("object"), jsonkit.MinProperties(1),
			jsonkit.PatternProperties(patternUUID, inventoriesSet)}, "By resource provider."),
		"allocations", described(jsonkit.Schema{jsonkit.Type("object"),
			jsonkit.PatternProperties(patternUUID, consumerSet(v, true))}, "By consumer."),
	))
}

func usagesSchema(v wire.Version) jsonkit.Schema {
	if !v.Has(wire.ConsumerTypes) {
		return whole(members("usages", schemaAmounts))
	}
	counted := jsonkit.Schema{jsonkit.Type("object"),
		jsonkit.PatternProperties("^(consumer_count|[A-Z0-9_]{1,255})$", schemaCount)}
	return whole(members(
		"usages", described(jsonkit.Schema{jsonkit.Type("object"),
			jsonkit.PatternProperties("^(all|unknown|[A-Z0-9_]{1,255})$", counted)},
			"By consumer type; consumer_count is among the classes.")))
}

func candidatesSchema(v wire.Version) jsonkit.Schema {
	allocations := allocationsBy(v, schemaAmounts, members("resources", schemaAmounts), true)
	request := members("allocations", allocations)
	if v.Has(wire.Mappings) {
		request = append(request,
			members("mappings", described(
				jsonkit.Schema{jsonkit.Type("object"), jsonkit.PatternProperties(patternSuffix, list(schemaUUID))},
				"The resource providers that serve each request group, by suffix."))...)
	}
	capacity := whole(members("capacity", jsonkit.Schema{jsonkit.Type("integer")}, "used", schemaCount))
	summary := members("resources", jsonkit.Schema{jsonkit.Type("object"),
		jsonkit.PatternProperties(patternSymbol, capacity)})
	if v.Has(wire.CandidatesRequired) {
		summary = append(summary, members("traits", list(schemaText))...)
	}
	if v.Has(wire.NestedCandidates) {
		summary = append(summary,
			members("parent_provider_uuid", orNull("string"), "root_provider_uuid", schemaUUID)...)
	}
	return whole(members(
		"allocation_requests", list(whole(request)),
		"provider_summaries",
		described(jsonkit.Schema{jsonkit.Type("object"), jsonkit.PatternProperties(patternUUID, whole(summary))},
			"By resource provider."),
	))
}

var explanationSchema = func() jsonkit.Schema {
	step := members("kind", schemaText, "condition", schemaText, "removed", schemaCount, "trees", schemaCount)
	provider := append(slices.Clone(step), members("providers", schemaCount, "note", schemaText)...)
	group := members("suffix", schemaText, "resources", schemaAmounts,
		"steps", list(jsonkit.ClosedObject(provider, "kind", "condition", "removed", "trees", "providers")))
	boolean := jsonkit.Schema{jsonkit.Type("boolean")}
	return jsonkit.ClosedObject(members(
		"verdict", described(schemaText, "The answer in a sentence or two."),
		"candidates", schemaCount, "more_candidates", boolean,
		"incomplete", described(boolean, "Not all trees were evaluated."),
		"groups", described(jsonkit.Schema{jsonkit.Type("array", "null"),
			jsonkit.Items(jsonkit.ClosedObject(group, "suffix", "steps"))}, "What each condition leaves, by group."),
		"trees", described(jsonkit.Schema{jsonkit.Type("array", "null"), jsonkit.Items(whole(step))},
			"What the whole request leaves."),
		"hosts", described(list(jsonkit.Schema{jsonkit.Type("object")}), "Hosts with NUMA cells that come nearest."),
	), "verdict", "candidates", "more_candidates", "incomplete", "groups", "trees")
}()

// What hosts may report.
var (
	schemaTraitKinds = described(list(schemaSymbol), "The first two words of traits, such as HW_GPU.")
	admissionSchema  = jsonkit.ClosedObject(members(
		"host", schemaText,
		"since", described(orNull("string"), "When it began to report; null if it has not, or if that is not known."),
		"until", described(orNull("string"), "Until when all that it reports is admitted; null if that has ended."),
		"classes", described(schemaAmounts,
			"Amounts by resource class: total times allocation_ratio, of all its trees."),
		"factor", described(schemaCount, "How many times as much it may report; 0: any amount."),
		"traits", schemaTraitKinds,
	), "host", "since", "until", "classes", "factor", "traits")
	admissionChange = jsonkit.ClosedObject(members(
		"classes", described(schemaAmounts, "Amounts that replace those of these classes."),
		"traits", described(list(schemaSymbol), "Traits that are admitted, with all of their kind."),
		"window", described(jsonkit.Schema{jsonkit.Type("boolean")},
			"Admit all that it reports from now on, as when it came."),
	))
)

// bodyBefore is a body that calls have until a feature came.
func bodyBefore(f wire.Feature, s jsonkit.Schema) apidoc.Body {
	return bodyAt(func(v wire.Version) jsonkit.Schema {
		if v.Has(f) {
			return nil
		}
		return s
	})
}
