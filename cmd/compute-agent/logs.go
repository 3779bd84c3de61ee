// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/auditlog"
)

func newLogs() *cobra.Command {
	var opts cli.Options
	var sources auditlog.Sources
	var since string
	var follow bool
	cmd := &cobra.Command{
		Use: "logs REQUEST_ID|UUID", Short: "Follow one request through the logs of all services",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := moment("--since", since, time.Now())
			if err != nil {
				return err
			}
			search, err := auditlog.NewSearch(args[0], from)
			if err != nil {
				return cli.Exit(cli.ExitUsage, err)
			}
			if follow && len(sources.Files) > 0 {
				return cli.Exit(cli.ExitUsage,
					errors.New("--follow waits for entries of the journal, so that it has no --file"))
			}
			sources.Input = cmd.InOrStdin()
			sources.Problem = func(problem string) { _, _ = fmt.Fprintln(cmd.ErrOrStderr(), problem) }
			if cfg, err := opts.Load(); err == nil { // else it is another service's; the journal has no need of it
				sources.Audits = auditlog.LogsBeside(cfg.AuditFile(), cfg.Agent.StateDir)
			}
			defer sources.Close()
			return showLogs(cmd, &opts, &sources, search, follow)
		},
	}
	opts.AddConfigFlags(cmd)
	flags := cmd.Flags()
	flags.StringArrayVar(&sources.Files, "file", nil,
		"`FILE` to read instead, can be repeated: a log in JSON, the output of journalctl -o json, an audit log; - "+
			"is standard input")
	flags.StringVarP(&sources.Directory, "directory", "D", "", "read the journal files in `DIR`")
	flags.StringVar(&since, "since", "", "entries from `TIME` on: 2026-11-23T18:00:00Z, 2026-11-23, or 24h ago")
	flags.BoolVarP(&follow, "follow", "f", false, "wait for more entries")
	opts.AddOutputFlag(cmd)
	return cmd
}

// showLogs prints what is found, and with follow what is found from then on.
func showLogs(cmd *cobra.Command, o *cli.Options, sources *auditlog.Sources, search *auditlog.Search,
	follow bool) error {
	out := cmd.OutOrStdout()
	show := func(entries []auditlog.Entry) error { return render.Logs(cli.Screen(out), entries) }
	if o.JSON() {
		show = func(entries []auditlog.Entry) error {
			enc := json.NewEncoder(out)
			enc.SetEscapeHTML(false)
			for i := range entries {
				if err := enc.Encode(&entries[i]); err != nil {
					return err
				}
			}
			return nil
		}
	}
	found, err := sources.Search(cmd.Context(), search)
	if err == nil {
		err = show(found)
	}
	if err != nil {
		return err
	}
	if search.More {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "There are more than %d entries; only those are shown. "+
			"--since limits them.\n", auditlog.MaxFound)
	}
	if follow {
		return sources.Follow(cmd.Context(), search, func(e auditlog.Entry) error { return show([]auditlog.Entry{e}) })
	}
	if len(found) == 0 {
		_ = render.NothingLogged(cmd.ErrOrStderr(), search.Target, sources)
		return cli.Exit(cli.ExitFailed, nil)
	}
	return nil
}
