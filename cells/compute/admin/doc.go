// SPDX-License-Identifier: Apache-2.0

// Package admin has the calls of the compute API about the hosts: services and hypervisors, host
// aggregates, availability zones, and the list of migrations.
//
//	GET /os-services, /os-hypervisors, … ─▶ Deps: Gatherer (all cells at once, or one)
//	                                              Store (API database)
//	                                              Scheduler (Placement)
//
// [Deps.Routes] are the calls. What the calls about servers need of this package is exported beside
// them: the zones that servers can be asked for, the migrations of all cells, and whether a host is
// mapped.
//
// Its tests are in cells/compute: services_test.go, hypervisors_test.go, aggregates_test.go,
// migrations_test.go, schemas_admin_test.go and reference_admin_test.go.
package admin
