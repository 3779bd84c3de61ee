// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
)

// newDoctorDevices has a driver list the hardware of this host. The agent itself reads none.
func newDoctorDevices() *cobra.Command {
	var opts cli.Options
	var driver string
	cmd := &cobra.Command{
		Use: "devices", Short: "List the GPUs, network devices and mediated device types of this host",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := opts.LoadJudged(cmd.Context())
			if err != nil {
				return err
			}
			spec, args, err := commands.DeviceLister(cfg, driver)
			if err != nil {
				return err
			}
			if opts.JSON() {
				args = append(args, "--output", "json")
			}
			return pluginhost.ListDevices(cmd.Context(), spec, false, cmd.OutOrStdout(), args...)
		},
	}
	opts.AddConfigFlags(cmd)
	opts.AddOutputFlag(cmd)
	cmd.Flags().StringVar(&driver, "driver", "libvirt", "`NAME` of the driver that lists the devices")
	return cmd
}
