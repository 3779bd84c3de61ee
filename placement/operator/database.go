// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/placement"
)

// Database is a database of Placement: the one that a service of this process has open, or else the
// one that a configuration names.
type Database struct {
	Server *placement.Server
	Config placement.Config
}

// Name is the database for people, without a password.
func (d Database) Name(ctx context.Context) (string, error) {
	if d.Server != nil {
		db, err := d.Server.Database(ctx)
		return db.Path, err
	}
	name, err := d.Config.DatabaseName()
	return sqldb.Shown(name), err
}

// Read looks at the database, and changes nothing.
func (d Database) Read(ctx context.Context) (View, error) {
	read := placement.ReadDatabase
	if d.Server != nil {
		read = func(ctx context.Context, _ placement.Config) (placement.Database, error) {
			return d.Server.Database(ctx)
		}
	}
	db, err := read(ctx, d.Config)
	return viewOf(db), err
}

// Upgrade brings the schema up to date; see [placement.UpgradeDatabase]. A service did that when it
// started.
func (d Database) Upgrade(ctx context.Context) (before, after View, err error) {
	if d.Server != nil {
		after, err = d.Read(ctx)
		return after, after, err
	}
	was, is, err := placement.UpgradeDatabase(ctx, d.Config)
	return viewOf(was), viewOf(is), err
}

// MigrateConsumers makes consumer records that are missing; see [placement.MigrateConsumers].
func (d Database) MigrateConsumers(ctx context.Context, most int) (missing, made int, err error) {
	if d.Server != nil {
		return d.Server.MigrateConsumers(ctx, most)
	}
	return placement.MigrateConsumers(ctx, d.Config, most)
}

// View is a database for people and programs.
type View struct {
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

func viewOf(db placement.Database) View {
	v := View{
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
func (v View) Schema() string {
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
