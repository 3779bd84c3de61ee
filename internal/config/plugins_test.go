// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestPluginsBesideTheAgent: a driver without a path is looked for in plugins.dir and then beside
// the agent's executable; there not if plugins.dir was set, whether or not it is there.
func TestPluginsBesideTheAgent(t *testing.T) {
	const usual = "/usr/libexec/compute-agent/plugins"
	for name, c := range map[string]struct {
		file      string
		installed []string
		path      string
		searched  []string
		source    string
	}{
		"beside": {"[drivers.a]\n", []string{"/opt/bin"}, "/opt/bin/compute-driver-a",
			[]string{usual, "/opt/bin"}, "default (next to the agent's executable)"},
		"in the directory": {"[drivers.a]\n", []string{usual}, usual + "/compute-driver-a",
			[]string{usual, "/opt/bin"}, "default"},
		"in both": {"[drivers.a]\n", []string{usual, "/opt/bin"}, usual + "/compute-driver-a",
			[]string{usual, "/opt/bin"}, "default"},
		"in none": {"[drivers.a]\n", nil,
			usual + "/compute-driver-a", []string{usual, "/opt/bin"}, "default"},
		"directory set": {"[plugins]\ndir = \"/srv\"\n[drivers.a]\n", []string{"/opt/bin"},
			"/srv/compute-driver-a", []string{"/srv"}, "default"},
		"set to the usual one": {"[plugins]\ndir = \"" + usual + "\"\n[drivers.a]\n", []string{"/opt/bin"},
			usual + "/compute-driver-a", []string{usual}, "default"},
		"a path": {"[drivers.a]\npath = \"/srv/a\"\n", []string{"/opt/bin"}, "/srv/a", nil, "/etc/a.toml:2"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			put := func(path, content string) {
				t.Helper()
				testproc.Check(t, os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755))
				testproc.Check(t, testproc.WriteExecutable(filepath.Join(root, path), []byte(content)))
			}
			put("/etc/a.toml", c.file)
			for _, dir := range c.installed {
				put(dir+"/compute-driver-a", "")
			}
			opts := machine("/etc/a.toml")
			opts.Root, opts.Executable = root, func() (string, error) { return "/opt/bin/compute-agent", nil }
			cfg := mustLoad(t, opts)
			if path, searched := cfg.Drivers["a"].Path,
				cfg.PluginDirsOf("a"); path != c.path || !cmp.Equal(searched, c.searched) {
				t.Errorf("path %q, searched %q; want %q and %q", path, searched, c.path, c.searched)
			}
			if s, _ := cfg.Source("drivers.a.path"); s.String() != c.source {
				t.Errorf("source %q, want %q", s, c.source)
			}
		})
	}
}
