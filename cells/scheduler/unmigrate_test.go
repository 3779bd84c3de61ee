// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"database/sql"
	"errors"

	"github.com/compute-agent/compute-agent/cells/apidb"
)

// unmigrate makes a mapping one of before queued_for_delete, which no program can write any more.
func unmigrate(store *apidb.DB, uuid string) error {
	db, err := sql.Open("sqlite", store.Path())
	if err != nil {
		return err
	}
	_, err = db.Exec("UPDATE instance_mappings SET queued_for_delete = NULL WHERE instance_uuid = ?", uuid)
	return errors.Join(err, db.Close())
}
