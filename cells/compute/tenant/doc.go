// SPDX-License-Identifier: Apache-2.0

// Package tenant has the calls of the compute API about what projects and users choose from and
// keep: flavors and their extra specs, key pairs, server groups, limits and quotas. All of it is in
// the API database; no cell is asked, but for what a project has used, which [Quotas] finds out.
//
//	GET /flavors, /os-keypairs, … ─▶ Deps: Store (API database), Quotas (quota)
//
// [Deps.Routes] are the calls. What the calls about servers need of this package is exported beside
// them: the flavor and the server group that a caller may know of, how much metadata a server may
// have, and the log of extra specs that nothing reads.
package tenant
