// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/pluginhost/suite"
)

// newPlugin groups the commands for driver authors and about installed drivers.
func newPlugin() *cobra.Command {
	return group("plugin", "Create, test and inspect driver plugins", newPluginNew(), newPluginTest(), newPluginRun(), newPluginList(), newPluginInfo())
}

// examined are the flags of the commands that start a plugin by its path.
type examined struct {
	config, former, run string
	release             string // path of a former release's executable
	noSandbox           bool
}

func (e *examined) addSandbox(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&e.noSandbox, "no-sandbox", false, "start the driver without the sandbox in which the agent starts it")
}

func (e *examined) addConfig(cmd *cobra.Command) {
	e.addSandbox(cmd)
	cmd.Flags().StringVar(&e.config, "config", "", "`FILE` with the driver's own configuration, or for conf.d with a table [drivers.NAME.config]; TOML, or .json")
}

// options reads the files. A missing executable is wrong usage, an error in a file is invalid
// configuration. A configuration that names its driver must name this one.
func (e *examined) options(ctx context.Context, path string) (suite.Options, error) {
	opts := suite.Options{Path: path}
	usage := func(err error) (suite.Options, error) { return opts, &exitError{exitUsage, err} }
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return usage(fmt.Errorf("the plugin's executable: %w", err))
	case !st.Mode().IsRegular() || st.Mode()&0o111 == 0:
		return usage(fmt.Errorf("%s is not an executable file: give the path of the plugin's executable", path))
	}
	if e.release != "" {
		if st, err := os.Stat(e.release); err != nil {
			return usage(fmt.Errorf("--former: %w", err))
		} else if !st.Mode().IsRegular() || st.Mode()&0o111 == 0 {
			return usage(fmt.Errorf("--former: %s is not an executable file: give the path of the last release's executable", e.release))
		}
		opts.FormerPath = e.release
	}
	if _, err = e.selected(); err != nil {
		return opts, err
	}
	opts.Select = e.run
	var named []string // pairs of FILE, NAME of its driver
	var own authored
	if e.config != "" {
		a, err := readAuthored(e.config)
		if err != nil {
			return opts, err
		}
		own = a
		opts.Config, opts.Args, opts.Env = a.config, a.args, a.env
		named = append(named, e.config, a.driver)
	}
	if e.former != "" {
		a, err := readAuthored(e.former)
		if err != nil {
			return opts, err
		}
		opts.Former = a.config
		named = append(named, e.former, a.driver)
	}
	if own.restrict(&opts); e.noSandbox {
		opts.Sandbox, opts.NoSandbox = nil, true
	}
	return opts, sameDriver(ctx, opts, named)
}

// sayConfinement warns of what the driver may do here that the agent would not let it do.
func (e *examined) sayConfinement(w io.Writer, opts suite.Options) {
	kernel := pluginhost.OwnKernel()
	why := `sandbox = "none"`
	if e.noSandbox {
		why = "--no-sandbox"
	}
	switch lacks := kernel.Lacks(); {
	case opts.NoSandbox:
		_, _ = fmt.Fprintf(w, "WARNING: %s: the driver runs WITHOUT THE SANDBOX in which the agent starts drivers. It can read and change all that you can, "+
			"and what works here can be refused on a host (docs/drivers.md, The sandbox).\n", why)
	case len(lacks) > 0:
		_, _ = fmt.Fprintf(w, "WARNING: the sandbox of drivers is incomplete on this machine (%s): %s. What works here can be refused on a host.\n",
			kernel, strings.Join(lacks, "; "))
	}
}

// sameDriver checks that files are for the driver that the plugin contains.
func sameDriver(ctx context.Context, opts suite.Options, named []string) error {
	driver := ""
	for pair := range slices.Chunk(named, 2) {
		file, name := pair[0], pair[1]
		if name == "" {
			continue
		}
		if driver == "" {
			d, _, err := pluginhost.Describe(ctx, process(opts), zerolog.Nop())
			if err != nil {
				return ctx.Err()
			}
			driver = d.Name
		}
		if name != driver {
			return &exitError{exitConfig, fmt.Errorf("the driver's configuration %s is for another driver: it has the table [drivers.%s], and %s is driver %q",
				file, name, opts.Path, driver)}
		}
	}
	return nil
}

// process returns how to start the plugin.
func process(o suite.Options) pluginhost.Spec {
	return pluginhost.Spec{Path: o.Path, Args: o.Args, Env: o.Env, Config: o.Config, Sandbox: o.Sandbox}
}

// pluginLog prints a plugin's log for its author.
type pluginLog struct{ w io.Writer }

func (l pluginLog) Write(line []byte) (int, error) {
	return len(line), render.PluginLog(l.w, line)
}

// newPluginRun makes passes over a tree in memory.
func newPluginRun() *cobra.Command {
	var ex examined
	var watch, devices bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use: "run PATH", Short: "Make a pass with a driver, without Placement, and show what it reports", Args: cobra.ExactArgs(1),
		Long: "Start a driver's plugin as the agent does, in its sandbox, make one pass as on a new host, and show the tree. Placement is not\n" +
			"involved: the tree is in memory. With --watch, keep making passes until Ctrl-C, at intervals and whenever the driver reports a\n" +
			"change, and show what each one changed. The driver's log goes to standard error. The exit code is 1 if the driver reported no tree\n" +
			"(with --watch, in the last pass).\n\n" +
			"--config takes a file with the driver's own keys (the content of [drivers.NAME.config]), or a conf.d file with that table.",
		Example: "  compute-agent plugin run ./compute-driver-mine --config mine.toml\n  compute-agent plugin run ./compute-driver-mine --config mine.toml --watch",
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := ex.options(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if devices {
				return listDevices(cmd, process(o), true, false)
			}
			ex.sayConfinement(cmd.ErrOrStderr(), o)
			log := zerolog.New(pluginLog{cmd.ErrOrStderr()})
			n, failed, warned := 0, false, []string(nil)
			err = pluginhost.Rehearse(cmd.Context(), process(o), log, watch, interval, func(pass pluginhost.Pass) error {
				n++
				failed = len(pass.Nodes) == 0 || slices.ContainsFunc(pass.Nodes, func(node pluginhost.NodePass) bool { return node.Problem != "" })
				if err := render.PluginPass(screen(cmd.OutOrStdout()), pass, n); err != nil {
					return err
				}
				var added []string
				for _, w := range agent.UnknownStandardNames(pass.Names()) {
					if !slices.Contains(warned, w) {
						added = append(added, w)
					}
				}
				warned = append(warned, added...)
				return render.PluginWarnings(screen(cmd.OutOrStdout()), added)
			})
			if err == nil && failed {
				return &exitError{code: exitFailed}
			}
			return err
		},
	}
	ex.addConfig(cmd)
	cmd.Flags().BoolVar(&watch, "watch", false, "make passes until Ctrl-C")
	cmd.Flags().BoolVar(&devices, "devices", false, "list the host's devices instead, if the driver can")
	cmd.Flags().DurationVar(&interval, "interval", 10*time.Second, "time between passes, with --watch")
	return cmd
}

// newPluginInfo describes a plugin.
func newPluginInfo() *cobra.Command {
	var opts options
	var ex examined
	cmd := &cobra.Command{
		Use: "info PATH", Short: "Show a driver's name, version, capabilities and configuration keys", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := ex.options(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			d, schema, err := pluginhost.Describe(cmd.Context(), process(o), zerolog.Nop())
			if err != nil {
				return err
			}
			sum, err := digest(args[0])
			if err != nil {
				return err
			}
			if !opts.json() {
				return render.PluginInfo(screen(cmd.OutOrStdout()), d, sum, schema)
			}
			view := struct {
				pluginhost.Description
				SHA256 string          `json:"sha256"`
				Schema json.RawMessage `json:"config_schema,omitempty"`
			}{Description: d, SHA256: sum}
			if json.Valid(schema) {
				view.Schema = schema
			}
			return printJSON(cmd.OutOrStdout(), view)
		},
	}
	ex.addSandbox(cmd)
	opts.addOutputFlag(cmd)
	return cmd
}

func digest(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// newPluginList lists configured and installed drivers.
func newPluginList() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use: "list", Short: "List the drivers that are configured or installed", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := opts.loadJudged(cmd.Context())
			if err != nil {
				return err
			}
			installed, err := installedDrivers(cfg.PluginDirs())
			if err != nil {
				return err
			}
			entries := []render.PluginEntry{}
			for name, d := range cfg.Drivers {
				e := render.PluginEntry{Name: name, Path: d.Path, State: "disabled"}
				if d.Enabled {
					e.State = "enabled"
				}
				if _, err := os.Stat(d.Path); errors.Is(err, fs.ErrNotExist) {
					e.Problem = (&pluginhost.NotInstalledError{Driver: name, Path: d.Path, Searched: cfg.PluginDirsOf(name)}).Error()
				} else if err != nil {
					e.Problem = err.Error()
				} else if sum, err := digest(d.Path); d.SHA256 != "" && err == nil && sum != d.SHA256 {
					e.Problem = fmt.Sprintf("its sha256 is %s, but the configuration requires %s", sum, d.SHA256)
				}
				entries = append(entries, e)
			}
			for name, path := range installed {
				if cfg.Drivers[name] == nil {
					entries = append(entries, render.PluginEntry{Name: name, Path: path, State: "not configured"})
				}
			}
			slices.SortFunc(entries, func(a, b render.PluginEntry) int { return strings.Compare(a.Name, b.Name) })
			if opts.json() {
				return printJSON(cmd.OutOrStdout(), map[string]any{"directories": cfg.PluginDirs(), "drivers": entries})
			}
			return render.PluginList(screen(cmd.OutOrStdout()), cfg.PluginDirs(), entries)
		},
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	return cmd
}

// installedDrivers returns the executables of drivers by name. The first directory that has a
// driver wins, as in the agent.
func installedDrivers(dirs []string) (map[string]string, error) {
	out := map[string]string{}
	for _, dir := range slices.Backward(dirs) {
		found, err := pluginhost.Installed(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		maps.Copy(out, found)
	}
	return out, nil
}
