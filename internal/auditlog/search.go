// SPDX-License-Identifier: Apache-2.0

package auditlog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// MaxFound bounds how many entries a search keeps.
const MaxFound = 100_000

// maxRounds bounds how often the logs are read again for requests that others caused.
const maxRounds = 6

// Search finds the entries of one request in all services, or what names one uuid. A request is
// followed to those that it caused: a line with its id as global_request_id names one. A uuid is
// followed to the requests whose lines name it.
type Search struct {
	// Target is the id of a request or a uuid.
	Target string
	Since  time.Time
	// More is set when there were more entries than MaxFound.
	More bool
	// OnFound, if set, is given each entry as it is added; none is kept then.
	OnFound func(Entry) error

	requests map[string]bool
	grew     bool
	found    []Entry
	seen     map[string]bool
}

var (
	requestForm = regexp.MustCompile(`^req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	uuidForm    = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// NewSearch returns a search for the id of a request, or a uuid.
func NewSearch(target string, since time.Time) (*Search, error) {
	target = strings.ToLower(strings.TrimSpace(target))
	s := &Search{Target: target, Since: since, requests: map[string]bool{}}
	switch {
	case requestForm.MatchString(target):
		s.requests[target] = true
	case !uuidForm.MatchString(target):
		return nil, fmt.Errorf(
			"%.100q is not the id of a request, req- and a uuid, nor the uuid of a server, consumer or provider",
			target)
	}
	return s, nil
}

// OfRequest reports whether the target is the id of a request.
func (s *Search) OfRequest() bool { return strings.HasPrefix(s.Target, "req-") }

// Requests are the ids of the requests that were found so far, sorted.
func (s *Search) Requests() []string {
	list := make([]string, 0, len(s.requests))
	for id := range s.requests {
		list = append(list, id)
	}
	slices.Sort(list)
	return list
}

// Run reads logs, again while there are more requests to follow, and returns the entries by time.
func (s *Search) Run(ctx context.Context, read func(ctx context.Context, s *Search) error) ([]Entry, error) {
	for range maxRounds {
		s.grew, s.More, s.found, s.seen = false, false, nil, map[string]bool{}
		if err := read(ctx, s); err != nil {
			return nil, err
		}
		if !s.grew {
			break
		}
	}
	s.dropFinished()
	slices.SortStableFunc(s.found, func(a, b Entry) int { return cmp.Or(a.Time.Compare(b.Time), rank(&a)-rank(&b)) })
	return s.found, nil
}

// dropFinished removes what was intended and has a record of what became of it. The outcome of the
// others is unknown.
func (s *Search) dropFinished() {
	ended := map[string]bool{}
	for i := range s.found {
		if r := s.found[i].Record; r != nil && r.Outcome != Intended {
			ended[r.Service+" "+r.ID] = true
		}
	}
	left := s.found[:0]
	for _, e := range s.found {
		switch r := e.Record; {
		case r == nil || r.Outcome != Intended && r.Outcome != NotDone:
		case r.Outcome == NotDone || ended[r.Service+" "+r.ID]:
			continue
		default:
			unknown := *r
			unknown.Outcome = Unknown
			at := e
			e = ofRecord(&unknown)
			e.Host, e.cursor = at.Host, at.cursor
		}
		left = append(left, e)
	}
	s.found = left
}

// rank puts the record of a request before its line, as they were written.
func rank(e *Entry) int {
	if e.Record != nil {
		return 0
	}
	return 1
}

// add adds an entry, unless it was added before.
func (s *Search) add(e Entry) error {
	if !s.Since.IsZero() && e.Time.Before(s.Since) || s.seenBefore(&e) {
		return nil
	}
	s.follow(&e)
	switch {
	case s.OnFound != nil && e.Record != nil && (e.Record.Outcome == Intended || e.Record.Outcome == NotDone):
		return nil // the record of what was done follows
	case s.OnFound != nil:
		return s.OnFound(e)
	case len(s.found) >= MaxFound:
		s.More = true
	default:
		s.found = append(s.found, e)
	}
	return nil
}

// follow adds the requests that an entry leads to.
func (s *Search) follow(e *Entry) {
	var ids []string
	switch {
	case !s.OfRequest():
		ids = []string{e.RequestID, e.GlobalRequestID}
	case s.requests[e.GlobalRequestID]:
		ids = []string{e.RequestID}
	}
	for _, id := range ids {
		if requestForm.MatchString(id) && !s.requests[id] {
			s.requests[id], s.grew = true, true
		}
	}
}

// seenBefore reports whether an entry was added before: the audit log is in files and in the
// journal.
func (s *Search) seenBefore(e *Entry) bool {
	key := e.cursor
	if e.Record != nil {
		record, err := json.Marshal(e.Record)
		if err != nil {
			return false
		}
		key = string(record)
	}
	if key == "" {
		return false
	}
	was := s.seen[key]
	s.seen[key] = true
	return was
}

// matches reports whether a line names the target or one of the requests.
func (s *Search) matches(line []byte) bool {
	if !s.OfRequest() && bytes.Contains(line, []byte(s.Target)) {
		return true
	}
	const length = len("req-00000000-0000-0000-0000-000000000000")
	for {
		i := bytes.Index(line, []byte("req-"))
		if i < 0 {
			return false
		}
		if line = line[i:]; len(line) < length {
			return false
		}
		if s.requests[string(line[:length])] {
			return true
		}
		line = line[len("req-"):]
	}
}

// ReadLines adds what matches of lines. source is the service of those that do not name theirs.
func (s *Search) ReadLines(ctx context.Context, in io.Reader, source string) error {
	lines := lineReader{in: newLineBuffer(in)}
	var last time.Time
	for n := 0; ; n++ {
		line, err := lines.next()
		ended := errors.Is(err, io.EOF)
		switch {
		case ended:
			line = lines.partial
		case err != nil:
			return err
		}
		if n%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if s.matches(line) {
			e := ParseEntry(line, source)
			if e.Time.IsZero() { // a line that belongs to the one before
				e.Time = last
			}
			if err := s.add(e); err != nil {
				return err
			}
			last = e.Time
		}
		if ended {
			return nil
		}
	}
}

// ReadFile adds what matches in a file.
func (s *Search) ReadFile(ctx context.Context, path, source string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := s.ReadLines(ctx, f, source); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}
