// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"io"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestSuiteThatIsNotInstalled: beside the binary of this test there is none.
func TestSuiteThatIsNotInstalled(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	_, err := StartSuite(io.Discard)
	testproc.ErrorHas(t, err, "there is no compute-driver-test in ", "%v")
	testproc.ErrorHas(t, err, "make build", "%v")
}
