// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/auditlog"
)

func newAudit() *cobra.Command {
	var opts cli.Options
	var filter auditlog.Filter
	var files []string
	var since, until string
	var follow bool
	cmd := &cobra.Command{
		Use: "audit", Short: "Search the audit log: who changed what, from what to what", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			now := time.Now()
			var err error
			if filter.Since, err = moment("--since", since, now); err != nil {
				return err
			}
			if filter.Until, err = moment("--until", until, now); err != nil {
				return err
			}
			if follow && until != "" {
				return cli.Exit(cli.ExitUsage,
					errors.New("--follow waits for records to come, so that it has no --until"))
			}
			if len(files) == 0 {
				cfg, err := opts.Load()
				if err != nil {
					return err
				}
				if files, err = auditlog.FilesNear(cfg.AuditFile(), cfg.Agent.StateDir); err != nil {
					return err
				}
			}
			reader := auditlog.Reader{Paths: files, Follow: follow}
			show := render.AuditRecord
			if opts.JSON() {
				show = func(w io.Writer, r *auditlog.Record) error { return json.NewEncoder(w).Encode(r) }
			}
			found := false
			err = reader.Read(cmd.Context(), func(r auditlog.Record) error {
				if r, ok := filter.Match(r); ok {
					found = true
					return show(cmd.OutOrStdout(), &r)
				}
				return nil
			})
			if follow && errors.Is(err, context.Canceled) {
				err = nil
			}
			if !found && err == nil {
				_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "No record matches.")
			}
			if reader.Unreadable > 0 {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(),
					"Lines that are not records, such as one that a crash left incomplete: %d\n", reader.Unreadable)
			}
			return err
		},
	}
	opts.AddConfigFlags(cmd)
	flags := cmd.Flags()
	flags.StringArrayVar(&files, "file", nil, "`FILE` to read instead, can be repeated: the oldest first")
	flags.StringVar(&filter.Consumer, "consumer", "",
		"changes of the server, or other consumer of allocations, with the `UUID`")
	flags.StringVar(&filter.Provider, "provider", "",
		"changes of the resource provider or compute node with the `UUID` or name")
	flags.StringVar(&filter.Host, "host", "", "what the `HOST` changed, and changes of it and of what is on it")
	flags.StringVar(&filter.User, "user", "", "what the `USER` changed")
	flags.StringVar(&filter.Project, "project", "", "what users of the `PROJECT` changed")
	flags.StringVar(&filter.RequestID, "request-id", "", "what the request with the `ID` changed, in all services")
	flags.StringVar(&since, "since", "", "records from `TIME` on: 2026-11-23T18:00:00Z, 2026-11-23, or 24h ago")
	flags.StringVar(&until, "until", "", "records until `TIME`")
	flags.BoolVarP(&follow, "follow", "f", false, "wait for more records")
	opts.AddOutputFlag(cmd)
	return cmd
}

// moment reads the time of a flag; see [auditlog.ParseTime].
func moment(flag, text string, now time.Time) (time.Time, error) {
	t, err := auditlog.ParseTime(text, now)
	if err != nil {
		err = cli.Exit(cli.ExitUsage, fmt.Errorf("%s: %w", flag, err))
	}
	return t, err
}
