// SPDX-License-Identifier: Apache-2.0

package api

import "fmt"

// Action is what a policy allows or not, by the name that Placement's policies have.
type Action string

// The actions of the API.
const (
	ListProviders            Action = "placement:resource_providers:list"
	CreateProvider           Action = "placement:resource_providers:create"
	ShowProvider             Action = "placement:resource_providers:show"
	UpdateProvider           Action = "placement:resource_providers:update"
	DeleteProvider           Action = "placement:resource_providers:delete"
	ListInventories          Action = "placement:resource_providers:inventories:list"
	CreateInventory          Action = "placement:resource_providers:inventories:create"
	ShowInventory            Action = "placement:resource_providers:inventories:show"
	UpdateInventory          Action = "placement:resource_providers:inventories:update"
	DeleteInventory          Action = "placement:resource_providers:inventories:delete"
	ListProviderAggregates   Action = "placement:resource_providers:aggregates:list"
	UpdateProviderAggregates Action = "placement:resource_providers:aggregates:update"
	ListProviderTraits       Action = "placement:resource_providers:traits:list"
	UpdateProviderTraits     Action = "placement:resource_providers:traits:update"
	DeleteProviderTraits     Action = "placement:resource_providers:traits:delete"
	ShowProviderUsages       Action = "placement:resource_providers:usages"
	ListProviderAllocations  Action = "placement:resource_providers:allocations:list"
	ListClasses              Action = "placement:resource_classes:list"
	CreateClass              Action = "placement:resource_classes:create"
	ShowClass                Action = "placement:resource_classes:show"
	UpdateClass              Action = "placement:resource_classes:update"
	DeleteClass              Action = "placement:resource_classes:delete"
	ListTraits               Action = "placement:traits:list"
	ShowTrait                Action = "placement:traits:show"
	UpdateTrait              Action = "placement:traits:update"
	DeleteTrait              Action = "placement:traits:delete"
	ManageAllocations        Action = "placement:allocations:manage"
	ListAllocations          Action = "placement:allocations:list"
	UpdateAllocations        Action = "placement:allocations:update"
	DeleteAllocations        Action = "placement:allocations:delete"
	ShowUsages               Action = "placement:usages"
	ReshapeProviders         Action = "placement:reshaper:reshape"
)

// rule is who may do something. Rules are joined with |.
type rule uint8

const (
	service       rule = 1 << iota // the role service
	admin                          // the role admin
	projectReader                  // the role reader, of the project that the request is about
	anyone                         // whoever proved who they are
)

// ruleOf is the table of rules: who may do what by the defaults that Placement calls secure. What is not listed is for
// service and admin.
var ruleOf = map[Action]rule{
	ReshapeProviders: service,
	ShowUsages:       service | admin | projectReader,
}

// Defaults chooses between the sets of rules that Placement has known.
type Defaults string

// The sets of rules. In none of them may a system-scoped request do anything.
const (
	// Secure is the table above: Placement's new defaults alone.
	Secure Defaults = "secure"
	// Legacy lets the role admin do everything, beside the new defaults: the rules of deployments that have not moved yet.
	Legacy Defaults = "legacy"
	// Open lets everybody do everything. It is for tests.
	Open Defaults = "open"
)

// Policy decides who may do what. The zero Policy is Secure.
type Policy struct {
	more rule // given to every rule beside what the table says
}

// NewPolicy makes a Policy of one of the sets of rules; "" is Secure.
func NewPolicy(defaults Defaults) (Policy, error) {
	switch defaults {
	case Secure, "":
		return Policy{}, nil
	case Legacy:
		return Policy{more: admin}, nil
	case Open:
		return Policy{more: anyone}, nil
	}
	return Policy{}, fmt.Errorf("policy defaults %q are not known; they are %s, %s or %s", defaults, Secure, Legacy, Open)
}

// Allows says whether the principal may do the action. project is the project that the request is about, "" for none.
func (p Policy) Allows(action Action, who *Principal, project string) bool {
	if who.SystemScope {
		return false
	}
	r, listed := ruleOf[action]
	if !listed {
		r = service | admin
	}
	r |= p.more
	switch {
	case r&anyone != 0,
		r&admin != 0 && who.HasRole("admin"),
		r&service != 0 && who.HasRole("service"):
		return true
	}
	return r&projectReader != 0 && project != "" && who.Project == project && who.HasRole("reader")
}
