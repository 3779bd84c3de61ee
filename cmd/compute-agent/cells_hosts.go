// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/internal/config"
)

// hostView is a mapped node of a host, as printed.
type hostView struct {
	Host string `json:"host"`
	Node string `json:"hypervisor_hostname,omitempty"`
	UUID string `json:"node_uuid,omitempty"`
	Cell string `json:"cell"`
}

func newDiscoverHosts() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "discover-hosts [CELL]", Aliases: []string{"discover_hosts"}, Short: "Map hosts that registered with their cells", Args: cobra.MaximumNArgs(1),
		Long: "Map hosts that registered with their cells, so that servers can be scheduled to them. The compute API does this every\n" +
			"[compute_api] discover_hosts_interval; this command does it now. The exit code is 1 if a cell did not answer, or if a host is\n" +
			"mapped to another cell.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.with(cmd, func(store apidb.Store, cfg *config.Config) error {
				known, err := store.Cells(cmd.Context())
				if err != nil {
					return err
				}
				if len(args) == 1 {
					one, err := findCell(cmd.Context(), store, args[0])
					if err != nil {
						return err
					}
					known = []apidb.Cell{one}
				}
				report, err := scheduler.Discover(cmd.Context(), store, newGatherer(cfg), known)
				return errors.Join(opts.showDiscovered(cmd.OutOrStdout(), report, known), err, discoveryError(report))
			})
		},
	}
	opts.addFlags(cmd)
	return cmd
}

func (o *manageOptions) showDiscovered(w io.Writer, report scheduler.DiscoverReport, known []apidb.Cell) error {
	views := hostViews(report.Mapped, known)
	if o.json() {
		return printJSON(w, map[string]any{"mapped": views})
	}
	if len(views) == 0 {
		_, err := fmt.Fprintln(w, "No new hosts.")
		return err
	}
	return printHosts(w, views)
}

func discoveryError(report scheduler.DiscoverReport) error {
	var all []error
	for _, c := range report.Down {
		all = append(all, fmt.Errorf("cell %s does not answer, so its hosts were not mapped; run this again when it answers", c.Name))
	}
	for _, c := range report.Conflicts {
		all = append(all, fmt.Errorf("node %s of host %s: %w; if the host has moved, unmap it (compute-agent cells manage delete-host %s), "+
			"otherwise correct [cell_client] url on it", c.Node.Name, c.Node.Host, c.Err, c.Node.Host))
	}
	return errors.Join(all...)
}

func hostViews(nodes []apidb.Node, known []apidb.Cell) []hostView {
	names := map[string]string{}
	for _, c := range known {
		names[c.UUID] = c.Name
	}
	views := make([]hostView, 0, len(nodes))
	for _, n := range nodes {
		views = append(views, hostView{Host: n.Host, Node: n.Name, UUID: n.UUID, Cell: names[n.CellUUID]})
	}
	return views
}

func printHosts(w io.Writer, views []hostView) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "HOST\tNODE\tUUID\tCELL")
	for _, v := range views {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", v.Host, v.Node, v.UUID, v.Cell)
	}
	return t.Flush()
}

func newListHosts() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "list-hosts", Aliases: []string{"list_hosts"}, Short: "List the hosts and their cells", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.with(cmd, func(store apidb.Store, _ *config.Config) error {
				known, err := store.Cells(cmd.Context())
				if err != nil {
					return err
				}
				nodes, err := store.Nodes(cmd.Context())
				if err != nil {
					return err
				}
				views := hostViews(nodes, known)
				switch {
				case opts.json():
					return printJSON(cmd.OutOrStdout(), views)
				case len(views) == 0:
					_, err := fmt.Fprintln(
						cmd.OutOrStdout(),
						"No host is mapped. Agents register with their cells ([cell_client]); `compute-agent cells manage discover-hosts` maps them.",
					)
					return err
				}
				return printHosts(cmd.OutOrStdout(), views)
			})
		},
	}
	opts.addFlags(cmd)
	return cmd
}

func newDeleteHost() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "delete-host HOST", Aliases: []string{"delete_host"}, Short: "Unmap a host", Args: cobra.ExactArgs(1),
		Long: "Unmap a host, so that no new servers are scheduled to it. Its servers stay. A host whose agent still reports to its cell is\n" +
			"mapped again at the next discovery: stop the agent first.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.with(cmd, func(store apidb.Store, _ *config.Config) error {
				if err := store.DeleteHost(cmd.Context(), args[0]); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "Unmapped host %s.\n", args[0])
				return err
			})
		},
	}
	opts.addFlags(cmd)
	return cmd
}
