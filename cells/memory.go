// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"os"
	"runtime/debug"
)

// collectAt is by how many hundredths of what lives the heap grows before garbage is collected; Go's own is 100.
const collectAt = 400

// SpendMemory lets garbage take four times what lives, unless the environment variable GOGC says something: little lives in a process that serves the
// compute API or a cell, and its answers are much. It is a fifth of the CPU time of lists. It holds for the whole process, so a program says it, if it
// is for nothing else.
func SpendMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
}
