// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/placement"
)

// A database file belongs to one process. A command about a database that a service has open is run by that service, on its admin socket, with the
// same words and the same output.

// serving are the databases of this process, for the commands that it is asked to run. What it does not serve is nil.
type serving struct {
	cfg       *config.Config
	api       *cells.API
	placement *placement.Server
}

type servingKey struct{}

// servingOf are the databases of the process that runs a command for another; all nil in a process of the command's own.
func servingOf(ctx context.Context) serving {
	s, _ := ctx.Value(servingKey{}).(serving)
	return s
}

// commands runs the commands of a group, such as "cells manage", that come to an admin socket.
func (s serving) commands(group ...string) http.Handler {
	return sqldb.ServeCommand(func(ctx context.Context, words []string, stdout, stderr io.Writer) int {
		if len(words) < len(group) || !slices.Equal(words[:len(group)], group) {
			_, _ = fmt.Fprintf(stderr, "compute-agent: this service runs commands of `%s` only\n", strings.Join(group, " "))
			return exitUsage
		}
		return execute(context.WithValue(ctx, servingKey{}, s), words, stdout, stderr)
	})
}

const (
	// lockTime is how long another command, or a service that starts, may have a database locked before that is an error.
	lockTime = 5 * time.Second
	// lockPause is the time between two tries.
	lockPause = 50 * time.Millisecond
)

// alone runs direct, which opens the database at a path; where a service has it open, ask is run with the admin socket of that service.
func alone(ctx context.Context, path string, direct func() error, ask func(socket string) error) error {
	patient, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	for {
		err := direct()
		if !errors.Is(err, sqldb.ErrLocked) {
			return err
		}
		if h := sqldb.HolderOf(path); h.Socket != "" {
			return ask(h.Socket)
		}
		select {
		case <-patient.Done():
			return err
		case <-time.After(lockPause):
		}
	}
}

// onDatabase runs direct, or has the service that has the database open run the command.
func onDatabase(cmd *cobra.Command, path string, direct func() error) error {
	return alone(cmd.Context(), path, direct, func(socket string) error {
		code, err := sqldb.RunAt(cmd.Context(), socket, wordsOf(cmd), cmd.OutOrStdout(), cmd.ErrOrStderr())
		if err == nil && code != exitDone {
			err = &exitError{code: code}
		}
		return err
	})
}

// wordsOf are the words of a command line, without those that say where the database is: the service has its own configuration.
func wordsOf(cmd *cobra.Command) []string {
	words := strings.Fields(strings.TrimPrefix(cmd.CommandPath(), "compute-agent "))
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains([]string{"config", "state-dir", "runtime-dir", "database"}, f.Name) {
			words = append(words, "--"+f.Name+"="+f.Value.String())
		}
	})
	return append(append(words, "--"), cmd.Flags().Args()...)
}

// newBackup is a command that backs up the database that file names.
func newBackup(of string, addFlags func(*cobra.Command), file func() (string, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use: "backup FILE", Short: "Write a consistent copy of the database to a new file", Args: cobra.ExactArgs(1),
		Long: "Write a consistent copy of the database of " + of + " to a new file (mode 0600), whether or not the service runs: one that\n" +
			"does is asked for it on its admin socket, and goes on meanwhile. A file that is there is not overwritten. While the copy is\n" +
			"made it takes as much space beside the database as well.",
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := file()
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			err = alone(ctx, path, func() error { return sqldb.BackUpFile(ctx, path, args[0]) },
				func(socket string) error { return sqldb.FetchBackup(ctx, socket, args[0]) })
			switch {
			case errors.Is(err, fs.ErrExist):
				return &exitError{exitProtect, fmt.Errorf("%w; choose another file", err)}
			case err != nil:
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: a copy of %s\n", args[0], path)
			return err
		},
	}
	addFlags(cmd)
	return cmd
}
