// SPDX-License-Identifier: Apache-2.0

package api

import (
	"maps"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/osapi/oslopolicy"
)

// Rule is what a policy allows or not: the name that Nova's policies have, and the text of its
// default.
type Rule struct{ Name, Default string }

// String is the name.
func (r Rule) String() string { return r.Name }

// ruleAdmin is for administrators, who may know of all projects.
var ruleAdmin = Rule{"context_is_admin", "role:admin"}

// baseRules are the rules that others refer to, with Nova's new defaults; the last two are for old
// policy files.
var baseRules = map[string]string{
	ruleAdmin.Name:             ruleAdmin.Default,
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
	Admins   = "rule:context_is_admin"
	Members  = "rule:project_member_or_admin"
	Readers  = "rule:project_reader_or_admin"
	Managers = "rule:project_manager_or_admin"
	AnyUser  = "@"
	SameUser = "rule:context_is_admin or user_id:%(user_id)s"
)

// words are what may stand for a whole rule in a policy file, besides rules in oslo.policy's
// language. None of them is a rule there.
var words = map[string]string{"admin": Admins, "member": Members, "reader": Readers}

// Policy decides who may do what.
type Policy struct {
	rules *oslopolicy.Rules
	file  *files.Reloaded[*oslopolicy.Rules] // goes before rules
}

// overlay is for policy files of Nova's, which have rules for calls that this API does not have.
func overlay(rules []Rule) oslopolicy.Overlay {
	texts := maps.Clone(baseRules)
	for _, rule := range rules {
		texts[rule.Name] = rule.Default
	}
	return oslopolicy.Overlay{API: "the compute API", Rules: texts, Words: words, Reserved: ofNova, Lenient: true}
}

// RulesOf are the rules that calls ask for, each once or more often.
func RulesOf(routes []Route) (all []Rule) {
	for _, r := range routes {
		all = append(append(all, r.Rule), r.Rules...)
		for _, action := range r.Actions {
			all = append(append(all, action.Rule), action.Rules...)
		}
	}
	return slices.DeleteFunc(all, func(rule Rule) bool { return rule == (Rule{}) })
}

// NewPolicy has the defaults of rules.
func NewPolicy(rules []Rule) *Policy {
	compiled, err := oslopolicy.Compile(overlay(rules).Rules)
	if err != nil {
		panic(err) // the rules of the routes
	}
	return &Policy{rules: compiled}
}

// OpenPolicy makes a Policy of the defaults of rules and a file, in the format of oslo.policy's
// policy.yaml, whose rules go before them. A rule may also be one of the words admin, member and
// reader. The file may name Nova's rules, and rules of its own that others refer to; a name that is
// neither is an error, because it would have no effect. Those of Nova's that the API does not ask
// for, because it has no such call, have none either: log names them, once for each time that the
// file is read, so that a policy.yaml of Nova's can be used as it is.
//
// The file is looked at again while requests come, at most once a second. When it has changed its
// new rules are in force from then on; if they cannot be used the old ones stay, and log says so.
func OpenPolicy(rules []Rule, path string, log zerolog.Logger) (*Policy, error) {
	file, err := oslopolicy.Open(path, log, func(file []byte) (*oslopolicy.Rules, error) {
		compiled, without, err := overlay(rules).Compile(file)
		if len(without) > 0 {
			log.Warn().Str("file", path).Strs("rules", without).
				Msg("The policy file has rules for calls that this compute API does not have. They have no effect; " +
					"check their spelling.")
		}
		return compiled, err
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
		"system_admin_api", "system_reader_api", "system_admin_or_owner",
		"system_or_project_reader", "project_admin_api",
		"service_api", "service_role", "admin_or_service", "default",
	}, name)
}

// Allows reports whether the caller passes a rule for something of a project. Cost: some 50 ns.
func (x *Exchange) Allows(rule Rule, project string) bool {
	target := oslopolicy.Target{Project: project}
	if project == x.Caller.Project {
		target.User = x.Caller.User
	}
	return x.allowed(rule, target)
}

func (x *Exchange) allowed(rule Rule, target oslopolicy.Target) bool {
	policy := x.Service.Policy
	rules := policy.rules
	if policy.file != nil {
		rules = policy.file.Get()
	}
	return rules.Allows(rule.Name, &x.Caller, target)
}

// Allow is nil if the caller passes a rule for something of a project, and otherwise the 403 that
// Nova answers.
func (x *Exchange) Allow(rule Rule, project string) error {
	if x.Allows(rule, project) {
		return nil
	}
	return disallowed(rule)
}

// AllowUser is allow for what belongs to a user and to no project.
func (x *Exchange) AllowUser(rule Rule, user string) error {
	if x.allowed(rule, oslopolicy.Target{User: user}) {
		return nil
	}
	return disallowed(rule)
}

func disallowed(rule Rule) error { return Forbidden("Policy doesn't allow %s to be performed.", rule) }

// AllowOwn is allow for what is about the caller's own project.
func (x *Exchange) AllowOwn(rule Rule) error { return x.Allow(rule, x.Caller.Project) }

// allowRule is AllowOwn for the rule of a route, if it has one.
func (x *Exchange) allowRule(rule Rule) error {
	if rule == (Rule{}) {
		return nil
	}
	return x.AllowOwn(rule)
}

// IsAdmin says whether the caller is an administrator, who may know of all projects.
func (x *Exchange) IsAdmin() bool { return x.Allows(ruleAdmin, x.Caller.Project) }
