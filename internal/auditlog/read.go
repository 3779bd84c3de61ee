// SPDX-License-Identifier: Apache-2.0

package auditlog

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// Filter chooses records and their changes. Empty fields choose all.
type Filter struct {
	// Consumer is the uuid of a consumer: of a server, mostly. Provider is the uuid or the name of
	// a resource provider or compute node.
	Consumer, Provider string
	// Host is the host that made the request, or the one that a change is of.
	Host, User, Project string
	// RequestID is the ID of the request, or of the one that it served.
	RequestID    string
	Since, Until time.Time
}

// Match returns the record with those of its changes that the filter chooses; false if it chooses
// none.
func (f *Filter) Match(r Record) (Record, bool) {
	switch {
	case f.User != "" && r.User != f.User, f.Project != "" && r.Project != f.Project,
		f.RequestID != "" && r.RequestID != f.RequestID && r.GlobalRequestID != f.RequestID,
		!f.Since.IsZero() && r.Time.Before(f.Since), !f.Until.IsZero() && r.Time.After(f.Until):
		return r, false
	case f.Consumer == "" && f.Provider == "" && f.Host == "":
		return r, true
	}
	var chosen []Change
	for i := range r.Changes {
		if f.matchesRecord(&r, &r.Changes[i]) {
			chosen = append(chosen, r.Changes[i])
		}
	}
	r.Changes = chosen
	return r, len(chosen) > 0
}

func (f *Filter) matchesRecord(r *Record, c *Change) bool {
	ofProvider := c.Kind == KindProvider || c.Kind == KindNode
	switch {
	case f.Consumer != "" && (!c.OfConsumer() || c.ID != f.Consumer):
		return false
	case f.Provider != "" && c.Provider != f.Provider &&
		c.ProviderName != f.Provider && (!ofProvider || c.ID != f.Provider && c.Name != f.Provider):
		return false
	case f.Host != "" && r.Host != f.Host && c.Host != f.Host:
		return false
	}
	return true
}

// ParseTime reads a time for a Filter or a Search; "" is the zero time, and a duration is before
// now.
func ParseTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", time.DateTime,
		"2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, time.UTC); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time; write 2026-11-23T18:00:00Z, 2026-11-23 18:00 (UTC), 2026-11-23, "+
		"or 24h for 24 hours ago", text)
}

// maxReadLine bounds a line that is read, in bytes: longer ones are no records.
const maxReadLine = 16 << 20

// Reader reads the records of files of a log, in their order. It reads line by line: its memory
// does not grow with the files.
type Reader struct {
	// Paths are the files, oldest first; see [Files]. With Follow only the last is followed.
	Paths []string
	// Follow waits for more at the end of the last file until the context ends, and goes on with
	// the next file after a rotation.
	Follow bool
	// Poll is how often it looks for more; a second when zero.
	Poll time.Duration
	// Unreadable is how many lines were no records, such as one that a crash left incomplete.
	Unreadable int

	intended []Record // that have no other record yet
}

// maxIntended bounds how many intended changes wait for the record of what became of them.
const maxIntended = 10_000

// Read calls do with each record of what was done, and at the end with those that were intended and
// have no other record, as Unknown. It returns the error of do, or about a file that cannot be
// read.
func (r *Reader) Read(ctx context.Context, do func(Record) error) error {
	for i, path := range r.Paths {
		if err := r.readFile(ctx, path, r.Follow && i == len(r.Paths)-1, do); err != nil {
			return err
		}
	}
	for len(r.intended) > 0 {
		if err := r.giveUp(do); err != nil {
			return err
		}
	}
	return nil
}

// giveUp calls do with the first record that is intended.
func (r *Reader) giveUp(do func(Record) error) error {
	record := r.intended[0]
	r.intended = r.intended[1:]
	record.Outcome = Unknown
	return do(record)
}

// resolve calls do with a record of what was done, and keeps an intended one until its outcome is
// there.
func (r *Reader) resolve(record Record, do func(Record) error) error {
	if record.Outcome == Intended {
		r.intended = append(r.intended, record)
		if len(r.intended) > maxIntended {
			return r.giveUp(do)
		}
		return nil
	}
	if record.ID != "" {
		r.intended = slices.DeleteFunc(r.intended,
			func(i Record) bool { return i.ID == record.ID && i.Service == record.Service })
	}
	if record.Outcome == NotDone {
		return nil
	}
	return do(record)
}

func (r *Reader) readFile(ctx context.Context, path string, follow bool, do func(Record) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	lines := lineReader{in: newLineBuffer(f)}
	for {
		line, err := lines.next()
		switch {
		case err == nil:
			if err := r.line(line, do); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			continue
		case !errors.Is(err, io.EOF):
			return fmt.Errorf("read %s: %w", path, err)
		case !follow:
			if len(lines.partial) > 0 {
				return r.line(lines.partial, do)
			}
			return nil
		}
		next, err := r.waitForMore(ctx, f, path)
		if err != nil {
			return err
		}
		if next != nil {
			// What was written before the rotation is still to be read.
			if rest, err := lines.rest(); err != nil {
				return errors.Join(err, next.Close())
			} else if err := r.all(rest, do); err != nil {
				return errors.Join(err, next.Close())
			}
			_ = f.Close()
			f, lines = next, lineReader{in: newLineBuffer(next)}
		}
	}
}

// waitForMore waits until a file has more or another one has its path, which it then opens.
func (r *Reader) waitForMore(ctx context.Context, f *os.File, path string) (next *os.File, err error) {
	poll := r.Poll
	if poll <= 0 {
		poll = time.Second
	}
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, err
	}
	for {
		open, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if open.Size() > at {
			return nil, nil // the same file has more
		}
		if there, err := os.Stat(path); err == nil && !os.SameFile(there, open) {
			return os.Open(path)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (r *Reader) all(lines []byte, do func(Record) error) error {
	for line := range bytes.Lines(lines) {
		if err := r.line(line, do); err != nil {
			return err
		}
	}
	return nil
}

// line reads one line. What is no record is counted.
func (r *Reader) line(line []byte, do func(Record) error) error {
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return nil
	}
	var record Record
	if err := json.Unmarshal(line, &record); err != nil || record.Service == "" {
		r.Unreadable++
		return nil //nolint:nilerr // it is counted
	}
	return r.resolve(record, do)
}

func newLineBuffer(in io.Reader) *bufio.Reader { return bufio.NewReaderSize(in, 64<<10) }

// lineReader reads whole lines, and keeps the part of one that is at the end.
type lineReader struct {
	in      *bufio.Reader
	partial []byte
	whole   bool // partial was returned as a whole line
}

// next is the next whole line; of one that is too long its beginning. It is valid until the next
// call.
func (l *lineReader) next() ([]byte, error) {
	if l.whole {
		l.partial, l.whole = l.partial[:0], false
	}
	for {
		piece, err := l.in.ReadSlice('\n')
		if len(l.partial) < maxReadLine {
			l.partial = append(l.partial, piece...)
		}
		if err == nil {
			l.whole = true
			return l.partial, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}

// rest returns the incomplete line at the end, after next returned io.EOF.
func (l *lineReader) rest() ([]byte, error) {
	more, err := io.ReadAll(io.LimitReader(l.in, maxReadLine))
	return append(l.partial, more...), err
}
