// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

func newAudit() *cobra.Command {
	var opts options
	var filter auditlog.Filter
	var files []string
	var since, until string
	var follow bool
	cmd := &cobra.Command{
		Use: "audit", Short: "Search the audit log: who changed what, from what to what", Args: cobra.NoArgs,
		Long: "Search the audit log of Placement, the compute API and cells: who changed which provider, allocation, server or mapping, from what\n" +
			"to what. Without --file, the file of [audit] is read, after those that it was rotated to. The table has a line for each change;\n" +
			"--output json prints the matching records as they are in the file, an object per line.",
		Example: "  compute-agent audit --consumer 6b4c9f0e-3c1d-4d0a-9c55-0c6a3f8f0e11\n" +
			"  compute-agent audit --provider cn1 --since 24h\n" +
			"  compute-agent audit --host cn1 --follow\n" +
			"  zcat audit.log-20261122.gz | compute-agent audit --file /dev/stdin --user admin",
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
				return &exitError{exitUsage, errors.New("--follow waits for records to come, so that it has no --until")}
			}
			if len(files) == 0 {
				if files, err = auditFiles(&opts); err != nil {
					return err
				}
			}
			reader := auditlog.Reader{Paths: files, Follow: follow}
			show := showChanges
			if opts.json() {
				show = showRecord
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
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Lines that are not records, such as one that a crash left incomplete: %d\n", reader.Unreadable)
			}
			return err
		},
	}
	opts.addConfigFlags(cmd)
	flags := cmd.Flags()
	flags.StringArrayVar(&files, "file", nil, "`FILE` to read instead, can be repeated: the oldest first")
	flags.StringVar(&filter.Consumer, "consumer", "", "changes of the server, or other consumer of allocations, with the `UUID`")
	flags.StringVar(&filter.Provider, "provider", "", "changes of the resource provider or compute node with the `UUID` or name")
	flags.StringVar(&filter.Host, "host", "", "what the `HOST` changed, and changes of it and of what is on it")
	flags.StringVar(&filter.User, "user", "", "what the `USER` changed")
	flags.StringVar(&filter.Project, "project", "", "what users of the `PROJECT` changed")
	flags.StringVar(&filter.RequestID, "request-id", "", "what the request with the `ID` changed, in all services")
	flags.StringVar(&since, "since", "", "records from `TIME` on: 2026-11-23T18:00:00Z, 2026-11-23, or 24h ago")
	flags.StringVar(&until, "until", "", "records until `TIME`")
	flags.BoolVarP(&follow, "follow", "f", false, "wait for more records")
	opts.addOutputFlag(cmd)
	return cmd
}

// auditFiles are the files of the configured audit log, or of the only one beside it: the agent has
// none, and so without flags the command is about the service of this machine.
func auditFiles(opts *options) ([]string, error) {
	cfg, err := opts.load()
	if err != nil {
		return nil, err
	}
	path := cfg.AuditFile()
	if path == "" {
		return nil, errors.New(
			"the configuration has no audit log in a file ([audit] file = \"none\"); `journalctl COMPUTE_AGENT_AUDIT=1` shows the journal's, and --file reads a file",
		)
	}
	files, err := auditlog.Files(path)
	if errors.Is(err, fs.ErrNotExist) { // the agent has none
		near := slices.DeleteFunc(auditsNear(opts), func(of string) bool { return of == path })
		switch len(near) {
		case 0:
		case 1:
			path = near[0]
			files, err = auditlog.Files(path)
		default:
			return nil, fmt.Errorf("there is no audit log at %s; this machine has %s: name the service's directory with --state-dir", path, strings.Join(near, ", "))
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no audit log at %s: select that of the service with --file, --config or --state-dir; it begins with the first start of a service", path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w; the audit log is readable by the user of the service and root only", err)
	}
	return files, err
}

// moment reads the time of a flag; "" is the zero time. A duration is before now.
func moment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, time.UTC); err == nil {
			return t, nil
		}
	}
	return time.Time{}, &exitError{
		exitUsage,
		fmt.Errorf("%s: %q is not a time; write 2026-11-23T18:00:00Z, 2026-11-23 18:00 (UTC), 2026-11-23, or 24h for 24 hours ago", flag, text),
	}
}

// showRecord prints a record as one line of JSON.
func showRecord(w io.Writer, r *auditlog.Record) error {
	line, err := json.Marshal(r)
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", line)
	}
	return err
}

// showChanges prints a line for each change of a record. In the path, … stands for uuids that the
// change names.
func showChanges(w io.Writer, r *auditlog.Record) error {
	for i := range r.Changes {
		c := &r.Changes[i]
		what := r.What()
		for _, id := range []string{c.ID, c.Provider} {
			if len(id) == len("00000000-0000-0000-0000-000000000000") {
				what = strings.ReplaceAll(what, id, "…")
			}
		}
		note := ""
		if r.Outcome == auditlog.Unknown {
			note = " (outcome unknown)"
		}
		line := fmt.Sprintf("%s  %s  %s  %s  %s%s", r.Time.UTC().Format("2006-01-02T15:04:05Z"), r.Service, r.Who(), what, c.String(), note)
		if _, err := fmt.Fprintln(w, textutil.Printable(line)); err != nil {
			return err
		}
	}
	return nil
}
