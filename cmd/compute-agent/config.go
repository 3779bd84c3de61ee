// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/internal/config"
)

func newConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Check the configuration, or print the defaults", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigCheck(), newConfigDefaults())
	return cmd
}

// newConfigCheck reads the configuration as the daemon would, and says what is wrong or where each value comes from.
func newConfigCheck() *cobra.Command {
	var opts options
	var all bool
	cmd := &cobra.Command{
		Use: "check", Short: "Check the configuration files and variables", Args: cobra.NoArgs,
		Long: "Check the configuration as the daemon would read it. Prints what differs from the defaults and where it was set, or\n" +
			"everything that is wrong, with file and line. The exit code is 2 if something is.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := opts.json()
			if err != nil {
				return err
			}
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			entries := []config.Entry{}
			for _, e := range cfg.Entries() {
				if all || e.Source.Kind != config.FromDefault {
					entries = append(entries, e)
				}
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]any{"files": append([]string{}, cfg.Files()...), "settings": entries})
			}
			read := "no file (there is no " + cfg.File() + ")"
			if files := cfg.Files(); len(files) > 0 {
				read = strings.Join(files, ", ")
			}
			out := cmd.OutOrStdout()
			_, err = fmt.Fprintf(out, "The configuration is valid. Read: %s.\n", read)
			for _, e := range entries {
				if err == nil {
					_, err = fmt.Fprintf(out, "  %s = %s    (%s)\n", e.Key, e.Value, e.Source)
				}
			}
			return err
		},
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "print the defaults too")
	return cmd
}

// newConfigDefaults prints a complete commented file.
func newConfigDefaults() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use: "defaults", Short: "Print a complete configuration file with every default, commented", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := opts.json()
			if err != nil {
				return err
			}
			if !asJSON {
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
