// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// ManagedDatabase is a database of Placement that an operator looks at or changes: the one that a
// service of this process has open, or else the one that a configuration names. A command on a
// database that a service has open runs in that service.
type ManagedDatabase struct {
	Server *Server
	Config Config
}

// Name is the database for people, without a password.
func (d ManagedDatabase) Name(ctx context.Context) (string, error) {
	if d.Server != nil {
		db, err := d.Server.Database(ctx)
		return db.Path, err
	}
	name, err := d.Config.DatabaseName()
	return engine.Shown(name), err
}

// Read looks at the database, and changes nothing.
func (d ManagedDatabase) Read(ctx context.Context) (DatabaseView, error) {
	read := ReadDatabase
	if d.Server != nil {
		read = func(ctx context.Context, _ Config) (Database, error) {
			return d.Server.Database(ctx)
		}
	}
	db, err := read(ctx, d.Config)
	return viewOf(db), err
}

// Upgrade brings the schema up to date; see [UpgradeDatabase]. A service did that when it started.
func (d ManagedDatabase) Upgrade(ctx context.Context) (before, after DatabaseView, err error) {
	if d.Server != nil {
		after, err = d.Read(ctx)
		return after, after, err
	}
	was, is, err := UpgradeDatabase(ctx, d.Config)
	return viewOf(was), viewOf(is), err
}

// MigrateConsumers makes consumer records that are missing; see [MigrateConsumers].
func (d ManagedDatabase) MigrateConsumers(ctx context.Context, limit int) (missing, made int, err error) {
	if d.Server != nil {
		return d.Server.MigrateConsumers(ctx, limit)
	}
	return MigrateConsumers(ctx, d.Config, limit)
}

// DatabaseView is a database for people and programs.
type DatabaseView struct {
	Database string `json:"database"`
	Exists   bool   `json:"exists"`
	// Migration is the last migration that was run there, Newest the last one of this program.
	Migration int `json:"migration"`
	Newest    int `json:"newest_migration"`
	// Alembic is the version of OpenStack Placement's tables.
	Alembic       string `json:"alembic_version"`
	UpgradeNeeded bool   `json:"upgrade_needed"`
	// Upgrade is what an upgrade does to it, in words.
	Upgrade string `json:"-"`
}

func viewOf(db Database) DatabaseView {
	v := DatabaseView{
		db.Path, db.Exists, db.Schema.Migration, db.Schema.Newest, db.Schema.Alembic,
		!db.Exists || db.Schema.NeedsUpgrade(), "not needed",
	}
	switch {
	case !db.Exists:
		v.Upgrade = "creates it"
	case !db.Schema.CanBeAdopted():
		v.Upgrade = "not possible yet: run `placement-manage db sync` of OpenStack Placement 6.0.0 or later first"
	case db.Schema.NeedsUpgrade():
		v.Upgrade = "needed: compute-agent placement db upgrade"
	case db.Schema.IsNewer():
		v.Upgrade = "not possible: the schema is from a newer version of this program; use that version"
	}
	return v
}

// Schema describes the schema of the database.
func (v DatabaseView) Schema() string {
	switch {
	case !v.Exists:
		return "no database"
	case v.Migration > 0:
		return fmt.Sprintf("migration %d", v.Migration)
	case v.Alembic != "":
		return "OpenStack Placement's tables at " + v.Alembic
	}
	return "an empty file"
}
