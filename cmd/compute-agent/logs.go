// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/systemd"
)

// logSources are the logs that a search reads.
type logSources struct {
	files     []string // in place of the journal and the audit logs
	directory string   // of journal files
	audits    []string
	in        io.Reader
	problems  io.Writer
	// unread are those that could not be read, and why; each is reported once.
	unread map[string]bool
	// spooled is what was read of standard input.
	spooled *os.File
}

func newLogs() *cobra.Command {
	var opts options
	sources := logSources{unread: map[string]bool{}}
	var since string
	var follow bool
	cmd := &cobra.Command{
		Use: "logs REQUEST_ID|UUID", Short: "Follow one request through the logs of all services", Args: cobra.ExactArgs(1),
		Long: "Show what all services of this machine logged and recorded about one request, by time: the compute API, Placement, cells, the agent and\n" +
			"its drivers. REQUEST_ID is the id that the compute API answered a request with (X-Openstack-Request-Id, which `openstack --debug`\n" +
			"and `openstack server event list` show), that of another service, or the global one that the client sent. With the UUID of a server,\n" +
			"another consumer or a provider, what names it is shown, and the requests that it was in.\n\n" +
			"Without --file, systemd's journal is read, and the audit logs in the state directories. To follow a request over several machines,\n" +
			"give the files or the output of `journalctl -o json` of each, or --directory where systemd-journal-remote collects them.",
		Example: "  compute-agent logs req-8b7fa3c2-2f0e-4d67-9f5e-0d1c5a6a8e11\n" +
			"  compute-agent logs 6b4c9f0e-3c1d-4d0a-9c55-0c6a3f8f0e11 --since 1h\n" +
			"  for h in ctl1 cn1; do ssh $h journalctl -o json --since -1h -t compute-agent; done | compute-agent logs REQUEST_ID --file -",
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := moment("--since", since, time.Now())
			if err != nil {
				return err
			}
			search, err := auditlog.NewSearch(args[0], from)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			if follow && len(sources.files) > 0 {
				return &exitError{exitUsage, errors.New("--follow waits for entries of the journal, so that it has no --file")}
			}
			sources.in, sources.problems = cmd.InOrStdin(), cmd.ErrOrStderr()
			sources.audits = auditsNear(&opts)
			defer sources.close()
			return sources.show(cmd.Context(), search, opts.json(), follow, cmd.OutOrStdout())
		},
	}
	opts.addConfigFlags(cmd)
	flags := cmd.Flags()
	flags.StringArrayVar(&sources.files, "file", nil, "`FILE` to read instead, can be repeated: a log in JSON, the output of journalctl -o json, an audit log; - is standard input")
	flags.StringVarP(&sources.directory, "directory", "D", "", "read the journal files in `DIR`")
	flags.StringVar(&since, "since", "", "entries from `TIME` on: 2026-11-23T18:00:00Z, 2026-11-23, or 24h ago")
	flags.BoolVarP(&follow, "follow", "f", false, "wait for more entries")
	opts.addOutputFlag(cmd)
	return cmd
}

// auditsNear are the audit logs of the services of this machine: the configured one, and those in
// the state directories beside its own.
func auditsNear(opts *options) []string {
	cfg, err := opts.load()
	if err != nil {
		return nil // another service's; the journal has no need of it
	}
	list := []string{cfg.AuditFile()}
	near, _ := filepath.Glob(filepath.Join(filepath.Dir(cfg.Agent.StateDir), "compute-agent*", "audit.log")) // the pattern is valid
	for _, path := range near {
		if !slices.Contains(list, path) {
			list = append(list, path)
		}
	}
	return slices.DeleteFunc(list, func(path string) bool { return path == "" })
}

// show prints what is found, and with follow what is found from then on.
func (l *logSources) show(ctx context.Context, search *auditlog.Search, inJSON, follow bool, out io.Writer) error {
	print := func(entries []auditlog.Entry) error {
		if !inJSON {
			return render.Logs(screen(out), entries)
		}
		enc := json.NewEncoder(out)
		enc.SetEscapeHTML(false)
		for i := range entries {
			if err := enc.Encode(&entries[i]); err != nil {
				return err
			}
		}
		return nil
	}
	found, err := search.Run(ctx, l.read)
	if err == nil {
		err = print(found)
	}
	if err != nil {
		return err
	}
	if search.More {
		_, _ = fmt.Fprintf(l.problems, "There are more than %d entries; only those are shown. --since limits them.\n", auditlog.MaxFound)
	}
	if follow {
		return l.follow(ctx, search, func(e auditlog.Entry) error { return print([]auditlog.Entry{e}) })
	}
	if len(found) == 0 {
		_, _ = fmt.Fprintf(l.problems, "Nothing names %s in %s.\n", search.Target, l.where())
		return &exitError{code: exitFailed}
	}
	return nil
}

// where names what was read.
func (l *logSources) where() string {
	var list []string
	switch {
	case len(l.files) > 0:
		list = l.files
	case l.directory != "":
		list = append([]string{"the journal in " + l.directory}, l.audits...)
	default:
		list = append([]string{"the journal of this machine"}, l.audits...)
	}
	text := strings.Join(list, ", ")
	if len(l.files) == 0 {
		text += ". The journal has the lines of services on this machine that log to it with fields ([log] format = \"journald\", the default under systemd); " +
			"root and members of the group systemd-journal see all of it. Logs of other machines are read with --file or --directory"
	}
	return text
}

// read reads all logs once.
func (l *logSources) read(ctx context.Context, search *auditlog.Search) error {
	for _, path := range l.files {
		var err error
		if path == "-" {
			err = l.readInput(ctx, search)
		} else {
			err = search.ReadFile(ctx, path, strings.TrimSuffix(filepath.Base(path), ".log"))
		}
		if err != nil {
			return err
		}
	}
	if len(l.files) > 0 {
		return nil
	}
	for _, audit := range l.audits {
		files, err := auditlog.Files(audit)
		for i := 0; err == nil && i < len(files); i++ {
			err = search.ReadFile(ctx, files[i], "")
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			if ctx.Err() != nil {
				return err
			}
			l.cannotRead(fmt.Sprintf("Cannot read the audit log %s: %v", audit, err))
		}
	}
	return l.journal(ctx, search.Since, journalMatches(search), func(out io.Reader) error { return search.ReadLines(ctx, out, "") })
}

// cannotRead reports once what cannot be read.
func (l *logSources) cannotRead(problem string) {
	if !l.unread[problem] {
		l.unread[problem] = true
		_, _ = fmt.Fprintln(l.problems, problem)
	}
}

// readInput reads standard input, which is kept in a file that has no name, to be read again.
func (l *logSources) readInput(ctx context.Context, search *auditlog.Search) error {
	if l.spooled == nil {
		f, err := os.CreateTemp("", "compute-agent-logs-*")
		if err != nil {
			return err
		}
		l.spooled = f
		if err := os.Remove(f.Name()); err != nil {
			return err
		}
		if _, err := io.Copy(f, l.in); err != nil {
			return fmt.Errorf("keep standard input in %s: %w", os.TempDir(), err)
		}
	}
	if _, err := l.spooled.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return search.ReadLines(ctx, l.spooled, "")
}

func (l *logSources) close() {
	if l.spooled != nil {
		_ = l.spooled.Close() // it has no name any more
	}
}

// journalMatches are journalctl's for what a search may find: fields that it has an index of. +
// means or.
func journalMatches(search *auditlog.Search) []string {
	var matches []string
	if !search.OfRequest() {
		for _, field := range []string{"SERVER", "INSTANCE", "CONSUMER", "PROVIDER", "UUID", "MIGRATION", "RESOURCE_PROVIDER"} {
			matches = append(matches, field+"="+search.Target, "+")
		}
	}
	for _, id := range search.Requests() {
		matches = append(matches, "REQUEST_ID="+id, "+", "GLOBAL_REQUEST_ID="+id, "+")
	}
	return matches[:len(matches)-1]
}

// journal has the entries of the journal read that match.
func (l *logSources) journal(ctx context.Context, since time.Time, matches []string, read func(io.Reader) error) error {
	args := slices.Clone(matches)
	if l.directory != "" {
		args = append(args, "--directory="+l.directory)
	}
	if !since.IsZero() {
		args = append(args, "--since="+since.UTC().Format("2006-01-02 15:04:05")+" UTC")
	}
	err := systemd.Journalctl(ctx, args, read)
	if errors.Is(err, systemd.ErrNoJournalctl) {
		return fmt.Errorf("%w; --file reads a log without it", err)
	}
	return err
}

// follow shows entries of the journal as they come, until the context ends. Those of requests that
// appear later are followed, too, so the entries are chosen here.
func (l *logSources) follow(ctx context.Context, search *auditlog.Search, show func(auditlog.Entry) error) error {
	services := []string{"--follow", "--lines=0", "SYSLOG_IDENTIFIER=compute-agent", "+", "SYSLOG_IDENTIFIER=compute-agent-audit"}
	search.OnFound = show
	err := l.journal(ctx, time.Time{}, services, func(out io.Reader) error { return search.ReadLines(ctx, out, "") })
	if errors.Is(err, context.Canceled) {
		err = nil // it was interrupted
	}
	return err
}
