// SPDX-License-Identifier: Apache-2.0

// Package control connects commands with the running agent: JSON over HTTP on a unix socket in the
// agent's runtime directory, which only the agent's user and root can open.
//
//	compute-agent tree ──▶ Client ──▶ agent.sock ──▶ Server ──▶ Agent (the daemon)
//
// The types are those of `--output json`, a contract with scripts: fields are added, never renamed.
package control
