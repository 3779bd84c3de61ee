// SPDX-License-Identifier: Apache-2.0

// Package control connects commands with the running agent: JSON over HTTP on a unix socket in the
// agent's runtime directory, which only the agent's user and root can open.
//
//	compute-agent tree ──▶ Client ──▶ agent.sock ──▶ Socket ──▶ Agent (the daemon)
//	                          └── agent.key ──▶ guard ┘
//
// Drivers run as the agent's user, and may connect to sockets. The guard refuses what their
// processes send, and what comes without the key in the file beside the socket, which their sandbox
// closes. Only metrics and probes need no key.
//
// The types are those of `--output json`, a contract with scripts: fields are added, never renamed.
package control
