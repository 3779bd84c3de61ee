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
//	reshapes that move without a reason  resourcetracker/reshape: TestGuardNamesEveryViolation
//	reshapes against the list of guests  cmd/compute-agent: TestReshapeIsComparedWithTheGuests
//	more than is admitted, by any call   placement/api: TestCapacityOfAHost
//	random writes of a host              placement/api: TestRandomWritesOfAHost
//	a revocation of a misspelt name      cmd/compute-agent: TestRevokeBesideTheService
//	a deny list that all users can read  internal/pki: TestEditedFileStaysReadable
//	a driver at the control socket       internal/agent: TestDriversSendNoRequests
//	a driver that leaves its sandbox     internal/pluginhost/launch: TestHostileDriver
//	a driver tested without a sandbox    cmd/compute-driver-test: TestDriversRunInTheSandbox
//	a driver that refuses all reshapes   cmd/compute-driver-test: TestRefusalOfAllIsNoPass
//	a write without an audit record      test/soak: TestKillLeavesRecords
//	a write while the disk is full       test/soak: TestRequiredAuditOnAFullDisk
//	a user who reads no answers          internal/osapi: TestMemoryForAnswers
//	a user who sends bodies without end  placement/api: TestMemoryForBodies
//	a theft, until the eviction          test/e2e: TestHypervisor417IsStolen
//
// The tables are kept in testdata, for people to read: "go test -update" writes them again.
package adversary
