// SPDX-License-Identifier: Apache-2.0

package testproc_test

import (
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestFreeAddressIsGivenOnce: of so many free addresses some would be drawn twice, if they were not
// taken.
func TestFreeAddressIsGivenOnce(t *testing.T) {
	given := map[string]bool{}
	for range 800 {
		address := testproc.FreeAddress(t)
		if given[address] {
			t.Fatalf("%s is given twice", address)
		}
		given[address] = true
	}
}
