// SPDX-License-Identifier: Apache-2.0

// Package access converts the section [placement_client] to the configuration of a Placement
// client: transport, TLS, credentials and endpoint. The agent, the doctor and the commands share
// it, so that all of them reach Placement in the same way. The same goes for clients of cells, and
// for which servers a cell has on a host.
package access
