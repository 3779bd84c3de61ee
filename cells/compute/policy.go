// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"maps"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/osapi/oslopolicy"
)

// Rule is what a policy allows or not, by the name that Nova's policies have.
// servers:create:cell_down is of the specification of cells that are down; no release of Nova has
// it.
type Rule string

// The rules that the API asks for.
const (
	ruleAdmin Rule = "context_is_admin"

	ruleServersIndex      Rule = "os_compute_api:servers:index"
	ruleServersIndexAll   Rule = "os_compute_api:servers:index:get_all_tenants"
	ruleServersDetail     Rule = "os_compute_api:servers:detail"
	ruleServersDetailAll  Rule = "os_compute_api:servers:detail:get_all_tenants"
	ruleServersAllFilters Rule = "os_compute_api:servers:allow_all_filters"
	ruleServersShow       Rule = "os_compute_api:servers:show"
	ruleShowExtraSpecs    Rule = "os_compute_api:servers:show:flavor-extra-specs"
	ruleShowHostStatus    Rule = "os_compute_api:servers:show:host_status"
	ruleShowHostUnknown   Rule = "os_compute_api:servers:show:host_status:unknown-only"
	ruleExtendedAttrs     Rule = "os_compute_api:os-extended-server-attributes"

	ruleServersCreate    Rule = "os_compute_api:servers:create"
	ruleCreateForcedHost Rule = "os_compute_api:servers:create:forced_host"
	ruleCreateZeroDisk   Rule = "os_compute_api:servers:create:zero_disk_flavor"
	ruleCreateCellDown   Rule = "os_compute_api:servers:create:cell_down"
	ruleServersDelete    Rule = "os_compute_api:servers:delete"
	ruleRestore          Rule = "os_compute_api:os-deferred-delete:restore"
	ruleForceDelete      Rule = "os_compute_api:os-deferred-delete:force"
	ruleServersUpdate    Rule = "os_compute_api:servers:update"
	ruleServersStart     Rule = "os_compute_api:servers:start"
	ruleServersStop      Rule = "os_compute_api:servers:stop"
	ruleServersReboot    Rule = "os_compute_api:servers:reboot"
	ruleServersRebuild   Rule = "os_compute_api:servers:rebuild"
	ruleServersConfirm   Rule = "os_compute_api:servers:confirm_resize"
	ruleServersRevert    Rule = "os_compute_api:servers:revert_resize"
	ruleEvacuate         Rule = "os_compute_api:os-evacuate"
	ruleMigrate          Rule = "os_compute_api:os-migrate-server:migrate"
	ruleMigrateToHost    Rule = "os_compute_api:os-migrate-server:migrate:host"

	ruleMigrationsIndex      Rule = "os_compute_api:os-migrations:index"
	ruleMigrationsIndexAll   Rule = "os_compute_api:os-migrations:index:all_projects"
	ruleMigrationsHosts      Rule = "os_compute_api:os-migrations:index:host"
	ruleServerMigrationsList Rule = "os_compute_api:servers:migrations:index"
	ruleServerMigrationsShow Rule = "os_compute_api:servers:migrations:show"
	ruleServerMigrationAbort Rule = "os_compute_api:servers:migrations:delete"
	ruleResetState           Rule = "os_compute_api:os-admin-actions:reset_state"
	ruleConsoleOutput        Rule = "os_compute_api:os-console-output"
	ruleRemoteConsoles       Rule = "os_compute_api:os-remote-consoles"

	ruleMetadataIndex     Rule = "os_compute_api:server-metadata:index"
	ruleMetadataShow      Rule = "os_compute_api:server-metadata:show"
	ruleMetadataCreate    Rule = "os_compute_api:server-metadata:create"
	ruleMetadataUpdateAll Rule = "os_compute_api:server-metadata:update_all"
	ruleMetadataUpdate    Rule = "os_compute_api:server-metadata:update"
	ruleMetadataDelete    Rule = "os_compute_api:server-metadata:delete"
	ruleActionsList       Rule = "os_compute_api:os-instance-actions:list"
	ruleActionsShow       Rule = "os_compute_api:os-instance-actions:show"
	ruleActionsEvents     Rule = "os_compute_api:os-instance-actions:events"
	ruleTagsIndex         Rule = "os_compute_api:os-server-tags:index"
	ruleTagsShow          Rule = "os_compute_api:os-server-tags:show"
	ruleTagsUpdateAll     Rule = "os_compute_api:os-server-tags:update_all"
	ruleTagsUpdate        Rule = "os_compute_api:os-server-tags:update"
	ruleTagsDeleteAll     Rule = "os_compute_api:os-server-tags:delete_all"
	ruleTagsDelete        Rule = "os_compute_api:os-server-tags:delete"

	ruleHypervisorsList       Rule = "os_compute_api:os-hypervisors:list"
	ruleHypervisorsDetail     Rule = "os_compute_api:os-hypervisors:list-detail"
	ruleHypervisorsStatistics Rule = "os_compute_api:os-hypervisors:statistics"
	ruleHypervisorsShow       Rule = "os_compute_api:os-hypervisors:show"
	ruleHypervisorsUptime     Rule = "os_compute_api:os-hypervisors:uptime"
	ruleHypervisorsSearch     Rule = "os_compute_api:os-hypervisors:search"
	ruleHypervisorsServers    Rule = "os_compute_api:os-hypervisors:servers"

	ruleServicesList      Rule = "os_compute_api:os-services:list"
	ruleServicesUpdate    Rule = "os_compute_api:os-services:update"
	ruleServicesDelete    Rule = "os_compute_api:os-services:delete"
	ruleFlavorCreate      Rule = "os_compute_api:os-flavor-manage:create"
	ruleFlavorUpdate      Rule = "os_compute_api:os-flavor-manage:update"
	ruleFlavorDelete      Rule = "os_compute_api:os-flavor-manage:delete"
	ruleFlavorSpecsIndex  Rule = "os_compute_api:os-flavor-extra-specs:index"
	ruleFlavorSpecsShow   Rule = "os_compute_api:os-flavor-extra-specs:show"
	ruleFlavorSpecsCreate Rule = "os_compute_api:os-flavor-extra-specs:create"
	ruleFlavorSpecsUpdate Rule = "os_compute_api:os-flavor-extra-specs:update"
	ruleFlavorSpecsDelete Rule = "os_compute_api:os-flavor-extra-specs:delete"
	ruleLimits            Rule = "os_compute_api:limits"
	ruleLimitsOther       Rule = "os_compute_api:limits:other_project"
	ruleQuotaShow         Rule = "os_compute_api:os-quota-sets:show"
	ruleQuotaDefaults     Rule = "os_compute_api:os-quota-sets:defaults"
	ruleQuotaDetail       Rule = "os_compute_api:os-quota-sets:detail"
	ruleQuotaUpdate       Rule = "os_compute_api:os-quota-sets:update"
	ruleQuotaDelete       Rule = "os_compute_api:os-quota-sets:delete"

	ruleAggregatesIndex       Rule = "os_compute_api:os-aggregates:index"
	ruleAggregatesShow        Rule = "os_compute_api:os-aggregates:show"
	ruleAggregatesCreate      Rule = "os_compute_api:os-aggregates:create"
	ruleAggregatesUpdate      Rule = "os_compute_api:os-aggregates:update"
	ruleAggregatesDelete      Rule = "os_compute_api:os-aggregates:delete"
	ruleAggregatesAddHost     Rule = "os_compute_api:os-aggregates:add_host"
	ruleAggregatesRemoveHost  Rule = "os_compute_api:os-aggregates:remove_host"
	ruleAggregatesSetMetadata Rule = "os_compute_api:os-aggregates:set_metadata"
	ruleZonesList             Rule = "os_compute_api:os-availability-zone:list"
	ruleZonesDetail           Rule = "os_compute_api:os-availability-zone:detail"
	ruleServerGroupsIndex     Rule = "os_compute_api:os-server-groups:index"
	ruleServerGroupsIndexAll  Rule = "os_compute_api:os-server-groups:index:all_projects"
	ruleServerGroupsShow      Rule = "os_compute_api:os-server-groups:show"
	ruleServerGroupsCreate    Rule = "os_compute_api:os-server-groups:create"
	ruleServerGroupsDelete    Rule = "os_compute_api:os-server-groups:delete"
	ruleKeyPairsIndex         Rule = "os_compute_api:os-keypairs:index"
	ruleKeyPairsShow          Rule = "os_compute_api:os-keypairs:show"
	ruleKeyPairsCreate        Rule = "os_compute_api:os-keypairs:create"
	ruleKeyPairsDelete        Rule = "os_compute_api:os-keypairs:delete"
)

// baseRules are those that others refer to, with Nova's new defaults; the last two are of before,
// for old policy files.
var baseRules = map[string]string{
	string(ruleAdmin):          "role:admin",
	"project_member_api":       "role:member and project_id:%(project_id)s",
	"project_reader_api":       "role:reader and project_id:%(project_id)s",
	"project_member_or_admin":  "rule:project_member_api or rule:context_is_admin",
	"project_manager_api":      "role:manager and project_id:%(project_id)s",
	"project_manager_or_admin": "rule:project_manager_api or rule:context_is_admin",
	"project_reader_or_admin":  "rule:project_reader_api or rule:context_is_admin",
	"admin_api":                "rule:context_is_admin",
	"admin_or_owner":           "rule:context_is_admin or project_id:%(project_id)s",
}

// The texts of Nova's new defaults.
const (
	admins   = "rule:context_is_admin"
	members  = "rule:project_member_or_admin"
	readers  = "rule:project_reader_or_admin"
	managers = "rule:project_manager_or_admin"
	anyUser  = "@"
	sameUser = "rule:context_is_admin or user_id:%(user_id)s"
)

// defaults are the rules of the calls.
var defaults = map[Rule]string{
	ruleServersIndex: readers, ruleServersIndexAll: admins, ruleServersDetail: readers, ruleServersDetailAll: admins,
	ruleServersAllFilters: admins, ruleServersShow: readers, ruleShowExtraSpecs: readers,
	ruleShowHostStatus: admins, ruleShowHostUnknown: admins, ruleExtendedAttrs: admins,

	ruleServersCreate: members, ruleCreateForcedHost: admins, ruleCreateZeroDisk: admins,
	ruleCreateCellDown: "rule:admin_api",
	ruleServersDelete:  members, ruleRestore: members, ruleForceDelete: members,
	ruleServersUpdate: members, ruleServersStart: members, ruleServersStop: members, ruleServersReboot: members, ruleServersRebuild: members,
	ruleServersConfirm: members, ruleServersRevert: members, ruleEvacuate: admins, ruleMigrate: managers, ruleMigrateToHost: admins,
	ruleMigrationsIndex: managers, ruleMigrationsIndexAll: admins, ruleMigrationsHosts: admins,
	ruleServerMigrationsList: managers, ruleServerMigrationsShow: admins, ruleServerMigrationAbort: admins,
	ruleResetState:    admins,
	ruleConsoleOutput: members, ruleRemoteConsoles: members,
	ruleMetadataIndex: readers, ruleMetadataShow: readers, ruleMetadataCreate: members, ruleMetadataUpdateAll: members,
	ruleMetadataUpdate: members, ruleMetadataDelete: members,
	ruleActionsList: readers, ruleActionsShow: readers, ruleActionsEvents: admins,
	ruleTagsIndex: readers, ruleTagsShow: readers, ruleTagsUpdateAll: members, ruleTagsUpdate: members,
	ruleTagsDeleteAll: members, ruleTagsDelete: members,

	ruleHypervisorsList: admins, ruleHypervisorsDetail: admins, ruleHypervisorsStatistics: admins, ruleHypervisorsShow: admins,
	ruleHypervisorsUptime: admins, ruleHypervisorsSearch: admins, ruleHypervisorsServers: admins,
	ruleServicesList: admins, ruleServicesUpdate: admins, ruleServicesDelete: admins,
	ruleFlavorCreate: admins, ruleFlavorUpdate: admins, ruleFlavorDelete: admins,
	ruleFlavorSpecsIndex: readers, ruleFlavorSpecsShow: readers, ruleFlavorSpecsCreate: admins, ruleFlavorSpecsUpdate: admins,
	ruleFlavorSpecsDelete: admins,
	ruleLimits:            anyUser, ruleLimitsOther: admins,
	ruleQuotaShow: readers, ruleQuotaDefaults: anyUser, ruleQuotaDetail: readers, ruleQuotaUpdate: admins, ruleQuotaDelete: admins,

	ruleAggregatesIndex: admins, ruleAggregatesShow: admins, ruleAggregatesCreate: admins, ruleAggregatesUpdate: admins, ruleAggregatesDelete: admins,
	ruleAggregatesAddHost: admins, ruleAggregatesRemoveHost: admins, ruleAggregatesSetMetadata: admins,
	ruleZonesList: anyUser, ruleZonesDetail: admins,
	ruleServerGroupsIndex: readers, ruleServerGroupsIndexAll: admins, ruleServerGroupsShow: readers,
	ruleServerGroupsCreate: members, ruleServerGroupsDelete: members,
	ruleKeyPairsIndex: sameUser, ruleKeyPairsShow: sameUser, ruleKeyPairsCreate: sameUser, ruleKeyPairsDelete: sameUser,
}

// words are what may stand for a whole rule in a policy file, besides rules in oslo.policy's
// language. None of them is a rule there.
var words = map[string]string{"admin": admins, "member": members, "reader": readers}

// Policy decides who may do what. Make one with DefaultPolicy or OpenPolicy.
type Policy struct {
	rules *oslopolicy.Rules
	file  *files.Reloaded[*oslopolicy.Rules] // goes before rules
}

// overlay is for policy files of Nova's, which have rules for calls that this API does not have.
func overlay() oslopolicy.Overlay {
	texts := maps.Clone(baseRules)
	for rule, text := range defaults {
		texts[string(rule)] = text
	}
	return oslopolicy.Overlay{API: "the compute API", Rules: texts, Words: words, Reserved: ofNova, Lenient: true}
}

// DefaultPolicy has Nova's new defaults: administrators, members of the project, readers of the
// project.
func DefaultPolicy() *Policy {
	rules, err := oslopolicy.Compile(overlay().Rules)
	if err != nil {
		panic(err) // the rules above
	}
	return &Policy{rules: rules}
}

// OpenPolicy makes a Policy of the defaults and a file, in the format of oslo.policy's policy.yaml,
// whose rules go before them. A rule may also be one of the words admin, member and reader. The
// file may name Nova's rules, and rules of its own that others refer to; a name that is neither is
// an error, because it would have no effect. Those of Nova's that the API does not ask for, because
// it has no such call, have none either: log names them, once for each time that the file is read,
// so that a policy.yaml of Nova's can be used as it is.
//
// The file is looked at again while requests come, at most once a second. When it has changed its
// new rules are in force from then on; if they cannot be used the old ones stay, and log says so.
func OpenPolicy(path string, log zerolog.Logger) (*Policy, error) {
	file, err := oslopolicy.Open(path, log, func(file []byte) (*oslopolicy.Rules, error) {
		rules, without, err := overlay().Compile(file)
		if len(without) > 0 {
			log.Warn().Str("file", path).Strs("rules", without).
				Msg("The policy file has rules for calls that this compute API does not have. They have no effect; check their spelling.")
		}
		return rules, err
	})
	if err != nil {
		return nil, err
	}
	return &Policy{file: file}, nil
}

// ofNova says whether a name is one that Nova gives to rules: of its calls, or of those that they
// refer to.
func ofNova(name string) bool {
	for _, prefix := range []string{"os_compute_api:", "compute:", "network:", "cells_scheduler_filter:"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains([]string{
		"system_admin_api", "system_reader_api", "system_admin_or_owner", "system_or_project_reader", "project_admin_api",
		"service_api", "service_role", "admin_or_service", "default",
	}, name)
}

// may says whether the caller passes a rule for something of a project. Cost: some 50 ns.
func (x *exchange) may(rule Rule, project string) bool {
	target := oslopolicy.Target{Project: project}
	if project == x.Who.Project {
		target.User = x.Who.User
	}
	return x.allowed(rule, target)
}

func (x *exchange) allowed(rule Rule, target oslopolicy.Target) bool {
	policy := x.api.policy
	rules := policy.rules
	if policy.file != nil {
		rules = policy.file.Get()
	}
	return rules.Allows(string(rule), &x.Who, target)
}

// allow is nil if the caller passes a rule for something of a project, and otherwise the 403 that
// Nova answers.
func (x *exchange) allow(rule Rule, project string) error {
	if x.may(rule, project) {
		return nil
	}
	return disallowed(rule)
}

// allowUser is allow for what belongs to a user and to no project.
func (x *exchange) allowUser(rule Rule, user string) error {
	if x.allowed(rule, oslopolicy.Target{User: user}) {
		return nil
	}
	return disallowed(rule)
}

func disallowed(rule Rule) error { return forbidden("Policy doesn't allow %s to be performed.", rule) }

// allowOwn is allow for what is about the caller's own project.
func (x *exchange) allowOwn(rule Rule) error { return x.allow(rule, x.Who.Project) }

// isAdmin says whether the caller is an administrator, who may know of all projects.
func (x *exchange) isAdmin() bool { return x.may(ruleAdmin, x.Who.Project) }
