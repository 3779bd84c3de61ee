// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// startOurs starts the binary compute-agent as a Placement service, without authentication, on the
// SQLite database in dir, which is made when it is not there. On a server, that database is first
// copied to a database of its own there.
func startOurs(ctx context.Context, binary, dir string, on *server) (*peer, error) {
	database := filepath.Join(dir, "placement.db")
	var args []string
	if on != nil {
		dsn, err := on.ours(ctx, filepath.Join(dir, "password"))
		if err != nil {
			return nil, err
		}
		if out, err := exec.CommandContext(ctx, binary, "placement", "db", "restore", "--database", dsn, database).
			CombinedOutput(); err != nil {
			return nil, fmt.Errorf("copy our database to %s: %w\n%s", on.name, err, out)
		}
		args = []string{"--database", dsn}
	}
	p, err := serveOurs(ctx, binary, dir, args...)
	if err == nil {
		if p.Database, p.server = database, on; on != nil {
			p.Name += " on " + on.name
		}
	}
	return p, err
}

// serveOurs starts the binary compute-agent as a Placement service, without authentication, with a
// directory of its own and further arguments.
func serveOurs(ctx context.Context, binary, dir string, more ...string) (*peer, error) {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	address := "127.0.0.1:" + strconv.Itoa(port)
	p := &peer{Name: "compute-agent", URL: "http://" + address, dir: dir}
	args := append([]string{"placement", "serve", "--listen", address, "--state-dir", dir}, more...)
	begin := time.Now()
	proc, err := p.start(ctx, "compute-agent", nil, binary, args...)
	if err != nil {
		return nil, err
	}
	if err := p.await(ctx, proc, p.answers); err != nil {
		return nil, errors.Join(fmt.Errorf("start our Placement: %w", err), p.Close())
	}
	p.Startup = time.Since(begin)
	return p, nil
}

// DatabaseSize is the size of an SQLite database with its write-ahead log, in bytes.
func (p *peer) DatabaseSize() (int64, error) {
	var sum int64
	for _, suffix := range []string{"", "-wal"} {
		info, err := os.Stat(p.Database + suffix)
		switch {
		case errors.Is(err, os.ErrNotExist) && suffix != "":
		case err != nil:
			return 0, fmt.Errorf("the database of %s: %w", p.Name, err)
		default:
			sum += info.Size()
		}
	}
	return sum, nil
}
