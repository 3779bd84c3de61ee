// SPDX-License-Identifier: Apache-2.0

package main

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
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/placement"
)

// A database file belongs to one process. If a service has it open, that service runs the command,
// requested on its admin socket, with the same arguments and output.

// serving holds the databases of this process, for commands from the admin socket. A database that
// it does not serve is nil.
type serving struct {
	cfg       *config.Config
	api       *cells.API
	placement *placement.Server
}

type servingKey struct{}

// servingOf returns the databases of the service that runs a command; all nil outside a service.
func servingOf(ctx context.Context) serving {
	s, _ := ctx.Value(servingKey{}).(serving)
	return s
}

// commands runs commands of a group, such as "cells manage", that arrive on an admin socket.
func (s serving) commands(group ...string) http.Handler {
	return sqldb.ServeCommand(func(ctx context.Context, args []string, stdout, stderr io.Writer) int {
		if len(args) < len(group) || !slices.Equal(args[:len(group)], group) {
			_, _ = fmt.Fprintf(stderr, "compute-agent: this service only runs `%s` commands\n",
				strings.Join(group, " "))
			return exitUsage
		}
		return execute(context.WithValue(ctx, servingKey{}, s), args, stdout, stderr)
	})
}

// watchPlacement and watchComputeAPI are the admin sockets and metrics of services that run
// commands.
func watchPlacement(cfg *config.Config, server *placement.Server) osapi.Admin {
	commands := serving{cfg: cfg, placement: server}.commands("placement", "db")
	return server.Admin(cfg.Agent.RuntimeDir, cfg.PlacementMetrics.Listen, commands)
}

func watchComputeAPI(cfg *config.Config, api *cells.API) osapi.Admin {
	return api.Admin(cfg.Agent.RuntimeDir, cfg.ComputeAPI.MetricsListen,
		serving{cfg: cfg, api: api}.commands("cells", "manage"))
}

// onDatabase runs direct, or sends the command to the service that has the database open.
func onDatabase(cmd *cobra.Command, path string, direct func() error) error {
	return sqldb.RunWhereOpen(cmd.Context(), path, direct, func(socket string) error {
		var out, problems bytes.Buffer
		const what = "The service that has the database open runs the command"
		code, err := withProgressOf(cmd, what, func(*render.Progress) (int, error) {
			return sqldb.RunAt(cmd.Context(), socket, argsOf(cmd), &out, &problems)
		})
		_, outErr := out.WriteTo(cmd.OutOrStdout())
		_, problemsErr := problems.WriteTo(cmd.ErrOrStderr())
		err = cmp.Or(err, outErr, problemsErr)
		if err == nil && code != exitDone {
			err = &exitError{code: code}
		}
		return err
	})
}

// locatesDatabase reports whether a flag locates the database: the service has its own
// configuration.
func locatesDatabase(flag string) bool {
	return slices.Contains([]string{"config", "state-dir", "runtime-dir", "database"}, flag)
}

// argsOf returns the arguments of a command line without those that locate the database.
func argsOf(cmd *cobra.Command) []string {
	args := strings.Fields(strings.TrimPrefix(cmd.CommandPath(), "compute-agent "))
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if locatesDatabase(f.Name) {
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
