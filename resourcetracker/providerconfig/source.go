// SPDX-License-Identifier: Apache-2.0

package providerconfig

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// stableTime is how long files must have been left alone before an unannounced change is acted on:
// their writer can still be at work.
const stableTime = 2 * time.Second

// Source keeps the provider configuration that is in force. It is safe for concurrent use.
type Source struct {
	now func() time.Time

	mu       sync.Mutex
	dir      string
	config   *Config
	warnings []Warning
	err      error     // of the last time that files were read
	read     string    // the files' fingerprint before they were read last, valid or not
	seen     string    // a fingerprint that differed from read and was not stable
	seenAt   time.Time // when it was first seen
}

// Open reads a directory for the first time. Its error is that of [Load].
func Open(dir string) (*Source, error) { return open(dir, time.Now) }

func open(dir string, now func() time.Time) (*Source, error) {
	s := &Source{now: now}
	if err := s.load(dir); err != nil {
		return nil, err
	}
	return s, nil
}

// Config is the configuration in force, never nil.
func (s *Source) Config() *Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config
}

// Dir is the directory that the configuration in force was read from.
func (s *Source) Dir() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dir
}

// Warnings returns the warnings of the configuration in force.
func (s *Source) Warnings() []Warning {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Warning(nil), s.warnings...)
}

// Reload reads the directory again. With an error, which is that of [Load], the former
// configuration stays in force.
func (s *Source) Reload() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.load(s.dir)
}

// ReloadFrom is Reload from a directory that may be another one. With an error, directory and
// configuration stay what they were.
func (s *Source) ReloadFrom(dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.load(dir)
}

// Err returns why the files as they were read last are not in force; nil: they are.
func (s *Source) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Changed reports whether the files are not those that were read last, whether these were valid or
// not, and have been left alone for a moment. It costs one directory listing and one stat per file.
func (s *Source) Changed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed()
}

// Poll calls [Source.Reload] if [Source.Changed], in one step, so that only one of several callers
// reads the files. reloaded is true if another configuration is in force now. The error about
// invalid files is returned once, and again only after they have changed.
func (s *Source) Poll() (reloaded bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.changed() {
		return false, nil
	}
	former := s.config
	if err := s.load(s.dir); err != nil {
		return false, err
	}
	return !s.config.Same(former), nil
}

// load reads a directory; s.mu is held. The fingerprint is taken before the files are read: what
// changes meanwhile is noticed.
func (s *Source) load(dir string) error {
	current, _ := fingerprint(dir)
	config, warnings, err := Load(dir)
	s.err = err
	if err != nil {
		if dir == s.dir {
			s.read, s.seen = current, ""
		}
		return err
	}
	s.dir, s.config, s.warnings, s.read, s.seen = dir, config, warnings, current, ""
	return nil
}

// changed: a change counts when the newest time among the files is long enough ago, or, because
// such times may lie in the future or not move, when the files still look as they did that long
// ago.
func (s *Source) changed() bool {
	now := s.now()
	current, newest := fingerprint(s.dir)
	if current == s.read {
		s.seen = ""
		return false
	}
	if current != s.seen {
		s.seen, s.seenAt = current, now
	}
	return !newest.IsZero() && now.Sub(newest) >= stableTime || now.Sub(s.seenAt) >= stableTime
}

// fingerprint identifies the files without reading them, beside the newest of their times and the
// directory's (zero if there is no directory). It is never empty.
func fingerprint(dir string) (string, time.Time) {
	var b strings.Builder
	var newest time.Time
	note := func(path string) {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			_, _ = fmt.Fprintf(&b, "%q: %v\n", path, err) // a Builder takes everything
			return
		}
		modified, changed := time.Unix(st.Mtim.Unix()), time.Unix(st.Ctim.Unix())
		_, _ = fmt.Fprintf(&b, "%q %d:%d %d %o %d %d\n", path, st.Dev, st.Ino, st.Size, st.Mode,
			modified.UnixNano(), changed.UnixNano())
		for _, t := range []time.Time{modified, changed} {
			if t.After(newest) {
				newest = t
			}
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil { // there may be no such directory, too
		return err.Error(), newest
	}
	note(dir)
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, ".") && (strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")) {
			note(filepath.Join(dir, name))
		}
	}
	return b.String(), newest
}
