// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/controlplane"
)

func newConfig() *cobra.Command {
	return group("config", "Check the configuration, or print the defaults", newConfigCheck(), newConfigDefaults())
}

// newConfigCheck validates the configuration and prints where each value is set.
func newConfigCheck() *cobra.Command {
	var opts cli.Options
	var all bool
	cmd := &cobra.Command{
		Use: "check", Short: "Check the configuration files and variables", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, running, err := opts.LoadForCheck(cmd.Context())
			if cfg == nil {
				return err
			}
			invalid := errors.Join(err, config.Invalid(cfg.MissingFiles()),
				controlplane.CheckPolicies(cfg, cli.NewLogger(cfg, cmd.ErrOrStderr())))
			check, err := commands.CheckConfig(cmd.Context(), cfg, invalid, all)
			if err != nil {
				return err
			}
			check.AgentDescription = cli.DescribeAgent(running)
			return cli.Print(cmd, &opts, check, render.ConfigCheck)
		},
	}
	opts.AddFlags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "print default values too")
	return cmd
}

// newConfigDefaults prints a complete commented file.
func newConfigDefaults() *cobra.Command {
	var opts cli.Options
	cmd := &cobra.Command{
		Use: "defaults", Short: "Print a complete configuration file with every default, commented", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !opts.JSON() {
				return config.Defaults(cmd.OutOrStdout())
			}
			cfg, err := config.Load(
				config.Options{Root: "/nonexistent", Environ: []string{}, UID: func() int { return 0 }})
			if err != nil {
				return err
			}
			return cli.PrintJSON(cmd.OutOrStdout(), map[string]any{"settings": cfg.Entries()})
		},
	}
	opts.AddOutputFlag(cmd)
	return cmd
}
