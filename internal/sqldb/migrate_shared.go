// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/lib/wait"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// stepsTable is the table of a schema in a database of servers has a row for each step. done is 1
// when it was run; token is whose process runs it, and beat grows while that does. needs is the
// lowest number of steps that a program has to know to use the database once the step was begun.
// Row 0 is no step: it is what transactions lock, with the tokens of the last ones, done is 1 when
// Schema.New was run, and needs keeps older programs from writing.
const stepsTable = ` (
    number INTEGER NOT NULL PRIMARY KEY,
    done SMALLINT NOT NULL,
    needs INTEGER NOT NULL,
    token VARCHAR(416) NOT NULL,
    beat BIGINT NOT NULL
)`

const (
	// beatTime is the time between two signs of life of a process that runs a step.
	beatTime = 2 * time.Second
	// deadAfter is how many of these times without one another process waits before it takes over.
	deadAfter = 15
	// logBeats is how many of these times pass between two lines in the log about a step.
	logBeats = 15
)

// run is migrate for a database on a server. Several processes can run it at the same time, and
// each can die in the middle: a process claims a step by its row, and takes over the step of one
// whose heartbeat has stopped. No clocks are compared. Steps that make the database unusable for
// older programs run only on request (all), and not beside such programs; until then, this program
// uses the database without them.
//
// MySQL commits each statement that changes tables by itself. So what such a statement makes can
// exist already, and the other statements of a step must be repeatable.
func (m *migration) run(ctx context.Context, to int, all bool) (had, has int, err error) {
	s, d, db := m.schema, m.d, m.db
	steps, err := s.steps(d)
	if err != nil {
		return 0, 0, err
	}
	had, made, err := s.progress(ctx, d, db, to)
	if err != nil {
		return 0, 0, err
	}
	switch needs, err := s.needsNow(ctx, d, db, had); {
	case err != nil:
		return had, had, err
	case needs > to || had > to && all:
		had = max(had, needs) // it may be under way
		return had, had, &engine.Error{
			Kind: engine.ErrSchema,
			Hint: fmt.Sprintf(
				"it has had %d steps of the schema, and this needs it at %d: a newer program was here, use that "+
					"one; steps are not undone", had, to),
		}
	case had > 0 && had < least(steps[:to]) && s.OlderHint != "" && made:
		return had, had, &engine.Error{Kind: engine.ErrSchema,
			Hint: fmt.Sprintf("it has had %d of %d steps of the schema; %s", had, to, s.OlderHint)}
	case had > 0 && had < to && !all && made:
		to = max(had, least(steps[:to]))
		for n := had + 1; n <= to; n++ {
			if steps[n-1].contract {
				return had, had, &engine.Error{
					Kind: engine.ErrSchema,
					Hint: fmt.Sprintf(
						"step %d of its schema ends the use by older programs, and this program needs it; stop "+
							"those, and upgrade the database by command", n),
				}
			}
		}
	}
	if err := m.prepare(ctx); err != nil {
		return had, had, err
	}
	for n := had + 1; n <= to; n++ {
		if err := m.step(ctx, n, steps[n-1]); err != nil {
			return had, n - 1, fmt.Errorf("step %d of the schema: %w", n, err)
		}
	}
	return had, max(had, to), m.new(ctx)
}

// needsNow is needs of all steps; 0 where no step was run, or the table of steps is not there yet.
func (s *Schema) needsNow(ctx context.Context, d *engine.Dialect, q Querier, had int) (int, error) {
	if has, err := HasTable(ctx, d, q, s.Table); err != nil || !has || had == 0 {
		return 0, err
	}
	return s.needs(ctx, q, math.MaxInt32)
}

// needs is the lowest number of steps that a program has to know to use a database that has had the
// steps before one. A step that was begun counts.
func (s *Schema) needs(ctx context.Context, q Querier, before int) (needs int, err error) {
	err = q.QueryRowContext(ctx, "SELECT COALESCE(MAX(needs), 0) FROM "+
		s.Table+" WHERE number > 0 AND number < ?", before).Scan(&needs)
	return needs, err
}

// CheckUse is an error that matches engine.ErrSchema if a step was run or begun in a database of
// servers after which a program that knows this schema only cannot use the database any more.
func (s *Schema) CheckUse(ctx context.Context, q Querier) error {
	newest := s.Newest()
	needs, err := s.needs(ctx, q, math.MaxInt32)
	if err != nil || needs <= newest {
		return err
	}
	return &engine.Error{
		Kind: engine.ErrSchema,
		Hint: fmt.Sprintf(
			"a newer program upgraded it to step %d of the schema, and this program knows %d: stop this one, use "+
				"the newer one", needs, newest),
	}
}

// progress returns how many steps a database has had. made is false if it has had fewer than to
// because its tables are being made for the first time, perhaps by another process that started at
// the same time.
func (s *Schema) progress(ctx context.Context, d *engine.Dialect, q Querier, to int) (had int, made bool, err error) {
	had, err = s.version(ctx, d, q)
	if err != nil || had == 0 || had >= to {
		return had, true, err
	}
	if s.beingMade(ctx, q) {
		return had, false, nil
	}
	// Another process may have made the rest of them after their number was read.
	had, err = s.version(ctx, d, q)
	return had, true, err
}

// beingMade reports whether the tables are being made for the first time.
func (s *Schema) beingMade(ctx context.Context, q Querier) bool {
	made, found, err := One(ctx, q, Value[int], "SELECT done FROM "+s.Table+" WHERE number = 0")
	return err == nil && found && made == 0
}

// migration is the steps that one process runs.
type migration struct {
	schema *Schema
	d      *engine.Dialect
	db     *sql.DB
	// slow is for the statements of the steps.
	slow  *sql.DB
	token string
	log   zerolog.Logger
	// progress is called while a step shows signs of life.
	progress func()
}

func (m *migration) exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := m.db.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// prepare makes the table of the steps. Tables of another program that can be used count as steps.
func (m *migration) prepare(ctx context.Context) error {
	has, err := HasTable(ctx, m.d, m.db, m.schema.Table)
	if err != nil {
		return err
	}
	if !has {
		if _, err := m.exec(ctx, "CREATE TABLE "+m.schema.Table+stepsTable); err != nil && !m.d.Is(err, engine.Exists) {
			return err
		}
	}
	if err := m.insert(ctx, 0, 0, 0, ""); err != nil {
		return err
	}
	var begun int
	if err := m.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+m.schema.Table+" WHERE number > 0").
		Scan(&begun); err != nil || begun > 0 || m.schema.Adopt == nil {
		return err
	}
	found, err := m.otherTables(ctx)
	if err != nil || !found {
		return err
	}
	steps, err := m.schema.Adopt(ctx, m.d, m.db)
	for n := 1; err == nil && n <= steps; n++ {
		err = m.insert(ctx, n, 1, n, m.token)
	}
	return err
}

// otherTables says whether there are tables beside that of the steps.
func (m *migration) otherTables(ctx context.Context) (bool, error) {
	n := 0
	err := m.db.QueryRowContext(ctx, m.d.CountTables()+" WHERE name <> ?", m.schema.Table).Scan(&n)
	return n > 0, err
}

// insert adds the row of a step, unless there is one.
func (m *migration) insert(ctx context.Context, n, done, needs int, token string) error {
	_, err := m.exec(ctx, "INSERT INTO "+m.schema.Table+" (number, done, needs, token, beat) VALUES (?, ?, ?, ?, 0)"+
		m.d.Upsert("number"), n, done, needs, token)
	return err
}

// step runs a step, or waits until another process has.
func (m *migration) step(ctx context.Context, n int, s step) error {
	needs, ends := n, s.contract && n > 1
	if !s.contract && n > 1 {
		var err error
		if needs, err = m.schema.needs(ctx, m.db, n); err != nil {
			return err
		}
	}
	if ends {
		if err := m.schema.refuseOlder(ctx, m.d, m.db, n); err != nil {
			return err
		}
	}
	if err := m.insert(ctx, n, 0, needs, m.token); err != nil {
		return err
	}
	claimed, err := m.claim(ctx, n)
	if err != nil || !claimed {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	beating := make(chan struct{})
	go func() {
		defer close(beating)
		m.heartbeat(ctx, n, cancel)
	}()
	defer func() {
		cancel(nil)
		<-beating
	}()
	if ends {
		if err := m.fence(ctx, n); err != nil {
			return err
		}
	}
	for _, statement := range s.statements {
		if _, err := m.slow.ExecContext(ctx, statement); err != nil && !m.d.Is(err, engine.Exists) {
			return errors.Join(err, context.Cause(ctx))
		}
	}
	done, err := m.exec(ctx, "UPDATE "+m.schema.Table+" SET done = 1 WHERE number = ? AND token = ?", n, m.token)
	if err == nil && done != 1 {
		err = errTakenOver
	}
	return err
}

// fence keeps older programs from writing, before step n takes anything away from them. None can
// start after the step was claimed; one that started right before makes fence give up the claim. A
// program that was suspended is refused its writes when it resumes.
func (m *migration) fence(ctx context.Context, n int) error {
	if err := m.schema.refuseOlder(ctx, m.d, m.db, n); err != nil {
		_, giveUp := m.exec(ctx, "DELETE FROM "+
			m.schema.Table+" WHERE number = ? AND token = ? AND done = 0", n, m.token)
		return errors.Join(err, giveUp)
	}
	tx, err := m.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if _, err := Exec(ctx, tx, "UPDATE "+m.schema.Table+" SET needs = ? WHERE number = 0", n); err != nil {
		return err
	}
	if m.schema.Fence != nil {
		if err := m.schema.Fence(ctx, tx, n); err != nil {
			return err
		}
	}
	return tx.Commit()
}

var errTakenOver = errors.New("another process took it over, as this one had shown no sign of life")

// claim says whether this process has to run a step: it is its row, or that of a process that shows
// no sign of life any more. Otherwise it returns when the step was run.
func (m *migration) claim(ctx context.Context, n int) (mine bool, err error) {
	var last, beat int64
	var token, was string
	var done, silent int
	for {
		if err := m.db.QueryRowContext(ctx, "SELECT done, token, beat FROM "+m.schema.Table+" WHERE number = ?", n).
			Scan(&done, &token, &beat); err != nil {
			return false, err
		}
		if done == 1 || token == m.token {
			return done == 0, nil
		}
		switch silent++; {
		case was == "": // the first look
			silent = 0
		case beat != last || token != was:
			silent = 0
			m.progress()
		}
		last, was = beat, token
		if silent >= deadAfter {
			taken, err := m.exec(ctx, "UPDATE "+
				m.schema.Table+
				" SET token = ?, beat = beat + 1 WHERE number = ? AND token = ? AND beat = ? AND done = 0", m.token, n,
				token, beat)
			if err != nil || taken == 1 {
				return taken == 1, err
			}
		}
		if !wait.For(ctx, beatTime) {
			return false, context.Cause(ctx)
		}
	}
}

// heartbeat shows that the process lives, until the context ends: to the others, and in the log.
func (m *migration) heartbeat(ctx context.Context, n int, lost context.CancelCauseFunc) {
	ticker := time.NewTicker(beatTime)
	defer ticker.Stop()
	for beats := 0; ; beats++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if beats%logBeats == 0 {
				m.log.Info().Int("step", n).Str("table", m.schema.Table).
					Stringer("since", time.Duration(beats+1)*beatTime).
					Msg(
						"A step of the database's schema is running. Requests are served when it is done; do not " +
							"stop this process.")
			}
			kept, err := m.exec(ctx, "UPDATE "+m.schema.Table+" SET beat = beat + 1 WHERE number = ? AND token = ?", n,
				m.token)
			switch {
			case err == nil && kept != 1:
				lost(errTakenOver)
			case err == nil:
				m.progress()
			}
		}
	}
}

// new runs Schema.New, once in the life of a database.
func (m *migration) new(ctx context.Context) error {
	var done int
	if err := m.db.QueryRowContext(ctx, "SELECT done FROM "+m.schema.Table+" WHERE number = 0").
		Scan(&done); err != nil || done == 1 {
		return err
	}
	tx, err := m.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if n, err := Exec(ctx, tx, "UPDATE "+m.schema.Table+" SET done = 1 WHERE number = 0 AND done = 0"); err != nil ||
		n == 0 {
		return err // n is 0 when another process did it meanwhile
	}
	if m.schema.New != nil {
		if err := m.schema.New(ctx, tx); err != nil {
			return err
		}
	}
	return tx.Commit()
}
