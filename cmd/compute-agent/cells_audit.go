// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/cells/scheduler/cloudaudit"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
)

func newCellsAudit() *cobra.Command {
	var opts manageOptions
	var repair bool
	cmd := &cobra.Command{
		Use: "audit", Short: "Compare the API database, the cells, Placement and the guests, and repair what is safe",
		Args: cobra.NoArgs,
		Long: "Compare what the API database, all cells, Placement and, through " +
			"their cells, the agents of all hosts say of the same servers and\n" +
			"nodes, and list what does not fit together, with what to do about " +
			"it. A Placement or cell that does not answer, a cell that has\n" +
			"another database than before, and hosts that are down are named, " +
			"with what is not known without them. Nothing is written.\n\n" +
			"With --repair, correct what there is one right correction for: " +
			"remove allocations of servers that are deleted in their cell or on\n" +
			"no host, and of migrations that are over; set in the API database " +
			"whether a server is deleted, as its cell says it; and map nodes,\n" +
			"as `cells manage discover-hosts` does. Each is looked at once " +
			"more right before it is written. Of all else it says why not: it\n" +
			"needs a person, or a command on the host, where `compute-agent allocations` sees the guests.\n\n" +
			"Exit codes: 0 all was compared, and nothing was found, or everything " +
			"found was repaired; 1 something found remains, or the command\n" +
			"failed; 3 Placement, a cell or a host could not be asked; 64 wrong usage; 78 invalid configuration.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.run(cmd, func(ctx context.Context, d *operator.Deployment) error {
				var report cloudaudit.Report
				compare := func(p *render.Progress) (err error) {
					report, err = d.Audit(ctx, repair, func(what string) { p.Note("%s", what) })
					return err
				}
				err := withProgress(cmd, "Comparing the cloud", compare) //nolint:contextcheck // it has the command's
				if err == nil {
					err = printResult(cmd, &opts.options, report, func(w io.Writer, r cloudaudit.Report) error {
						return render.CloudAudit(w, r, repair)
					})
				}
				switch {
				case err != nil:
					return err
				case !report.Complete():
					return &exitError{code: exitProtect}
				case !report.Clean():
					return &exitError{code: exitFailed}
				}
				return nil
			})
		},
	}
	opts.addFlags(cmd)
	cmd.Flags().BoolVar(&repair, "repair", false, "correct what there is one right correction for")
	return cmd
}
