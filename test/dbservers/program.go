// SPDX-License-Identifier: Apache-2.0

package dbservers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// NewMariaDB starts a MariaDB server for a program that is not a test, with further settings
// NAME=VALUE. Commits are on the disk before they are acknowledged. The program closes the server.
func NewMariaDB(ctx context.Context, settings ...string) (*Server, error) {
	return newDurable(ctx, mariaDB{}, settings)
}

// NewPostgreSQL does the same with PostgreSQL.
func NewPostgreSQL(ctx context.Context, settings ...string) (*Server, error) {
	return newDurable(ctx, postgreSQL{}, settings)
}

func newDurable(ctx context.Context, kind engine, settings []string) (*Server, error) {
	i, err := newInstance(kind, durable, "")
	if err != nil {
		return nil, err
	}
	i.settings = settings
	s := &Server{i: i}
	if err := i.create(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends a server that a program has started, and removes its files.
func (s *Server) Close() error { return errors.Join(s.i.kill(), remove(s.i.dir)) }

// MakeDatabase makes an empty database, whose owner has the same name, and returns its DSN.
func (s *Server) MakeDatabase(ctx context.Context, name string) (dsn string, err error) {
	if err := s.i.statements(ctx, s.i.kind.create(name, s.i.password)...); err != nil {
		return "", fmt.Errorf("making a database on %s: %w", s.i.kind, err)
	}
	return s.DSN(name), nil
}

// Admin returns a pool of connections of the user who may do everything. The program closes it.
func (s *Server) Admin() (*sql.DB, error) { return s.i.kind.open(s.i, "") }

// PIDs are the processes of the server.
func (s *Server) PIDs() (pids []int, err error) {
	all, err := s.i.processes()
	for _, p := range all {
		pids = append(pids, p.PID)
	}
	return pids, err
}
