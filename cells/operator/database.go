// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/scheduler/cellmappings"
)

// Schema is how many steps of its schema the database of a compute API or of a cell has had, and
// how many there are.
type Schema struct {
	Database      string `json:"database"`
	Exists        bool   `json:"exists"`
	Schema        int    `json:"schema"`
	Newest        int    `json:"newest_schema"`
	UpgradeNeeded bool   `json:"upgrade_needed"`
}

// SchemaOf describes a database, of an address that may be shown, by what reading its version
// returned. One that does not exist is no error.
func SchemaOf(shown string, has, knows int, err error) (*Schema, error) {
	missing := errors.Is(err, fs.ErrNotExist) || err == nil && has == 0 && strings.Contains(shown, "://")
	if err != nil && !missing {
		return nil, err
	}
	return &Schema{Database: shown, Exists: !missing, Schema: has, Newest: knows, UpgradeNeeded: has < knows}, nil
}

// Upgrade is what an upgrade of a schema did.
type Upgrade struct {
	After  Schema `json:"after"`
	Before Schema `json:"before"`
}

// UpgradeOf describes an upgrade by the steps that the database had had before and has had since,
// and those that there are.
func UpgradeOf(shown string, had, has, knows int) *Upgrade {
	return &Upgrade{
		Before: Schema{shown, had > 0, had, knows, had < knows}, After: Schema{shown, true, has, knows, has < knows},
	}
}

// APISchema describes the schema of the API database, of a name to open it by. store is the open
// database of a compute API in this process; nil if there is none.
func APISchema(ctx context.Context, store apidb.Store, name, shown string) (*Schema, error) {
	has, knows, err := apiVersion(ctx, store, name)
	return SchemaOf(shown, has, knows, err)
}

// UpgradeAPI upgrades the schema of the API database to a step; 0: to the newest. A compute API
// that has it open did that when it started. engine.ErrInUse while programs of an older version
// use what the upgrade takes away.
func UpgradeAPI(ctx context.Context, store apidb.Store, name, shown string, to int) (*Upgrade, error) {
	had := 0
	if store == nil {
		var err error
		if had, err = apidb.Migrate(ctx, name, to); err != nil {
			return nil, err
		}
	}
	has, knows, err := apiVersion(ctx, store, name)
	switch {
	case err != nil:
		return nil, err
	case store == nil:
		return UpgradeOf(shown, had, has, knows), nil
	case to != 0 && to != has:
		return nil, fmt.Errorf("%s is at step %d, which the compute API that has it open requires", shown, has)
	}
	return UpgradeOf(shown, has, has, knows), nil
}

func apiVersion(ctx context.Context, store apidb.Store, name string) (has, knows int, err error) {
	if store != nil {
		return store.SchemaVersion(ctx)
	}
	return apidb.Version(ctx, name)
}

// MigrateQueued sets queued_for_delete of servers from before it existed, of at most limit; 0:
// all. It returns how many were looked at, and how many have it now, also with an error.
func (d *Deployment) MigrateQueued(ctx context.Context, limit int) (found, migrated int, err error) {
	report, err := cellmappings.MigrateQueued(ctx, d.Store, d.Gatherer, limit)
	for _, f := range report.Failed {
		err = errors.Join(err, fmt.Errorf("cell %s: %w; its rows are unchanged, run this again when the cell "+
			"answers", f.Cell.Name, f.Err))
	}
	return report.Found, report.Migrated, err
}
