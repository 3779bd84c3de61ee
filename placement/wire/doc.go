// SPDX-License-Identifier: Apache-2.0

// Package wire holds what goes over the wire between a client of the Placement API and its server:
// the microversions and what each of them changed, the headers, the error codes, query strings, and
// every request and response body.
//
// A body is defined once. A client encodes requests and decodes responses with encoding/json
// through the struct tags; the server decodes requests with the strict Decode functions here, which
// know the limits that each microversion sets (the JSON schemas of Placement, by hand), and encodes
// responses with the Append functions, which write straight into a buffer and allocate nothing.
// Tests hold the two ways of each body together.
//
//	client                                             server
//	json.Marshal(ProviderUpdate)   ──── body ────▶     DecodeProviderUpdate(body, version)
//	json.Unmarshal(&Inventories)   ◀─── body ─────     AppendInventory(buffer, …)
//
// The only packages of the project that it imports are providertree, for names and ranges, and
// internal/jsonkit.
package wire
