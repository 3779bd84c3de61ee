// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/config"
)

// configurationTimeout limits the request for the running agent's configuration.
const configurationTimeout = 2 * time.Second

// readVariables are the variables other than COMPUTE_AGENT_… that a configuration depends on.
var readVariables = []string{"STATE_DIRECTORY", "RUNTIME_DIRECTORY", "CREDENTIALS_DIRECTORY", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "HOME"}

// configuration returns the sources of this process's configuration, for commands that check it.
func (o *options) configuration(cfg *config.Config) control.Configuration {
	out := control.Configuration{PID: os.Getpid(), UID: os.Geteuid(), Environ: []string{}}
	if o.file != "" {
		out.File = o.file
		if abs, err := filepath.Abs(o.file); err == nil {
			out.File = abs
		}
	}
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "COMPUTE_AGENT_") || slices.Contains(readVariables, name) {
			out.Environ = append(out.Environ, pair)
		}
	}
	out.Executable, _ = os.Executable() // without it, no driver is found next to it
	overrides, _ := o.overrides()       // valid since the start
	for _, v := range overrides {
		out.Overrides = append(out.Overrides, control.Override(v))
	}
	if o.adjust == nil {
		return out
	}
	out.Drivers = map[string]json.RawMessage{}
	for name, d := range cfg.Drivers {
		if table, err := d.ConfigJSON(); err == nil {
			out.Drivers[name] = table
		}
	}
	return out
}

// loadJudged reads the configuration for a command that checks it: the running agent's, from the
// files as they are now, unless --config names another file. If no agent runs, it is that of
// --config or the default file, and agent is nil.
func (o *options) loadJudged(ctx context.Context) (cfg *config.Config, agent *control.Configuration, err error) {
	cfg, err = o.load()
	if cfg == nil || cfg.Agent.RuntimeDir == "" {
		return cfg, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, configurationTimeout)
	defer cancel()
	running, askErr := control.NewClient(cfg.Agent.ControlSocket()).Configuration(ctx)
	if askErr != nil {
		return cfg, nil, err // not running, an older version, or another user: doctor distinguishes these
	}
	if o.file != "" && !sameFile(o.file, running.File) {
		return cfg, nil, err
	}
	judged := options{file: running.File, output: o.output}
	for _, v := range running.Overrides {
		judged.extra = append(judged.extra, config.Override(v))
	}
	if running.Drivers != nil {
		judged.adjust = func(cfg *config.Config) { complete(cfg, running.Drivers) }
	}
	cfg, err = judged.loadFrom(config.Options{
		File: running.File, Environ: running.Environ, UID: func() int { return running.UID },
		Executable: func() (string, error) {
			if running.Executable == "" {
				return "", errors.New("the agent does not report the path of its executable")
			}
			return running.Executable, nil
		},
	})
	return cfg, &running, err
}

// sameFile reports whether two paths are the same file.
func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(cmp.Or(b, config.DefaultFile))
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// complete adds the keys that a standalone agent sets for its drivers.
func complete(cfg *config.Config, drivers map[string]json.RawMessage) {
	for name, raw := range drivers {
		d := cfg.Drivers[name]
		var table map[string]any
		if d == nil || json.Unmarshal(raw, &table) != nil {
			continue
		}
		if d.Config == nil {
			d.Config = map[string]any{}
		}
		for key, v := range table {
			if _, set := d.Config[key]; !set {
				d.Config[key] = v
			}
		}
	}
}

// judgedBy describes the agent whose configuration a command checks, "" for none.
func judgedBy(agent *control.Configuration) string {
	if agent == nil {
		return ""
	}
	return fmt.Sprintf("the configuration of the running agent (process %d)", agent.PID)
}
