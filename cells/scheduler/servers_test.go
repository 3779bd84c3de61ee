// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"testing"

	"github.com/compute-agent/compute-agent/test/dbservers"
)

// TestOnServers: some of what all databases take part in, on database servers.
func TestOnServers(t *testing.T) {
	dbservers.Brief(t, TestBoot, TestSoftDelete, TestLostDatabase)
}
