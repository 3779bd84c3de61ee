// SPDX-License-Identifier: Apache-2.0

// Package reshape is what is decided about a reshape of a compute node: inventory that guests use
// moves to other resource providers, and their allocations with it.
//
//	driver's answer ─▶ [Draft] ─┬─▶ [Draft.Check]     every violation, in an [*Error]
//	                            ├─▶ [Draft.Preview]   for `compute-agent plan --reshape`
//	                            └─▶ [Draft.Changed]   whether the driver made another tree
//	journal ─┬─▶ [Draft.CheckReturned]   a driver that is older than the tree
//	         └─▶ [Undo]                  the inverse, if nothing has changed since
//
// Apart from Undo and RecordUndo it is pure: the tracker asks the driver and Placement.
// [LayoutTraits] are how a tree shows its layout version.
package reshape
