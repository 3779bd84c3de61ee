// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/sqldb/backup"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRestoreUnderARunningServer: a database that a server has is not restored to. If it is made
// again with a backup in it, a server that ran all the time neither shows what it knew, nor writes,
// also when the restored database has reached its version. One that starts has what was restored.
func TestRestoreUnderARunningServer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	eachShared(t, func(t *testing.T, e testEngine) {
		name := e.fresh(t)
		o := store.DatabaseOptions()
		running := open(t, name)
		defer func() { _ = running.Close() }() // its row is gone with the tables
		createClass := func(l *transactor.Ledger, class string) error {
			_, err := l.Update(ctx, func(tx *ledger.Tx) error {
				_, _, err := tx.CreateClass(class)
				return err
			})
			return err
		}
		file := filepath.Join(t.TempDir(), "backup")
		testproc.Check(t, errors.Join(createClass(running, "CUSTOM_KEPT"), backup.Create(ctx, name, o, file),
			createClass(running, "CUSTOM_LOST")))
		had := running.Current().Version()
		if _, err := backup.Restore(ctx, name, o, file); !errors.Is(err, engine.ErrNotEmpty) {
			t.Errorf("restored to a database in use: %v", err)
		}
		if _, err := running.Snapshot(ctx); err != nil {
			t.Errorf("after a restore that was refused: %v", err)
		}
		emptied(t, name)
		testproc.Try(backup.Restore(ctx, name, o, file)).Or(t)
		refused := func(when string) {
			t.Helper()
			for what, err := range map[string]error{"write": createClass(running, "CUSTOM_OTHER"),
				"read": func() error { _, err := running.Snapshot(ctx); return err }()} {
				if !errors.Is(err, ledger.ErrReplaced) || !strings.Contains(err.Error(), "restart this server") {
					t.Errorf("%s: a %s: %v", when, what, err)
				}
			}
		}
		refused("restored")
		started := open(t, name)
		for started.Current().Version() < had {
			testproc.Check(t, createClass(started, "CUSTOM_NEW"+string(rune('A'+started.Current().Version()%26))))
		}
		refused("at the same version")
		s := started.Current()
		_, kept := s.Class("CUSTOM_KEPT")
		_, lost := s.Class("CUSTOM_LOST")
		if !kept || lost {
			t.Errorf("the server that started: has what was backed up: %v, and what was not: %v", kept, lost)
		}
		closeLedger(t, started)
	})
}

// emptied drops all tables of a database, as an operator does who makes it again.
func emptied(t *testing.T, name string) {
	t.Helper()
	u := testproc.Try(url.Parse(name)).Or(t)
	if database := strings.TrimPrefix(u.Path, "/"); u.Scheme == "mysql" {
		dbservers.Execute(t, name, "DROP DATABASE "+database, "CREATE DATABASE "+database+" CHARACTER SET utf8mb4")
	} else {
		dbservers.Execute(t, name, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
	}
}
