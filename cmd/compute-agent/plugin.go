// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/spf13/cobra"

// newPlugin is what the author of a driver works with, and an operator who wonders what a driver is.
func newPlugin() *cobra.Command {
	cmd := &cobra.Command{
		Use: "plugin", Short: "Write, test and look at driver plugins", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPluginNew(), newPluginTest(), newPluginRun(), newPluginList(), newPluginInfo())
	return cmd
}
