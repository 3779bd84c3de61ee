// SPDX-License-Identifier: Apache-2.0

// Package encryption says how many guests with encrypted memory a host can run, of which kind: MEM_ENCRYPTION_CONTEXT.
//
// An AMD processor has a key for each encrypted guest, under a number (ASID). Firmware splits the numbers in two pools, and kinds do not borrow:
//
//	pool                guests             libvirt's limit   provider
//	from min_sev_asid   SEV                maxGuests         <node>_amd_sev
//	below it            SEV-ES, SEV-SNP    maxESGuests       <node>_amd_sev_es, <node>_amd_sev_snp
//
// The names, the traits and the totals are Nova's (2025.2 and later), so that its tree needs no change. Before, Nova kept the contexts on the
// root.
//
// # One pool, two providers
//
// SEV-ES and SEV-SNP draw from the same pool, and Placement knows of no inventory that two providers share. If both stood in the tree with all of
// the pool each, it could be given away twice. Therefore contexts that guests of one kind hold are reserved on the provider of the other, by all
// domains that are defined, running or not: one that is shut off wants its context back. Which providers there are:
//
//   - A host with SEV-SNP has <node>_amd_sev_snp with the whole pool and, like Nova's, no <node>_amd_sev_es. Nothing can be given away twice.
//   - If SEV-ES guests are on such a host nevertheless (it was given SEV-SNP later), <node>_amd_sev_es stands for as long as they do: with
//     the contexts that they hold, and all others reserved.
package encryption
