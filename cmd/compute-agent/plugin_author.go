// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/plugins/drivertest"
	"github.com/compute-agent/compute-agent/plugins/host"
)

// examined are the flags of the commands that start a plugin by its path.
type examined struct {
	config, former, run string
}

func (e *examined) addConfig(cmd *cobra.Command) {
	cmd.Flags().StringVar(&e.config, "config", "", "`FILE` with the driver's own configuration (what is below [drivers.NAME.config]), TOML or JSON")
}

// options reads the files. What is wrong with them, or with the path, is wrong usage.
func (e *examined) options(path string) (drivertest.Options, error) {
	opts := drivertest.Options{Path: path}
	usage := func(err error) (drivertest.Options, error) { return opts, &exitError{exitUsage, err} }
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return usage(fmt.Errorf("the plugin's executable: %w", err))
	case !st.Mode().IsRegular() || st.Mode()&0o111 == 0:
		return usage(fmt.Errorf("%s is not an executable file: give the path of the plugin's executable", path))
	}
	for _, f := range []struct {
		name string
		into *json.RawMessage
	}{{e.config, &opts.Config}, {e.former, &opts.Former}} {
		if f.name == "" {
			continue
		}
		if *f.into, err = driverConfig(f.name); err != nil {
			return usage(err)
		}
	}
	if e.run != "" {
		if opts.Select, err = regexp.Compile(e.run); err != nil {
			return usage(fmt.Errorf("--run: %w", err))
		}
	}
	return opts, nil
}

// driverConfig reads a driver's configuration as JSON.
func driverConfig(name string) (json.RawMessage, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("the driver's configuration: %w", err)
	}
	table := map[string]any{}
	if filepath.Ext(name) == ".json" {
		err = json.Unmarshal(raw, &table)
	} else {
		err = toml.Unmarshal(raw, &table)
	}
	if err != nil {
		return nil, fmt.Errorf("the driver's configuration %s: %w", name, err)
	}
	return json.Marshal(table)
}

// newPluginTest puts the conformance suite to a plugin.
func newPluginTest() *cobra.Command {
	var opts options
	var ex examined
	var junit string
	cmd := &cobra.Command{
		Use: "test PATH", Short: "Check whether a driver does all that an agent relies on", Args: cobra.ExactArgs(1),
		Long: "Start a driver's plugin as the agent does and check whether it does all that an agent relies on. No Placement takes part, and\n" +
			"nothing is installed. Of a check that fails it is told what was sent, what came, what the contract says and where to look. The exit\n" +
			"code is 0 if no check failed, 1 if one did, 2 if there was nothing to check.\n\n" +
			"A reshape is tried from the tree that the driver makes with --former-config; without that, from its own tree with all inventory on\n" +
			"the root, if the driver knows such a shape.",
		Example: "  compute-agent plugin test ./compute-driver-mine --config mine.toml\n  compute-agent plugin test ./compute-driver-mine --run '^reshape/'",
		RunE: func(cmd *cobra.Command, args []string) error {
			asJSON, err := opts.json()
			if err != nil {
				return err
			}
			o, err := ex.options(args[0])
			if err != nil {
				return err
			}
			report, err := drivertest.Execute(cmd.Context(), o)
			if err != nil {
				return err
			}
			if len(report.Results) == 0 {
				return &exitError{exitUsage, fmt.Errorf("--run %q: no check has such an ID", ex.run)}
			}
			if junit != "" {
				if err := writeFile(junit, report.WriteJUnit); err != nil {
					return err
				}
			}
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), report)
			} else {
				err = render.PluginTest(cmd.OutOrStdout(), report)
			}
			if err == nil && report.Count(drivertest.Failed) > 0 {
				return &exitError{code: exitFailed}
			}
			return err
		},
	}
	ex.addConfig(cmd)
	cmd.Flags().StringVar(&ex.former, "former-config", "", "`FILE` with a configuration whose tree needs a reshape with that of --config")
	cmd.Flags().StringVar(&ex.run, "run", "", "only the checks whose ID matches `REGEX`")
	cmd.Flags().StringVar(&junit, "junit", "", "write the report as JUnit XML to `FILE` too")
	opts.addOutputFlag(cmd)
	return cmd
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// newPluginRun makes passes over a tree in memory.
func newPluginRun() *cobra.Command {
	var ex examined
	var watch bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use: "run PATH", Short: "Make one pass with a driver, without Placement, and show what it reports", Args: cobra.ExactArgs(1),
		Long: "Start a driver's plugin as the agent does, make one pass as on a new host, and show the tree. No Placement takes part: the tree is\n" +
			"in memory. With --watch, go on: a pass whenever the driver says that something changed, and at intervals, each of which shows what\n" +
			"it changed. The exit code is 1 if the driver reported no tree.",
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := ex.options(args[0])
			if err != nil {
				return err
			}
			n, failed := 0, false
			err = drivertest.Rehearse(cmd.Context(), o, watch, interval, func(pass drivertest.Pass) error {
				n++
				failed = len(pass.Nodes) == 0 || slices.ContainsFunc(pass.Nodes, func(node drivertest.NodePass) bool { return node.Problem != "" })
				return render.PluginPass(cmd.OutOrStdout(), pass, n)
			})
			if err == nil && failed {
				return &exitError{code: exitFailed}
			}
			return err
		},
	}
	ex.addConfig(cmd)
	cmd.Flags().BoolVar(&watch, "watch", false, "go on until Ctrl-C")
	cmd.Flags().DurationVar(&interval, "interval", 10*time.Second, "time between passes, with --watch")
	return cmd
}

// newPluginInfo asks a plugin who it is.
func newPluginInfo() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use: "info PATH", Short: "Show who a driver is, what it can do and what may be configured", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			asJSON, err := opts.json()
			if err != nil {
				return err
			}
			o, err := (&examined{}).options(args[0])
			if err != nil {
				return err
			}
			report, schema, err := drivertest.Describe(cmd.Context(), o)
			if err != nil {
				return err
			}
			sum, err := digest(args[0])
			if err != nil {
				return err
			}
			if !asJSON {
				return render.PluginInfo(cmd.OutOrStdout(), report, sum, schema)
			}
			view := map[string]any{
				"path": report.Path, "name": report.Name, "version": report.Version, "sdk": report.SDK, "capabilities": report.Capabilities, "sha256": sum,
			}
			if json.Valid(schema) {
				view["config_schema"] = json.RawMessage(schema)
			}
			return printJSON(cmd.OutOrStdout(), view)
		},
	}
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

// newPluginList shows the drivers that are configured, and those that are only installed.
func newPluginList() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use: "list", Short: "Show the drivers that are configured or installed", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := opts.json()
			if err != nil {
				return err
			}
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			installed, err := host.Installed(cfg.Plugins.Dir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			entries := []render.PluginEntry{}
			for name, d := range cfg.Drivers {
				e := render.PluginEntry{Name: name, Path: d.Path, State: "disabled"}
				if d.Enabled {
					e.State = "enabled"
				}
				if _, err := os.Stat(d.Path); err != nil {
					e.Problem = "it is not installed: " + err.Error()
				} else if sum, err := digest(d.Path); d.SHA256 != "" && err == nil && sum != d.SHA256 {
					e.Problem = fmt.Sprintf("it has sha256 %s, the configuration demands %s", sum, d.SHA256)
				}
				entries = append(entries, e)
			}
			for name, path := range installed {
				if cfg.Drivers[name] == nil {
					entries = append(entries, render.PluginEntry{Name: name, Path: path, State: "not configured"})
				}
			}
			slices.SortFunc(entries, func(a, b render.PluginEntry) int { return strings.Compare(a.Name, b.Name) })
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]any{"directory": cfg.Plugins.Dir, "drivers": entries})
			}
			return render.PluginList(cmd.OutOrStdout(), cfg.Plugins.Dir, entries)
		},
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	return cmd
}
