// SPDX-License-Identifier: Apache-2.0

package cli

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

	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// Options are the flags that most commands share.
type Options struct {
	// File, StateDir and RuntimeDir are paths, "" if they were not given.
	File, StateDir, RuntimeDir string
	output                     outputFormat
	// Extra are keys that other flags set.
	Extra []config.Override
	// Uses are the sections whose systemd credentials must exist if this is a service.
	Uses []string
	// Service is the one whose data the command is about; nil: the agent, or none.
	Service *Installation
	// Adjust, if set, changes a valid configuration after each load.
	Adjust func(*config.Config)
	// Answered, if set, gets the agent's answer before it is printed; see AddWatchFlag.
	Answered func(json.RawMessage)
}

// Installation is what the unit of a service has on its command line. Commands about the service's
// data that are given no file and no directory use the same.
type Installation struct{ File, StateDir string }

// InstalledPlacement and InstalledAPI are the services of the packages.
var (
	InstalledPlacement = Installation{config.DefaultFile, "/var/lib/compute-agent-placement"}
	InstalledAPI       = Installation{filepath.Join(filepath.Dir(config.DefaultFile), "compute-api.toml"),
		"/var/lib/compute-agent-cells-api"}
)

// usable reports whether the service is installed, and this process runs as root or as its user.
func (i *Installation) usable() bool {
	info, err := os.Stat(i.StateDir)
	if err != nil {
		return false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && (os.Geteuid() == 0 || os.Geteuid() == int(owner.Uid))
}

// AddFlags adds the flags of the configuration, and --output, to a command that has its RunE.
func (o *Options) AddFlags(cmd *cobra.Command) {
	o.AddConfigFlags(cmd)
	o.AddOutputFlag(cmd)
}

// AddConfigFlags adds --config, --runtime-dir and --state-dir.
func (o *Options) AddConfigFlags(cmd *cobra.Command) {
	o.AddFileFlag(cmd)
	directory := ""
	if o.Service != nil {
		directory = "; default " + o.Service.StateDir + ", if it exists"
	}
	cmd.Flags().StringVar(&o.RuntimeDir, "runtime-dir", "", "`DIR` of the sockets (agent.runtime_dir)")
	cmd.Flags().StringVar(&o.StateDir, "state-dir", "", "`DIR` of persistent state (agent.state_dir"+directory+")")
}

// AddFileFlag adds --config.
func (o *Options) AddFileFlag(cmd *cobra.Command) {
	file := config.DefaultFile
	if o.Service != nil {
		file = o.Service.File
	}
	cmd.Flags().StringVar(&o.File, "config", "", "configuration `FILE` (default "+file+", if it exists)")
}

// Load reads the configuration, overridden by flags.
func (o *Options) Load() (*config.Config, error) {
	from := config.Options{File: o.File}
	if o.asInstalled() {
		if _, err := os.Stat(o.Service.File); err == nil {
			from.File = o.Service.File
		}
	}
	return o.loadFrom(from)
}

// asInstalled is whether the command uses what the unit of its service does.
func (o *Options) asInstalled() bool {
	return o.Service != nil && o.File == "" && o.StateDir == "" &&
		os.Getenv("COMPUTE_AGENT_AGENT_STATE_DIR") == "" && o.Service.usable()
}

func (o *Options) loadFrom(from config.Options) (*config.Config, error) {
	overrides, err := o.overrides()
	if err != nil {
		return nil, err
	}
	from.Overrides, from.Uses = overrides, append([]string{}, o.Uses...)
	cfg, err := config.Load(from)
	if err == nil && o.Adjust != nil {
		o.Adjust(cfg)
	}
	return cfg, err
}

// LoadForCheck reads the configuration for a command that checks it: the running agent's, from the
// files as they are now, unless --config names another file. If no agent runs, it is that of
// --config or the default file, and running is nil.
func (o *Options) LoadForCheck(ctx context.Context) (cfg *config.Config, running *control.Configuration, err error) {
	cfg, err = o.Load()
	if cfg == nil || cfg.Agent.RuntimeDir == "" {
		return cfg, nil, err
	}
	if of, running, runningErr := commands.LoadRunning(ctx, cfg.Agent.ControlSocket(), o.File); running != nil {
		return of, running, runningErr
	}
	return cfg, nil, err
}

// DescribeAgent describes the agent whose configuration a command checks, "" for none.
func DescribeAgent(agent *control.Configuration) string {
	if agent == nil {
		return ""
	}
	return fmt.Sprintf("the configuration of the running agent (process %d)", agent.PID)
}

// Configuration returns the sources of this process's configuration, for commands that check it.
func (o *Options) Configuration(cfg *config.Config) control.Configuration {
	overrides, _ := o.overrides() // valid since the start
	out := commands.ConfigurationOf(o.File, overrides)
	if o.Adjust != nil {
		out.Drivers = commands.DriverTables(cfg)
	}
	return out
}

// HostOf is the host that a command is about.
func HostOf(cmd *cobra.Command, cfg *config.Config) commands.Host {
	return commands.Host{Config: cfg, Logger: sync.OnceValue(func() zerolog.Logger {
		return NewLogger(cfg, cmd.ErrOrStderr()).Level(zerolog.WarnLevel)
	})}
}

// overrides returns the keys that flags set.
func (o *Options) overrides() ([]config.Override, error) {
	overrides := slices.Clone(o.Extra)
	if o.asInstalled() {
		overrides = append(overrides,
			config.Override{Key: "agent.state_dir", Value: o.Service.StateDir, Flag: "--state-dir of the unit"})
	}
	for _, f := range []struct{ flag, key, value string }{{"--state-dir", "agent.state_dir", o.StateDir},
		{"--runtime-dir", "agent.runtime_dir", o.RuntimeDir}} {
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

// NewLogger returns a logger to the journal, or to standard error; see [Logger]. Its level
// is global, so that a reload can change it.
func NewLogger(cfg *config.Config, w io.Writer) zerolog.Logger {
	SetLogLevel(cfg)
	return Logger(cfg.Log, w, colors())
}

// unwrapWriter unwraps a textutil.Writer.
func unwrapWriter(w io.Writer) io.Writer {
	if p, ok := w.(*textutil.Writer); ok {
		return p.Unwrap()
	}
	return w
}

// SetLogLevel sets the level of all loggers to that of a configuration.
func SetLogLevel(cfg *config.Config) {
	if level, err := zerolog.ParseLevel(cfg.Log.Level); err == nil { // validated on load
		zerolog.SetGlobalLevel(level)
	}
}

// ApplyFlags makes given flags override the configuration.
func (o *Options) ApplyFlags(cmd *cobra.Command, keys map[string]string) {
	for flag, key := range keys {
		if f := cmd.Flags().Lookup(flag); f.Changed {
			o.Extra = append(o.Extra, config.Override{Key: key, Value: f.Value.String(), Flag: "--" + flag})
		}
	}
}
