// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// hostView is a mapped node of a host, as printed.
type hostView struct {
	Host string `json:"host"`
	Node string `json:"hypervisor_hostname,omitempty"`
	UUID string `json:"node_uuid,omitempty"`
	Cell string `json:"cell"`
	// From is the host that the node was mapped to before.
	From string `json:"from,omitempty"`
	// Problem is why the node gets no new servers there.
	Problem string `json:"problem,omitempty"`
	// Unmapped says that the node is not mapped there.
	Unmapped bool `json:"unmapped,omitempty"`
	// Enrolment is nil for a host that was never invited.
	Enrolment *enrolmentView `json:"enrolment,omitempty"`
}

func newDiscoverHosts() *cobra.Command {
	var opts manageOptions
	var named []string
	cmd := &cobra.Command{
		Use: "discover-hosts [CELL]", Aliases: []string{"discover_hosts"}, Short: "Map hosts that registered with their cells", Args: cobra.MaximumNArgs(1),
		Long: "Map hosts that registered with their cells, so that servers can be scheduled to them. The compute API does this every\n" +
			"[compute_api] discover_hosts_interval; this command does it now. Mapped are hosts that are enrolled, that match\n" +
			"[compute_api] discover_hosts_pattern, or whose cell has auth = \"noauth\". With --host a host is mapped because you name it: it\n" +
			"counts as enrolled then, with the nodes that it reports now, and gets servers with user data. The exit code is 1 if a cell did\n" +
			"not answer, or if a host was not mapped.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.with(cmd, func(store apidb.Store, cfg *config.Config) error {
				known, err := store.Cells(cmd.Context())
				if err != nil {
					return err
				}
				options := scheduler.DiscoverOptions{Patterns: cfg.ComputeAPI.DiscoverHostsPattern, Hosts: named, By: sqldb.CommandUser(cmd.Context())}
				if len(args) == 1 {
					one, err := findCell(cmd.Context(), store, args[0])
					if err != nil {
						return err
					}
					options.Cell = one.UUID
				}
				report, err := scheduler.Discover(cmd.Context(), store, newGatherer(cfg), known, options)
				return errors.Join(opts.showDiscovered(cmd.OutOrStdout(), report, known), err, discoveryError(report, named))
			})
		},
	}
	opts.addFlags(cmd)
	cmd.Flags().StringSliceVar(&named, "host", nil, "map the host `NAME`, whatever its name is, and count it as enrolled (repeatable)")
	return cmd
}

func (o *manageOptions) showDiscovered(w io.Writer, report scheduler.DiscoverReport, known []apidb.Cell) error {
	views := hostViews(report.Mapped, known)
	for i := range views {
		for _, r := range report.Remapped {
			if r.Node == report.Mapped[i] {
				views[i].From = r.From
			}
		}
	}
	if o.json() {
		return printJSON(w, map[string]any{"mapped": views})
	}
	if len(views) == 0 {
		_, err := fmt.Fprintln(w, "No new hosts.")
		return err
	}
	err := printHosts(w, views)
	for _, v := range views {
		if err == nil && v.From != "" {
			_, err = fmt.Fprintf(w, "Node %s was mapped to host %s, which reported it first: check that host.\n", v.UUID, v.From)
		}
	}
	return err
}

// discoveryError is why hosts were not mapped, of those that were named, or of all if none was.
func discoveryError(report scheduler.DiscoverReport, named []string) error {
	var all []error
	for _, c := range report.Down {
		all = append(all, fmt.Errorf("cell %s does not answer, so its hosts were not mapped; run this again when it answers", c.Name))
	}
	for _, c := range report.NotEnrolled {
		if len(named) > 0 && !slices.Contains(named, c.Node.Host) {
			continue
		}
		all = append(all, fmt.Errorf("node %s of host %s was not mapped: %w; enrol the host (compute-agent cells manage add-host %[2]s), or map it as it is "+
			"(compute-agent cells manage discover-hosts --host %[2]s)", c.Node.Name, c.Node.Host, c.Err))
	}
	for _, host := range report.Missing {
		all = append(all, fmt.Errorf("no cell has a host %s that could be mapped: its agent has not reported a node ([cell_client] url)", host))
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
	var problems []hostView
	for _, v := range views {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", v.Host, v.Node, v.UUID, v.Cell)
		if v.Problem != "" {
			problems = append(problems, v)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i, v := range problems {
		title := ""
		if i == 0 {
			title = "\nNodes that get no new servers:\n"
		}
		if _, err := fmt.Fprintf(w, "%s  node %s of host %s (cell %s): %s\n", title, v.UUID, v.Host, v.Cell, v.Problem); err != nil {
			return err
		}
	}
	return nil
}

func newListHosts() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "list-hosts", Aliases: []string{"list_hosts"}, Short: "List the hosts and their cells", Args: cobra.NoArgs,
		Long: "List the hosts and their cells, and the nodes that get no new servers: those that are not mapped, those that several hosts\n" +
			"report, and those of a host as which several agents report. The cells are asked for them; one that does not answer is left out.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.with(cmd, func(store apidb.Store, cfg *config.Config) error {
				known, err := store.Cells(cmd.Context())
				if err != nil {
					return err
				}
				nodes, err := store.Nodes(cmd.Context())
				if err != nil {
					return err
				}
				enrolments, err := store.Enrolments(cmd.Context())
				if err != nil {
					return err
				}
				views := hostViews(nodes, known)
				views, down := withProblems(cmd.Context(), newGatherer(cfg), known, views)
				for _, c := range down {
					_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Cell %s does not answer, so its problems are not listed.\n", c)
				}
				switch {
				case opts.json():
					return printJSON(cmd.OutOrStdout(), withEnrolments(views, enrolments, known))
				case len(views) == 0 && len(enrolments) == 0:
					_, err := fmt.Fprintln(
						cmd.OutOrStdout(),
						"No host is mapped. Agents register with their cells ([cell_client]); `compute-agent cells manage discover-hosts` maps them.",
					)
					return err
				}
				if len(views) > 0 {
					if err := printHosts(cmd.OutOrStdout(), views); err != nil {
						return err
					}
				}
				return printEnrolments(cmd.OutOrStdout(), enrolments, known, len(views) > 0)
			})
		},
	}
	opts.addFlags(cmd)
	return cmd
}

// withProblems adds to mapped nodes why they get no new servers, and adds nodes that are not
// mapped, as their cells know it. down are the names of cells that could not be asked.
func withProblems(ctx context.Context, g *gather.Gatherer, known []apidb.Cell, views []hostView) (all []hostView, down []string) {
	known = slices.DeleteFunc(slices.Clone(known), apidb.Cell.IsCell0)
	at := map[hostView]int{}
	for i, v := range views {
		at[hostView{Host: v.Host, UUID: v.UUID, Cell: v.Cell}] = i
	}
	for _, a := range gather.All(ctx, g, known, func(ctx context.Context, c *cellclient.Client) (cellwire.NodesAnswer, error) { return c.Nodes(ctx) }) {
		if a.Err != nil {
			down = append(down, a.Cell.Name)
		}
		for _, n := range a.Value.Nodes {
			add := func(host string, problem string) {
				i, mapped := at[hostView{Host: host, UUID: n.UUID, Cell: a.Cell.Name}]
				if !mapped {
					views = append(views, hostView{Host: host, Node: n.Name, UUID: n.UUID, Cell: a.Cell.Name, Unmapped: true})
					i = len(views) - 1
				}
				views[i].Problem = strings.TrimPrefix(views[i].Problem+"; "+problem, "; ")
			}
			if n.Problem != "" {
				add(n.Host, n.Problem)
			}
			if len(n.Agents) > 1 {
				add(n.Host, pki.SeveralAgents(n.Host, n.Agents))
			}
			for _, claim := range n.Claims {
				add(claim.Host, "host "+n.Host+" has it")
				if claim.Named || !n.Named {
					add(n.Host, "host "+claim.Host+" reports it too")
				}
			}
		}
	}
	return views, down
}

func newDeleteHost() *cobra.Command {
	var opts manageOptions
	var withServers string
	var providers bool
	cmd := &cobra.Command{
		Use: "delete-host HOST", Aliases: []string{"delete_host"}, Short: "Unmap a host", Args: cobra.ExactArgs(1),
		Long: "Unmap a host, so that no new servers are scheduled to it, and free its nodes for other hosts: those that it does not report, or\n" +
			"all, if its agent is down. Its servers stay. A host whose agent still reports to its cell is mapped again at the next\n" +
			"discovery if it is enrolled, matches [compute_api] discover_hosts_pattern, or is in a cell with auth = \"noauth\". To refuse a host\n" +
			"for good, use evict-host. The former name of a renamed host is free for another one then.\n\n" +
			"The command counts the servers that the cell has on the host, or moves from there or to there, and the other consumers of its\n" +
			"resource providers in Placement. While there are any, it is refused without --with-servers and their number, with exit code 3.\n\n" +
			"Its resource providers stay in Placement. --remove-providers deletes them if nothing holds anything of them and the agent is\n" +
			"down, also of a host that is unmapped already; otherwise nothing is changed, and the command lists what does.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkWithServers(withServers); err != nil {
				return &exitError{exitUsage, err}
			}
			return opts.with(cmd, func(store apidb.Store, cfg *config.Config) error {
				contents, err := contentsOf(cmd.Context(), store, cfg, args[0])
				if err == nil {
					err = contents.allow(args[0], withServers,
						"Migrate, evacuate or delete them first; to unmap the host all the same, and leave them without it, add --with-servers %d")
				}
				if err == nil && providers {
					err = contents.removable(args[0])
				}
				if err == nil {
					err = deleteHost(cmd, store, cfg, args[0], providers && len(contents.Providers) > 0)
				}
				if err == nil {
					err = providersOf(cmd, cfg, args[0], contents, providers)
				}
				return err
			})
		},
	}
	opts.addFlags(cmd)
	addWithServers(cmd, &withServers)
	cmd.Flags().BoolVar(&providers, "remove-providers", false, "delete its resource providers from Placement as well, if nothing holds anything of them")
	return cmd
}

// providersOf removes the resource providers of a host that is unmapped, or says how that is done.
func providersOf(cmd *cobra.Command, cfg *config.Config, host string, contents hostContents, remove bool) error {
	out := cmd.OutOrStdout()
	switch {
	case contents.NoPlacement:
		_, err := fmt.Fprintf(out, "Its resource providers stay in Placement, if there are any. Run when Placement answers: "+
			"compute-agent cells manage delete-host %s --remove-providers\n", host)
		return err
	case len(contents.Providers) == 0:
		return nil
	case remove:
		names, err := contents.removeProviders(cmd.Context(), cfg)
		if len(names) > 0 {
			_, said := fmt.Fprintf(out, "Removed its resource providers from Placement: %s\n", strings.Join(names, ", "))
			err = errors.Join(err, said)
		}
		return err
	}
	root := contents.Providers[len(contents.Providers)-1]
	if err := contents.removable(host); err != nil {
		_, said := fmt.Fprintf(out, "Its resource providers stay in Placement, below %s (%s), and are in use.\n", root.Name, root.UUID)
		return said
	}
	_, err := fmt.Fprintf(out, "Its resource providers stay in Placement, below %s (%s). Nothing holds anything of them; to remove them: "+
		"compute-agent cells manage delete-host %s --remove-providers\n", root.Name, root.UUID, host)
	return err
}

// deleteHost unmaps a host. again says that it may be unmapped already.
func deleteHost(cmd *cobra.Command, store apidb.Store, cfg *config.Config, host string, again bool) error {
	ctx := cmd.Context()
	hosts, err := store.Hosts(ctx)
	if err != nil {
		return err
	}
	known, err := store.Cells(ctx)
	if err != nil {
		return err
	}
	enrolled, err := store.Enrolment(ctx, host)
	if err != nil {
		return err
	}
	now, renamed := enrolled.RenamedTo()
	switch err := store.DeleteHost(ctx, host); {
	case again && errors.Is(err, apidb.ErrNotFound):
		return nil
	case errors.Is(err, apidb.ErrNotFound):
		all, err := hostsOf(ctx, store)
		return errors.Join(fmt.Errorf("host %s is not mapped%s; `compute-agent cells manage list-hosts` lists all; "+
			"--remove-providers deletes resource providers that are left of it", host, likeHost(host, all)), err)
	case err != nil:
		return err
	}
	if renamed {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "The name %s is free for another host; the one that had it is %s.\n", host, now)
		return err
	}
	mapped := slices.IndexFunc(hosts, func(h apidb.HostMapping) bool { return h.Host == host })
	what := "Unmapped host %s."
	if mapped < 0 {
		what = "Host %s was mapped to no cell; what was kept of its name and its nodes is removed."
	}
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), what+" If its agent still reports, it is mapped again only if it is enrolled, matches\n"+
		"[compute_api] discover_hosts_pattern, or is in a cell with auth = \"noauth\". To refuse it for good: compute-agent cells manage evict-host %[1]s\n", host); err != nil {
		return err
	}
	var all []error
	for _, cell := range known {
		if !cell.IsCell0() && (mapped < 0 || hosts[mapped].CellUUID == cell.UUID) {
			all = append(all, freeNodes(cmd, cfg, cell, host, mapped >= 0))
		}
	}
	return errors.Join(all...)
}

// freeNodes has a cell free the nodes of a host for others, and prints what became of that. A cell
// to which the host was not mapped, and that does not have it, is left out.
func freeNodes(cmd *cobra.Command, cfg *config.Config, cell apidb.Cell, host string, mapped bool) error {
	up, has := false, mapped
	_, err := gather.One(cmd.Context(), newGatherer(cfg), cell, func(ctx context.Context, c *cellclient.Client) (struct{}, error) {
		services, err := c.Services(ctx)
		if err != nil {
			return struct{}{}, err
		}
		for _, s := range services {
			has, up = has || s.Host == host, up || s.Host == host && s.Up
		}
		if !has {
			return struct{}{}, nil
		}
		return struct{}{}, c.NodesState(ctx, cellwire.NodesRequest{Host: host})
	})
	switch {
	case err != nil && !mapped:
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "It is not known whether cell %s has the host, and nodes of it to be freed for other hosts: %v. "+
			"When the cell answers, and lists the host (openstack compute service list), delete its service: openstack compute service delete\n", cell.Name, err)
	case err != nil:
		_, err = fmt.Fprintf(
			cmd.ErrOrStderr(),
			"Cell %s did not free its nodes for other hosts: %v. When it answers, delete the service of the host: openstack compute service delete\n",
			cell.Name,
			err,
		)
	case up:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "Its agent reports: the nodes that it reports stay its own in cell %s until it stops.\n", cell.Name)
	case has:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "Freed its nodes in cell %s for other hosts.\n", cell.Name)
	}
	return err
}
