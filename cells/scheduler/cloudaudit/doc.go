// SPDX-License-Identifier: Apache-2.0

// Package cloudaudit compares what the API database, the cells, Placement and, through their cells,
// the agents of all hosts say of the same servers and nodes:
//
//	Placement     resource providers of nodes, and who holds what of them
//	API database  hosts and nodes, mappings, claims, servers that are built
//	cells         servers, nodes, services, migrations; power states, as the agents see the guests
//
// They are read in this order. A server gets its claim and its mapping before its allocations, and
// its allocations before its row. So whatever is read first must also be in what is read later.
// Servers come, go and move during the audit: something that is missing is read again before it
// becomes a finding.
//
// Its tests, but for those of reports, are in cells/scheduler, audit_test.go and
// audit_unchecked_test.go.
package cloudaudit
