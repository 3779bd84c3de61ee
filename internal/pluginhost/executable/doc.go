// SPDX-License-Identifier: Apache-2.0

// Package executable finds the executables of drivers, and opens one only if it is trusted.
//
//	Installed   the drivers in plugin directories, by name
//	Open        checks who can have changed the file, or a directory above it, and its digest
//	Identify    has the file been replaced?
//
// What is checked is what is executed: it stays open.
package executable
