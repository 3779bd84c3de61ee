// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/placement/transactor"
)

// Database is what is in the place that a Config names as its database.
type Database struct {
	// Path is the file, or the address of a database of servers, without its password.
	Path string
	// Exists is whether it is there. A database of servers has to be.
	Exists bool
	Schema store.Schema
}

// ReadDatabase looks at the database of a configuration and changes nothing. That there is none is
// no error. Of the configuration it needs StateDir or Database.
func ReadDatabase(ctx context.Context, cfg Config) (Database, error) {
	name, err := cfg.DatabaseName()
	if err != nil {
		return Database{}, err
	}
	schema, err := store.ReadSchema(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return Database{Path: name, Schema: schema}, nil
	}
	if err != nil {
		return Database{}, fmt.Errorf("look at the Placement database: %w", err)
	}
	return Database{Path: engine.Shown(name), Exists: true, Schema: schema}, nil
}

// UpgradeDatabase makes the database of a configuration when there is none, adopts one that
// OpenStack Placement made, and brings the schema up to date. It may be repeated. It returns what
// was there and what is.
func UpgradeDatabase(ctx context.Context, cfg Config) (before, after Database, err error) {
	if before, err = ReadDatabase(ctx, cfg); err != nil {
		return before, after, err
	}
	name, _ := cfg.DatabaseName() // ReadDatabase has checked it
	s, err := store.Open(ctx, name, store.Options{Upgrade: true})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		return before, after, fmt.Errorf("upgrade the Placement database: %w", err)
	}
	after, err = ReadDatabase(ctx, cfg)
	return before, after, err
}

// migrationBatch is how many records one transaction of an online migration makes: enough that
// looking for them again is no matter, few enough that clients of the server are not held up.
const migrationBatch = 1000

// Database is the database of the server.
func (s *Server) Database(ctx context.Context) (Database, error) {
	schema, err := s.store.Schema(ctx)
	return Database{Path: s.database, Exists: true, Schema: schema}, err
}

// MigrateConsumers is the function MigrateConsumers for the database of the server, which shows the
// records at once.
func (s *Server) MigrateConsumers(ctx context.Context, limit int) (missing, made int, err error) {
	return migrateConsumers(ctx, s.ledger, s.options, limit)
}

// MigrateConsumers makes the consumer records that are missing for allocations which an old
// Placement wrote without, at most limit (all of them for 0), owned by the incomplete project and
// user of cfg.Placement. It returns how many were missing, and how many it made; with an error,
// those that were made stay. It may be repeated. The schema is brought up to date first, as a
// server does when it starts.
func MigrateConsumers(ctx context.Context, cfg Config, limit int) (missing, made int, err error) {
	db, err := ReadDatabase(ctx, cfg)
	switch {
	case err != nil:
		return 0, 0, err
	case !db.Exists:
		return 0, 0, fmt.Errorf("%w: there is no database at %s", ErrConfig, db.Path)
	}
	name, _ := cfg.DatabaseName() // ReadDatabase has checked it
	l, _, err := openLedger(ctx, name, &cfg, nil)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return migrateConsumers(ctx, l, cfg.Placement, limit)
}

func migrateConsumers(
	ctx context.Context, l *transactor.Ledger, o api.Options, limit int,
) (missing, made int, err error) {
	project, user := cmp.Or(o.IncompleteProjectID, api.IncompleteID), cmp.Or(o.IncompleteUserID, api.IncompleteID)
	for first := true; limit == 0 || made < limit; first = false {
		batch := migrationBatch
		if limit > 0 {
			batch = min(batch, limit-made)
		}
		var now int
		if _, err := l.Update(ctx, func(tx *ledger.Tx) error {
			if first { // of this moment: other servers may be making records, too
				missing = tx.MissingConsumers()
			}
			now = tx.AddMissingConsumers(project, user, batch)
			return nil
		}); err != nil {
			return missing, made, fmt.Errorf("make missing consumer records: %w", err)
		}
		made += now
		if now < batch {
			break
		}
	}
	return missing, made, nil
}

// CheckAdoption looks whether the database of a configuration, which OpenStack Placement made, can
// be served, and changes nothing. Of the configuration it needs StateDir or Database.
func CheckAdoption(ctx context.Context, cfg Config) (store.Adoption, error) {
	return ofDatabase(cfg, "check the Placement database", func(name string) (store.Adoption, error) {
		return store.CheckAdoption(ctx, name)
	})
}

// Adopt makes the tables of this program in a database that OpenStack Placement made; see
// [store.Adopt].
func Adopt(ctx context.Context, cfg Config, o store.AdoptOptions) (store.Adopted, error) {
	return ofDatabase(cfg, "adopt the Placement database", func(name string) (store.Adopted, error) {
		return store.Adopt(ctx, name, o)
	})
}

// HandBack removes what Adopt made; see [store.HandBack].
func HandBack(ctx context.Context, cfg Config, o store.AdoptOptions) (store.Adopted, error) {
	return ofDatabase(cfg, "hand the Placement database back", func(name string) (store.Adopted, error) {
		return store.HandBack(ctx, name, o)
	})
}

// ofDatabase does something with the database of a configuration.
func ofDatabase[T any](cfg Config, what string, do func(name string) (T, error)) (out T, err error) {
	name, err := cfg.DatabaseName()
	if err != nil {
		return out, err
	}
	if out, err = do(name); err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return out, err
}
