// SPDX-License-Identifier: Apache-2.0

package cell_test

import (
	"testing"

	"github.com/compute-agent/compute-agent/test/dbservers"
)

// TestOnServers: some of what a cell is asked, with its database on a server.
func TestOnServers(t *testing.T) {
	dbservers.Brief(t, TestAServersLife, TestLifeOfAHost, TestRestart)
}
