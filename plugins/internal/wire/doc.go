// SPDX-License-Identifier: Apache-2.0

// Package wire is what both ends of a plugin connection share: the handshake, the limits, and the conversion between
// the protocol's messages and the values that the rest of the program works with. Nothing else touches protobuf.
package wire
