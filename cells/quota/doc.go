// SPDX-License-Identifier: Apache-2.0

// Package quota says how much a project may have and how much it has: limits, usage, and whether a boot fits.
//
// Usage is counted in the cells, by asking all of them at once, and what is asked for and in no cell yet is added from the API
// database. Of a cell that is down the API database knows enough to count as well: which servers of the project are there, and
// with which flavors. So usage is exact in an outage, where Nova leaves out what it cannot count. A project that has living
// servers in a cell that is down may not boot all the same, unless a policy allows it: what the specification "Handling a down
// cell" wants.
//
// With CountFromPlacement usage comes from the API database (instances) and from Placement (cores and ram), no cell is asked, and
// none being down keeps anybody from booting; as in Nova, not before all mappings of the project are migrated.
package quota
