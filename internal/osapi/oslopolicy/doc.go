// SPDX-License-Identifier: Apache-2.0

// Package oslopolicy reads the policy language of oslo.policy, as far as Placement can make use of
// it, and decides by it.
//
// A rule has a name and says who passes:
//
//	"admin_or_service_api": "role:admin or role:service"
//	"project_reader_api": "role:reader and project_id:%(project_id)s"
//	"placement:usages": "rule:admin_or_service_api or rule:project_reader_api"
//
// The checks are role:NAME, rule:NAME, user_id:VALUE, project_id:VALUE, system_scope:VALUE, @
// (everybody) and ! (nobody). They are joined with and, or, not and parentheses; not binds closest,
// then and. A VALUE is a word, or %(project_id)s or %(user_id)s, which stand for the project and
// the user that the request is about. An empty rule lets everybody pass.
//
// What oslo.policy understands beyond that is refused with an error, never taken for something
// else: lists of lists, its form of before 2013; checks that ask a server (http:) or that look at
// what this server does not know of a token.
package oslopolicy
