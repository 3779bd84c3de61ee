// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// df asks the df command for the size of the file system below dir, in whole GiB.
func df(t *testing.T, dir string) int64 {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "df", "--block-size=1", "--output=size", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(out))
	n, err := strconv.ParseInt(lines[len(lines)-1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n >> 30
}
