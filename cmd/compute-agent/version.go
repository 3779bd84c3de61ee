// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/version"
)

func newVersion() *cobra.Command {
	var opts cli.Options
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opts.JSON() {
				return cli.PrintJSON(cmd.OutOrStdout(), map[string]string{"version": version.Number(),
					"go": version.Go()})
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "compute-agent %s (%s)\n", version.Number(), version.Go())
			return err
		},
	}
	opts.AddOutputFlag(cmd)
	return cmd
}
