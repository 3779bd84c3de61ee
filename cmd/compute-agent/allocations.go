// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker/audit"
)

// auditTimeout bounds an audit: it costs a request for each provider and each consumer, and a question to the drivers for
// each write.
const auditTimeout = 10 * time.Minute

// defaultMinAge is how old an orphaned allocation must be to be deleted.
const defaultMinAge = time.Hour

func newAllocations() *cobra.Command {
	return group("allocations", "Compare the allocations on this host with its guests, and mend them", newAllocationsAudit(), newAllocationsHeal())
}

func newAllocationsAudit() *cobra.Command {
	var opts options
	var req audit.Request
	cmd := &cobra.Command{
		Use: "audit", Short: "Report orphaned and missing allocations, and delete those that are provably orphaned", Args: cobra.NoArgs,
		Long: "Compare all allocations on this host's resource providers, of every class, with the guests that the drivers list, and report\n" +
			"allocations whose consumer is no guest, guests that hold nothing or something else than the driver says, and inventories of\n" +
			"which more is allocated than there is. Where no agent runs, the drivers are started for it and ended again.\n\n" +
			"With --heal, orphaned allocations are deleted for which there is proof: every driver has listed its guests just now, and\n" +
			"again right before the write; the agent has seen the driver list this very consumer before, or it is named with\n" +
			"--consumer; it has gone from the list, and the allocation was written, at least --min-age ago; and nobody writes to the\n" +
			"consumer meanwhile. What the consumer holds on other hosts and on shared storage stays. A migration's consumer is\n" +
			"never deleted unless it is named. If any driver or Placement cannot tell, nothing is written.\n\n" +
			"Exit codes: 0 nothing (more) is found; 1 something is found that is still there, or it failed; 3 refused, since somebody who must be asked\n" +
			"could not tell; 64 wrong usage; 78 invalid configuration.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkAudit(cmd, &req); err != nil {
				return err
			}
			return opts.audit(cmd, render.Audit, audit.Report.Clean,
				func(ctx context.Context, c *control.Client) (audit.Report, error) { return c.Audit(ctx, req) },
				func(ctx context.Context, cfg *config.Config, log zerolog.Logger) (audit.Report, error) {
					return agent.AuditOffline(ctx, cfg, log, req)
				})
		},
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	cmd.Flags().StringVar(&req.Node, "node", "", "report the node `NAME` only (default: all)")
	cmd.Flags().BoolVar(&req.Heal, "heal", false, "delete orphaned allocations for which there is proof")
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "with --heal: write nothing, and say what would be deleted")
	cmd.Flags().DurationVar(&req.MinAge, "min-age", defaultMinAge, "with --heal: the `DURATION` ago that, at least, the allocation was written and the guest went")
	cmd.Flags().StringArrayVar(&req.Consumers, "consumer", nil, "with --heal: the consumer `UUID` was a guest here and is no more, although the agent has never seen it; may be repeated")
	return cmd
}

func checkAudit(cmd *cobra.Command, req *audit.Request) error {
	for _, flag := range []string{"dry-run", "min-age", "consumer"} {
		if cmd.Flags().Changed(flag) && !req.Heal {
			return &exitError{exitUsage, fmt.Errorf("--%s has no effect without --heal", flag)}
		}
	}
	if req.MinAge < 0 {
		return &exitError{exitUsage, fmt.Errorf("--min-age %s: must not be negative", req.MinAge)}
	}
	for i, c := range req.Consumers {
		uuid, err := providertree.CanonicalUUID(c)
		if err != nil {
			return &exitError{exitUsage, fmt.Errorf("--consumer: %w", err)}
		}
		req.Consumers[i] = uuid
	}
	return nil
}

func newAllocationsHeal() *cobra.Command {
	var opts options
	var req audit.HealRequest
	cmd := &cobra.Command{
		Use: "heal", Short: "Make the missing allocations of guests", Args: cobra.NoArgs,
		Long: "Make allocations for the guests that hold nothing in Placement, where the driver knows all that a guest has, on which resource\n" +
			"provider, and whose it is. What a consumer holds is never changed: amounts that differ are reported by `allocations audit`.\n" +
			"A guest that holds something elsewhere is left out, since it may be on its way. Whether there is room is for Placement to say.\n" +
			"Where no agent runs, the drivers are started for it and ended again.\n\n" +
			"Exit codes: 0 every guest holds something; 1 some do not, or it failed; 3 refused, since somebody who must be asked could\n" +
			"not tell; 64 wrong usage; 78 invalid configuration.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.audit(cmd, render.Healed, audit.Report.Accounted,
				func(ctx context.Context, c *control.Client) (audit.Report, error) { return c.HealAllocations(ctx, req) },
				func(ctx context.Context, cfg *config.Config, log zerolog.Logger) (audit.Report, error) {
					return agent.HealAllocationsOffline(ctx, cfg, log, req)
				})
		},
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	cmd.Flags().StringVar(&req.Node, "node", "", "heal the node `NAME` only (default: all)")
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "write nothing, and say what would be made")
	cmd.Flags().StringVar(&req.IncompleteProject, "incomplete-project", "", "the project `ID` of guests of which the driver does not know one")
	cmd.Flags().StringVar(&req.IncompleteUser, "incomplete-user", "", "the user `ID` of guests of which the driver does not know one")
	return cmd
}

// audit asks the running agent, or does without one, and prints the report. What good says of it is the exit code.
func (o *options) audit(cmd *cobra.Command, show func(io.Writer, audit.Report) error, good func(audit.Report) bool,
	online func(context.Context, *control.Client) (audit.Report, error), offline func(context.Context, *config.Config, zerolog.Logger) (audit.Report, error),
) error {
	cfg, err := o.load()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), auditTimeout)
	defer cancel()
	report, err := online(ctx, control.NewClient(cfg.Agent.ControlSocket()))
	if errors.Is(err, control.ErrNotRunning) {
		report, err = offline(ctx, cfg, newLogger(cfg, cmd.ErrOrStderr()).Level(zerolog.WarnLevel))
	}
	if err != nil {
		return err
	}
	if err := printed(cmd, o, report, show); err != nil {
		return err
	}
	switch {
	case report.Refused != "":
		return &exitError{code: exitProtect}
	case !good(report):
		return &exitError{code: exitFailed}
	}
	return nil
}
