// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/plugins"
)

// scenario is a schedule in a TOML file: the keys of the configuration, and tables [[then]] with
// those that change after a time, counted from when the file was last written. So another process
// that starts later continues, and writing the file restarts the schedule.
type scenario struct {
	path string
	host plugins.HostInfo
	seen stamp
	acts []act
	// at is the number of the act that current returned last.
	at int
	// problem is why the current file is invalid. The former acts stay.
	problem error
}

// act is the configuration from a time on.
type act struct {
	from time.Time
	cfg  config
}

// stamp identifies the version of a file.
type stamp struct {
	size    int64
	written time.Time
}

// script is the format of a scenario, for the decoder to check keys and types.
type script struct {
	config
	Then []struct {
		// After is a duration from the beginning, more than that of the one before.
		After string `toml:"after"`
		config
	} `toml:"then"`
}

const (
	maxScenario = 16 << 20 // bytes
	maxActs     = 1000
)

// readScenario reads a file.
//
// Errors: one that names the file, and the line if it is about one.
func readScenario(path string, host plugins.HostInfo) (*scenario, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%q: must be the absolute path of a file", path)
	}
	s := &scenario{path: path, host: host}
	if s.read(); s.problem != nil {
		return nil, s.problem
	}
	return s, nil
}

// current returns the configuration of the current act.
func (s *scenario) current() config {
	s.at = s.dueAct()
	return s.acts[s.at].cfg
}

func (s *scenario) dueAct() int {
	at, now := 0, time.Now()
	for i, a := range s.acts {
		if !now.Before(a.from) {
			at = i
		}
	}
	return at
}

// follow checks the file and the time, and reports whether current would return another one.
func (s *scenario) follow() bool {
	st, err := os.Stat(s.path)
	if err != nil {
		s.problem, s.seen = fmt.Errorf("the scenario: %w", err), stamp{}
		return s.dueAct() != s.at
	}
	if (stamp{st.Size(), st.ModTime()}) != s.seen {
		if s.read(); s.problem == nil {
			return true
		}
	}
	return s.dueAct() != s.at
}

// read reads the file. If it is invalid, the acts do not change.
func (s *scenario) read() {
	content, seen, err := readFile(s.path)
	s.seen = seen
	if err != nil {
		s.problem = fmt.Errorf("the scenario: %w", err)
		return
	}
	acts, err := parseScenario(content, seen.written, s.host)
	if err != nil {
		s.problem = fmt.Errorf("%s:%w", s.path, err)
		return
	}
	s.acts, s.problem = acts, nil
}

func readFile(path string) ([]byte, stamp, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, stamp{}, files.Denied(err)
	}
	seen := stamp{st.Size(), st.ModTime()}
	if !st.Mode().IsRegular() || st.Size() > maxScenario {
		return nil, seen, fmt.Errorf("%s is not a regular file of at most %d MiB", path, maxScenario>>20)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, seen, files.Denied(err)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxScenario))
	return content, seen, errors.Join(err, f.Close())
}

// parseScenario returns all acts, so that a mistake in the last one is reported at once.
//
// Errors: one whose text begins with the line.
func parseScenario(content []byte, written time.Time, host plugins.HostInfo) ([]act, error) {
	var tables map[string]any
	if err := decodeStrictly(content, &tables, &script{}); err != nil {
		return nil, err
	}
	where := keyLines(content)
	var then []any
	if list, ok := tables["then"].([]any); ok {
		then = list
	}
	delete(tables, "then")
	switch {
	case len(tables) == 0: // it may be truncated while it is being written
		return nil, errors.New("1: it is empty")
	case len(then) > maxActs:
		return nil, fmt.Errorf("%d: more than %d tables [[then]]", where.line("then[1000]"), maxActs)
	}
	acts := []act{{from: written}}
	sources := []string{""} // the tables with the current values
	for i := -1; i < len(then); i++ {
		if i >= 0 {
			path := fmt.Sprintf("then[%d].", i)
			table, _ := then[i].(map[string]any)
			after, err := time.ParseDuration(fmt.Sprint(table["after"]))
			if err != nil || !written.Add(after).After(acts[i].from) {
				return nil, fmt.Errorf("%d: after: must be a duration (\"30s\"), more than that of the table before",
					where.line(path+"after"))
			}
			delete(table, "after")
			for former, key := range formerKeys {
				if _, named := table[key]; named {
					delete(tables, former)
				}
				if _, named := table[former]; named {
					delete(tables, key)
				}
			}
			maps.Copy(tables, table)
			acts = append(acts, act{from: written.Add(after)})
			sources = append(sources, path)
		}
		raw, err := json.Marshal(tables)
		if err != nil {
			return nil, fmt.Errorf("1: a value that a configuration cannot have: %w", err)
		}
		cfg, err := parse(raw, host)
		if _, nested := tables["scenario"]; nested {
			err = &plugins.ConfigError{Key: "scenario", Problem: "a scenario cannot refer to another one"}
		}
		if err == nil && cfg.Faults.Configure != "" {
			err = &plugins.ConfigError{Key: "faults.configure",
				Problem: "a scenario is not part of Configure: put it in the configuration"}
		}
		if config := (*plugins.ConfigError)(nil); errors.As(err, &config) {
			return nil, fmt.Errorf("%d: %s: %s", where.lineIn(sources, config.Key), config.Key, config.Problem)
		}
		if err != nil {
			return nil, fmt.Errorf("1: %w", err)
		}
		acts[i+1].cfg = cfg
	}
	return acts, nil
}

// decodeStrictly decodes a document into each of these; keys that a struct does not have, and
// values of another type, are errors.
func decodeStrictly(content []byte, into ...any) error {
	for _, v := range into {
		d := toml.NewDecoder(bytes.NewReader(content)).DisallowUnknownFields()
		err := d.Decode(v)
		if missing := (*toml.StrictMissingError)(nil); errors.As(err, &missing) && len(missing.Errors) > 0 {
			first := missing.Errors[0]
			line, _ := first.Position()
			return fmt.Errorf("%d: %s is not a key of this driver", line, strings.Join(first.Key(), "."))
		}
		if wrong := (*toml.DecodeError)(nil); errors.As(err, &wrong) {
			line, _ := wrong.Position()
			return fmt.Errorf("%d: %w", line, wrong)
		}
		if err != nil {
			return fmt.Errorf("1: %w", err)
		}
	}
	return nil
}
