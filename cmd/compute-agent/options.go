// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// options are the flags that most commands share.
type options struct {
	file       string
	stateDir   string
	runtimeDir string
	output     outputFormat
	extra      []config.Override
	// uses are the sections whose systemd credentials must exist if this is a service.
	uses []string
	// service is the one whose data the command is about; nil: the agent, or none.
	service *installation
	// adjust, if set, changes a valid configuration after each load.
	adjust func(*config.Config)
	// answered, if set, gets the agent's answer before it is printed; see addWatchFlag.
	answered func(json.RawMessage)
}

// installation is what the unit of a service has on its command line. Commands about the service's
// data that are given no file and no directory use the same.
type installation struct{ file, stateDir string }

var (
	installedPlacement = installation{config.DefaultFile, "/var/lib/compute-agent-placement"}
	installedAPI       = installation{filepath.Join(filepath.Dir(config.DefaultFile), "compute-api.toml"),
		"/var/lib/compute-agent-cells-api"}
)

// usable reports whether the service is installed, and this process runs as root or as its user.
func (i *installation) usable() bool {
	info, err := os.Stat(i.stateDir)
	if err != nil {
		return false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && (os.Geteuid() == 0 || os.Geteuid() == int(owner.Uid))
}

func (o *options) addFlags(cmd *cobra.Command) {
	o.addConfigFlags(cmd)
	o.addOutputFlag(cmd)
}

func (o *options) addConfigFlags(cmd *cobra.Command) {
	o.addFileFlag(cmd)
	directory := ""
	if o.service != nil {
		directory = "; default " + o.service.stateDir + ", if it exists"
	}
	cmd.Flags().StringVar(&o.runtimeDir, "runtime-dir", "", "`DIR` of the sockets (agent.runtime_dir)")
	cmd.Flags().StringVar(&o.stateDir, "state-dir", "", "`DIR` of persistent state (agent.state_dir"+directory+")")
}

func (o *options) addFileFlag(cmd *cobra.Command) {
	file := config.DefaultFile
	if o.service != nil {
		file = o.service.file
	}
	cmd.Flags().StringVar(&o.file, "config", "", "configuration `FILE` (default "+file+", if it exists)")
}

// load reads the configuration, overridden by flags.
func (o *options) load() (*config.Config, error) {
	from := config.Options{File: o.file}
	if o.asInstalled() {
		if _, err := os.Stat(o.service.file); err == nil {
			from.File = o.service.file
		}
	}
	return o.loadFrom(from)
}

// asInstalled is whether the command uses what the unit of its service does.
func (o *options) asInstalled() bool {
	return o.service != nil && o.file == "" && o.stateDir == "" &&
		os.Getenv("COMPUTE_AGENT_AGENT_STATE_DIR") == "" && o.service.usable()
}

func (o *options) loadFrom(from config.Options) (*config.Config, error) {
	overrides, err := o.overrides()
	if err != nil {
		return nil, err
	}
	from.Overrides, from.Uses = overrides, append([]string{}, o.uses...)
	cfg, err := config.Load(from)
	if err == nil && o.adjust != nil {
		o.adjust(cfg)
	}
	return cfg, err
}

// loadJudged reads the configuration for a command that checks it: the running agent's, from the
// files as they are now, unless --config names another file. If no agent runs, it is that of
// --config or the default file, and running is nil.
func (o *options) loadJudged(ctx context.Context) (cfg *config.Config, running *control.Configuration, err error) {
	cfg, err = o.load()
	if cfg == nil || cfg.Agent.RuntimeDir == "" {
		return cfg, nil, err
	}
	if of, running, runningErr := commands.LoadRunning(ctx, cfg.Agent.ControlSocket(), o.file); running != nil {
		return of, running, runningErr
	}
	return cfg, nil, err
}

// judgedBy describes the agent whose configuration a command checks, "" for none.
func judgedBy(agent *control.Configuration) string {
	if agent == nil {
		return ""
	}
	return fmt.Sprintf("the configuration of the running agent (process %d)", agent.PID)
}

// configuration returns the sources of this process's configuration, for commands that check it.
func (o *options) configuration(cfg *config.Config) control.Configuration {
	overrides, _ := o.overrides() // valid since the start
	out := commands.ConfigurationOf(o.file, overrides)
	if o.adjust != nil {
		out.Drivers = commands.DriverTables(cfg)
	}
	return out
}

// hostOf is the host that a command is about.
func hostOf(cmd *cobra.Command, cfg *config.Config) commands.Host {
	return commands.Host{Config: cfg, Logger: sync.OnceValue(func() zerolog.Logger {
		return newLogger(cfg, cmd.ErrOrStderr()).Level(zerolog.WarnLevel)
	})}
}

// overrides returns the keys that flags set.
func (o *options) overrides() ([]config.Override, error) {
	overrides := slices.Clone(o.extra)
	if o.asInstalled() {
		overrides = append(overrides,
			config.Override{Key: "agent.state_dir", Value: o.service.stateDir, Flag: "--state-dir of the unit"})
	}
	for _, f := range []struct{ flag, key, value string }{{"--state-dir", "agent.state_dir", o.stateDir},
		{"--runtime-dir", "agent.runtime_dir", o.runtimeDir}} {
		if f.value == "" {
			continue
		}
		abs, err := filepath.Abs(f.value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.flag, err)
		}
		overrides = append(overrides, config.Override{Key: f.key, Value: abs, Flag: f.flag})
	}
	return overrides, nil
}

// newLogger returns a logger to the journal, or to standard error; see [render.Logger]. Its level
// is global, so that a reload can change it.
func newLogger(cfg *config.Config, w io.Writer) zerolog.Logger {
	setLogLevel(cfg)
	return render.Logger(cfg.Log, w, colors())
}

// unwrapWriter unwraps a textutil.Writer.
func unwrapWriter(w io.Writer) io.Writer {
	if p, ok := w.(*textutil.Writer); ok {
		return p.Unwrap()
	}
	return w
}

func setLogLevel(cfg *config.Config) {
	if level, err := zerolog.ParseLevel(cfg.Log.Level); err == nil { // validated on load
		zerolog.SetGlobalLevel(level)
	}
}
