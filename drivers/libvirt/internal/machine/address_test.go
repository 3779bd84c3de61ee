// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestAddressFormsAgree(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		a := machine.Address{
			Domain: rapid.Uint32().Draw(t, "domain"), Bus: rapid.Uint8().Draw(t, "bus"),
			Slot: rapid.Uint8Range(0, 31).Draw(t, "slot"), Function: rapid.Uint8Range(0, 7).Draw(t, "function"),
		}
		text, err := machine.ParseAddress(a.String())
		if err != nil || text != a {
			t.Fatalf("%s: %v, %v", a, text, err)
		}
		name, err := machine.ParseDeviceName(a.DeviceName())
		if err != nil || name != a {
			t.Fatalf("%s: %v, %v", a.DeviceName(), name, err)
		}
	})
}

func TestInvalidAddressesAreRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, text := range []string{"", "82:00.0", "0000:82:00", "0000:82:20.0", "0000:82:00.8", "0000:82:00.0 ",
		"00000000f:82:00.0", "g000:82:00.0"} {
		if a, err := machine.ParseAddress(text); err == nil {
			t.Errorf("%q is %v", text, a)
		}
	}
}
