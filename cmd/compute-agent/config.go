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
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/resourcetracker/providerconfig"
)

func newConfig() *cobra.Command {
	return group("config", "Check the configuration, or print the defaults", newConfigCheck(), newConfigDefaults())
}

// newConfigCheck validates the configuration and prints where each value is set.
func newConfigCheck() *cobra.Command {
	var opts options
	var all bool
	cmd := &cobra.Command{
		Use: "check", Short: "Check the configuration files and variables", Args: cobra.NoArgs,
		Long: "Check the configuration as the daemon would read it, including provider.yaml and policy files. Prints each setting that differs\n" +
			"from its default and where it is set, or everything that is wrong, with file and line, including missing files of tokens,\n" +
			"certificates and keys. The exit code is 78 if something is wrong, and 1 if a file is missing or cannot be read.\n\n" +
			"Each driver is started to check its own [drivers.NAME.config], list its nodes and warn about the machine, and stopped\n" +
			"afterwards. A node that two drivers name, or that belongs to another driver, is an error. Warnings do not change the exit code.\n\n" +
			"The command checks the running agent's configuration, from the files as they are now, unless --config names another file. If no\n" +
			"agent runs, it checks the file of --config or the default file.",
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
				return printJSON(
					cmd.OutOrStdout(),
					map[string]any{"files": append([]string{}, cfg.Files()...), "settings": entries, "provider_config": providers, "drivers": drivers},
				)
			}
			read := "no file (there is no " + cfg.File() + ")"
			if files := cfg.Files(); len(files) > 0 {
				read = strings.Join(files, ", ")
			}
			out := cmd.OutOrStdout()
			if by := judgedBy(running); by != "" {
				read += "; this is " + by
			}
			_, err = fmt.Fprintf(out, "The configuration is valid. Read: %s.\n", read)
			for _, e := range entries {
				if err == nil {
					_, err = fmt.Fprintf(out, "  %s = %s    (%s)\n", e.Key, e.Value, e.Source)
				}
			}
			for _, key := range cfg.UnusedCredentials() {
				if err == nil {
					_, err = fmt.Fprintf(out, "Not checked: %s names a credential, which systemd passes only to the unit.\n", key)
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
	cmd.Flags().BoolVar(&all, "all", false, "print default values too")
	return cmd
}

// printDrivers prints the drivers' warnings, and what could not be checked.
func printDrivers(out io.Writer, drivers []agent.DriverCheck) error {
	for _, d := range drivers {
		if d.Unchecked != "" {
			if _, err := fmt.Fprintf(out, "Not checked: the keys of driver %s: %s.\n", d.Driver, strings.TrimSuffix(d.Unchecked, ".")); err != nil {
				return err
			}
		}
		for _, w := range d.Warnings {
			if _, err := fmt.Fprintf(out, "Warning of driver %s on this machine (%s): %s\n", d.Driver, w.Name, w.Text); err != nil {
				return err
			}
		}
		if d.NodesUnknown != "" && len(drivers) > 1 {
			if _, err := fmt.Fprintf(
				out,
				"Not checked: whether another driver has the nodes of driver %s, which cannot list them: %s.\n",
				d.Driver,
				strings.TrimSuffix(d.NodesUnknown, "."),
			); err != nil {
				return err
			}
		}
		if d.Unseen != "" {
			if _, err := fmt.Fprintf(out, "Not checked: whether the configuration of driver %s fits this machine: %s\n", d.Driver, d.Unseen); err != nil {
				return err
			}
		}
	}
	return nil
}

// refusedByDrivers returns the problems that drivers report in their own tables.
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

// checkPolicies validates the policy files of Placement and the compute API. Rules without effect
// are logged.
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

// providersView is the content of the provider.yaml files.
type providersView struct {
	Directory string                   `json:"directory"`
	Files     []string                 `json:"files"`
	Entries   []providerconfig.Entry   `json:"entries"`
	Warnings  []providerconfig.Warning `json:"warnings"`
}

// checkProviders reads the provider.yaml files, and joins their errors with those of the
// configuration.
func checkProviders(cfg *config.Config, invalid error) (providersView, error) {
	view := providersView{Directory: cfg.ProviderConfigDir(), Files: []string{}, Entries: []providerconfig.Entry{}, Warnings: []providerconfig.Warning{}}
	read, warnings, err := providerconfig.Load(view.Directory)
	if err := errors.Join(invalid, err); err != nil {
		return view, err
	}
	view.Files, view.Entries, view.Warnings = append(view.Files, read.Files()...), append(view.Entries, read.Entries()...), append(view.Warnings, warnings...)
	return view, nil
}

// print lists what is added to each provider, and where. It prints nothing if there are no files.
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
			_, err = fmt.Fprintf(out, "  %s: %s, %s    (%s)\n", e.ID(), textutil.Count(len(e.Inventories), "inventory"), textutil.Count(len(e.Traits), "trait"), e.Place)
		}
	}
	for _, w := range v.Warnings {
		if err == nil {
			_, err = fmt.Fprintf(out, "  warning: %s\n", w)
		}
	}
	return err
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
