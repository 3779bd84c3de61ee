// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/scaffold"
	"github.com/compute-agent/compute-agent/internal/version"
)

// newPluginNew creates the module of a new driver.
func newPluginNew() *cobra.Command {
	var opts cli.Options
	var dir, module, replace string
	cmd := &cobra.Command{
		Use: "new NAME", Short: "Create the module of a new driver that builds and passes its tests",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			params := scaffold.Params{Name: args[0], Module: module, AgentVersion: version.Number(), Replace: replace}
			files, err := scaffold.Render(params)
			var wrong *scaffold.ParamsError
			if errors.As(err, &wrong) {
				return cli.Exit(cli.ExitUsage, err)
			}
			if err != nil {
				return err
			}
			if dir == "" {
				dir = params.Binary()
			}
			var there *scaffold.ExistsError
			if err := scaffold.Write(dir, files); errors.As(err, &there) {
				return cli.Exit(cli.ExitProtect, err)
			} else if err != nil {
				return fmt.Errorf("writing the module of driver %s: %w", params.Name, err)
			}
			paths := []string{}
			for _, f := range files {
				paths = append(paths, f.Path)
			}
			if opts.JSON() {
				abs, err := filepath.Abs(dir)
				if err != nil {
					return err
				}
				return cli.PrintJSON(cmd.OutOrStdout(),
					map[string]any{"name": params.Name, "directory": abs, "files": paths})
			}
			release := params.AgentVersion
			if params.Replace != "" {
				release = ""
			}
			return render.PluginNew(cmd.OutOrStdout(), params.Name, dir, paths, release)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "`DIR` to write to (default compute-driver-NAME)")
	cmd.Flags().StringVar(&module, "module", "", "module `PATH` (default example.com/compute-driver-NAME)")
	cmd.Flags().StringVar(&replace, "replace", "",
		"`DIR` with a checkout of compute-agent to build with, instead of a release")
	opts.AddOutputFlag(cmd)
	return cmd
}
