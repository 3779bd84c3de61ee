// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/doctor"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
)

// newDoctor checks the host. It works without a running agent, and without a valid configuration.
func newDoctor() *cobra.Command {
	var opts cli.Options
	var user string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check this host, and suggest fixes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, running, cfgErr := opts.LoadForCheck(cmd.Context())
			env, err := doctor.Host(cfg, cfgErr, user)
			if err != nil {
				return err
			}
			env.AgentDescription = cli.DescribeAgent(running)
			env.Complete(services(cmd.Context(), opts.File))
			var results []doctor.Result
			_ = cli.WithProgress(cmd, "Checking this host", func(*render.Progress) error {
				results = doctor.Run(cmd.Context(), env)
				return nil
			})
			return printResults(cmd, &opts, results)
		},
	}
	opts.AddConfigFlags(cmd)
	opts.AddOutputFlag(cmd)
	cmd.Flags().StringVar(&user, "user", "",
		"`USER` that the agent runs as (default: that of the service, or the current user)")
	cmd.AddCommand(newDoctorDevices())
	return cmd
}

// printResults prints results, and fails if one is an error.
func printResults(cmd *cobra.Command, o *cli.Options, results []doctor.Result) error {
	var err error
	if o.JSON() {
		err = doctor.WriteJSON(cmd.OutOrStdout(), results)
	} else {
		err = render.Doctor(cli.Screen(cmd.OutOrStdout()), results)
	}
	if code := doctor.ExitStatus(results); err == nil && code != cli.ExitDone {
		return cli.Exit(code, nil)
	}
	return err
}

// services returns the services of the control plane on this machine; none if the operator names a
// configuration file, because the command is about that file alone.
func services(ctx context.Context, file string) []doctor.Service {
	if file != "" {
		return nil
	}
	return doctor.Services(ctx)
}

// newDoctorDevices has a driver list the hardware of this host. The agent itself reads none.
func newDoctorDevices() *cobra.Command {
	var opts cli.Options
	var driver string
	cmd := &cobra.Command{
		Use: "devices", Short: "List the GPUs, network devices and mediated device types of this host",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := opts.LoadForCheck(cmd.Context())
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
