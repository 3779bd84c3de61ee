// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
)

// newPlugin groups the commands for driver authors and about installed drivers.
func newPlugin() *cobra.Command {
	return group("plugin", "Create, test and inspect driver plugins", newPluginNew(), newPluginTest(), newPluginRun(),
		newPluginList(), newPluginInfo())
}

// trialFlags are the flags of the commands that start a plugin by its path.
type trialFlags struct{ commands.Trial }

func (f *trialFlags) addSandbox(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.NoSandbox, "no-sandbox", false,
		"start the driver without the sandbox in which the agent starts it")
}

func (f *trialFlags) addConfig(cmd *cobra.Command) {
	f.addSandbox(cmd)
	cmd.Flags().StringVar(&f.Config, "config", "",
		"`FILE` with the driver's own configuration, or for conf.d with a table [drivers.NAME.config]; TOML, or .json")
}

// options returns how the plugin at a path is started.
func (f *trialFlags) options(ctx context.Context, path string) (trial.SuiteOptions, error) {
	f.Path = path
	opts, err := f.Options(ctx)
	return opts, trialError(err)
}

// trialError gives an error about what the command line names the exit code for wrong usage.
func trialError(err error) error {
	var file *trial.FileError
	if !errors.As(err, &file) {
		return err
	}
	if file.Former {
		err = fmt.Errorf("--former: %w", err)
	}
	return cli.Exit(cli.ExitUsage, err)
}

// warnOfSandbox says what the driver may do here that the agent would not let it do.
func (f *trialFlags) warnOfSandbox(cmd *cobra.Command, opts trial.SuiteOptions) {
	why := `sandbox = "none"`
	if f.NoSandbox {
		why = "--no-sandbox"
	}
	_ = render.PluginSandbox(cmd.ErrOrStderr(), opts, launch.OwnKernel(), why)
}

// pluginLog prints a plugin's log for its author.
type pluginLog struct{ w io.Writer }

func (l pluginLog) Write(line []byte) (int, error) {
	return len(line), render.PluginLog(l.w, line)
}

// newPluginRun makes passes over a tree in memory.
func newPluginRun() *cobra.Command {
	var flags trialFlags
	var watch, devices bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use: "run PATH", Short: "Make a pass with a driver, without Placement, and show what it reports",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := flags.options(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if devices {
				return pluginhost.ListDevices(cmd.Context(), o.Spec(), true, cmd.OutOrStdout())
			}
			flags.warnOfSandbox(cmd, o)
			log, failed := zerolog.New(pluginLog{cmd.ErrOrStderr()}), false
			var text render.PluginRun
			err = trial.Run(cmd.Context(), o.Spec(), log, watch, interval, func(pass trial.Pass) error {
				failed = pass.Failed()
				return text.Pass(cli.Screen(cmd.OutOrStdout()), pass, agent.UnknownStandardNames(pass.Names()))
			})
			if err == nil && failed {
				return cli.Exit(cli.ExitFailed, nil)
			}
			return err
		},
	}
	flags.addConfig(cmd)
	cmd.Flags().BoolVar(&watch, "watch", false, "make passes until Ctrl-C")
	cmd.Flags().BoolVar(&devices, "devices", false, "list the host's devices instead, if the driver can")
	cmd.Flags().DurationVar(&interval, "interval", 10*time.Second, "time between passes, with --watch")
	return cmd
}

// newPluginInfo describes a plugin.
func newPluginInfo() *cobra.Command {
	var opts cli.Options
	var flags trialFlags
	cmd := &cobra.Command{
		Use: "info PATH", Short: "Show a driver's name, version, capabilities and configuration keys",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := flags.options(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			d, schema, err := trial.Describe(cmd.Context(), o.Spec(), zerolog.Nop())
			if err != nil {
				return err
			}
			sum, err := launch.Digest(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if !opts.JSON() {
				return render.PluginInfo(cli.Screen(cmd.OutOrStdout()), d, sum, schema)
			}
			view := struct {
				trial.Description
				SHA256 string          `json:"sha256"`
				Schema json.RawMessage `json:"config_schema,omitempty"`
			}{Description: d, SHA256: sum}
			if json.Valid(schema) {
				view.Schema = schema
			}
			return cli.PrintJSON(cmd.OutOrStdout(), view)
		},
	}
	flags.addSandbox(cmd)
	opts.AddOutputFlag(cmd)
	return cmd
}

// newPluginList lists configured and installed drivers.
func newPluginList() *cobra.Command {
	var opts cli.Options
	cmd := &cobra.Command{
		Use: "list", Short: "List the drivers that are configured or installed", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := opts.LoadForCheck(cmd.Context())
			if err != nil {
				return err
			}
			entries, err := commands.Plugins(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if opts.JSON() {
				return cli.PrintJSON(cmd.OutOrStdout(), map[string]any{"directories": cfg.PluginDirs(),
					"drivers": entries})
			}
			return render.PluginList(cli.Screen(cmd.OutOrStdout()), cfg.PluginDirs(), entries)
		},
	}
	opts.AddConfigFlags(cmd)
	opts.AddOutputFlag(cmd)
	return cmd
}
