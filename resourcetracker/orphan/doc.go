// SPDX-License-Identifier: Apache-2.0

// Package orphan removes compute nodes from Placement that are there no more: those that this agent has reported and that no
// driver names any longer.
//
// That a driver is silent about a node proves nothing. A node is removed only if all of this holds:
//
//   - somebody who knows says that it is gone: the driver ([plugins.NodeChecker]), or a person;
//   - by its record, this agent made its root provider, and did not find it there;
//   - everything in its tree is this agent's: providers, inventories, traits, aggregates;
//   - nobody holds anything of it.
//
// [Examine] lists all that stands against it. [Remove] deletes from the leaves to the root, looks at each provider again right
// before it goes, and at last drops the record; what a crash leaves half done, the next call finishes.
package orphan
