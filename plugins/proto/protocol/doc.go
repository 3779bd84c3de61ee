// SPDX-License-Identifier: Apache-2.0

// Package protocol holds what both ends of a plugin connection share: the handshake, the limits,
// the locks that keep the calls of one instance apart, and the conversion between protobuf messages
// and Go types. Nothing else converts protobuf. A driver gets all of it from package plugins; the
// agent and the conformance suite are the other end.
package protocol
