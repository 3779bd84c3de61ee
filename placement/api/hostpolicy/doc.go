// SPDX-License-Identifier: Apache-2.0

// Package hostpolicy decides what the credential of one host may touch in Placement, and how much
// it may claim. It stands on a security boundary: a host that is not what it was must not reach
// what is another's, nor fill the database.
//
//	request of a host ─▶ Request.Admit      may a host make this call? (Access, Action)
//	                  ─▶ Request.Reclaim    providers of others give up the uuids of its nodes
//	        a read    ─▶ Request.MayRead    of the snapshot that the answer is made of; a list too
//	        a body    ─▶ Request.MayName    names nothing of others, before anything is looked up
//	        a write   ─▶ Request.SpendWrite has the host writes left? (429)
//	                  ─▶ Request.Guarded    the transaction, checked by what it touched
//
// The rules:
//
//   - A tree is the host's if the name of its root is, and its uuid too if the certificate names
//     compute nodes. The host also reads what shares with its trees by an aggregate.
//   - Nothing is committed that touches a provider of others. Only the generation of one may grow,
//     by a write of allocations of a consumer that holds something there and in the host's trees.
//   - What a consumer has in the host's trees moves within them or shrinks; a reshape only moves
//     it. Its project, user and type stay. What it has elsewhere stays; what it has of a sharing
//     provider may shrink.
//   - A host gives nothing to consumers without allocations, changes no aggregates and makes no
//     provider share, unless the policy of the server allows these actions.
//   - The host removes no traits, and removes or renames no classes.
//   - The host reports at most a factor times what it reported when it came, or what an operator
//     stated, of each resource class, and no new kinds of traits. The rest needs a person.
//   - Writes, new names and providers, and what a provider and a tree have, are bounded.
//   - Answers say nothing of what is others': errors about that are replaced.
//
// The uuids of compute nodes that certificates name are reserved for their hosts; a provider of
// others below a root that has one gets another uuid. The rules for users do not apply to hosts,
// and those for hosts apply to no other client. docs/identity.md describes all of this for
// operators.
//
// Most of its tests are in placement/api, hosts_test.go and hosts_*_test.go: what hosts are
// answered.
package hostpolicy
