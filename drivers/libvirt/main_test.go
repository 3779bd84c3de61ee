// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"os"
	"testing"

	"github.com/compute-agent/compute-agent/test/testhost/sim"
)

func TestMain(m *testing.M) {
	sim.Main()
	os.Exit(m.Run())
}
