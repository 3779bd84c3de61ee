// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/scaffold"
	"github.com/compute-agent/compute-agent/internal/version"
)

// newPluginNew writes the module of a new driver.
func newPluginNew() *cobra.Command {
	var opts options
	var dir, module, replace string
	cmd := &cobra.Command{
		Use: "new NAME", Short: "Write the module of a new driver, which builds and passes its tests", Args: cobra.ExactArgs(1),
		Long: "Write the Go module of a new driver: a worked inventory and a reshape with their tests, a configuration with its schema,\n" +
			"a Makefile, a systemd drop-in, a file for CI. It builds and passes its tests as it is; docs/writing-a-driver.md goes on from\n" +
			"there. Files that are there already are never overwritten: all files are written, or none.\n\n" +
			"A module made by a release of compute-agent requires that release. With --replace it uses a checkout, and then neither\n" +
			"building nor testing needs the network where compute-agent itself was built.",
		RunE: func(cmd *cobra.Command, args []string) error {
			params := scaffold.Params{Name: args[0], Module: module, AgentVersion: version.Number(), Replace: replace}
			files, err := scaffold.Render(params)
			var wrong *scaffold.ParamsError
			if errors.As(err, &wrong) {
				return &exitError{exitUsage, err}
			}
			if err != nil {
				return err
			}
			if dir == "" {
				dir = params.Binary()
			}
			var there *scaffold.ExistsError
			if err := scaffold.Write(dir, files); errors.As(err, &there) {
				return &exitError{exitProtect, err}
			} else if err != nil {
				return fmt.Errorf("the module of the driver %s could not be written: %w", params.Name, err)
			}
			if opts.json() {
				return printNewAsJSON(cmd, params, dir, files)
			}
			return printNew(cmd, params, dir, files)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "`DIR` to write to (default compute-driver-NAME)")
	cmd.Flags().StringVar(&module, "module", "", "module `PATH` (default example.com/compute-driver-NAME)")
	cmd.Flags().StringVar(&replace, "replace", "", "`DIR` with a checkout of compute-agent to build with, instead of a release")
	opts.addOutputFlag(cmd)
	return cmd
}

func printNewAsJSON(cmd *cobra.Command, params scaffold.Params, dir string, files []scaffold.File) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	paths := []string{}
	for _, f := range files {
		paths = append(paths, f.Path)
	}
	return printJSON(cmd.OutOrStdout(), map[string]any{"name": params.Name, "directory": abs, "files": paths})
}

func printNew(cmd *cobra.Command, params scaffold.Params, dir string, files []scaffold.File) error {
	out := cmd.OutOrStdout()
	_, err := fmt.Fprintf(out, "The driver %s is in %s:\n", params.Name, dir)
	for _, f := range files {
		if err == nil {
			_, err = fmt.Fprintf(out, "  %s\n", f.Path)
		}
	}
	download := ""
	if params.Replace == "" {
		download = "  go mod tidy      # downloads compute-agent " + params.AgentVersion + "\n"
	}
	if err == nil {
		_, err = fmt.Fprintf(out, "\nNext:\n  cd %s\n%s  make test        # it passes as it is\n  make install     # as root: where the agent looks for drivers\nREADME.md says what to change where.\n", dir, download)
	}
	return err
}
