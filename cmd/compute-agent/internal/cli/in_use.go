// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/placement"
)

// A database file belongs to one process. If a service has it open, that service runs the command,
// requested on its admin socket, with the same arguments and output.

// Serving holds the databases of this process, for commands from the admin socket. A database that
// it does not serve is nil.
type Serving struct {
	Config    *config.Config
	API       *cells.API
	Placement *placement.Server
}

type servingKey struct{}

// ServingOf returns the databases of the service that runs a command; all nil outside a service.
func ServingOf(ctx context.Context) Serving {
	s, _ := ctx.Value(servingKey{}).(Serving)
	return s
}

// Commands runs commands of a group, such as "cells manage", that arrive on an admin socket.
// execute runs a command line and returns its exit code.
func (s Serving) Commands(
	execute func(ctx context.Context, args []string, stdout, stderr io.Writer) int, group ...string,
) http.Handler {
	return sqldb.ServeCommand(func(ctx context.Context, args []string, stdout, stderr io.Writer) int {
		if len(args) < len(group) || !slices.Equal(args[:len(group)], group) {
			_, _ = fmt.Fprintf(stderr, "compute-agent: this service only runs `%s` commands\n",
				strings.Join(group, " "))
			return ExitUsage
		}
		return execute(context.WithValue(ctx, servingKey{}, s), args, stdout, stderr)
	})
}

// OnDatabase runs direct, or sends the command to the service that has the database open.
func OnDatabase(cmd *cobra.Command, path string, direct func() error) error {
	return sqldb.RunWhereOpen(cmd.Context(), path, direct, func(socket string) error {
		var out, problems bytes.Buffer
		const what = "The service that has the database open runs the command"
		code, err := WithProgressOf(cmd, what, func(*render.Progress) (int, error) {
			return sqldb.RunAt(cmd.Context(), socket, ArgsOf(cmd), &out, &problems)
		})
		_, outErr := out.WriteTo(cmd.OutOrStdout())
		_, problemsErr := problems.WriteTo(cmd.ErrOrStderr())
		err = cmp.Or(err, outErr, problemsErr)
		if err == nil && code != ExitDone {
			err = Exit(code, nil)
		}
		return err
	})
}

// LocatesDatabase reports whether a flag locates the database: the service has its own
// configuration.
func LocatesDatabase(flag string) bool {
	return slices.Contains([]string{"config", "state-dir", "runtime-dir", "database"}, flag)
}

// ArgsOf returns the arguments of a command line without those that locate the database.
func ArgsOf(cmd *cobra.Command) []string {
	args := strings.Fields(strings.TrimPrefix(cmd.CommandPath(), "compute-agent "))
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if LocatesDatabase(f.Name) {
			return
		}
		for _, value := range flagTexts(f.Value) {
			args = append(args, "--"+f.Name+"="+value)
		}
	})
	return append(append(args, "--"), cmd.Flags().Args()...)
}

// flagTexts returns what sets a flag to its value again: a text for each value of one that can be
// repeated, whose String is for people.
func flagTexts(value pflag.Value) []string {
	switch v := value.(type) {
	case *outputFormat:
		return []string{v.forService()}
	case pflag.SliceValue:
		texts := slices.Clone(v.GetSlice())
		if value.Type() == "stringSlice" { // each text is a line of CSV
			for i, text := range texts {
				if strings.ContainsAny(text, ",\"\n") {
					texts[i] = `"` + strings.ReplaceAll(text, `"`, `""`) + `"`
				}
			}
		}
		return texts
	}
	return []string{value.String()}
}
