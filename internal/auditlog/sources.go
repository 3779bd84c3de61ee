// SPDX-License-Identifier: Apache-2.0

package auditlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/systemd"
)

// Sources are the logs that searches read: files, or else the journal and audit logs. Close them.
type Sources struct {
	// Files are read in place of the journal and the audit logs; "-" is Input.
	Files []string
	Input io.Reader
	// Directory has the journal's files; "" for the journal of this machine.
	Directory string
	// Audits are audit logs, each by the path of its newest file.
	Audits []string
	// Problem gets why something could not be read, once for each cause.
	Problem func(string)

	unread map[string]bool // what Problem has got
	// spooled is what was read of Input.
	spooled *os.File
}

// Search returns what a search finds, by time.
func (s *Sources) Search(ctx context.Context, search *Search) ([]Entry, error) {
	return search.Run(ctx, s.read)
}

// Names returns the names of the sources that are read.
func (s *Sources) Names() []string {
	switch {
	case len(s.Files) > 0:
		return s.Files
	case s.Directory != "":
		return append([]string{"the journal in " + s.Directory}, s.Audits...)
	}
	return append([]string{"the journal of this machine"}, s.Audits...)
}

// read reads all logs once.
func (s *Sources) read(ctx context.Context, search *Search) error {
	for _, path := range s.Files {
		var err error
		if path == "-" {
			err = s.readInput(ctx, search)
		} else {
			err = search.ReadFile(ctx, path, strings.TrimSuffix(filepath.Base(path), ".log"))
		}
		if err != nil {
			return err
		}
	}
	if len(s.Files) > 0 {
		return nil
	}
	for _, audit := range s.Audits {
		files, err := Files(audit)
		for i := 0; err == nil && i < len(files); i++ {
			err = search.ReadFile(ctx, files[i], "")
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			if ctx.Err() != nil {
				return err
			}
			s.report(fmt.Sprintf("Cannot read the audit log %s: %v", audit, err))
		}
	}
	return s.journal(ctx, search, search.Since, journalMatches(search))
}

// report passes a problem on, once.
func (s *Sources) report(problem string) {
	if !s.unread[problem] {
		if s.unread == nil {
			s.unread = map[string]bool{}
		}
		s.unread[problem] = true
		s.Problem(problem)
	}
}

// readInput reads Input, which is kept in a file that has no name, to be read again.
func (s *Sources) readInput(ctx context.Context, search *Search) error {
	if s.spooled == nil {
		f, err := os.CreateTemp("", "compute-agent-logs-*")
		if err != nil {
			return err
		}
		s.spooled = f
		if err := os.Remove(f.Name()); err != nil {
			return err
		}
		if _, err := io.Copy(f, s.Input); err != nil {
			return fmt.Errorf("keep standard input in %s: %w", os.TempDir(), err)
		}
	}
	if _, err := s.spooled.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return search.ReadLines(ctx, s.spooled, "")
}

// Close removes what was kept of Input.
func (s *Sources) Close() {
	if s.spooled != nil {
		_ = s.spooled.Close() // it has no name any more
	}
}

// journalMatches are journalctl's for what a search may find: fields that it has an index of. +
// means or.
func journalMatches(search *Search) []string {
	var matches []string
	if !search.OfRequest() {
		for _, field := range strings.Fields("SERVER INSTANCE CONSUMER PROVIDER UUID MIGRATION RESOURCE_PROVIDER") {
			matches = append(matches, field+"="+search.Target, "+")
		}
	}
	for _, id := range search.Requests() {
		matches = append(matches, "REQUEST_ID="+id, "+", "GLOBAL_REQUEST_ID="+id, "+")
	}
	return matches[:len(matches)-1]
}

// journal reads the entries of the journal that match.
func (s *Sources) journal(ctx context.Context, search *Search, since time.Time, matches []string) error {
	args := slices.Clone(matches)
	if s.Directory != "" {
		args = append(args, "--directory="+s.Directory)
	}
	if !since.IsZero() {
		args = append(args, "--since="+since.UTC().Format("2006-01-02 15:04:05")+" UTC")
	}
	err := systemd.Journalctl(ctx, args, func(out io.Reader) error { return search.ReadLines(ctx, out, "") })
	if errors.Is(err, systemd.ErrNoJournalctl) {
		return fmt.Errorf("%w; --file reads a log without it", err)
	}
	return err
}

// Follow passes entries of the journal to found as they come, until the context ends, which is no
// error. Those of requests that appear later are followed, too, so the entries are chosen here.
func (s *Sources) Follow(ctx context.Context, search *Search, found func(Entry) error) error {
	const services = "--follow --lines=0 SYSLOG_IDENTIFIER=compute-agent + SYSLOG_IDENTIFIER=compute-agent-audit"
	search.OnFound = found
	err := s.journal(ctx, search, time.Time{}, strings.Fields(services))
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// LogsBeside are the audit logs of the services of a machine: path, unless it is "", and those in
// the state directories beside stateDir.
func LogsBeside(path, stateDir string) []string {
	list := []string{path}
	near, _ := filepath.Glob(filepath.Join(filepath.Dir(stateDir), "compute-agent*/audit.log")) // the pattern is valid
	for _, other := range near {
		if other != path {
			list = append(list, other)
		}
	}
	return slices.DeleteFunc(list, func(path string) bool { return path == "" })
}

// FilesNear are the [Files] of the log at path, or, without such a log, of the only one beside
// stateDir: the agent has none, and so a command without flags is about the service of the machine.
func FilesNear(path, stateDir string) ([]string, error) {
	if path == "" {
		return nil, errors.New("the configuration has no audit log in a file ([audit] file = \"none\"); " +
			"`journalctl COMPUTE_AGENT_AUDIT=1` shows the journal's, and --file reads a file")
	}
	files, err := Files(path)
	if errors.Is(err, fs.ErrNotExist) {
		near := slices.DeleteFunc(LogsBeside(path, stateDir), func(other string) bool { return other == path })
		if len(near) > 1 {
			return nil, fmt.Errorf("there is no audit log at %s; this machine has %s: "+
				"name the service's directory with --state-dir", path, strings.Join(near, ", "))
		}
		if len(near) == 1 {
			path = near[0]
			files, err = Files(path)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no audit log at %s: select that of the service with --file, --config or "+
			"--state-dir; it begins with the first start of a service", path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w; the audit log is readable by the user of the service and root only", err)
	}
	return files, err
}
