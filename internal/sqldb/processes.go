// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/internal/lib/wait"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

const (
	// forgottenAfter is how many times beatTime without a sign of life the others wait before they
	// remove the row of a process. One that lives makes it again.
	forgottenAfter = 30
	// judgedAfter is how many times beatTime a process waits for a sign of life of one that may not
	// be there.
	judgedAfter = 5
)

// ThisProcess is this process, for people.
func ThisProcess() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%.200s, process %d", host, os.Getpid())
}

// process is a row of the table that Schema.Processes names.
type process struct {
	token, name string
	beat        int64
	exclusive   bool
	schemaSteps int
}

func (s *Schema) processes(ctx context.Context, q Querier) ([]process, error) {
	return All(ctx, q, func(row Row) (p process, err error) {
		err = row.Scan(&p.token, &p.name, &p.beat, &p.exclusive, &p.schemaSteps)
		return p, err
	}, "SELECT token, name, beat, alone, knows FROM "+s.Processes+" ORDER BY name, token")
}

// ProcessNames are the processes that have a database of servers open, or had it open and were
// killed.
func (s *Schema) ProcessNames(ctx context.Context, q Querier) (names []string, err error) {
	found, err := s.processes(ctx, q)
	for _, p := range found {
		names = append(names, p.name)
	}
	return names, err
}

// LiveProcesses returns the names of the processes that have a database of servers open now. It
// waits for a heartbeat of each, and up to ten seconds for a process that was killed.
func (s *Schema) LiveProcesses(ctx context.Context, db *sql.DB) (names []string, err error) {
	living, err := s.waitLive(ctx, db, func(process) bool { return true })
	for _, p := range living {
		names = append(names, p.name)
	}
	return names, err
}

// waitLive waits until it is known of each process that matters whether it lives, or has removed
// its row. It returns those that live, and removes the rows of others.
func (s *Schema) waitLive(ctx context.Context, db *sql.DB, matters func(process) bool) (living []process, err error) {
	first := map[string]int64{}
	for look := 0; ; look++ {
		found, err := s.processes(ctx, db)
		if err != nil {
			return nil, err
		}
		living = nil
		var silent []process
		for _, p := range found {
			if !matters(p) {
				continue
			}
			if beat, seen := first[p.token]; seen && beat != p.beat {
				living = append(living, p)
				continue
			}
			first[p.token] = p.beat
			silent = append(silent, p)
		}
		if len(silent) == 0 {
			return living, nil
		}
		if look == judgedAfter { // they ended without removing their rows
			for _, p := range silent {
				if err := s.forget(ctx, db, p); err != nil {
					return nil, err
				}
			}
			return living, nil
		}
		if !wait.For(ctx, beatTime) {
			return nil, context.Cause(ctx)
		}
	}
}

// forget removes the row of a process that shows no sign of life.
func (s *Schema) forget(ctx context.Context, db *sql.DB, p process) error {
	_, err := db.ExecContext(ctx, "DELETE FROM "+s.Processes+" WHERE token = ? AND beat = ?", p.token, p.beat)
	return err
}

// refuseOlder is an error that names the processes that have the database open and do not know a
// step of the schema after which they could not use it.
func (s *Schema) refuseOlder(ctx context.Context, d *engine.Dialect, db *sql.DB, step int) error {
	if s.Processes == "" {
		return nil
	}
	if has, err := HasTable(ctx, d, db, s.Processes); err != nil || !has {
		return err
	}
	living, err := s.waitLive(ctx, db, func(p process) bool { return p.schemaSteps < step })
	if err != nil || len(living) == 0 {
		return err
	}
	return &engine.Error{
		Kind: engine.ErrInUse,
		Hint: fmt.Sprintf(
			"step %d of its schema ends the use by older programs, and %s it open; stop or upgrade that first; "+
				"nothing was taken away", step, listProcesses(living)),
	}
}

// listProcesses describes processes in one line.
func listProcesses(living []process) string {
	names := make([]string, len(living))
	for i, p := range living {
		names[i] = p.name
	}
	if len(names) == 1 {
		return names[0] + " has"
	}
	return strings.Join(names, "; ") + " have"
}

// presence is the row of this process in the table of processes, which shows commands and other
// processes that it has the database open. No clocks are compared: a process lives if its beat
// grows.
type presence struct {
	db     *DB
	own    process
	stop   context.CancelFunc
	done   sync.WaitGroup
	others map[string]*missedBeats
}

// missedBeats is for how many looks the beat of another process has not grown.
type missedBeats struct {
	beat  int64
	count int
}

// announce begins to show that the database is in use, until it is closed. It is refused if a
// process that lives has to be alone, or if this one has to be and is not.
func (db *DB) announce(ctx context.Context, exclusive bool) error {
	p := &presence{
		db: db,
		own: process{token: uuid.NewString(), name: ThisProcess(), beat: 1, exclusive: exclusive,
			schemaSteps: db.schemaSteps},
		others: map[string]*missedBeats{},
	}
	if err := p.insert(ctx); err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stop = stop
	db.presence = p
	p.done.Go(func() { p.run(running) })
	return p.checkExclusive(ctx)
}

// checkExclusive looks for processes beside which this one may not have the database open. Each
// shows itself before it looks: of two at least one finds the other.
func (p *presence) checkExclusive(ctx context.Context) error {
	living, err := p.db.schema.waitLive(ctx, p.db.Reader,
		func(other process) bool { return other.token != p.own.token && (p.own.exclusive || other.exclusive) })
	if err != nil || len(living) == 0 {
		return err
	}
	return &engine.Error{Kind: engine.ErrInUse,
		Hint: listProcesses(living) + " it open; stop that first, or wait until it ends"}
}

func (p *presence) insert(ctx context.Context) error {
	_, err := p.db.Reader.ExecContext(ctx, "INSERT INTO "+p.db.schema.Processes+
		" (token, name, beat, alone, knows) VALUES (?, ?, ?, ?, ?)"+p.db.Dialect.Upsert("token"),
		p.own.token, p.own.name, p.own.beat, p.own.exclusive, p.own.schemaSteps)
	return err
}

func (p *presence) run(ctx context.Context) {
	ticker := time.NewTicker(beatTime)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			p.remove(context.WithoutCancel(ctx))
			return
		case <-ticker.C:
			_ = p.heartbeat(ctx) // reads and commits notice what is wrong with the database
		}
	}
}

// heartbeat shows that this process lives, and removes the rows of those that do not.
func (p *presence) heartbeat(ctx context.Context) error {
	s, db := p.db.schema, p.db.Reader
	result, err := db.ExecContext(ctx, "UPDATE "+s.Processes+" SET beat = beat + 1 WHERE token = ?", p.own.token)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil {
		return err
	} else if n == 0 {
		return p.insert(ctx)
	}
	found, err := s.processes(ctx, db)
	if err != nil {
		return err
	}
	now := make(map[string]*missedBeats, len(found))
	for _, other := range found {
		seen := p.others[other.token]
		if seen == nil || seen.beat != other.beat {
			seen = &missedBeats{beat: other.beat}
		} else if seen.count++; seen.count >= forgottenAfter {
			if err := s.forget(ctx, db, other); err != nil {
				return err
			}
		}
		now[other.token] = seen
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
}

// remove removes the row of this process.
func (p *presence) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, beatTime)
	defer cancel()
	// otherwise another process removes it
	_, _ = p.db.Reader.ExecContext(ctx, "DELETE FROM "+p.db.schema.Processes+" WHERE token = ?", p.own.token)
}
