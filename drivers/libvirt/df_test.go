// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// df asks the df command for the size of the file system below dir, in whole GiB.
func df(t *testing.T, dir string) int64 {
	t.Helper()
	out := testproc.Try(exec.CommandContext(t.Context(), "df", "--block-size=1", "--output=size", dir).Output()).Or(t)
	lines := strings.Fields(string(out))
	n := testproc.Try(strconv.ParseInt(lines[len(lines)-1], 10, 64)).Or(t)
	return n >> 30
}
