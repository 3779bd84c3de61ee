// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

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
	var opts options
	var req audit.Request
	cmd := &cobra.Command{
		Use: "audit", Short: "Report orphaned and missing allocations, and delete those that are provably orphaned",
		Args: cobra.NoArgs,
		Long: "Compare all allocations on this host's resource providers with " +
			"the guests that the drivers list. Report allocations whose\n" +
			"consumer is not a guest, guests without allocations or with other " +
			"allocations than the driver says, and inventories with more\n" +
			"allocated than they have. If no agent runs, the drivers " +
			"are started for the command and stopped afterwards.\n\n" +
			"With --heal, delete allocations that are provably orphaned: " +
			"every driver has just listed its guests, and lists them again\n" +
			"right before the write; the agent has seen the driver list this " +
			"consumer before, or --consumer names it; it disappeared from\n" +
			"the list, and the allocation was written, at least --min-age ago; " +
			"and no other client writes to the consumer meanwhile. What\n" +
			"the consumer holds on other hosts and on shared storage stays. " +
			"The consumer of a migration is deleted only if --consumer names\n" +
			"it. If a driver or Placement does not answer, nothing is written.\n\n" +
			"Exit codes: 0 nothing was found, or everything found was " +
			"repaired; 1 something found remains, or the command failed;\n" +
			"3 refused, because a driver or Placement did not answer; 64 wrong usage; 78 invalid configuration.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkAudit(cmd, &req); err != nil {
				return err
			}
			return opts.audit(cmd, render.Audit, audit.Report.Clean,
				func(h commands.Host) (audit.Report, error) { return h.Audit(cmd.Context(), req) })
		},
	}
	opts.addFlags(cmd)
	cmd.Flags().StringVar(&req.Node, "node", "", "report the node `NAME` only (default: all)")
	cmd.Flags().BoolVar(&req.Heal, "heal", false, "delete allocations that are provably orphaned")
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "with --heal: write nothing, and show what would be deleted")
	cmd.Flags().DurationVar(&req.MinAge, "min-age", defaultMinAge,
		"with --heal: minimum `DURATION` since the allocation was written and the guest was last listed")
	cmd.Flags().StringArrayVar(
		&req.Consumers,
		"consumer",
		nil,
		"with --heal: the consumer `UUID` was a guest of this host and no longer exists, although the agent has "+
			"never seen it; may be repeated",
	)
	return cmd
}

func checkAudit(cmd *cobra.Command, req *audit.Request) error {
	for _, flag := range []string{"dry-run", "min-age", "consumer"} {
		if cmd.Flags().Changed(flag) && !req.Heal {
			return &exitError{exitUsage, fmt.Errorf("--%s has no effect without --heal", flag)}
		}
	}
	if err := req.Check(); err != nil {
		return &exitError{exitUsage, err}
	}
	return nil
}

func newAllocationsHeal() *cobra.Command {
	var opts options
	var req audit.HealRequest
	cmd := &cobra.Command{
		Use: "heal", Short: "Create missing allocations of guests", Args: cobra.NoArgs,
		Long: "Create allocations for guests that hold nothing in Placement, " +
			"where the driver knows the guest's resources, their resource\n" +
			"providers, and the guest's project and user. Existing allocations " +
			"are never changed: `allocations audit` reports amounts that\n" +
			"differ. A guest that holds something elsewhere is skipped, " +
			"because it may be migrating. Placement decides whether the\n" +
			"capacity suffices. If no agent runs, the drivers are started for the command and stopped afterwards.\n\n" +
			"Exit codes: 0 every guest has allocations; 1 some guests have " +
			"none, or the command failed; 3 refused, because a driver or\n" +
			"Placement did not answer; 64 wrong usage; 78 invalid configuration.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.audit(cmd, render.Healed, audit.Report.Accounted,
				func(h commands.Host) (audit.Report, error) { return h.HealAllocations(cmd.Context(), req) })
		},
	}
	opts.addFlags(cmd)
	cmd.Flags().StringVar(&req.Node, "node", "", "heal the node `NAME` only (default: all)")
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "write nothing, and show what would be created")
	cmd.Flags().StringVar(&req.IncompleteProject,
		"incomplete-project", "", "project `ID` for guests whose project the driver does not know")
	cmd.Flags().StringVar(&req.IncompleteUser, "incomplete-user", "",
		"user `ID` for guests whose user the driver does not know")
	return cmd
}

// audit gets a report, and prints it. good decides the exit code.
func (o *options) audit(cmd *cobra.Command, show func(io.Writer, audit.Report) error, good func(audit.Report) bool,
	do func(commands.Host) (audit.Report, error),
) error {
	cfg, err := o.load()
	if err != nil {
		return err
	}
	report, err := withProgressOf(cmd, "Comparing allocations with guests", func(
		*render.Progress,
	) (audit.Report, error) {
		return do(hostOf(cmd, cfg))
	})
	if err != nil {
		return err
	}
	if err := printResult(cmd, o, report, show); err != nil {
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
