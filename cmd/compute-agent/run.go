// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/controlplane"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
	"github.com/compute-agent/compute-agent/systemd"
)

func newRun() *cobra.Command {
	opts := cli.Options{Uses: config.SectionsOf(config.AgentService)}
	cmd := &cobra.Command{
		Use: "run", Short: "Run the agent (what the systemd unit starts)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := opts.Load()
			if err != nil {
				return err
			}
			log := cli.NewLogger(cfg, cmd.ErrOrStderr())
			return runAgent(cmd.Context(), cfg,
				agent.Options{Load: opts.Load, Configuration: opts.Configuration, Logger: log})
		},
	}
	opts.AddConfigFlags(cmd)
	return cmd
}

// agentMemory is the percentage of the memory of the agent's unit that the Go runtime of this
// process may use. The rest is for drivers, and for memory that the runtime does not count.
const agentMemory = 50

// runAgent runs the daemon with the signals, systemd notifications and log level of the process.
func runAgent(ctx context.Context, cfg *config.Config, opts agent.Options) error {
	controlplane.LimitMemory(agentMemory, opts.Logger)
	notify, err := systemd.New()
	if err != nil {
		opts.Logger.Warn().Err(err).Msg("Invalid systemd environment; systemd is not notified of the agent's state.")
	}
	ctx, reload, stop := commands.Hangups(ctx, opts.Logger)
	defer stop()
	opts.Config, opts.Reload, opts.Notify, opts.Applied = cfg, reload, notify, cli.SetLogLevel
	a, err := agent.New(opts)
	if err != nil {
		return err
	}
	err = a.Run(ctx)
	if err != nil {
		logEnd(opts.Logger, err)
	}
	return err
}

// logEnd logs why the agent stops, because operators look in the journal. The node's tracker has
// logged the violations of a refused reshape already.
func logEnd(log zerolog.Logger, err error) {
	var fatal *resourcetracker.FatalError
	var refused *reshape.Error
	e := log.Error().Int("exit_code", cli.ExitCode(err))
	if errors.As(err, &fatal) && errors.As(err, &refused) {
		e.Str("node", fatal.Node).Str(zerolog.ErrorFieldName, refused.Summary()).
			Msg("The agent stops. The message \"The reshape is refused\" above lists all violations; `compute-agent " +
				"plan --reshape` shows them too.")
		return
	}
	e.Err(err).Msg("The agent stops.")
}
