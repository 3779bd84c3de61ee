// SPDX-License-Identifier: Apache-2.0

package cli

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
	"github.com/compute-agent/compute-agent/internal/sqldb/backup"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// Stored is a database that can be backed up, restored and checked.
type Stored struct {
	// Of is whose database it is.
	Of string
	// Service is the name in records of the audit log.
	Service string
	// AddFlags adds the flags that select it, and Where is its name (see engine.ParseAddress) and
	// the configuration.
	AddFlags func(*cobra.Command)
	Where    func() (name string, cfg *config.Config, err error)
	// Options returns the options with which sqldb opens the database.
	Options func() sqldb.Options
	// Verify checks what is in a database beside its structure; nil checks nothing.
	Verify func(ctx context.Context, db *sqldb.DB) error
}

// copying are the options with which rows are copied, with progress.
func (s Stored) copying(p *render.Progress) sqldb.Options {
	o := s.Options()
	o.Copied = func(table string, rows int64) { p.Note("%d rows, now of the table %s", rows, table) }
	return o
}

// NewBackup returns a command that backs up a database.
func NewBackup(s Stored) *cobra.Command {
	cmd := &cobra.Command{
		Use: "backup FILE", Short: "Write a consistent copy of the database to a new file", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, _, err := s.Where()
			if err != nil {
				return err
			}
			err = WithProgress(cmd, "Copying the database of "+s.Of, func(p *render.Progress) error {
				return backup.CreateServed(cmd.Context(), name, s.copying(p), args[0])
			})
			switch {
			case errors.Is(err, fs.ErrExist):
				return Exit(ExitProtect, fmt.Errorf("%w; choose another file", err))
			case err != nil:
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Wrote %s, a copy of %s.\n", args[0], engine.Shown(name))
			return err
		},
	}
	s.AddFlags(cmd)
	return cmd
}

// NewRestore returns a command that makes a database of a backup.
func NewRestore(s Stored) *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Copy a backup into an empty database", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, cfg, err := s.Where()
			if err != nil {
				return err
			}
			var digest backup.Digest
			err = AuditDatabase(cmd, s.Service, cfg, engine.Shown(name), func() (did any, err error) {
				what := "Restoring the database of " + s.Of
				digest, err = WithProgressOf(cmd, what, func(p *render.Progress) (backup.Digest, error) {
					return backup.Restore(cmd.Context(), name, s.copying(p), args[0])
				})
				if err == nil {
					did = map[string]any{"restored_from": args[0], "rows": digest.Rows(), "digest": digest.String()}
				}
				return did, err
			})
			if err != nil {
				return err
			}
			return Print(cmd, &o, render.ContentsOf(name, digest), func(w io.Writer, c render.Contents) error {
				_, err := fmt.Fprintf(w, "Restored %s to %s: %d rows, digest %s.\n", args[0],
					c.Database, c.Rows, c.Digest)
				return err
			})
		},
	}
	s.AddFlags(cmd)
	o.AddOutputFlag(cmd)
	return cmd
}

// NewCheck returns a command that checks a database or a backup.
func NewCheck(s Stored) *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use: "check [FILE]", Short: "Check a database or a backup, and show the digest of its contents",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var name string
			var err error
			if len(args) > 0 {
				name = args[0]
			} else if name, _, err = s.Where(); err != nil {
				return err
			}
			what := "Reading " + engine.Shown(name)
			digest, err := WithProgressOf(cmd, what, func(*render.Progress) (backup.Digest, error) {
				return backup.Check(cmd.Context(), name, s.Options(), s.Verify)
			})
			if err != nil {
				return err
			}
			return Print(cmd, &o, render.ContentsOf(name, digest), render.Checked)
		},
	}
	s.AddFlags(cmd)
	o.AddOutputFlag(cmd)
	return cmd
}
