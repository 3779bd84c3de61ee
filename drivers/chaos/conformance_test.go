// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/compute-agent/compute-agent/plugins/drivertest"
)

// TestWithoutOrdersItConforms: what is wrong when it has orders is the orders' doing.
func TestWithoutOrdersItConforms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "compute-driver-chaos")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/compute-agent/compute-agent/cmd/compute-driver-chaos").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	drivertest.Run(t, drivertest.Options{Path: path, Instances: &drivertest.InstanceTemplate{}})
}
