// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// LimitMemory sets the memory limit of the Go runtime to a share, in percent, of what its control
// group may use: MemoryMax= of the unit, or the limit of the container. The rest is for memory that
// the runtime does not count, and for child processes. It returns the limit in bytes, 0 for none.
// If the environment variable GOMEMLIMIT is set, it changes nothing.
func LimitMemory(percent int64) int64 {
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0
	}
	available := memoryMax("/")
	if available == 0 {
		return 0
	}
	limit := available / 100 * percent
	debug.SetMemoryLimit(limit)
	return limit
}

// noLimit is the value without a limit in version 1 of control groups, rounded to pages.
const noLimit = math.MaxInt64 &^ (1<<20 - 1)

// memoryMax returns the lowest limit in bytes of this process's control group and its parents, 0
// for none. root is the prefix of all files.
func memoryMax(root string) int64 {
	membership, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return 0
	}
	lowest := int64(0)
	for line := range strings.Lines(string(membership)) {
		hierarchy, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		mount, file := "sys/fs/cgroup", "memory.max"
		switch {
		case hierarchy == "0" && controllers == "": // version 2
		case controllers == "memory":
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for at := filepath.Clean("/" + group); ; at = filepath.Dir(at) {
			limit := readLimit(filepath.Join(root, mount, at, file))
			if limit > 0 && (lowest == 0 || limit < lowest) {
				lowest = limit
			}
			if at == "/" {
				break
			}
		}
	}
	return lowest
}

// readLimit returns the number in a file, 0 for "max" or if the file does not exist.
func readLimit(file string) int64 {
	content, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	if err != nil || limit >= noLimit {
		return 0
	}
	return limit
}
