// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
)

// newDoctorDevices has a driver list the hardware of this host. The agent itself reads none.
func newDoctorDevices() *cobra.Command {
	var opts options
	var driver string
	cmd := &cobra.Command{
		Use: "devices", Short: "List the GPUs, network devices and mediated device types of this host", Args: cobra.NoArgs,
		Long: "List the processors, NUMA cells, GPUs, network devices and mediated device types of this host by product name, with the\n" +
			"configuration that offers the devices to guests, to paste. The driver's executable does it (--devices): that of the\n" +
			"configuration, or else the installed one. Nothing is changed, and no daemon is asked.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := opts.loadJudged(cmd.Context())
			if err != nil {
				return err
			}
			spec, args, err := devicesOf(cfg, driver)
			if err != nil {
				return err
			}
			return listDevices(cmd, spec, false, opts.json(), args...)
		},
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	cmd.Flags().StringVar(&driver, "driver", "libvirt", "`NAME` of the driver that lists the devices")
	return cmd
}

// devicesOf finds the executable of a driver, as the agent does, and the directory that its
// configuration reads instead of /.
func devicesOf(cfg *config.Config, driver string) (pluginhost.Spec, []string, error) {
	if cfg.Drivers[driver] == nil {
		spec := pluginhost.Spec{Name: driver, Searched: cfg.PluginDirs()}
		installed, err := installedDrivers(spec.Searched)
		if err != nil {
			return spec, nil, err
		}
		spec.Path = installed[driver]
		if spec.Path == "" {
			spec.Path = filepath.Join(cfg.Plugins.Dir, "compute-driver-"+driver)
		}
		return spec, nil, nil
	}
	spec, err := agent.Executable(cfg, driver)
	if err != nil {
		return spec, nil, err
	}
	var keys struct{ Chroot string }
	_ = json.Unmarshal(spec.Config, &keys) // whether its keys are valid is checked by the driver
	if keys.Chroot == "" {
		return spec, nil, nil
	}
	return spec, []string{"--chroot", keys.Chroot}, nil
}

// listDevices runs a driver's executable with --devices and prints what it prints.
func listDevices(cmd *cobra.Command, spec pluginhost.Spec, own, asJSON bool, args ...string) error {
	args = append([]string{"--devices"}, args...)
	if asJSON {
		args = append(args, "--output", "json")
	}
	var problem bytes.Buffer
	err := pluginhost.Exec(cmd.Context(), spec, own, cmd.OutOrStdout(), &problem, args...)
	var exit interface{ ExitCode() int } // it ran, and failed
	if errors.As(err, &exit) {
		return fmt.Errorf("%s %s: %w: %s", spec.Path, args[0], err, textutil.Printable(strings.TrimSpace(problem.String())))
	}
	return err
}
