// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"testing"

	"github.com/compute-agent/compute-agent/test/dbservers"
)

// TestOnServers: lists and servers of real cells, with all databases on a server.
func TestOnServers(t *testing.T) {
	dbservers.Brief(t, TestRealCells, TestShowWhileACellIsDown)
}
