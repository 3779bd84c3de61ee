// SPDX-License-Identifier: Apache-2.0

// Package access makes of the configuration's section [placement_client] what a client of Placement needs: a transport with its
// TLS, who the agent is, and where Placement is. The agent, its doctor and the commands that ask Placement share it, so that
// all of them reach the same Placement in the same way, or fail for the same reason.
package access
