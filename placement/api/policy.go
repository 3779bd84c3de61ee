// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"maps"
	"strings"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/osapi/oslopolicy"
	"github.com/compute-agent/compute-agent/placement/api/hostpolicy"
)

// Action is an action that a policy decides on, by its name in Placement's policies.
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
	ListCandidates           Action = "placement:allocation_candidates:list"
	ShowUsages               Action = "placement:usages"
	ReshapeProviders         Action = "placement:reshaper:reshape"
)

// The actions of users about hosts. OpenStack's Placement has none of them.
const (
	ShowAdmission   Action = "placement:host_admissions:show"
	UpdateAdmission Action = "placement:host_admissions:update"
)

// Defaults selects one of the sets of rules of Placement's releases.
type Defaults string

// The sets of rules.
const (
	// Secure are only Placement's new defaults.
	Secure Defaults = "secure"
	// Legacy also allows the role admin everything, for deployments that have not migrated yet.
	Legacy Defaults = "legacy"
	// Open allows everything to all callers. It is for tests.
	Open Defaults = "open"
)

// baseRules are the rules that the rules of actions refer to, as in Placement from release 10 on;
// the last three are older ones, which old policy files refer to.
var baseRules = map[string]string{
	"admin_api":                              "role:admin",
	"service_api":                            "role:service",
	"admin_or_service_api":                   "role:admin or role:service",
	"project_reader_api":                     "role:reader and project_id:%(project_id)s",
	"admin_or_project_reader_or_service_api": "role:admin or rule:project_reader_api or role:service",

	"system_admin_api":         "role:admin and system_scope:all",
	"system_reader_api":        "role:reader and system_scope:all",
	"system_or_project_reader": "rule:system_reader_api or rule:project_reader_api",
}

// actionRules are the rules of actions. The default is admin_or_service_api.
var actionRules = map[Action]string{
	ReshapeProviders: "rule:service_api",
	ShowUsages:       "rule:admin_or_project_reader_or_service_api",
}

// actions are all actions.
var actions = []Action{
	ListProviders, CreateProvider, ShowProvider, UpdateProvider, DeleteProvider,
	ListInventories, CreateInventory, ShowInventory, UpdateInventory, DeleteInventory,
	ListProviderAggregates, UpdateProviderAggregates, ListProviderTraits, UpdateProviderTraits, DeleteProviderTraits,
	ShowProviderUsages, ListProviderAllocations,
	ListClasses, CreateClass, ShowClass, UpdateClass, DeleteClass,
	ListTraits, ShowTrait, UpdateTrait, DeleteTrait,
	ManageAllocations, ListAllocations, UpdateAllocations, DeleteAllocations,
	ListCandidates, ShowUsages, ReshapeProviders,
	ShowAdmission, UpdateAdmission,
}

// defaultRules are the rules of a set, by name.
func defaultRules(defaults Defaults) (map[string]string, error) {
	texts := maps.Clone(baseRules)
	for _, action := range actions {
		texts[string(action)] = "rule:admin_or_service_api"
	}
	for action, text := range actionRules {
		texts[string(action)] = text
	}
	for action, text := range hostpolicy.DefaultRules() {
		texts[string(action)] = text
	}
	switch defaults {
	case Secure, "":
	case Legacy:
		// As oslo.policy treats a deprecated rule: the old one applies as well.
		for _, name := range []string{"service_api", "project_reader_api", "system_admin_api", "system_reader_api",
			"system_or_project_reader"} {
			texts[name] = "role:admin or (" + texts[name] + ")"
		}
	case Open:
		for _, action := range actions {
			texts[string(action)] = "@"
		}
	default:
		return nil, fmt.Errorf("policy defaults %q are not known; they are %s, %s or %s",
			defaults, Secure, Legacy, Open)
	}
	return texts, nil
}

// Policy decides who is allowed to do what. The zero Policy is Secure. Requests with a token for
// the system or a domain are always refused: all of Placement's policies are for projects, and it
// enforces scopes (enforce_scope).
type Policy struct {
	rules *ruleSet
	file  *files.Reloaded[*ruleSet] // overrides rules
}

// ruleSet are the rules in effect, and those with the defaults Legacy; nil if the defaults are
// Legacy or Open.
type ruleSet struct{ rules, legacy *oslopolicy.Rules }

// newRuleSet compiles a set of rules, with those of a policy file over them.
func newRuleSet(defaults Defaults, file []byte) (*ruleSet, error) {
	rules, err := overlaid(defaults, file)
	if err != nil {
		return nil, err
	}
	if defaults != Secure && defaults != "" {
		return &ruleSet{rules: rules}, nil
	}
	legacy, err := overlaid(Legacy, file)
	if err != nil {
		return nil, err
	}
	return &ruleSet{rules, legacy}, nil
}

// secure are the rules of the zero Policy.
var secure = func() *ruleSet {
	rules, err := newRuleSet(Secure, nil)
	if err != nil {
		panic(err)
	}
	return rules
}()

// NewPolicy makes a Policy of one of the sets of rules; "" is Secure.
func NewPolicy(defaults Defaults) (Policy, error) {
	rules, err := newRuleSet(defaults, nil)
	if err != nil {
		return Policy{}, err
	}
	return Policy{rules: rules}, nil
}

// OpenPolicy makes a Policy of a set of rules and a file in the format of oslo.policy's
// policy.yaml, which overrides them. The file can have Placement's rules, and rules that others
// refer to; any other name is an error, because it would have no effect.
//
// The file is checked for changes when requests come, at most once a second, and reloaded. If the
// new rules are invalid, the old ones stay in effect and the error is logged.
func OpenPolicy(defaults Defaults, path string, log zerolog.Logger) (Policy, error) {
	if _, err := defaultRules(defaults); err != nil {
		return Policy{}, err
	}
	file, err := oslopolicy.Open(path, log, func(file []byte) (*ruleSet, error) { return newRuleSet(defaults, file) })
	if err != nil {
		return Policy{}, err
	}
	return Policy{file: file}, nil
}

// overlaid are the rules of a set, overridden by those of a file.
func overlaid(defaults Defaults, file []byte) (*oslopolicy.Rules, error) {
	texts, err := defaultRules(defaults)
	if err != nil {
		return nil, err
	}
	rules, _, err := oslopolicy.Overlay{
		API: "Placement", Rules: texts,
		Reserved: func(name string) bool { return strings.HasPrefix(name, "placement:") },
	}.Compile(file)
	return rules, err
}

// Allows reports whether the principal is allowed to do the action. project is the project of the
// request's target, "" for none; only ShowUsages has one, the target of all other actions is the
// principal's own project and user. A host has the actions of hosts and no others, and users have
// none of these. Cost: some 50 ns.
func (p Policy) Allows(action Action, who *osapi.Principal, project string) bool {
	return allows(p.current().rules, action, who, project)
}

// LegacyAllows reports whether the Policy would allow the action with the defaults Legacy, if it
// has others.
func (p Policy) LegacyAllows(action Action, who *osapi.Principal, project string) bool {
	legacy := p.current().legacy
	return legacy != nil && allows(legacy, action, who, project)
}

func (p Policy) current() *ruleSet {
	switch {
	case p.file != nil:
		return p.file.Get()
	case p.rules == nil:
		return secure
	}
	return p.rules
}

func allows(rules *oslopolicy.Rules, action Action, who *osapi.Principal, project string) bool {
	if hostpolicy.IsAction(string(action)) != (who.Host != nil) {
		return false
	}
	target := oslopolicy.Target{Project: who.Project, User: who.User}
	if action == ShowUsages {
		target = oslopolicy.Target{Project: project}
	}
	return rules.Allows(string(action), who, target)
}
