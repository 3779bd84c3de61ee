// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"

	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/openapi/apidoc"
)

// ok is an answer of 200.
func ok(text string, body apidoc.Body) []apidoc.Answer {
	return []apidoc.Answer{{Status: http.StatusOK, Text: text, Body: body}}
}

// done is an answer without a body.
func done(text string) []apidoc.Answer {
	return []apidoc.Answer{{Status: http.StatusNoContent, Text: text}}
}

// queryFailures are the errors of GET /allocation_candidates that have codes of their own.
var queryFailures = []apidoc.Failure{
	{Status: http.StatusBadRequest, Code: string(wire.CodeDuplicateQueryKey),
		Reason: "root_required is given more than once."},
	{
		Status: http.StatusBadRequest,
		Code:   string(wire.CodeBadQueryValue),
		Reason: "The value has the right form and cannot be: same_subtree or isolate names no group, or a trait is " +
			"both required and forbidden.",
	},
	{Status: http.StatusBadRequest, Code: string(wire.CodeMissingQueryValue),
		Reason: "No group has resources (from 1.36 on)."},
}

// noSuch are the errors of calls that read what belongs to a provider.
var noSuch = []ledger.Kind{ledger.ProviderNotFound}

// reasons are the default reasons by kind of error.
var reasons = map[ledger.Kind]string{
	ledger.ProviderNotFound:   "There is no such resource provider.",
	ledger.ParentNotFound:     "There is no such parent.",
	ledger.ClassNotFound:      "There is no such resource class.",
	ledger.TraitNotFound:      "There is no such trait.",
	ledger.ConsumerNotFound:   "There is no such consumer.",
	ledger.InventoryNotFound:  "The resource provider has no inventory of the class.",
	ledger.AllocationNotFound: "The consumer has no allocations.",
	ledger.DuplicateName:      "The name is taken.",
	ledger.DuplicateUUID:      "The UUID is taken.",
	ledger.DuplicateConsumer:  "A consumer is there twice.",
	ledger.ProviderInUse:      "The resource provider has allocations.",
	ledger.CannotDeleteParent: "The resource provider has children.",
	ledger.InventoryInUse:     "The inventory has allocations.",
	ledger.InventoryExists:    "The resource provider has an inventory of the class.",
	ledger.InvalidInventory:   "The inventory is invalid, or all of it is reserved (before 1.26).",
	ledger.InvalidAllocation:  "The amount is larger than any max_unit.",
	ledger.InvalidName:        "The name is invalid.",
	ledger.InvalidParent: "The parent is in the tree below the resource provider, " +
		"or cannot be changed before 1.37.",
	ledger.GenerationConflict:         "The generation of a resource provider is not the current one: read again.",
	ledger.ConsumerGenerationConflict: "The generation of a consumer is not the current one: read again.",
	ledger.CapacityExceeded:           "A resource provider has less capacity.",
	ledger.AllocationConstraint:       "The amount breaks min_unit, max_unit or step_size.",
	ledger.ClassInUse:                 "The resource class is in use.",
	ledger.TraitInUse:                 "The trait is in use.",
	ledger.StandardClass:              "Standard resource classes cannot be changed.",
	ledger.StandardTrait:              "Standard traits cannot be deleted.",
}

// allocationKinds are the errors of the calls that write allocations.
var allocationKinds = []ledger.Kind{
	ledger.ProviderNotFound, ledger.ClassNotFound,
	ledger.ConsumerNotFound, ledger.InventoryNotFound, ledger.InvalidAllocation,
	ledger.CapacityExceeded, ledger.AllocationConstraint,
	ledger.GenerationConflict, ledger.ConsumerGenerationConflict, ledger.DuplicateConsumer,
}

const (
	noteCandidates = "The header `Placement-Extensions` brings more: see " +
		"[placement-extensions.md](placement-extensions.md). At most 100,000 candidates or 128 MiB are given, " +
		"of a search that ends after some seconds of work."
	noteExplain = "OpenStack's Placement has no such call. It takes the query of `GET /allocation_candidates`; " +
		"`limit` bounds how many candidates are counted. " +
		"Unknown traits and classes are explained, not refused."
	noteAdmission = "OpenStack's Placement has no hosts. A host whose agent has its own credential reports what it " +
		"had when it came, times `[placement] host_capacity_factor`, or what this call states: see " +
		"[identity.md](identity.md#how-much-a-host-may-report)."
	noteEmptyName = "An empty name is refused; OpenStack's Placement takes it."
)

// unknownHost is the error about a host of which nothing is noted.
var unknownHost = apidoc.Failure{
	Status: http.StatusNotFound, Code: string(wire.CodeUndefined),
	Reason: "No host of that name has reported anything, and nothing is stated of it.",
}

// noHostName is the error about a name that no host can have.
var noHostName = apidoc.Failure{Status: http.StatusBadRequest, Code: string(wire.CodeUndefined),
	Reason: "That is no name of a host."}

var (
	aboutShowVersions = about{summary: "Shows the microversions of the API",
		answers: ok("The microversions.", always(versionsSchema))}

	aboutListProviders = about{
		summary: "Lists resource providers that meet all parameters", query: wire.ProviderParameters(),
		answers: ok("The resource providers.", bodyAt(providersSchema)),
	}
	aboutCreateProvider = about{
		summary: "Creates a resource provider", body: bodyAt(providerCreateSchema),
		answers: []apidoc.Answer{
			{Status: http.StatusCreated, Versions: apidoc.Versions{Until: int(wire.ProviderInPostReply) - 1},
				Text: "Created; Location is its URL."},
			{Status: http.StatusOK, Versions: apidoc.Versions{Since: int(wire.ProviderInPostReply)},
				Text: "Created; Location is its URL.", Body: bodyAt(providerSchema)},
		},
		kinds: []ledger.Kind{ledger.DuplicateName, ledger.DuplicateUUID, ledger.ParentNotFound,
			ledger.InvalidParent, ledger.InvalidName},
	}
	aboutShowProvider = about{summary: "Shows a resource provider",
		answers: ok("The resource provider.", bodyAt(providerSchema)), kinds: noSuch}
	aboutUpdateProvider = about{
		summary: "Renames a resource provider, or moves it in its tree", notes: []string{noteEmptyName},
		body:    bodyAt(providerUpdateSchema),
		answers: ok("The resource provider as it is now.", bodyAt(providerSchema)),
		kinds: []ledger.Kind{ledger.ProviderNotFound, ledger.DuplicateName, ledger.ParentNotFound,
			ledger.InvalidParent, ledger.InvalidName},
	}
	aboutDeleteProvider = about{
		summary: "Deletes a resource provider, its inventories, traits and aggregates", answers: done("Deleted."),
		kinds: []ledger.Kind{ledger.ProviderNotFound, ledger.ProviderInUse, ledger.CannotDeleteParent},
	}

	aboutListInventories = about{summary: "Lists the inventories of a resource provider",
		answers: ok("The inventories by class.", always(inventoriesSchema)), kinds: noSuch}
	aboutCreateInventory = about{
		summary: "Adds an inventory to a resource provider", body: always(inventoryCreate),
		notes: []string{"`resource_provider_generation` can be there and is not looked at."},
		answers: []apidoc.Answer{{Status: http.StatusCreated, Text: "Added; Location is its URL.",
			Body: always(inventorySchema)}},
		kinds: []ledger.Kind{ledger.ProviderNotFound, ledger.ClassNotFound, ledger.InventoryExists,
			ledger.InvalidInventory}, own: unknownClassRefusals,
	}
	aboutSetInventories = about{
		summary: "Replaces all inventories of a resource provider", body: always(inventoriesSet),
		answers: ok("The inventories as they are now.", always(inventoriesSchema)),
		kinds: []ledger.Kind{ledger.ProviderNotFound, ledger.ClassNotFound, ledger.GenerationConflict,
			ledger.InventoryInUse, ledger.InvalidInventory},
		own: unknownClassRefusals,
	}
	aboutDeleteInventories = about{
		summary: "Deletes all inventories of a resource provider", answers: done("Deleted."),
		kinds: []ledger.Kind{ledger.ProviderNotFound, ledger.InventoryInUse},
	}
	aboutShowInventory = about{
		summary: "Shows an inventory", answers: ok("The inventory.", always(inventorySchema)),
		kinds: []ledger.Kind{ledger.ProviderNotFound, ledger.InventoryNotFound},
	}
	aboutSetInventory = about{
		summary: "Replaces an inventory", body: always(inventorySet),
		answers: ok("The inventory as it is now.", always(inventorySchema)),
		kinds: []ledger.Kind{ledger.ProviderNotFound, ledger.ClassNotFound, ledger.InventoryNotFound,
			ledger.GenerationConflict, ledger.InvalidInventory},
		own: setInventoryRefusals,
	}
	aboutDeleteInventory = about{
		summary: "Deletes an inventory", answers: done("Deleted."),
		kinds: []ledger.Kind{ledger.ProviderNotFound, ledger.ClassNotFound, ledger.InventoryNotFound,
			ledger.InventoryInUse}, own: deleteInventoryRefusals,
	}

	aboutShowProviderUsages = about{summary: "Shows how much of each inventory is allocated",
		answers: ok("The usages by class.", always(providerUsagesSchema)), kinds: noSuch}

	aboutListAggregates = about{summary: "Lists the aggregates of a resource provider",
		answers: ok("The aggregates.", bodyAt(aggregatesSchema)), kinds: noSuch}
	aboutSetAggregates = about{
		summary: "Replaces the aggregates of a resource provider", body: bodyAt(aggregatesSet),
		answers: ok("The aggregates as they are now.", bodyAt(aggregatesSchema)),
		kinds:   []ledger.Kind{ledger.ProviderNotFound, ledger.GenerationConflict},
	}

	aboutListProviderTraits = about{summary: "Lists the traits of a resource provider",
		answers: ok("The traits.", always(providerTraitsSchema)), kinds: noSuch}
	aboutSetProviderTraits = about{
		summary: "Replaces the traits of a resource provider", body: always(providerTraitsSet),
		answers: ok("The traits as they are now.", always(providerTraitsSchema)),
		kinds:   []ledger.Kind{ledger.ProviderNotFound, ledger.TraitNotFound, ledger.GenerationConflict},
		own:     unknownTraitRefusals,
	}
	aboutDeleteProviderTraits = about{summary: "Takes all traits from a resource provider",
		answers: done("Done."), kinds: noSuch}

	aboutListProviderAllocations = about{
		summary: "Lists what consumers have of a resource provider",
		answers: ok("The allocations by consumer.", bodyAt(providerAllocationsSchema)), kinds: noSuch,
	}

	aboutListClasses = about{summary: "Lists all resource classes",
		answers: ok("The resource classes.", always(classesSchema))}
	aboutCreateClass = about{
		summary: "Creates a custom resource class", body: always(classCreate),
		answers: []apidoc.Answer{{Status: http.StatusCreated, Text: "Created; Location is its URL."}},
		failures: []apidoc.Failure{{Status: http.StatusConflict, Code: string(wire.CodeUndefined),
			Reason: "The resource class exists."}},
	}
	aboutShowClass = about{summary: "Shows a resource class", answers: ok("The resource class.", always(classSchema)),
		kinds: []ledger.Kind{ledger.ClassNotFound}}
	aboutPutClass = about{
		summary: "Creates or finds a custom resource class; before 1.7, renames it",
		checks:  UpdateClass,
		body:    bodyBefore(wire.BodilessClassPut, classCreate),
		answers: []apidoc.Answer{
			{Status: http.StatusOK, Versions: apidoc.Versions{Until: int(wire.BodilessClassPut) - 1},
				Text: "Renamed.", Body: always(classSchema)},
			{Status: http.StatusCreated, Versions: apidoc.Versions{Since: int(wire.BodilessClassPut)},
				Text: "Created; Location is its URL."},
			{Status: http.StatusNoContent, Versions: apidoc.Versions{Since: int(wire.BodilessClassPut)},
				Text: "It existed; Location is its URL."},
		},
		kinds: []ledger.Kind{ledger.ClassNotFound, ledger.StandardClass},
		failures: []apidoc.Failure{{Status: http.StatusConflict, Code: string(wire.CodeUndefined),
			Reason: "The new name is taken (before 1.7)."}},
	}
	aboutDeleteClass = about{
		summary: "Deletes a custom resource class", answers: done("Deleted."),
		kinds: []ledger.Kind{ledger.ClassNotFound, ledger.StandardClass, ledger.ClassInUse},
	}

	aboutListTraits = about{
		summary: "Lists traits", query: traitParameters, answers: ok("The traits.", always(traitsSchema)),
		notes: []string{"`name=startswith:` takes each character for itself; OpenStack's Placement takes `_` and " +
			"`%` for wildcards."},
	}
	aboutShowTrait = about{summary: "Says by its status whether a trait exists", answers: done("It exists."),
		kinds: []ledger.Kind{ledger.TraitNotFound}}
	aboutPutTrait = about{
		summary: "Creates or finds a custom trait",
		answers: []apidoc.Answer{{Status: http.StatusCreated, Text: "Created; Location is its URL."},
			{Status: http.StatusNoContent, Text: "It existed; Location is its URL."}},
	}
	aboutDeleteTrait = about{
		summary: "Deletes a custom trait", answers: done("Deleted."),
		kinds: []ledger.Kind{ledger.TraitNotFound, ledger.StandardTrait, ledger.TraitInUse},
	}

	aboutPostAllocations = about{
		summary: "Replaces the allocations of several consumers at once: all, or none",
		body:    bodyAt(allocationsPost), answers: done("Allocated."),
		kinds: allocationKinds, own: allocationRefusals,
	}
	aboutShowAllocations = about{summary: "Shows the allocations of a consumer; an unknown one has none",
		answers: ok("The allocations.", bodyAt(allocationsSchema))}
	aboutPutAllocations = about{
		summary: "Replaces the allocations of a consumer", body: bodyAt(allocationsPut), answers: done("Allocated."),
		notes: []string{"What is refused leaves nothing behind. OpenStack's Placement keeps the record of a new " +
			"consumer in some cases."},
		kinds: allocationKinds, own: allocationRefusals,
	}
	aboutDeleteAllocations = about{
		summary: "Deletes the allocations of a consumer",
		answers: done("Deleted."),
		kinds:   []ledger.Kind{ledger.AllocationNotFound, ledger.ConsumerNotFound},
	}

	aboutListCandidates = about{
		summary: "Finds resource providers that can serve a request", notes: []string{noteCandidates},
		query: candidates.URLParameters(),
		answers: ok("What to allocate in each case, and a summary of the resource providers.",
			bodyAt(candidatesSchema)),
		failures: queryFailures,
	}
	aboutExplainCandidates = about{
		summary: "Explains why a request has its candidates, few or none", notes: []string{noteExplain},
		query:   candidates.URLParameters(),
		answers: ok("What each condition leaves.", always(explanationSchema)), failures: queryFailures,
	}

	aboutShowAdmission = about{
		summary: "Shows what a host may report of itself", notes: []string{noteAdmission},
		answers:  ok("What it may report.", always(admissionSchema)),
		failures: []apidoc.Failure{noHostName, unknownHost},
	}
	aboutUpdateAdmission = about{
		summary: "States what a host may report of itself",
		notes:   []string{noteAdmission}, body: always(admissionChange),
		answers: ok("What it may report now.", always(admissionSchema)), failures: []apidoc.Failure{noHostName},
	}

	aboutShowUsages = about{checks: ShowUsages, summary: "Sums up what the consumers of a project have",
		query: usagesQuery(), answers: ok("The usages.", bodyAt(usagesSchema))}

	aboutReshape = about{
		summary: "Replaces inventories of resource providers and allocations of consumers at once: all, or none",
		body:    bodyAt(reshapeSchema), answers: done("Done."),
		kinds: append([]ledger.Kind{ledger.InventoryInUse, ledger.InvalidInventory}, allocationKinds...),
		own:   allocationRefusals,
		failures: []apidoc.Failure{{Status: http.StatusBadRequest, Code: string(wire.CodeProviderNotFound),
			Reason: "There is no such resource provider among the inventories."}},
	}
)

// abouts has all calls, by method and path.
var abouts = map[string]*about{
	"GET /":                                                 &aboutShowVersions,
	"GET /resource_providers":                               &aboutListProviders,
	"POST /resource_providers":                              &aboutCreateProvider,
	"GET /resource_providers/{uuid}":                        &aboutShowProvider,
	"DELETE /resource_providers/{uuid}":                     &aboutDeleteProvider,
	"PUT /resource_providers/{uuid}":                        &aboutUpdateProvider,
	"GET /resource_providers/{uuid}/inventories":            &aboutListInventories,
	"POST /resource_providers/{uuid}/inventories":           &aboutCreateInventory,
	"PUT /resource_providers/{uuid}/inventories":            &aboutSetInventories,
	"DELETE /resource_providers/{uuid}/inventories":         &aboutDeleteInventories,
	"GET /resource_providers/{uuid}/inventories/{class}":    &aboutShowInventory,
	"PUT /resource_providers/{uuid}/inventories/{class}":    &aboutSetInventory,
	"DELETE /resource_providers/{uuid}/inventories/{class}": &aboutDeleteInventory,
	"GET /resource_providers/{uuid}/usages":                 &aboutShowProviderUsages,
	"GET /resource_providers/{uuid}/aggregates":             &aboutListAggregates,
	"PUT /resource_providers/{uuid}/aggregates":             &aboutSetAggregates,
	"GET /resource_providers/{uuid}/traits":                 &aboutListProviderTraits,
	"PUT /resource_providers/{uuid}/traits":                 &aboutSetProviderTraits,
	"DELETE /resource_providers/{uuid}/traits":              &aboutDeleteProviderTraits,
	"GET /resource_providers/{uuid}/allocations":            &aboutListProviderAllocations,
	"GET /resource_classes":                                 &aboutListClasses,
	"POST /resource_classes":                                &aboutCreateClass,
	"GET /resource_classes/{name}":                          &aboutShowClass,
	"PUT /resource_classes/{name}":                          &aboutPutClass,
	"DELETE /resource_classes/{name}":                       &aboutDeleteClass,
	"GET /traits":                                           &aboutListTraits,
	"GET /traits/{name}":                                    &aboutShowTrait,
	"PUT /traits/{name}":                                    &aboutPutTrait,
	"DELETE /traits/{name}":                                 &aboutDeleteTrait,
	"POST /allocations":                                     &aboutPostAllocations,
	"GET /allocations/{consumer}":                           &aboutShowAllocations,
	"PUT /allocations/{consumer}":                           &aboutPutAllocations,
	"DELETE /allocations/{consumer}":                        &aboutDeleteAllocations,
	"GET /allocation_candidates":                            &aboutListCandidates,
	"GET /allocation_candidates/explain":                    &aboutExplainCandidates,
	"GET /hosts/{host}/admission":                           &aboutShowAdmission,
	"POST /hosts/{host}/admission":                          &aboutUpdateAdmission,
	"GET /usages":                                           &aboutShowUsages,
	"POST /reshaper":                                        &aboutReshape,
}
