// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"fmt"
	"os"
)

// DescriptorsClosed records the descriptors of this process that are open. The function that it
// returns ends the process with code, or with 1 if others are open by then, which it names.
func DescriptorsClosed() (exit func(code int)) {
	before := descriptors()
	return func(code int) {
		for fd, to := range descriptors() {
			// The runtime opens its own once in a process.
			if before[fd] != to && to != "anon_inode:[eventpoll]" && to != "anon_inode:[eventfd]" {
				fmt.Fprintf(os.Stderr, "descriptor %s, of %s, is left open\n", fd, to)
				code = max(code, 1)
			}
		}
		os.Exit(code)
	}
}

// descriptors are those of this process that are open, and what they are.
func descriptors() map[string]string {
	entries, _ := os.ReadDir("/proc/self/fd")
	out := map[string]string{}
	for _, e := range entries {
		// the one of the directory is closed by now
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			out[e.Name()] = to
		}
	}
	return out
}
