// SPDX-License-Identifier: Apache-2.0

// Package commands is what the commands of a host do: they ask the running agent, and if none runs,
// do the same on its state directory and with its drivers.
//
//	command ──▶ Host ──┬─▶ control.Client ──▶ the running agent
//	                   └─▶ agent.…Offline     with a locked state directory, but to list nodes
//
// [Adopt] and [Migrate] need an agent that does not run. [CheckDrivers] starts drivers beside it;
// [Trial] and [DeviceLister] say how one is started.
//
// [LoadRunning] reads the configuration of the running agent from its files as they are now.
//
// Most of its tests are in cmd/compute-agent: node_test.go, node_give_test.go, giveback_test.go,
// placement_migrate_test.go and with_servers_test.go.
package commands
