// SPDX-License-Identifier: Apache-2.0

// Package operator is what the commands of an operator do with the cells and hosts of a compute
// API: `compute-agent cells manage`.
//
//	command ──▶ Deployment ──▶ apidb               cells, hosts, nodes, enrolments
//	                 ├───────▶ gather ──▶ cells    services, servers, migrations
//	                 └───────▶ Placement           resource providers, what a host may report
//
// A command is a method of [Deployment]. It returns what it found or did, in the form in which it
// is printed as JSON, and prints nothing. The commands run in the process of the compute API if
// that has the database open, and otherwise in one of their own.
//
// If a command refuses something, to protect servers, hosts or data, its error is a [RefusedError].
// Nothing was changed then unless the error says so. Each command may be repeated: it continues
// where it stopped.
package operator
