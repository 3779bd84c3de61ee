// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"testing"

	"github.com/compute-agent/compute-agent/test/dbservers"
)

// unmigrate makes mappings of an API database ones of before queued_for_delete, which no program
// can write any more.
func unmigrate(t testing.TB, database string, uuids ...string) {
	t.Helper()
	for _, uuid := range uuids {
		dbservers.Execute(t, database, "UPDATE instance_mappings SET queued_for_delete = NULL WHERE instance_uuid = '"+
			uuid+"'")
	}
}
