// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells/compute"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/resourcetracker/providerconfig"
)

func newConfig() *cobra.Command {
	return group("config", "Check the configuration, or print the defaults", newConfigCheck(), newConfigDefaults())
}

// newConfigCheck reads the configuration as the daemon would, and says what is wrong or where each value comes from.
func newConfigCheck() *cobra.Command {
	var opts options
	var all bool
	cmd := &cobra.Command{
		Use: "check", Short: "Check the configuration files and variables", Args: cobra.NoArgs,
		Long: "Check the configuration as the daemon would read it, the provider.yaml and policy files too. Prints what differs from the defaults\n" +
			"and where it was set, or everything that is wrong, with file and line, and the files of tokens, certificates\n" +
			"and keys that are not there. The exit code is 78 if\n" +
			"something is wrong, and 1 if a file is not there or cannot be read.\n" +
			"Of [drivers.NAME.config] the driver knows what is right: it is started to read it, names its nodes, looks at the machine and says\n" +
			"what it warns of, and is ended again. A node that two drivers name, or that belongs to another driver, is a mistake of the\n" +
			"configuration. Warnings do not change the exit code.\n\n" +
			"It is the configuration of the agent that runs, from the files as they are now, unless --config names another file; without an\n" +
			"agent, that of --config or the default file.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, running, err := opts.loadJudged(cmd.Context())
			if cfg == nil {
				return err
			}
			if missing := cfg.MissingFiles(); missing != nil {
				err = errors.Join(err, fmt.Errorf("%w:\n%w", config.ErrInvalid, missing))
			}
			providers, err := checkProviders(cfg, errors.Join(err, checkPolicies(cfg, newLogger(cfg, cmd.ErrOrStderr()))))
			if err != nil {
				return err
			}
			drivers, err := agent.CheckDrivers(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if err := refusedByDrivers(drivers); err != nil {
				return err
			}
			entries := []config.Entry{}
			for _, e := range cfg.Entries() {
				if all || e.Source.Kind != config.FromDefault {
					entries = append(entries, e)
				}
			}
			if opts.json() {
				return printJSON(cmd.OutOrStdout(), map[string]any{"files": append([]string{}, cfg.Files()...), "settings": entries, "provider_config": providers, "drivers": drivers})
			}
			read := "no file (there is no " + cfg.File() + ")"
			if files := cfg.Files(); len(files) > 0 {
				read = strings.Join(files, ", ")
			}
			out := cmd.OutOrStdout()
			if by := judgedBy(running); by != "" {
				read += "; it is " + by
			}
			_, err = fmt.Fprintf(out, "The configuration is valid. Read: %s.\n", read)
			for _, e := range entries {
				if err == nil {
					_, err = fmt.Fprintf(out, "  %s = %s    (%s)\n", e.Key, e.Value, e.Source)
				}
			}
			for _, key := range cfg.UnusedCredentials() {
				if err == nil {
					_, err = fmt.Fprintf(out, "Not checked: %s names a credential, which systemd passes to the unit alone.\n", key)
				}
			}
			if err == nil {
				err = printDrivers(out, drivers)
			}
			if err == nil {
				err = providers.print(out)
			}
			return err
		},
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "print the defaults too")
	return cmd
}

// printDrivers says what drivers warn of, and which could not be asked.
func printDrivers(out io.Writer, drivers []agent.DriverCheck) error {
	for _, d := range drivers {
		if d.Unchecked != "" {
			if _, err := fmt.Fprintf(out, "Not checked is what the driver %s has to say to its own keys: %s.\n", d.Driver, strings.TrimSuffix(d.Unchecked, ".")); err != nil {
				return err
			}
		}
		for _, w := range d.Warnings {
			if _, err := fmt.Fprintf(out, "Warning of the driver %s on this machine (%s): %s\n", d.Driver, w.Name, w.Text); err != nil {
				return err
			}
		}
		if d.NodesUnknown != "" && len(drivers) > 1 {
			if _, err := fmt.Fprintf(out, "Not checked is whether another driver has the nodes of the driver %s, which does not name them: %s.\n", d.Driver, strings.TrimSuffix(d.NodesUnknown, ".")); err != nil {
				return err
			}
		}
		if d.Unseen != "" {
			if _, err := fmt.Fprintf(out, "Not checked is whether the configuration of the driver %s fits to this machine: %s\n", d.Driver, d.Unseen); err != nil {
				return err
			}
		}
	}
	return nil
}

// refusedByDrivers is what drivers do not take of their own tables.
func refusedByDrivers(drivers []agent.DriverCheck) error {
	var errs []error
	for _, d := range drivers {
		for _, problem := range d.Problems {
			errs = append(errs, errors.New(problem))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w:\n%w", config.ErrInvalid, errors.Join(errs...))
}

// checkPolicies reads the files of rules, Placement's and the compute API's. What has no effect is logged.
func checkPolicies(cfg *config.Config, log zerolog.Logger) error {
	var errs []error
	check := func(key string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	}
	if file := cfg.Policy.File; file != "" {
		_, err := api.OpenPolicy(api.Defaults(cfg.Policy.Defaults), file, log)
		check("policy.file", err)
	}
	if file := cfg.ComputeAPI.PolicyFile; file != "" {
		_, err := compute.OpenPolicy(file, log)
		check("compute_api.policy_file", err)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w:\n%w", config.ErrInvalid, errors.Join(errs...))
}

// providersView is what the provider.yaml files say.
type providersView struct {
	Directory string                   `json:"directory"`
	Files     []string                 `json:"files"`
	Entries   []providerconfig.Entry   `json:"entries"`
	Warnings  []providerconfig.Warning `json:"warnings"`
}

// checkProviders reads the provider.yaml files of a configuration, one that is invalid included: what is wrong with either
// is told together.
func checkProviders(cfg *config.Config, invalid error) (providersView, error) {
	view := providersView{Directory: cfg.ProviderConfigDir(), Files: []string{}, Entries: []providerconfig.Entry{}, Warnings: []providerconfig.Warning{}}
	read, warnings, err := providerconfig.Load(view.Directory)
	if err := errors.Join(invalid, err); err != nil {
		return view, err
	}
	view.Files, view.Entries, view.Warnings = append(view.Files, read.Files()...), append(view.Entries, read.Entries()...), append(view.Warnings, warnings...)
	return view, nil
}

// print says what is added to which provider and where that is written; nothing if there are no files.
func (v providersView) print(out io.Writer) error {
	if len(v.Files)+len(v.Warnings) == 0 {
		return nil
	}
	files := "no file in " + v.Directory
	if len(v.Files) > 0 {
		files = strings.Join(v.Files, ", ")
	}
	_, err := fmt.Fprintf(out, "provider.yaml is valid. Read: %s.\n", files)
	for _, e := range v.Entries {
		if err == nil {
			_, err = fmt.Fprintf(out, "  %s: %s, %s    (%s)\n", e.ID(), counted(len(e.Inventories), "inventory", "inventories"), counted(len(e.Traits), "trait", "traits"), e.Place)
		}
	}
	for _, w := range v.Warnings {
		if err == nil {
			_, err = fmt.Fprintf(out, "  warning: %s\n", w)
		}
	}
	return err
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// newConfigDefaults prints a complete commented file.
func newConfigDefaults() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use: "defaults", Short: "Print a complete configuration file with every default, commented", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !opts.json() {
				return config.Defaults(cmd.OutOrStdout())
			}
			cfg, err := config.Load(config.Options{Root: "/nonexistent", Environ: []string{}, UID: func() int { return 0 }})
			if err != nil {
				return err
			}
			return printJSON(cmd.OutOrStdout(), map[string]any{"settings": cfg.Entries()})
		},
	}
	opts.addOutputFlag(cmd)
	return cmd
}
