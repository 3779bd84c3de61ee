// SPDX-License-Identifier: Apache-2.0

// Package placementclient is the client of Placement: the agent, the compute API, `placement
// explain`, the doctor and the demonstration use it, so that all of them retry, authenticate and
// report errors in the same way.
//
//	Call ─▶ Authorize ─▶ Endpoint ─▶ go-retryablehttp ─▶ Transport ─▶ Placement
//	           ▲                        │ 502, 503, 504, 429 of a read: again, after Retry-After
//	           │                        │ 429 of Placement itself: again, a write as well
//	           │                        │ never sent: again
//	           └── Reauthorize ◀── 401 ─┤ once
//	                                    └─▶ Out, or an [*Error]
//
// # Retries
//
// A request is repeated up to [Config].Retries times if that is safe: a read, or a write that did
// not leave this machine, or that Placement itself, which says its microversion, answered with 429.
// A write whose answer was lost is never repeated; its error is [ErrOutcomeUnknown], and the caller
// finds out what happened. Between two tries the client waits as long as Retry-After says (seconds
// or a date), or else 0.2 to 2 seconds, more with each try. If Retry-After is longer than
// [MaxRetryAfter], or ends after the context's deadline, the answer is returned at once: the caller
// decides when to come back.
//
// # Credentials and discovery
//
// [Config].Authorize gives the proof for each request and [Config].Endpoint the address;
// internal/keystone has both. A request that is answered 401 was not carried out, so it is sent
// once more with a new proof, writes as well. A 403 is an answer. Which microversions a Placement
// has is read once for each address, and again after a 406: see [Client.CheckVersion].
//
// # Errors
//
// Every request that failed is an [*Error] that wraps one of the sentinels of this package, so
// callers decide with errors.Is.
package placementclient
