// SPDX-License-Identifier: Apache-2.0

// Package adversary makes each call of each service with each credential that an attacker might
// have, and compares the answers with the rules.
//
//	identities  no credential, this host, another host, an expired, a denied and a forged
//	            certificate, other services, tokens of each kind
//	calls       all that the services list (api.Calls, cell.Calls, compute.Calls)
//	table       what the rules say of each pair; it is compared with what is answered, and after a
//	            refusal nothing has changed
//	attacks     what the holder of a host's credential may try beyond these calls
//	claims      how much such a holder can claim, which docs/identity.md has in numbers
//
// It also attacks the deny list of hosts, by its file and by the clock that dates it.
//
// Attacks that need no service, or the whole of one, have their tests elsewhere:
//
//	a reshape that moves or makes allocations   resourcetracker, guard_reshape_test.go
//	a driver that calls the control socket      internal/agent, driver_requests_test.go
//	a driver that leaves its sandbox            plugins/drivertest, sandbox_test.go
//	a write that the audit log does not have    test/soak, audit_test.go
//	a revocation of a name that no host has     cmd/compute-agent, testdata/script/ca.txtar
//
// The tables are kept in testdata, for people to read: "go test -update" writes them again.
package adversary
