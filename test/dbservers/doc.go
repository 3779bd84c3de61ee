// SPDX-License-Identifier: Apache-2.0

// Package dbservers runs real database servers for tests: MariaDB and PostgreSQL, from Debian's
// packages. [MariaDB], [PostgreSQL] and [Each] make empty databases on servers that all tests of
// the process share: they are fast, and nothing survives them.
//
// The servers are this package's own, in a directory below the temporary directory: what else is
// installed or running on the machine does not matter, and nothing outlives the process of the
// tests. As they refuse to run as root, root runs them as a user without rights.
package dbservers
