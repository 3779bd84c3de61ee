// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// adopt measures how long it takes to replace OpenStack's Placement on MariaDB and on PostgreSQL,
// and to hand the database back.
func adopt(ctx context.Context, s settings) error {
	t := table{head: []string{"", "", "s", "CPU s", "rows written", "guarded tables"}}
	for name, start := range map[string]func(context.Context) (*server, error){"MariaDB": startMariaDB,
		"PostgreSQL": startPostgreSQL} {
		if s.only != nil && !s.only.MatchString(name) {
			continue
		}
		on, err := start(ctx)
		if err != nil {
			return err
		}
		if err := errors.Join(s.adoptOn(ctx, on, &t), on.Close()); err != nil {
			return err
		}
	}
	t.print()
	return nil
}

func (s *settings) adoptOn(ctx context.Context, on *server, t *table) (err error) {
	dir := filepath.Join(s.state, on.name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	dsn, err := on.MakeDatabase(ctx, "placement")
	if err != nil {
		return err
	}
	say("%s: OpenStack's Placement makes its tables", on.name)
	if _, err := testproc.AskPlacement(ctx, dsn, [][]any{{"GET", "/", nil}}); err != nil {
		return err
	}
	say("%s: loading %d hosts and %d consumers", on.name, s.trees, s.consumers)
	if err := sqldb.Administer(ctx, dsn, "loading rows", sqldb.Options{},
		func(ctx context.Context, d *engine.Dialect, db *sql.DB) error {
			return fillTheirs(ctx, d, db, s.trees, s.consumers)
		}); err != nil {
		return err
	}
	given, err := withPasswordFile(dsn, filepath.Join(dir, "password"))
	if err != nil {
		return err
	}
	for round := range 2 { // the first one warms up
		for _, what := range []string{"--check", "--apply", "start", "--hand-back"} {
			load, err := os.ReadFile("/proc/loadavg")
			if err != nil {
				return err
			}
			say("%s, round %d: %s, load %s", on.name, round+1, what, strings.Fields(string(load))[0])
			var cells []string
			if what == "start" {
				cells, err = s.startAdopted(ctx, dir, given)
			} else {
				cells, err = s.adoption(ctx, what, given)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			row := append([]string{on.name, what}, cells...)
			say("%v", row)
			t.add(row...)
		}
	}
	return nil
}

// adoption runs `placement adopt`, and returns the cells of its row.
func (s *settings) adoption(ctx context.Context, what, dsn string) ([]string, error) {
	cmd := exec.CommandContext(ctx, s.binary, "placement", "adopt", what, "--output", "json", "--database", dsn)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	begin := time.Now()
	out, err := cmd.Output()
	took := time.Since(begin)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, stderr.String())
	}
	var done struct {
		Rows    int64 `json:"rows"`
		Guarded int   `json:"guarded_tables"`
		Counts  []struct {
			Table string `json:"table"`
			Rows  int64  `json:"rows"`
		} `json:"counts"`
	}
	if err := json.Unmarshal(out, &done); err != nil {
		return nil, err
	}
	if done.Counts != nil {
		say("it found %v", done.Counts)
	}
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return []string{fmt.Sprintf("%.1f", took.Seconds()), fmt.Sprintf("%.1f", cpu.Seconds()), fmt.Sprint(done.Rows),
		fmt.Sprint(done.Guarded)}, nil
}

// startAdopted starts a server on a database and ends it, and returns the cells of its row.
func (s *settings) startAdopted(ctx context.Context, dir, dsn string) (_ []string, err error) {
	p, err := serveOurs(ctx, s.binary, dir, "--database", dsn)
	if err != nil {
		return nil, err
	}
	cpu, err := p.CPU()
	if err := errors.Join(err, p.Close()); err != nil {
		return nil, err
	}
	return []string{fmt.Sprintf("%.1f", p.Startup.Seconds()), fmt.Sprintf("%.1f", cpu.Seconds()), "-", "-"}, nil
}

// withPasswordFile moves the password of a DSN into a file.
func withPasswordFile(dsn, file string) (string, error) {
	at, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	password, _ := at.User.Password()
	at.User = url.User(at.User.Username())
	options := at.Query()
	options.Set("password_file", file)
	at.RawQuery = options.Encode()
	return at.String(), os.WriteFile(file, []byte(password), 0o600)
}

// inserts writes rows of one table, many in one statement.
type inserts struct {
	ctx  context.Context
	db   *sql.DB
	into string
	text strings.Builder
	n    int
	err  error
}

func (i *inserts) row(values string) {
	const atOnce = 1000
	if i.n++; i.text.Len() == 0 {
		i.text.WriteString("INSERT INTO " + i.into + " VALUES ")
	} else {
		i.text.WriteByte(',')
	}
	if i.text.WriteString("(" + values + ")"); i.n%atOnce == 0 {
		i.flush()
	}
}

func (i *inserts) flush() {
	if i.err == nil && i.text.Len() > 0 {
		if _, i.err = i.db.ExecContext(i.ctx, i.text.String()); i.err != nil {
			i.err = fmt.Errorf("insert into %s: %w", i.into, i.err)
		}
	}
	i.text.Reset()
}

// fillTheirs writes hosts of 7 providers with 2 inventories each, and consumers with 3 allocations
// each, into the tables of OpenStack's Placement.
func fillTheirs(ctx context.Context, d *engine.Dialect, db *sql.DB, hosts, consumers int) error {
	const each = 7
	ids := map[string]int64{}
	for _, name := range []string{"DISK_GB", "VGPU", "VCPU", "MEMORY_MB"} {
		var id int64
		if err := db.QueryRowContext(ctx, "SELECT id FROM resource_classes WHERE name = '"+name+"'").
			Scan(&id); err != nil {
			return fmt.Errorf("the resource class %s: %w", name, err)
		}
		ids[name] = id
	}
	before, after := "SET FOREIGN_KEY_CHECKS = 0",
		"ANALYZE TABLE resource_providers, inventories, consumers, allocations"
	if d == engine.PostgreSQL {
		before, after = "SET synchronous_commit = off", "ANALYZE"
	}
	random := rand.New(rand.NewPCG(1, 2))
	providers := &inserts{ctx: ctx, db: db,
		into: "resource_providers (id, uuid, name, generation, root_provider_id, parent_provider_id)"}
	inventories := &inserts{ctx: ctx, db: db,
		into: "inventories (resource_provider_id, resource_class_id, total, reserved, min_unit, max_unit, " +
			"step_size, allocation_ratio)"}
	consumer := &inserts{ctx: ctx, db: db, into: "consumers (uuid, project_id, user_id, generation)"}
	allocations := &inserts{ctx: ctx, db: db,
		into: "allocations (resource_provider_id, consumer_id, resource_class_id, used)"}
	if _, err := db.ExecContext(ctx, before); err != nil {
		return err
	}
	for h := range hosts {
		root := h*each + 1
		for id := root; id < root+each; id++ {
			parent, classes := fmt.Sprint(root), [2]string{"VCPU", "MEMORY_MB"}
			if id == root {
				parent, classes = "NULL", [2]string{"DISK_GB", "VGPU"}
			}
			uuid := NewUUID(random)
			providers.row(fmt.Sprintf("%d, '%s', 'host-%d-%d', 2, %d, %s", id, uuid, h, id-root, root, parent))
			for _, class := range classes {
				inventories.row(fmt.Sprintf("%d, %d, 100000, 0, 1, 100000, 1, 1.0", id, ids[class]))
			}
		}
	}
	providers.flush()
	inventories.flush()
	var owners [2]int64
	for i, table := range []string{"projects", "users"} {
		if _, err := db.ExecContext(ctx, "INSERT INTO "+table+" (external_id) VALUES ('someone')"); err != nil {
			return err
		}
		if err := db.QueryRowContext(ctx, "SELECT id FROM "+table).Scan(&owners[i]); err != nil {
			return err
		}
	}
	for i := range consumers {
		uuid, root := NewUUID(random), i%hosts*each+1
		consumer.row(fmt.Sprintf("'%s', %d, %d, 1", uuid, owners[0], owners[1]))
		for n, class := range []string{"DISK_GB", "VCPU", "MEMORY_MB"} {
			allocations.row(fmt.Sprintf("%d, '%s', %d, 1", root+min(n, 1), uuid, ids[class]))
		}
	}
	consumer.flush()
	allocations.flush()
	_, err := db.ExecContext(ctx, after)
	return errors.Join(providers.err, inventories.err, consumer.err, allocations.err, err)
}
