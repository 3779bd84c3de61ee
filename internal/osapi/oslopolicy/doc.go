// SPDX-License-Identifier: Apache-2.0

// Package oslopolicy reads the policy language of oslo.policy, as far as the APIs use it, and
// evaluates its rules.
//
// A rule has a name and a condition on the caller:
//
//	"admin_or_service_api": "role:admin or role:service"
//	"project_reader_api": "role:reader and project_id:%(project_id)s"
//	"placement:usages": "rule:admin_or_service_api or rule:project_reader_api"
//
// The checks are role:NAME, rule:NAME, user_id:VALUE, project_id:VALUE, system_scope:VALUE, @
// (every caller) and ! (no caller). They are joined with and, or, not and parentheses; not binds
// closest, then and. A VALUE is a word, or %(project_id)s or %(user_id)s, which stand for the
// project and the user that the request is about. An empty rule allows all callers.
//
// Other forms of oslo.policy are errors: lists of lists, the form before 2013; checks by a server
// (http:) or of token attributes that this server does not have.
package oslopolicy
