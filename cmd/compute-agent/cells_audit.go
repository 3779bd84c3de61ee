// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/access"
	"github.com/compute-agent/compute-agent/internal/config"
)

func newCellsAudit() *cobra.Command {
	var opts manageOptions
	var repair bool
	cmd := &cobra.Command{
		Use: "audit", Short: "Compare the API database, the cells, Placement and the guests, and repair what is safe", Args: cobra.NoArgs,
		Long: "Compare what the API database, all cells, Placement and, through their cells, the agents of all hosts say of the same servers and\n" +
			"nodes, and list what does not fit together, with what to do about it. A Placement or cell that does not answer, a cell that has\n" +
			"another database than before, and hosts that are down are named, with what is not known without them. Nothing is written.\n\n" +
			"With --repair, correct what there is one right correction for: remove allocations of servers that are deleted in their cell or on\n" +
			"no host, and of migrations that are over; set in the API database whether a server is deleted, as its cell says it; and map nodes,\n" +
			"as `cells manage discover-hosts` does. Each is looked at once more right before it is written. Of all else it says why not: it\n" +
			"needs a person, or a command on the host, where `compute-agent allocations` sees the guests.\n\n" +
			"Exit codes: 0 all was compared, and nothing was found, or everything found was repaired; 1 something found remains, or the command\n" +
			"failed; 3 Placement, a cell or a host could not be asked; 64 wrong usage; 78 invalid configuration.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.with(cmd, func(store apidb.Store, cfg *config.Config) error { return auditCloud(cmd, &opts, store, cfg, repair) })
		},
	}
	opts.addFlags(cmd)
	cmd.Flags().BoolVar(&repair, "repair", false, "correct what there is one right correction for")
	return cmd
}

func auditCloud(cmd *cobra.Command, opts *manageOptions, store apidb.Store, cfg *config.Config, repair bool) error {
	at, err := access.New(cfg.PlacementClient, nil, zerolog.Nop())
	if err != nil {
		return fmt.Errorf("%w: %w", config.ErrInvalid, err)
	}
	placement, err := scheduler.NewPlacementClient(at.Config)
	if err != nil {
		return err
	}
	defer placement.CloseIdle()
	gatherer := newGatherer(cfg)
	defer gatherer.CloseIdle()
	var report scheduler.AuditReport
	err = working(cmd, "Comparing the cloud", func(p *render.Progress) (err error) {
		report, err = scheduler.Audit(cmd.Context(), scheduler.AuditConfig{
			Store: store, Gatherer: gatherer, Placement: placement, Repair: repair, DiscoverPatterns: cfg.ComputeAPI.DiscoverHostsPattern,
			Progress: func(what string) { p.Note("%s", what) },
		})
		return err
	})
	if err != nil {
		return err
	}
	show := func(w io.Writer, r scheduler.AuditReport) error { return printAudit(w, r, repair) }
	if err := printed(cmd, &opts.options, report, show); err != nil {
		return err
	}
	switch {
	case !report.Complete():
		return &exitError{code: exitProtect}
	case !report.Clean():
		return &exitError{code: exitFailed}
	}
	return nil
}

// printAudit prints a report: each kind with its findings, and below each what to do.
func printAudit(w io.Writer, r scheduler.AuditReport, repair bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Compared %s, %s, %s, %s and %s.\n", many(r.Cells, "cell"), many(r.Nodes, "node"), many(r.Servers, "server"),
		many(r.Providers, "resource provider"), many(r.Consumers, "consumer"))
	for _, u := range r.Unchecked {
		extent := ""
		if u.Partly {
			extent = " to the end"
		}
		fmt.Fprintf(&b, "%s was not compared%s: %s\n  not checked: %s\n", u, extent, u.Why, u.Leaves)
	}
	if len(r.HostsDown) > 0 {
		const left = "whether their servers have guests; guests without a server are as they were seen last"
		fmt.Fprintf(&b, "These hosts are down: %s\n  not checked: %s\n", strings.Join(r.HostsDown, ", "), left)
	}
	repairable, repaired := 0, 0
	for i := range r.Findings {
		f := &r.Findings[i]
		fmt.Fprintf(&b, "\n%s\n  %s\n", f.Kind, f.Text)
		switch {
		case f.Repaired != "":
			repaired++
			fmt.Fprintf(&b, "  repaired: %s\n", f.Repaired)
		case f.Problem != "":
			fmt.Fprintf(&b, "  not repaired: %s\n", f.Problem)
		case repair && f.Manual != "":
			fmt.Fprintf(&b, "  not repaired: %s\n  hint: %s\n", f.Manual, f.Hint)
		default:
			fmt.Fprintf(&b, "  hint: %s\n", f.Hint)
		}
		if f.Repairable() {
			repairable++
		}
	}
	switch left := len(r.Findings) - repaired; {
	case len(r.Findings) == 0 && r.Complete():
		b.WriteString("Nothing was found that does not fit together.\n")
	case len(r.Findings) == 0:
		b.WriteString("Nothing was found in what could be compared. This is not all.\n")
	case repair:
		fmt.Fprintf(&b, "\n%s, %d repaired, %d left.\n", many(len(r.Findings), "finding"), repaired, left)
	default:
		fmt.Fprintf(&b, "\n%s; --repair corrects %d.\n", many(left, "finding"), repairable)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// many is a number of things.
func many(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
