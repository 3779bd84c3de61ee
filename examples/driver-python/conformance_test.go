// SPDX-License-Identifier: Apache-2.0

package driverpython_test

import (
	"testing"

	"github.com/compute-agent/compute-agent/plugins/drivertest"
)

// TestRealConformance puts the suite that every driver must pass to this one. It is not in
// parallel: the check of remaining processes takes what starts beside it for its plugin's.
func TestRealConformance(t *testing.T) {
	need(t)
	drivertest.Run(t, drivertest.Options{
		Path:   builtDriver,
		Config: []byte(`{"gpus":{"a":4,"b":4},"traits":["CUSTOM_PYTHON"],"look_every":0.1}`),
		Former: []byte(`{"gpus":{"a":4,"b":4},"gpu_layout":"node"}`),
		Instances: &drivertest.InstanceTemplate{
			UserData: []byte("#cloud-config"), Metadata: map[string]string{"role": "test"},
		},
	})
}
