// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells/compute"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/placement/api"
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
		Long: "Check the configuration as the daemon would read it, including " +
			"provider.yaml and policy files. Prints each setting that differs\n" +
			"from its default and where it is set, or everything that is " +
			"wrong, with file and line, including missing files of tokens,\n" +
			"certificates and keys. The exit code is 78 if something is " +
			"wrong, and 1 if a file is missing or cannot be read.\n\n" +
			"Each driver is started to check its own [drivers.NAME.config], " +
			"list its nodes and warn about the machine, and stopped\n" +
			"afterwards. A node that two drivers name, or that belongs to another " +
			"driver, is an error. Warnings do not change the exit code.\n\n" +
			"The command checks the running agent's configuration, from the " +
			"files as they are now, unless --config names another file. If no\n" +
			"agent runs, it checks the file of --config or the default file.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, running, err := opts.loadJudged(cmd.Context())
			if cfg == nil {
				return err
			}
			invalid := errors.Join(err, config.Invalid(cfg.MissingFiles()),
				checkPolicies(cfg, newLogger(cfg, cmd.ErrOrStderr())))
			check, err := commands.CheckConfig(cmd.Context(), cfg, invalid, all)
			if err != nil {
				return err
			}
			check.Judged = judgedBy(running)
			return printResult(cmd, &opts, check, render.ConfigCheck)
		},
	}
	opts.addFlags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "print default values too")
	return cmd
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
	return config.Invalid(errs...)
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
			cfg, err := config.Load(
				config.Options{Root: "/nonexistent", Environ: []string{}, UID: func() int { return 0 }})
			if err != nil {
				return err
			}
			return printJSON(cmd.OutOrStdout(), map[string]any{"settings": cfg.Entries()})
		},
	}
	opts.addOutputFlag(cmd)
	return cmd
}
