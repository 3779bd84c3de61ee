// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement/ledger"
)

// CheckAdoption looks at a database that OpenStack Placement made, or that this program
// adopted, on one snapshot, and changes nothing. Errors are *engine.Error.
// Cost: that of loading it, about 10 µs for each row.
func CheckAdoption(ctx context.Context, name string) (found Adoption, err error) {
	a, err := engine.ParseAddress(name)
	if err != nil {
		return Adoption{}, err
	}
	if a.Shared() {
		err = sqldb.Administer(ctx, name, "checking", sqldb.Options{Means: ledgerError},
			func(ctx context.Context, d *engine.Dialect, db *sql.DB) error {
				found, err = check(ctx, d, db)
				return err
			})
	} else {
		err = sqldb.Inspect(ctx, name, sqldb.Options{Schema: schema, Means: ledgerError},
			func(ctx context.Context, d *engine.Dialect, q sqldb.Querier) error {
				var state *ledger.State
				found, state, err = readOpenStack(ctx, d, q)
				found.checkRows(state)
				return err
			})
	}
	found.Database = a.String()
	return found, err
}

// check reads a database of servers in one transaction, and checks the rows after its end: that can
// take longer than PostgreSQL lets a transaction wait for its client.
func check(ctx context.Context, d *engine.Dialect, db *sql.DB) (found Adoption, err error) {
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	tx, err := db.BeginTx(ctx, d.Snapshot())
	if err != nil {
		return Adoption{}, err
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	found, state, err := readOpenStack(ctx, d, tx)
	if err != nil || found.State == StateEmpty {
		return found, err
	}
	var others []Finding
	if found.Sessions, err = sqldb.Sessions(ctx, d, tx); err != nil {
		return found, err
	}
	found.Guardable = len(theirTables)
	if found.State, found.Guarded, err = sharedState(ctx, d, tx); err != nil {
		return found, err
	}
	if found.State == StateAdopted {
		if found.Servers, err = schema.ProcessNames(ctx, tx); err != nil {
			return found, err
		}
	}
	rules, err := sqldb.TriggerRules(ctx, d, tx)
	if err != nil {
		return found, err
	}
	if found.Nodes = rules.Nodes; rules.Logged {
		others = append(
			others,
			Finding{
				ID:      "administrator",
				Verdict: Arrange,
				Count:   1,
				Fix: "SET GLOBAL log_bin_trust_function_creators = 1, as an administrator and on this server, until " +
					"--apply is done, and again for --hand-back; or run both with the address of an administrator",
				Meaning: "the server has a binary log or is a node of a Galera cluster: users without the privilege " +
					"SUPER cannot make or remove the triggers that keep OpenStack Placement from writing (error 1419)",
			},
		)
	}
	if d == engine.MySQL {
		more, err := mysqlFindings(ctx, tx)
		if err != nil {
			return found, err
		}
		others = append(others, more...)
	}
	if err := tx.Rollback(); err != nil {
		return found, err
	}
	found.checkRows(state)
	found.add(others...)
	return found, nil
}

// readOpenStack reads what is checked later. The state is nil if no rows have to be checked.
func readOpenStack(
	ctx context.Context, d *engine.Dialect, q sqldb.Querier,
) (found Adoption, state *ledger.State, err error) {
	if found.State, err = stateOf(ctx, d, q); err != nil || found.State == StateEmpty {
		return found, nil, err
	}
	if found.Alembic, err = alembic(ctx, d, q); err != nil {
		return found, nil, err
	}
	found.Release = placementHeads[found.Alembic]
	if hint := versionProblem(found.Alembic); hint != "" {
		if err := refuseNova(ctx, d, q); err != nil {
			return found, nil, err
		}
		found.add(Finding{ID: "unknown-version", Verdict: MustRepair, Count: 1,
			Meaning: "the tables are not of a version that this program knows", Fix: hint})
		return found, nil, nil // they may be different
	}
	for _, table := range theirTables {
		var n int64
		if err := q.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+table).Scan(&n); err != nil {
			return found, nil, err
		}
		found.Counts = append(found.Counts, Count{table, n})
	}
	if state, err = loadState(reader{ctx: ctx, tx: q, dialect: d}); err != nil {
		if kind, _ := d.Kind(err); kind != nil || ctx.Err() != nil {
			return found, nil, err
		}
		found.add(
			Finding{
				ID:      "unreadable",
				Verdict: MustRepair,
				Count:   1,
				Meaning: "a row cannot be read: " + err.Error(),
				Fix:     "look at the columns that the error names, and correct the row",
			},
		)
		return found, nil, nil
	}
	return found, state, nil
}

// checkRows adds a finding for whatever is unusual about the rows; none if state is nil.
func (a *Adoption) checkRows(state *ledger.State) {
	if state == nil {
		return
	}
	a.add(findings(state)...)
	if _, err := ledger.NewSnapshot(state); err != nil && !a.MustRepair() {
		a.add(Finding{ID: "inconsistent", Verdict: MustRepair, Count: 1, Meaning: err.Error(),
			Fix: "correct the row that the error names"})
	}
}

// MustRepair says that something has to be repaired before the database can be adopted.
func (a *Adoption) MustRepair() bool {
	return len(a.Findings) > 0 && a.Findings[0].Verdict == MustRepair
}

// refuse is an error that matches ErrRefused if the database must not be adopted now.
func (a *Adoption) refuse(o AdoptOptions) error {
	switch {
	case a.State == StateEmpty:
		return fmt.Errorf("%w: %s has no tables; `compute-agent placement db upgrade` makes them in an empty database",
			ErrRefused, a.Database)
	case a.MustRepair():
		return fmt.Errorf(
			"%w: %s has to be repaired first (%s: %s); `compute-agent placement adopt --check` lists all of it",
			ErrRefused, a.Database, a.Findings[0].ID, a.Findings[0].Meaning)
	case len(a.Sessions) > 0 && !o.Force:
		return fmt.Errorf(
			"%w: other programs are connected to %s: %s; stop OpenStack Placement on all machines, or use --force "+
				"if none of them is one", ErrRefused, a.Database, listed(a.Sessions))
	}
	return nil
}

// mysqlFindings are about how MariaDB and MySQL keep the tables.
func mysqlFindings(ctx context.Context, q sqldb.Querier) (out []Finding, err error) {
	names := func(query string) ([]string, error) { return sqldb.All(ctx, q, sqldb.Value[string], query) }
	const theirs = " WHERE table_schema = DATABASE() AND table_name IN ('resource_providers', 'inventories', " +
		"'allocations', 'consumers', 'resource_classes', 'traits', " +
		"'resource_provider_traits', 'placement_aggregates', 'resource_provider_aggregates', 'projects', 'users', " +
		"'consumer_types')"
	const named = " AND column_name IN ('name', 'external_id', 'uuid', 'consumer_id')"
	for _, f := range []struct {
		Finding
		query string
	}{
		{Finding{ID: "engine", Verdict: MustRepair, Meaning: "tables are not kept by InnoDB: they have no transactions",
			Fix: "ALTER TABLE … ENGINE = InnoDB for each"},
			"SELECT table_name FROM information_schema.tables" + theirs + " AND LOWER(engine) <> 'innodb'"},
		{Finding{ID: "case", Verdict: Harmless,
			Meaning: "columns do not tell A from a: a provider's name that differs from an existing one only in " +
				"case or accents is refused (409), and ids of projects and users in either case are one, as with " +
				"OpenStack's Placement"},
			"SELECT CONCAT(table_name, '.', column_name) FROM information_schema.columns" + theirs + named +
				" AND collation_name LIKE '%\\_ci'"},
		{Finding{ID: "character-set", Verdict: Harmless,
			Meaning: "columns have the character set latin1 or ascii: a name with other letters is refused (400)"},
			"SELECT CONCAT(table_name, '.', column_name) FROM information_schema.columns" + theirs + named +
				" AND character_set_name IN ('latin1', 'ascii')"},
		{Finding{ID: "ratio-digits", Verdict: Harmless,
			Meaning: "the column keeps six digits of an allocation ratio, as with OpenStack's Placement"},
			"SELECT CONCAT(table_name, '.', column_name) FROM information_schema.columns" + theirs +
				" AND column_name = 'allocation_ratio' AND data_type = 'float'"},
	} {
		found, err := names(f.query)
		if err != nil {
			return nil, err
		}
		if f.Count = int64(len(found)); len(found) > 0 {
			f.Examples = found[:min(len(found), maxExamples)]
			out = append(out, f.Finding)
		}
	}
	return out, nil
}

// loadState reads every row of OpenStack Placement's tables.
func loadState(r reader) (*ledger.State, error) {
	state := new(ledger.State)
	var errs []error
	for _, t := range namedTables {
		errs = append(errs, r.named(t, t.in(state), nil))
	}
	errs = append(errs, r.providers(state, nil), r.consumers(state, nil))
	return state, errors.Join(errs...)
}
