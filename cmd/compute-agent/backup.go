// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// stored is a database that can be backed up, restored and checked.
type stored struct {
	// of is whose database it is.
	of string
	// service is the name in records of the audit log.
	service string
	// addFlags adds the flags that select it, and where is its name (see sqldb.ParseAddress) and
	// the configuration.
	addFlags func(*cobra.Command)
	where    func() (name string, cfg *config.Config, err error)
	options  func() sqldb.Options
	// verify checks what is in a database beside its structure; nil checks nothing.
	verify func(ctx context.Context, db *sqldb.DB) error
}

// copying are the options with which rows are copied, with progress.
func (s stored) copying(p *render.Progress) sqldb.Options {
	o := s.options()
	o.Copied = func(table string, rows int64) { p.Note("%d rows, now of the table %s", rows, table) }
	return o
}

// newBackup returns a command that backs up a database.
func newBackup(s stored) *cobra.Command {
	cmd := &cobra.Command{
		Use: "backup FILE", Short: "Write a consistent copy of the database to a new file", Args: cobra.ExactArgs(1),
		Long: "Write a consistent copy of the database of " + s.of +
			" to a new SQLite file (mode 0600), from which `restore` makes a\n" +
			"database on SQLite, MariaDB, MySQL or PostgreSQL. Services may " +
			"run. If a service has an SQLite database open, it makes the\n" +
			"copy, requested on its admin socket. An existing file is not overwritten.",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, _, err := s.where()
			if err != nil {
				return err
			}
			err = withProgress(cmd, "Copying the database of "+s.of, func(p *render.Progress) error {
				return sqldb.BackUpServed(cmd.Context(), name, s.copying(p), args[0])
			})
			switch {
			case errors.Is(err, fs.ErrExist):
				return &exitError{exitProtect, fmt.Errorf("%w; choose another file", err)}
			case err != nil:
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Wrote %s, a copy of %s.\n", args[0], sqldb.Shown(name))
			return err
		},
	}
	s.addFlags(cmd)
	return cmd
}

// newRestore returns a command that makes a database of a backup.
func newRestore(s stored) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Copy a backup into an empty database", Args: cobra.ExactArgs(1),
		Long: "Copy a backup into an empty database of " +
			s.of + ", on whatever engine, and compare the two. The backup may be of an older\n" +
			"version. A database that has rows is not changed, and exits with " +
			"3. A database file must not be in use. All rows are written\n" +
			"in one transaction: if the command is killed, the database stays empty.",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, cfg, err := s.where()
			if err != nil {
				return err
			}
			var digest sqldb.Digest
			err = auditDatabase(cmd, s.service, cfg, sqldb.Shown(name), func() (did any, err error) {
				what := "Restoring the database of " + s.of
				digest, err = withProgressOf(cmd, what, func(p *render.Progress) (sqldb.Digest, error) {
					return sqldb.Restore(cmd.Context(), name, s.copying(p), args[0])
				})
				if err == nil {
					did = map[string]any{"restored_from": args[0], "rows": digest.Rows(), "digest": digest.String()}
				}
				return did, err
			})
			if err != nil {
				return err
			}
			return printResult(cmd, &o, render.ContentsOf(name, digest), func(w io.Writer, c render.Contents) error {
				_, err := fmt.Fprintf(w, "Restored %s to %s: %d rows, digest %s.\n", args[0],
					c.Database, c.Rows, c.Digest)
				return err
			})
		},
	}
	s.addFlags(cmd)
	o.addOutputFlag(cmd)
	return cmd
}

// newCheck returns a command that checks a database or a backup.
func newCheck(s stored) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "check [FILE]", Short: "Check a database or a backup, and show the digest of its contents",
		Args: cobra.MaximumNArgs(1),
		Long: "Check the database of " + s.of +
			", or a backup of it: whether it is whole and can be read. Its digest is the same for the\n" +
			"same rows on every engine. Nothing is changed. The check reads " +
			"a copy of a file, in the directory that TMPDIR names, which a\n" +
			"running service makes.",
		RunE: func(cmd *cobra.Command, args []string) error {
			var name string
			var err error
			if len(args) > 0 {
				name = args[0]
			} else if name, _, err = s.where(); err != nil {
				return err
			}
			what := "Reading " + sqldb.Shown(name)
			digest, err := withProgressOf(cmd, what, func(*render.Progress) (sqldb.Digest, error) {
				return sqldb.Check(cmd.Context(), name, s.options(), s.verify)
			})
			if err != nil {
				return err
			}
			return printResult(cmd, &o, render.ContentsOf(name, digest), render.Checked)
		},
	}
	s.addFlags(cmd)
	o.addOutputFlag(cmd)
	return cmd
}
