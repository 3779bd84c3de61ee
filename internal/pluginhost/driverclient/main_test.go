// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(testproc.DescriptorsClosed()))
}
