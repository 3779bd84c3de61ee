// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/resourcetracker/audit"
)

// defaultMinAge is how old an orphaned allocation must be to be deleted.
const defaultMinAge = time.Hour

func newAllocations() *cobra.Command {
	return group("allocations", "Compare the allocations on this host with its guests, and repair them",
		newAllocationsAudit(), newAllocationsHeal())
}

func newAllocationsAudit() *cobra.Command {
	var opts cli.Options
	var req audit.Request
	cmd := &cobra.Command{
		Use: "audit", Short: "Report orphaned and missing allocations, and delete those that are provably orphaned",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkAudit(cmd, &req); err != nil {
				return err
			}
			return compareAllocations(cmd, &opts, render.Audit, audit.Report.Clean,
				func(h commands.Host) (audit.Report, error) { return h.Audit(cmd.Context(), req) })
		},
	}
	opts.AddFlags(cmd)
	cmd.Flags().StringVar(&req.Node, "node", "", "report the node `NAME` only (default: all)")
	cmd.Flags().BoolVar(&req.Heal, "heal", false, "delete allocations that are provably orphaned")
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "with --heal: write nothing, and show what would be deleted")
	cmd.Flags().DurationVar(&req.MinAge, "min-age", defaultMinAge,
		"with --heal: minimum `DURATION` since the allocation was written and the guest was last listed")
	cmd.Flags().StringArrayVar(&req.Consumers, "consumer", nil,
		"with --heal: the consumer `UUID` was a guest of this host and no longer exists, although the agent has "+
			"never seen it; may be repeated")
	return cmd
}

func checkAudit(cmd *cobra.Command, req *audit.Request) error {
	for _, flag := range []string{"dry-run", "min-age", "consumer"} {
		if cmd.Flags().Changed(flag) && !req.Heal {
			return cli.Exit(cli.ExitUsage, fmt.Errorf("--%s has no effect without --heal", flag))
		}
	}
	if err := req.Check(); err != nil {
		return cli.Exit(cli.ExitUsage, err)
	}
	return nil
}

func newAllocationsHeal() *cobra.Command {
	var opts cli.Options
	var req audit.HealRequest
	cmd := &cobra.Command{
		Use: "heal", Short: "Create missing allocations of guests", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return compareAllocations(cmd, &opts, render.Healed, audit.Report.Accounted,
				func(h commands.Host) (audit.Report, error) { return h.HealAllocations(cmd.Context(), req) })
		},
	}
	opts.AddFlags(cmd)
	cmd.Flags().StringVar(&req.Node, "node", "", "heal the node `NAME` only (default: all)")
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "write nothing, and show what would be created")
	cmd.Flags().StringVar(&req.IncompleteProject,
		"incomplete-project", "", "project `ID` for guests whose project the driver does not know")
	cmd.Flags().StringVar(&req.IncompleteUser, "incomplete-user", "",
		"user `ID` for guests whose user the driver does not know")
	return cmd
}

// compareAllocations gets a report, and prints it. good decides the exit code.
func compareAllocations(cmd *cobra.Command, o *cli.Options, show func(io.Writer, audit.Report) error,
	good func(audit.Report) bool,
	do func(commands.Host) (audit.Report, error),
) error {
	cfg, err := o.Load()
	if err != nil {
		return err
	}
	const what = "Comparing allocations with guests"
	report, err := cli.WithProgressOf(cmd, what, func(*render.Progress) (audit.Report, error) {
		return do(cli.HostOf(cmd, cfg))
	})
	if err != nil {
		return err
	}
	if err := cli.Print(cmd, o, report, show); err != nil {
		return err
	}
	switch {
	case report.Refused != "":
		return cli.Exit(cli.ExitProtect, nil)
	case !good(report):
		return cli.Exit(cli.ExitFailed, nil)
	}
	return nil
}
