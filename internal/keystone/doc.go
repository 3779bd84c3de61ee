// SPDX-License-Identifier: Apache-2.0

// Package keystone is both sides of OpenStack's identity service: a [Session] is the login of a
// client (the agent, the compute API) or of a service, and an [Authenticator] validates the tokens
// of requests with a session of its own.
//
// # Session
//
// A session has a token, renewed in time, and the endpoint of a service that the catalog names.
//
//	                    ┌──────────── Session ────────────┐
//	Authorize   ◀───────┤ token, until shortly before it  │◀── POST /v3/auth/tokens, one at a time
//	Endpoint    ◀───────┤ expires; endpoint, from the     │      (or GET, for a given token)
//	Reauthorize ───────▶│ catalog that came with it       │
//	                    └─────────────────────────────────┘
//
// A [Session] makes no request before it is asked for something: Keystone may come up later than
// the agent. Its three methods fit into placementclient.Config.
//
// # When a token is renewed
//
// Keystone says when a token was issued and when it expires, by its own clock. The difference
// counts from the moment of the request by this host's monotonic clock, so that the two clocks may
// differ as they like. A token is renewed by the first request within the last tenth of its life (2
// to 4 minutes, by chance, of a token that lives for an hour), so that a thousand agents that
// started together do not come together again. While Keystone is unavailable, a token is used until
// its end.
//
// A token that Placement rejects (401) is renewed at once, unless another request did so in the
// meantime. The catalog is read again with each token, so that a moved endpoint is found.
//
// # Request rate
//
// One request for each token. While Keystone is unavailable, each call of the caller costs one
// request. Credentials that Keystone refuses are not tried again for 5 seconds, then 10, up to 2
// minutes, unless the secret changes: Keystone may lock users who fail too often.
//
// # Secrets
//
// The password, secret or token is read for each login, so that it can be changed while the agent
// runs. Neither it nor the token that Keystone gives appears in any error or log line; what
// Keystone answers is repeated only where it is known to be Keystone's own message, and then
// without them.
//
// # Authenticator
//
// An authenticator follows keystonemiddleware:
//
//   - Keystone's answers are cached for 300 seconds, at most until the token expires. So a revoked
//     token works for up to that long.
//   - A 401 says by WWW-Authenticate where to get a token.
//   - An X-Service-Token is validated too, and the request is refused if it is invalid. If its user
//     has the role service, the user's token may have expired, within the time that Keystone allows
//     (allow_expired_window). Roles and policies are those of the user's token.
//
// It differs in this:
//
//   - Refused tokens are cached for 30 seconds.
//   - While Keystone is unavailable, the answer is 503 with Retry-After, and cached tokens work.
//   - Tokens of application credentials with access rules are refused, as Keystone requires of
//     services that do not check such rules.
//   - X-Storage-Token and token binding, which are older than Keystone's API v3, do not exist.
package keystone
