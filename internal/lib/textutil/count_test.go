// SPDX-License-Identifier: Apache-2.0

package textutil

import (
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestCount(t *testing.T) {
	for want, got := range map[string]string{
		"1 node": Count(1, "node"), "0 nodes": Count(0, "node"), "-1 nodes": Count(-1, "node"),
		"2 nodes": Count(int64(2), "node"),
		"1 pass":  Count(1, "pass"), "2 passes": Count(2, "pass"), "1 inventory": Count(1, "inventory"),
		"2 inventories": Count(2, "inventory"),
		"2 keys":        Count(2, "key"), "2 resource providers": Count(2, "resource provider"),
	} {
		testproc.Equal(t, got, want, "%q")
	}
}
