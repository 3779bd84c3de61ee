// SPDX-License-Identifier: Apache-2.0

// Package driverclient makes the calls of a driver's process over its connection, and trusts no
// response.
//
//	request ─▶ checked ─▶ gRPC, within a deadline ─▶ response ─▶ checked ─▶ values
//	                                      └─▶ error ─▶ CallError
//
// A request that is invalid, or that the plugin does not announce, is not sent. A response that
// breaks a rule of the protocol is discarded as a whole ([ErrBadReply]), with all that is wrong
// with it: it is never a tree, a list of guests or of instances that lacks something. What is only
// shown is made printable instead. Errors of the driver keep their type.
//
// It knows the protocol and nothing of processes: package pluginhost starts and supervises them.
package driverclient
