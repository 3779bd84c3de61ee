// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/control"
	"github.com/compute-agent/compute-agent/internal/doctor"
)

// newDoctor examines the host. It works without a running agent, and without a valid configuration.
func newDoctor() *cobra.Command {
	var opts options
	var user string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Examine this host and name the command that mends what is wrong", Args: cobra.NoArgs,
		Long: "Examine this host and name the command that mends what is wrong. Nothing is changed. The exit code is 1 if something\n" +
			"keeps the agent from working, and 0 otherwise. Beside a standalone agent it is that one's Placement which is looked at.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, cfgErr := opts.load()
			if url := bundledPlacement(cmd.Context(), cfg); url != "" && cfgErr == nil {
				opts.extra = append(opts.extra, config.Override{Key: "placement_client.url", Value: url, Flag: "the agent that runs, with a Placement of its own"})
				cfg, cfgErr = opts.load()
			}
			env, err := doctor.Host(cfg, cfgErr, user)
			if err != nil {
				return err
			}
			results := doctor.Run(cmd.Context(), env)
			if opts.json() {
				err = doctor.WriteJSON(cmd.OutOrStdout(), results)
			} else {
				err = doctor.WriteText(cmd.OutOrStdout(), results, term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "")
			}
			if code := doctor.ExitStatus(results); err == nil && code != exitDone {
				return &exitError{code: code}
			}
			return err
		},
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	cmd.Flags().StringVar(&user, "user", "", "`USER` that the agent runs as (default: that of the service, or you)")
	return cmd
}

// bundledPlacement is where the agent that runs with this configuration has a Placement of its own (standalone), whatever the configuration
// says; "" if none does.
func bundledPlacement(ctx context.Context, cfg *config.Config) string {
	if cfg == nil || cfg.Agent.RuntimeDir == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	status, err := control.NewClient(cfg.Agent.ControlSocket()).Status(ctx)
	if err != nil || !status.Placement.Bundled {
		return ""
	}
	return status.Placement.URL
}
