// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/cells/scheduler/cloudaudit"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
)

func newCellsAudit() *cobra.Command {
	var opts manageOptions
	var repair bool
	cmd := &cobra.Command{
		Use: "audit", Short: "Compare the API database, the cells, Placement and the guests, and repair what is safe",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.run(cmd, func(ctx context.Context, d *operator.Deployment) error {
				var report cloudaudit.Report
				compare := func(p *render.Progress) (err error) {
					report, err = d.Audit(ctx, repair, func(what string) { p.Note("%s", what) })
					return err
				}
				const what = "Comparing the cloud"
				err := cli.WithProgress(cmd, what, compare) //nolint:contextcheck // it has the command's
				if err == nil {
					err = cli.Print(cmd, &opts.Options, report, func(w io.Writer, r cloudaudit.Report) error {
						return render.CloudAudit(w, r, repair)
					})
				}
				switch {
				case err != nil:
					return err
				case !report.Complete():
					return cli.Exit(cli.ExitProtect, nil)
				case !report.Clean():
					return cli.Exit(cli.ExitFailed, nil)
				}
				return nil
			})
		},
	}
	opts.AddFlags(cmd)
	cmd.Flags().BoolVar(&repair, "repair", false, "correct what there is one right correction for")
	return cmd
}
