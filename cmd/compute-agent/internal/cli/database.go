// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// ShowSchema prints the schema of a database, or returns its error. missing is what an upgrade does
// to one that does not exist.
func (o *Options) ShowSchema(cmd *cobra.Command, s *operator.Schema, err error, missing string) error {
	if err != nil {
		return err
	}
	return Print(cmd, o, s, func(w io.Writer, s *operator.Schema) error {
		return render.Schema(w, s, missing, strings.TrimSuffix(cmd.CommandPath(), "version")+"upgrade")
	})
}

// ShowUpgrade prints what an upgrade of a schema did, or returns its error.
func (o *Options) ShowUpgrade(cmd *cobra.Command, u *operator.Upgrade, err error) error {
	if err != nil {
		return BesideOlder(err)
	}
	return Print(cmd, o, u, render.SchemaUpgrade)
}

// BesideOlder gives the refusal to end the use by older programs its exit code.
func BesideOlder(err error) error {
	if errors.Is(err, engine.ErrInUse) {
		return Exit(ExitProtect, err)
	}
	return err
}

// ExitMigratedSome and ExitMigrationFailed are exit codes of `online-data-migrations` besides
// ExitDone, which means that nothing is left to do. 0 and 1 are those of placement-manage; scripts
// treat every other code as a failure.
const (
	ExitMigratedSome    = 1  // some rows were migrated and more may be left: run it again
	ExitMigrationFailed = 70 // EX_SOFTWARE of sysexits.h, since 1 is taken
)

// Migrating returns the error of a migration, with an exit code other than ExitMigratedSome. One
// that a service ran has its exit code already.
func Migrating(err error) error {
	var has *ExitError
	if err == nil || errors.As(err, &has) {
		return err
	}
	code := ExitCode(err)
	if code == ExitFailed {
		code = ExitMigrationFailed
	}
	return Exit(code, err)
}

// ShowMigrations prints what was done, and returns the command's exit code. some means that more
// may be left.
func (o *Options) ShowMigrations(cmd *cobra.Command, done []Migration, some bool, err error) error {
	view := map[string][]Migration{"migrations": done}
	shown := Print(cmd, o, view, func(w io.Writer, _ map[string][]Migration) error {
		rows := [][]string{{"Migration", "Total Needed", "Completed"}}
		for _, m := range done {
			rows = append(rows, []string{m.Name, strconv.Itoa(m.Needed), strconv.Itoa(m.Completed)})
		}
		return render.Ruled(w, rows)
	})
	switch {
	case err != nil || shown != nil:
		return Migrating(errors.Join(err, shown))
	case some:
		return Exit(ExitMigratedSome, nil)
	}
	return nil
}

// Migration is one online migration as JSON, with Placement's name.
type Migration struct {
	Name      string `json:"migration"`
	Needed    int    `json:"total_needed"`
	Completed int    `json:"completed"`
}
