// SPDX-License-Identifier: Apache-2.0

// Package hostaggregates is what host aggregates are to the scheduler: they say where a server may
// be, and their hosts are mirrored to Placement.
//
//	aggregates, Options, the server ─▶ DestinationOf ─▶ Destination: aggregates of its host
//	API database ─▶ Mirror ─▶ Placement: the aggregates of resource providers
package hostaggregates
