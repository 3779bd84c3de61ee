// SPDX-License-Identifier: Apache-2.0

// Package keystone gets the agent what it needs to speak to a Placement that asks Keystone about tokens: a token, renewed
// in time, and the endpoint of Placement that the service catalogue names.
//
//	                    ┌──────────── Session ────────────┐
//	Authorize   ◀───────┤ token, until shortly before it  │◀── POST /v3/auth/tokens (or GET, for a token that is given)
//	Endpoint    ◀───────┤ expires; endpoint, from the     │      one at a time, however many ask
//	Reauthorize ───────▶│ catalogue that came with it     │
//	                    └─────────────────────────────────┘
//
// A [Session] makes no request before it is asked for something: Keystone may come up later than the agent. Its three methods
// are what reportclient.Config asks for.
//
// # When a token is renewed
//
// Keystone says when a token was issued and when it expires, by its own clock. The difference counts from the moment of the
// request by this host's monotonic clock, so that the two clocks may differ as they like. A token is renewed by the first
// request within the last tenth of its life (2 to 4 minutes, by chance, of a token that lives for an hour), so that a thousand
// agents that started together do not come together again. While Keystone is away, a token is used until its end.
//
// A token that Placement refuses (401) is renewed at once, unless somebody else has done so meanwhile. The catalogue is read
// again with each token, so an endpoint that moved is found then.
//
// # What is asked how often
//
// One request for each token. Keystone being away costs one request for each time that the caller tries; credentials that Keystone
// refuses are not tried again for 5 seconds, then 10, up to 2 minutes, unless the secret changes: Keystone may lock users who
// fail too often.
//
// # Secrets
//
// The password, secret or token is read for each login, so that it can be changed while the agent runs. Neither it nor
// the token that Keystone gives appears in any error or log line; what Keystone answers is repeated only where it is known to be
// Keystone's own message, and then without them.
package keystone
