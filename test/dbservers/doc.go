// SPDX-License-Identifier: Apache-2.0

// Package dbservers runs real database servers for tests: MariaDB, Galera clusters of it, and
// PostgreSQL, from Debian's packages.
//
// [MariaDB], [PostgreSQL] and [Each] make empty databases on servers that all tests of the process
// share: they are fast, and nothing survives them. The tests of a suite use [Fresh], whose
// databases are where the flag -database says, or in files; [Brief] has make test run some of them
// on servers. [StartMariaDB], [StartPostgreSQL], [StartPostgreSQLPair] and [StartGalera] start
// servers for one test, which kills them, stops them, separates them from each other and from the
// hosts of their clients, and fills their disks. A test that needs minutes of that asks [Long], and
// is run in full by make test-databases. [NewMariaDB] and [NewPostgreSQL] start servers for
// programs.
//
// The servers are this package's own, in a directory below the temporary directory: what else is
// installed or running on the machine does not matter, and nothing outlives the process of the
// tests. As they refuse to run as root, root runs them as a user without rights.
package dbservers
