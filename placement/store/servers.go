// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/placement/ledger"
)

const (
	// beatTime is the time between two signs of life of a server, in ledger_servers.
	beatTime = 2 * time.Second
	// deadAfter is how many of these times without one the others wait before they
	// remove the row of a server. One that lives makes it again.
	deadAfter = 30
	// aloneAfter is how many of these times a process that starts waits for a sign of
	// life of one that may not be there.
	aloneAfter = 5
)

// presence is the row of a store in ledger_servers, which shows commands that a
// process has the database open. No clocks are compared: a server lives if its beat grows.
type presence struct {
	store       *Store
	token, name string
	alone       bool
	// schema is the token of the step that made the tables of this program: others
	// mean that the database was handed back and adopted again.
	schema string
	stop   context.CancelFunc
	forget func()
	done   sync.WaitGroup
	others map[string]*silence
}

// silence is for how many looks the beat of another server has not grown.
type silence struct {
	beat  int64
	looks int
}

const schemaToken = "SELECT token FROM ledger_migrations WHERE number = 2"

// announce begins to show that the store is in use, until it is closed. It is refused
// if a process that lives has to be alone, or if this one has to be and is not.
func (s *Store) announce(ctx context.Context, alone bool) error {
	host, _ := os.Hostname() // what has no name has its process id
	p := &presence{store: s, token: uuid.NewString(), alone: alone, name: fmt.Sprintf("%.200s, process %d", host, os.Getpid()), others: map[string]*silence{}}
	if err := s.db.Reader.QueryRowContext(ctx, schemaToken).Scan(&p.schema); err != nil {
		return err
	}
	if err := p.insert(ctx); err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stop = stop
	p.forget = func() { p.removeOwn(context.WithoutCancel(ctx)) }
	s.presence = p
	p.done.Go(func() { p.run(running) })
	return p.checkAlone(ctx)
}

// checkAlone looks for processes beside which this one may not have the database
// open. Each shows itself before it looks: of two at least one finds the other.
func (p *presence) checkAlone(ctx context.Context) error {
	living, err := awaitEnd(ctx, p.store.db.Reader, func(r serverRow) bool { return r.token != p.token && (p.alone || r.alone) })
	if err != nil || living == nil {
		return err
	}
	return &sqldb.Error{Kind: sqldb.ErrInUse, Hint: named(living) + " it open; stop that first, or wait until it ends"}
}

// refuseOlder is an error that names the processes that have the database open and
// do not know a step of the schema after which they could not use it.
func refuseOlder(ctx context.Context, db *sql.DB, step int) error {
	living, err := awaitEnd(ctx, db, func(r serverRow) bool { return r.knows < step })
	if err != nil || living == nil {
		return err
	}
	return &sqldb.Error{Kind: sqldb.ErrInUse,
		Hint: fmt.Sprintf("step %d of its schema ends the use by older programs, and %s it open; stop or upgrade that first; nothing was changed", step, named(living))}
}

// named lists processes.
func named(living []serverRow) string {
	names := make([]string, len(living))
	for i, r := range living {
		names[i] = r.name
	}
	if len(names) == 1 {
		return names[0] + " has"
	}
	return strings.Join(names, "; ") + " have"
}

// awaitEnd waits until it is known of each process that matters whether it lives, or
// has removed its row. It returns those that live, and removes the rows of others.
func awaitEnd(ctx context.Context, db *sql.DB, matters func(serverRow) bool) (living []serverRow, err error) {
	first := map[string]int64{}
	for look := 0; ; look++ {
		rows, err := servers(ctx, db)
		if err != nil {
			return nil, err
		}
		living = nil
		var silent []serverRow
		for _, r := range rows {
			if !matters(r) {
				continue
			}
			if beat, seen := first[r.token]; seen && beat != r.beat {
				living = append(living, r)
				continue
			}
			first[r.token] = r.beat
			silent = append(silent, r)
		}
		if len(silent) == 0 {
			return living, nil
		}
		if look == aloneAfter { // they ended without removing their rows
			for _, r := range silent {
				if err := removeServer(ctx, db, r); err != nil {
					return nil, err
				}
			}
			return living, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(beatTime):
		}
	}
}

// removeServer removes the row of a process that shows no sign of life.
func removeServer(ctx context.Context, db *sql.DB, r serverRow) error {
	_, err := db.ExecContext(ctx, "DELETE FROM ledger_servers WHERE token = ? AND beat = ?", r.token, r.beat)
	return err
}

func (p *presence) insert(ctx context.Context) error {
	_, err := p.store.db.Reader.ExecContext(
		ctx,
		"INSERT INTO ledger_servers (token, name, beat, alone, knows) VALUES (?, ?, 1, ?, ?)"+p.store.db.Dialect.Upsert("token"),
		p.token,
		p.name,
		p.alone,
		schema.Newest(),
	)
	return err
}

func (p *presence) run(ctx context.Context) {
	ticker := time.NewTicker(beatTime)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = p.beat(ctx) // reads and commits notice what is wrong with the database
		}
	}
}

// beat shows that this server lives, and removes the rows of those that do not.
func (p *presence) beat(ctx context.Context) error {
	db := p.store.db
	result, err := db.Reader.ExecContext(ctx, "UPDATE ledger_servers SET beat = beat + 1 WHERE token = ?", p.token)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil {
		return err
	} else if n == 0 {
		return p.insert(ctx)
	}
	rows, err := servers(ctx, db.Reader)
	if err != nil {
		return err
	}
	now := make(map[string]*silence, len(rows))
	for _, r := range rows {
		seen := p.others[r.token]
		if seen == nil || seen.beat != r.beat {
			seen = &silence{beat: r.beat}
		} else if seen.looks++; seen.looks >= deadAfter {
			if err := removeServer(ctx, db.Reader, r); err != nil {
				return err
			}
		}
		now[r.token] = seen
	}
	p.others = now
	return nil
}

// close removes the row.
func (p *presence) close() {
	if p == nil {
		return
	}
	p.stop()
	p.done.Wait()
	p.forget()
}

// removeOwn removes the row of this process.
func (p *presence) removeOwn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, beatTime)
	defer cancel()
	_, _ = p.store.db.Reader.ExecContext(ctx, "DELETE FROM ledger_servers WHERE token = ?", p.token) // otherwise another server removes it
}

// serverRow is a row of ledger_servers.
type serverRow struct {
	token, name string
	beat        int64
	alone       bool
	knows       int
}

func servers(ctx context.Context, q sqldb.Querier) ([]serverRow, error) {
	return sqldb.All(ctx, q, func(row sqldb.Row) (r serverRow, err error) {
		err = row.Scan(&r.token, &r.name, &r.beat, &r.alone, &r.knows)
		return r, err
	}, "SELECT token, name, beat, alone, knows FROM ledger_servers ORDER BY name, token")
}

// handedBack is the error of a store whose tables were removed while it was open.
func handedBack() error {
	return &sqldb.Error{Kind: sqldb.ErrSchema, Means: ledger.ErrHandedBack,
		Hint: "it was handed back to OpenStack Placement while this server ran; stop this server"}
}

// madeAgain is the error of a store whose tables are others than those that it opened. What it
// knows is of the former ones, however the versions compare.
func madeAgain() error {
	return &sqldb.Error{Kind: sqldb.ErrSchema, Means: ledger.ErrReplaced,
		Hint: "its tables were made again while this server ran: a backup was restored, or it was handed back and adopted again; restart this server"}
}

// checkTables turns the error of a statement that did not fit the tables into that of
// a database that was handed back, if it was.
func (s *Store) checkTables(ctx context.Context, err error) error {
	if s.exclusive || err == nil || !s.db.Dialect.Mismatch(err) {
		return err
	}
	if has, lookErr := sqldb.HasTable(ctx, s.db.Dialect, s.db.Reader, "ledger_version"); lookErr != nil || has {
		return err
	}
	return handedBack()
}
