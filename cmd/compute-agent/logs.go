// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/auditlog"
)

func newLogs() *cobra.Command {
	var opts options
	var sources auditlog.Sources
	var since string
	var follow bool
	cmd := &cobra.Command{
		Use: "logs REQUEST_ID|UUID", Short: "Follow one request through the logs of all services",
		Args: cobra.ExactArgs(1),
		Long: "Show what all services of this machine logged and recorded about one request, by time: the compute " +
			"API, Placement, cells, the agent and\n" +
			"its drivers. REQUEST_ID is the id that the compute API answered a " +
			"request with (X-Openstack-Request-Id, which `openstack --debug`\n" +
			"and `openstack server event list` show), that of another service, or the global one that the client " +
			"sent. With the UUID of a server,\n" +
			"another consumer or a provider, what names it is shown, and the requests that it was in.\n\n" +
			"Without --file, systemd's journal is read, and the audit logs in " +
			"the state directories. To follow a request over several machines,\n" +
			"give the files or the output of `journalctl -o json` of each, or --directory where " +
			"systemd-journal-remote collects them.",
		Example: "  compute-agent logs req-8b7fa3c2-2f0e-4d67-9f5e-0d1c5a6a8e11\n" +
			"  compute-agent logs 6b4c9f0e-3c1d-4d0a-9c55-0c6a3f8f0e11 --since 1h\n" +
			"  for h in ctl1 cn1; do ssh $h journalctl -o json --since -1h -t compute-agent; done | compute-agent " +
			"logs REQUEST_ID --file -",
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := moment("--since", since, time.Now())
			if err != nil {
				return err
			}
			search, err := auditlog.NewSearch(args[0], from)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			if follow && len(sources.Files) > 0 {
				return &exitError{exitUsage,
					errors.New("--follow waits for entries of the journal, so that it has no --file")}
			}
			sources.Input = cmd.InOrStdin()
			sources.Problem = func(problem string) { _, _ = fmt.Fprintln(cmd.ErrOrStderr(), problem) }
			if cfg, err := opts.load(); err == nil { // else it is another service's; the journal has no need of it
				sources.Audits = auditlog.LogsBeside(cfg.AuditFile(), cfg.Agent.StateDir)
			}
			defer sources.Close()
			return opts.showLogs(cmd, &sources, search, follow)
		},
	}
	opts.addConfigFlags(cmd)
	flags := cmd.Flags()
	flags.StringArrayVar(&sources.Files, "file", nil,
		"`FILE` to read instead, can be repeated: a log in JSON, the output of journalctl -o json, an audit log; - "+
			"is standard input")
	flags.StringVarP(&sources.Directory, "directory", "D", "", "read the journal files in `DIR`")
	flags.StringVar(&since, "since", "", "entries from `TIME` on: 2026-11-23T18:00:00Z, 2026-11-23, or 24h ago")
	flags.BoolVarP(&follow, "follow", "f", false, "wait for more entries")
	opts.addOutputFlag(cmd)
	return cmd
}

// showLogs prints what is found, and with follow what is found from then on.
func (o *options) showLogs(cmd *cobra.Command, sources *auditlog.Sources, search *auditlog.Search, follow bool) error {
	out := cmd.OutOrStdout()
	show := func(entries []auditlog.Entry) error { return render.Logs(screen(out), entries) }
	if o.json() {
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
		return &exitError{code: exitFailed}
	}
	return nil
}
