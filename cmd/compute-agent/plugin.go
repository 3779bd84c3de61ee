// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/spf13/cobra"

// newPlugin is what the author of a driver works with, and an operator who wonders what a driver is.
func newPlugin() *cobra.Command {
	return group("plugin", "Write, test and look at driver plugins", newPluginNew(), newPluginTest(), newPluginRun(), newPluginList(), newPluginInfo())
}
