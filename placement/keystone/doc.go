// SPDX-License-Identifier: Apache-2.0

// Package keystone authenticates requests to Placement at OpenStack's identity service, as keystonemiddleware does for
// OpenStack's own: the token of a request (X-Auth-Token) is validated at Keystone with the credentials of a service user,
// and what Keystone says of it (user, project, roles, scope) is believed for some minutes.
//
// What follows keystonemiddleware: answers are kept for 300 seconds, and not beyond the expiry of the token, so that a
// token that is revoked goes on working for so long; a 401 says by WWW-Authenticate where to get a token; an X-Service-Token
// is validated too, the request is refused when it is not valid, and when its user has the role service the user's token may
// have expired, within the time that Keystone allows (allow_expired_window). Roles and policies are those of the user's token.
//
// What does not: refused tokens are remembered for 30 seconds. When Keystone cannot be asked the answer is 503 with
// Retry-After, and tokens that are known go on working. Tokens of application credentials with access rules are refused, as
// Keystone has it for services that do not check such rules. X-Storage-Token and token binding, which are from before
// Keystone's API v3, do not exist here.
package keystone
