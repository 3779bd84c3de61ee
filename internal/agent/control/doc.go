// SPDX-License-Identifier: Apache-2.0

// Package control is how a command talks to the running agent: JSON over HTTP on a unix socket in the agent's runtime
// directory, which only the agent's user and root can open.
//
//	compute-agent tree ──▶ Client ──▶ agent.sock ──▶ Server ──▶ Agent (the daemon)
//
// The types are what `--output json` prints, so their fields are a contract with scripts: they are added to, not renamed.
package control
