// SPDX-License-Identifier: Apache-2.0

// Package version knows which build this is.
package version

import (
	"runtime"
	"runtime/debug"
)

// number is set by the linker (see the Makefile).
var number string

// Number is the version: a tag or a commit as git describes it, or "unknown" for a build outside a
// checkout.
func Number() string {
	if number != "" {
		return number
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "unknown"
}

// Go is the version of Go that it was built with, and for which platform.
func Go() string { return runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH }
