// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/doctor"
)

// newDoctor checks the host. It works without a running agent, and without a valid configuration.
func newDoctor() *cobra.Command {
	var opts options
	var user string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check this host, and suggest fixes", Args: cobra.NoArgs,
		Long: "Check this host, and print a command that fixes each problem. " +
			"Nothing is changed. The exit code is 1 if something keeps the\n" +
			"agent from working, and 0 otherwise.\n\n" +
			"The services of the control plane that are enabled on this " +
			"machine are checked as well: their units, the files that they\n" +
			"read, as their users, and their databases, and whether the " +
			"cells answer the compute API. On a machine without an agent\n" +
			"that is all. Run the command as root there: the files of services are theirs.\n\n" +
			"The command checks the running agent's configuration, from the " +
			"files as they are now, unless --config names another file. If no\n" +
			"agent runs, it checks the file of --config or the default file. " +
			"The drivers are started to check the machine, and stopped\n" +
			"afterwards.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, running, cfgErr := opts.loadJudged(cmd.Context())
			env, err := doctor.Host(cfg, cfgErr, user)
			if err != nil {
				return err
			}
			env.Judged = judgedBy(running)
			env.Complete(services(cmd.Context(), opts.file))
			var results []doctor.Result
			_ = withProgress(cmd, "Checking this host", func(*render.Progress) error {
				results = doctor.Run(cmd.Context(), env)
				return nil
			})
			return printResults(cmd, &opts, results)
		},
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	cmd.Flags().StringVar(&user, "user", "",
		"`USER` that the agent runs as (default: that of the service, or the current user)")
	cmd.AddCommand(newDoctorDevices())
	return cmd
}

// printResults prints results, and fails if one is an error.
func printResults(cmd *cobra.Command, o *options, results []doctor.Result) error {
	var err error
	if o.json() {
		err = doctor.WriteJSON(cmd.OutOrStdout(), results)
	} else {
		err = render.Doctor(screen(cmd.OutOrStdout()), results)
	}
	if code := doctor.ExitStatus(results); err == nil && code != exitDone {
		return &exitError{code: code}
	}
	return err
}

// services are those of the control plane on this machine; none if the command is about a file that
// an operator names.
func services(ctx context.Context, file string) []doctor.Service {
	if file != "" {
		return nil
	}
	return doctor.Services(ctx)
}
