// SPDX-License-Identifier: Apache-2.0

package config

import "strings"

// Entry is one key as it stands.
type Entry struct {
	Key    string `json:"key"`
	Value  string `json:"value"` // As TOML writes it; what may be secret is not shown.
	Source Source `json:"source"`
	Env    string `json:"env"`  // The variable that stands for it.
	Live   bool   `json:"live"` // SIGHUP applies a change; otherwise a restart does.

	raw        string // Value, shown in full, for comparison.
	unreported bool   // It is not set, and comes or goes with its driver without a message.
}

// hidden stands for a value that may be secret.
const hidden = "(not shown)"

// Entries are all keys, in the order of `compute-agent config defaults`. The
// configuration of a driver has one entry per key of its table; values of keys
// whose names speak of secrets, and all of [drivers.NAME.env], are hidden.
func (c *Config) Entries() []Entry {
	var out []Entry
	for path, k := range c.keys() {
		computed := c.sources[path].Name
		if strings.HasPrefix(path, driversSection+".") {
			computed = ""
		}
		e := Entry{Key: path, Value: k.format(), Source: c.sources[path].orDefault(computed), Env: EnvName(path),
			Live: k.Live}
		e.raw = e.Value
		e.unreported = strings.Contains(k.Name, ".") && e.Source.Kind == FromDefault
		switch f := k.field.(type) {
		case stringTable:
			if len(*f.at) > 0 {
				e.Value = hidden
			}
		case freeTable:
			out = append(out, c.tableEntries(path, *f.at, e)...)
			continue
		}
		out = append(out, e)
	}
	return out
}

// tableEntries are the leaves of a driver's own table; like is what they share.
func (c *Config) tableEntries(path string, table map[string]any, like Entry) []Entry {
	var out []Entry
	for _, k := range sortedKeys(table) {
		e := like
		e.Key = path + "." + quoteKey(k)
		if s, ok := c.sources[e.Key]; ok {
			e.Source = s
		}
		if below, ok := table[k].(map[string]any); ok {
			out = append(out, c.tableEntries(e.Key, below, e)...)
			continue
		}
		e.raw = formatAny(table[k])
		e.Value = e.raw
		if looksSecret(k) {
			e.Value = hidden
		}
		out = append(out, e)
	}
	return out
}

// Change is one key that differs between two configurations.
type Change struct {
	Key     string `json:"key"`
	Old     string `json:"old"` // Empty when the key is new; secrets are not shown.
	New     string `json:"new"` // Empty when the key is gone.
	Source  Source `json:"source"`
	Restart bool   `json:"restart"` // SIGHUP does not apply it.
}

// Diff names the keys whose values differ, in the order of Entries: what a
// reload applies and what waits for a restart.
func Diff(before, after *Config) []Change {
	old := map[string]Entry{}
	for _, e := range before.Entries() {
		old[e.Key] = e
	}
	var out []Change
	for _, e := range after.Entries() {
		was, existed := old[e.Key]
		delete(old, e.Key)
		if existed && was.raw != e.raw || !existed && !e.unreported {
			out = append(out, Change{Key: e.Key, Old: was.Value, New: e.Value, Source: e.Source, Restart: !e.Live})
		}
	}
	for _, e := range before.Entries() {
		if _, gone := old[e.Key]; gone && !e.unreported {
			out = append(out, Change{Key: e.Key, Old: e.Value, Source: Source{Kind: FromDefault}, Restart: !e.Live})
		}
	}
	return out
}
