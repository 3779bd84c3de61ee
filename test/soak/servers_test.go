// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"testing"

	"github.com/compute-agent/compute-agent/test/dbservers"
)

// TestOnServers: the storms, briefly, on MariaDB and PostgreSQL.
func TestOnServers(t *testing.T) {
	dbservers.Brief(t, TestLinearizable, TestKillDuringStorm)
}
