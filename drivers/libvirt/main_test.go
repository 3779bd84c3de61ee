// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"os"
	"testing"

	"github.com/compute-agent/compute-agent/test/testhost"
)

func TestMain(m *testing.M) {
	testhost.SimMain()
	os.Exit(m.Run())
}
