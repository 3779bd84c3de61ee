// SPDX-License-Identifier: Apache-2.0

// Package realservice runs OpenStack's own services, from Debian's packages, for tests: each by a short Python script that
// says on its standard output, in a line "PORT number", where it listens, and ends with its standard input.
package realservice
