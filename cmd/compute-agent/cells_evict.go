// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pki"
)

// enrolmentView is the enrolment of a host, as printed.
type enrolmentView struct {
	State   apidb.EnrolmentState `json:"state"`
	Cell    string               `json:"cell"`
	Nodes   []enrolment.Node     `json:"nodes"`
	Invited time.Time            `json:"invited,omitzero"`
	By      string               `json:"invited_by,omitempty"`
	Until   time.Time            `json:"invited_until,omitzero"`
	Joined  time.Time            `json:"joined,omitzero"`
	From    string               `json:"joined_from,omitempty"`
	// Issued and Expires are those of the last certificate.
	Issued  time.Time `json:"certificate_issued,omitzero"`
	Expires time.Time `json:"certificate_expires,omitzero"`
	Serial  string    `json:"certificate_serial,omitempty"`
	// Renewed is the address of its last renewal. Conflict is the last conflict of its keys.
	Renewed  string        `json:"renewed_from,omitempty"`
	Conflict *conflictView `json:"refused_key,omitempty"`
	// Agents are those that renew its certificate, if several do.
	Agents  []pki.AgentProcess `json:"agents,omitempty"`
	Denied  time.Time          `json:"denied_before,omitzero"`
	Evicted time.Time          `json:"evicted,omitzero"`
	Reason  string             `json:"reason,omitempty"`
}

// conflictView is the use of a key that is not the host's any more, as printed.
type conflictView struct {
	At   time.Time `json:"at"`
	From string    `json:"from"`
	Key  string    `json:"key"`
}

func enrolmentViewOf(e apidb.Enrolment, known []apidb.Cell) *enrolmentView {
	v := &enrolmentView{
		State: e.State, Cell: cellNamed(e.CellUUID, known), Nodes: nodesOf(e), Invited: e.CreatedAt, By: e.CreatedBy, Joined: e.EnrolledAt, From: e.EnrolledFrom,
		Issued: e.Issued, Expires: e.ExpiresAt, Serial: e.Serial, Denied: e.DeniedBefore, Evicted: e.EvictedAt, Reason: e.Reason,
	}
	v.Renewed, v.Agents = e.RenewedFrom, enrolment.LiveAgents(e, time.Now())
	if c := e.Conflict; c != nil {
		v.Conflict = &conflictView{c.At, c.From, c.Key}
	}
	if e.State == apidb.Invited {
		v.Until = e.InvitedUntil
	}
	return v
}

// cellNamed is the name of a cell, or its uuid if it is gone.
func cellNamed(uuid string, known []apidb.Cell) string {
	for _, c := range known {
		if c.UUID == uuid {
			return c.Name
		}
	}
	return uuid
}

// withEnrolments adds the enrolments to the views of hosts; hosts without a mapped node follow.
func withEnrolments(views []hostView, enrolments []apidb.Enrolment, known []apidb.Cell) []hostView {
	for _, e := range enrolments {
		found := false
		for i := range views {
			if views[i].Host == e.Host {
				views[i].Enrolment, found = enrolmentViewOf(e, known), true
			}
		}
		if !found {
			views = append(views, hostView{Host: e.Host, Cell: cellNamed(e.CellUUID, known), Enrolment: enrolmentViewOf(e, known)})
		}
	}
	return views
}

// printEnrolments prints the enrolments as a table, below another one if there is one.
func printEnrolments(w io.Writer, enrolments []apidb.Enrolment, known []apidb.Cell, below bool) error {
	if len(enrolments) == 0 {
		return nil
	}
	if below {
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "HOST\tENROLMENT\tCELL\tNODES\tCERTIFICATE UNTIL\tNOTE")
	for _, e := range enrolments {
		until, note := "-", ""
		if !e.ExpiresAt.IsZero() {
			until = e.ExpiresAt.UTC().Format(time.RFC3339)
		}
		switch e.State {
		case apidb.Invited:
			note = "token until " + e.InvitedUntil.UTC().Format(time.RFC3339)
		case apidb.Evicted:
			note = strings.TrimSuffix("since "+e.EvictedAt.UTC().Format(time.RFC3339)+": "+e.Reason, ": ")
		case apidb.Enrolled:
		}
		if time.Until(e.DeniedBefore) > pki.MaxAhead {
			until := e.DeniedBefore.UTC().Format(time.RFC3339)
			note = strings.TrimPrefix(note+"; refused until "+until+" (cells manage allow-host)", "; ")
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\n", e.Host, e.State, cellNamed(e.CellUUID, known), len(e.Nodes), until, note)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return printConflicts(w, enrolments)
}

// printConflicts prints which hosts have several agents, or have shown a key that was not their own
// any more.
func printConflicts(w io.Writer, enrolments []apidb.Enrolment) error {
	title := "\nHosts whose identity two machines have, or that were restored from a copy (if not, evict them: compute-agent cells manage evict-host HOST):\n"
	for _, e := range enrolments {
		if live := enrolment.LiveAgents(e, time.Now()); live != nil && e.State == apidb.Enrolled {
			if _, err := fmt.Fprintf(w, "%s  %s\n", title, pki.SeveralAgents(e.Host, live)); err != nil {
				return err
			}
			title = ""
		}
		if e.Conflict == nil || e.State != apidb.Enrolled {
			continue
		}
		last := "joined at " + e.EnrolledAt.UTC().Format(time.RFC3339) + " from " + e.EnrolledFrom
		if e.RenewedFrom != "" {
			last = "renewed last at " + e.Issued.UTC().Format(time.RFC3339) + " from " + e.RenewedFrom
		}
		if _, err := fmt.Fprintf(
			w,
			"%s  host %s: %s; the key of %s was refused at %s\n",
			title,
			e.Host,
			last,
			e.Conflict.From,
			e.Conflict.At.UTC().Format(time.RFC3339),
		); err != nil {
			return err
		}
		title = ""
	}
	return nil
}

// evictionView is the answer of evict-host, as printed.
type evictionView struct {
	Host    string    `json:"host"`
	Reason  string    `json:"reason,omitempty"`
	Evicted time.Time `json:"evicted"`
	// DenyList is the line of the deny list.
	DenyList string `json:"deny_list_line"`
	// DenyURL is [deny_list] url of servers that follow the list; "": no enrolment service is
	// configured.
	DenyURL  string           `json:"deny_list_url,omitempty"`
	Nodes    []nodeView       `json:"nodes"`
	Services []evictedService `json:"services"`
	Servers  []exposedServer  `json:"servers"`
	// Failed are cells that did not answer.
	Failed []string `json:"failed,omitempty"`
}

// nodeView is a compute node, whose uuid is that of its provider tree in Placement.
type nodeView struct {
	UUID string `json:"uuid"`
	Name string `json:"hypervisor_hostname,omitempty"`
}

// evictedService is a service of the host in a cell.
type evictedService struct {
	Cell       string `json:"cell"`
	UUID       string `json:"uuid"`
	ForcedDown bool   `json:"forced_down"`
	Disabled   bool   `json:"disabled"`
}

// exposedServer is a server that is or was on the host, and what the host may have read of it.
type exposedServer struct {
	UUID    string `json:"uuid"`
	Name    string `json:"name"`
	Project string `json:"project_id"`
	Cell    string `json:"cell"`
	// Where is "here", "moved" to another host, or "deleted".
	Where        string   `json:"where"`
	UserData     bool     `json:"user_data"`
	MetadataKeys []string `json:"metadata_keys"`
	KeyPair      string   `json:"key_name,omitempty"`
	Image        string   `json:"image,omitempty"`
}

func newEvictHost() *cobra.Command {
	var opts manageOptions
	var reason string
	var despite bool
	cmd := &cobra.Command{
		Use: "evict-host HOST", Aliases: []string{"evict_host"}, Short: "Refuse a host that is stolen or lost, and list what it may have read", Args: cobra.ExactArgs(1),
		Long: "Refuse a host from now on: its certificate is not renewed, and is on the deny list, which Placement and cells follow. In its\n" +
			"cells its service is forced down and disabled, so that nothing new is scheduled to it, and its servers can be evacuated. Then\n" +
			"list what the host may have read: the servers that are or were on it. Running it again completes what a cell that was down has\n" +
			"missed; the exit code is 1 then.\n\n" +
			"The eviction has the time of this machine. If the clock of a cell says another time, nothing is done: correct the clock that is\n" +
			"wrong, or add --despite-clock, and `cells manage allow-host HOST` later.\n\n" +
			"`cells manage add-host HOST --again` invites the host again.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.with(cmd, func(store apidb.Store, cfg *config.Config) error {
				if !despite {
					if err := checkClock(cmd.Context(), store, cfg, args[0], time.Now); err != nil {
						return err
					}
				}
				view, err := evict(cmd.Context(), store, cfg, args[0], reason)
				if err != nil {
					return err
				}
				if err := printed(cmd, &opts.options, view, printEviction); err != nil {
					return err
				}
				if len(view.Failed) > 0 {
					return fmt.Errorf("host %s is refused, but not all cells answered: run the command again when they do", view.Host)
				}
				return nil
			})
		},
	}
	opts.addFlags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` for people, shown wherever the host is refused")
	cmd.Flags().BoolVar(&despite, "despite-clock", false,
		"evict the host though the clocks of this machine and of a cell differ")
	return cmd
}

// clockTime is how long an eviction waits for the clocks of cells.
const clockTime = 3 * time.Second

// checkClock refuses to date an eviction by a clock that is not that of the cells. If it is ahead,
// the host cannot be enrolled again before that time; if it is behind, certificates of the site's
// own CA that were issued since would be accepted. Cells that do not answer do not count.
func checkClock(ctx context.Context, store apidb.Store, cfg *config.Config, host string, clock func() time.Time) error {
	known, err := store.Cells(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, clockTime)
	defer cancel()
	differs := func(ctx context.Context, c *cellclient.Client) (time.Duration, error) {
		before := clock()
		info, err := c.Cell(ctx)
		return max(info.Now.Sub(clock()), before.Sub(info.Now)), err
	}
	for _, a := range gather.All(ctx, newGatherer(cfg), known, differs) {
		if a.Err == nil && a.Value > pki.MaxAhead {
			return &exitError{exitProtect, fmt.Errorf("host %s was not evicted: the clock of this machine (%s) "+
				"and that of cell %s differ by %s, and one of them is wrong; correct it, or, to refuse the host at once, "+
				"add --despite-clock, and run `compute-agent cells manage allow-host %[1]s` before it is invited again",
				host, clock().UTC().Format(time.RFC3339), a.Cell.Name, a.Value.Round(time.Second))}
		}
	}
	return nil
}

func newAllowHost() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "allow-host HOST", Aliases: []string{"allow_host"}, Args: cobra.ExactArgs(1),
		Short: "End that a host is refused until a time in the future",
		Long: "End that a host is refused until a time in the future: it was evicted, or got its last certificate, while the clock of the\n" +
			"compute API was ahead, and could not be enrolled before that time. From now on only its certificates from before now are refused.\n" +
			"An evicted host stays evicted; `cells manage add-host HOST --again` invites it.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.with(cmd, func(store apidb.Store, _ *config.Config) error {
				e, ahead, err := enrolment.Allow(cmd.Context(), store, args[0], time.Now())
				switch {
				case errors.Is(err, apidb.ErrNotFound):
					hosts, listErr := hostsOf(cmd.Context(), store)
					return errors.Join(fmt.Errorf("%w%s", err, likeHost(args[0], hosts)), listErr)
				case errors.Is(err, enrolment.ErrNotAhead):
					return &exitError{exitProtect, fmt.Errorf(
						"%w; to invite an evicted host again: compute-agent cells manage add-host %s --again", err, args[0])}
				case err != nil:
					return err
				}
				view := allowedView{e.Host, e.State, e.DeniedBefore, ahead.From, ahead.Until}
				return printed(cmd, &opts.options, view, printAllowed)
			})
		},
	}
	opts.addFlags(cmd)
	return cmd
}

// allowedView is the answer of allow-host, as printed.
type allowedView struct {
	Host   string               `json:"host"`
	State  apidb.EnrolmentState `json:"state"`
	Denied time.Time            `json:"denied_before"`
	// From and Until are those of a certificate that was issued in the future.
	From  time.Time `json:"certificate_from,omitzero"`
	Until time.Time `json:"certificate_until,omitzero"`
}

func printAllowed(w io.Writer, v allowedView) error {
	_, err := fmt.Fprintf(w, "Host %s is refused with certificates from before %s, and no others. It is %s; "+
		"to invite it again: compute-agent cells manage add-host %[1]s --again\n",
		v.Host, v.Denied.UTC().Format(time.RFC3339), v.State)
	if err == nil && !v.From.IsZero() {
		_, err = fmt.Fprintf(w, "A certificate that was issued for it by a clock that was ahead is accepted from %s until %s. "+
			"If others may have it, give the host another name.\n",
			v.From.UTC().Format(time.RFC3339), v.Until.UTC().Format(time.RFC3339))
	}
	return err
}

// evict evicts a host, first where it counts: in the API database.
func evict(ctx context.Context, store apidb.Store, cfg *config.Config, host, reason string) (evictionView, error) {
	view := evictionView{Host: host, Nodes: []nodeView{}, Services: []evictedService{}, Servers: []exposedServer{}}
	known, err := store.Cells(ctx)
	if err != nil {
		return view, err
	}
	nodes, err := store.Nodes(ctx)
	if err != nil {
		return view, err
	}
	hosts, err := hostsOf(ctx, store)
	if err != nil {
		return view, err
	}
	if known := sameHost(host, hosts); known != "" {
		host, view.Host = known, known
	}
	cell := ""
	for _, n := range nodes {
		if n.Host == host {
			cell = n.CellUUID
			view.Nodes = append(view.Nodes, nodeView{n.UUID, n.Name})
		}
	}
	e, err := enrolment.Evict(ctx, store, host, cell, reason, time.Now())
	if errors.Is(err, apidb.ErrNotFound) {
		return view, fmt.Errorf("%w: it was neither invited nor mapped to a cell%s; "+
			"`compute-agent cells manage list-hosts` lists all", err, likeHost(host, hosts))
	}
	if err != nil {
		return view, err
	}
	for _, n := range e.Nodes {
		if !slices.ContainsFunc(view.Nodes, func(has nodeView) bool { return has.UUID == n.UUID }) {
			view.Nodes = append(view.Nodes, nodeView{n.UUID, n.Name})
		}
	}
	denial, _ := e.Denial()
	list, err := pki.NewDenyList([]pki.Denial{denial})
	if err != nil {
		return view, err
	}
	lines := strings.Split(strings.TrimSpace(string(list.Text())), "\n")
	view.Evicted, view.Reason, view.DenyList = e.EvictedAt, e.Reason, lines[len(lines)-1]
	if url, err := enrolmentURL(cfg.Enrolment); err == nil {
		view.DenyURL = url
	}
	type found struct {
		services []evictedService
		servers  []exposedServer
	}
	for _, a := range gather.All(ctx, newGatherer(cfg), known, func(ctx context.Context, c *cellclient.Client) (f found, err error) {
		if f.services, err = shutOut(ctx, c, host, e.Reason); err == nil {
			f.servers, err = exposed(ctx, c, host)
		}
		return f, err
	}) {
		if a.Err != nil {
			view.Failed = append(view.Failed, fmt.Sprintf("%s: %v", a.Cell.Name, a.Err))
			continue
		}
		for _, s := range a.Value.services {
			s.Cell = a.Cell.Name
			view.Services = append(view.Services, s)
		}
		for _, s := range a.Value.servers {
			s.Cell = a.Cell.Name
			view.Servers = append(view.Servers, s)
		}
	}
	return view, nil
}

// shutOut forces the services of a host in a cell down, and disables them.
func shutOut(ctx context.Context, c *cellclient.Client, host, reason string) (out []evictedService, err error) {
	all, err := c.Services(ctx)
	if err != nil {
		return nil, err
	}
	yes, why := true, strings.TrimSuffix("evicted: "+reason, ": ")
	if runes := []rune(why); len(runes) > maxServiceReason {
		why = string(runes[:maxServiceReason])
	}
	for _, s := range all {
		if s.Host != host {
			continue
		}
		s, err = c.PatchService(ctx, s.UUID, cellwire.ServicePatch{Disabled: &yes, DisabledReason: &why, ForcedDown: &yes})
		if err != nil {
			return nil, err
		}
		out = append(out, evictedService{UUID: s.UUID, ForcedDown: s.ForcedDown, Disabled: s.Disabled})
	}
	return out, nil
}

const (
	// maxServiceReason is how long the reason of a disabled service may be, as in Nova.
	maxServiceReason = 255
	// exposedPage is how many servers and migrations are asked for at a time.
	exposedPage = 500
)

// exposed are the servers of a cell that are or were on a host.
func exposed(ctx context.Context, c *cellclient.Client, host string) ([]exposedServer, error) {
	servers := map[string]exposedServer{}
	collect := func(q cellwire.ServerQuery) error {
		q.Deleted, q.Limit, q.Sort = cellwire.DeletedAny, exposedPage, []cellwire.SortKey{{Key: "created_at"}}
		for {
			page, err := c.Servers(ctx, q)
			if err != nil {
				return err
			}
			for _, row := range page.Rows {
				servers[row.Server.UUID] = exposure(row.Server, host)
				q.After = row.Key
			}
			if !page.More || len(page.Rows) == 0 {
				return nil
			}
		}
	}
	if err := collect(cellwire.ServerQuery{Hosts: []string{host}}); err != nil {
		return nil, err
	}
	var moved []string
	for q := (cellwire.MigrationQuery{Host: host, Limit: exposedPage}); ; {
		page, err := c.Migrations(ctx, q)
		if err != nil {
			return nil, err
		}
		for i, m := range page {
			if _, has := servers[m.ServerUUID]; !has {
				moved = append(moved, m.ServerUUID)
			}
			q.After = &page[i]
		}
		if len(page) < exposedPage {
			break
		}
	}
	slices.Sort(moved)
	for some := range slices.Chunk(slices.Compact(moved), exposedPage) {
		if err := collect(cellwire.ServerQuery{UUIDs: some}); err != nil {
			return nil, err
		}
	}
	return slices.SortedFunc(maps.Values(servers), func(a, b exposedServer) int {
		return strings.Compare(a.Project+"\x00"+a.Name+"\x00"+a.UUID, b.Project+"\x00"+b.Name+"\x00"+b.UUID)
	}), nil
}

func exposure(s cellwire.Server, host string) exposedServer {
	where := "here"
	switch {
	case s.Deleted:
		where = "deleted"
	case s.Host != host:
		where = "moved"
	}
	return exposedServer{
		UUID: s.UUID, Name: s.Name, Project: s.ProjectID, Where: where, UserData: s.UserData != "",
		MetadataKeys: slices.AppendSeq([]string{}, slices.Values(slices.Sorted(maps.Keys(s.Metadata)))), KeyPair: s.KeyName, Image: s.ImageRef,
	}
}

func printEviction(w io.Writer, v evictionView) error {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	say("Evicted host %s at %s%s. Its certificate is not renewed.", v.Host, v.Evicted.UTC().Format(time.RFC3339), strings.TrimSuffix(": "+v.Reason, ": "))
	if v.DenyURL != "" {
		say("Placement and cells with [deny_list] url = %q refuse it within a minute.", v.DenyURL)
	}
	say("For a Placement or a cell with a [deny_list] file of its own, run on its machine:\n\n"+
		"  compute-agent ca revoke %s --unknown --file FILE\n", v.Host)
	for _, s := range v.Services {
		say("In cell %s its service %s is forced down and disabled: nothing new is sent there.", s.Cell, s.UUID)
	}
	for _, f := range v.Failed {
		say("Not done: %s", f)
	}
	say("Its provider trees in Placement, all that it could change there with its certificate:")
	for _, n := range v.Nodes {
		say("  %s", strings.TrimSpace(n.UUID+" "+n.Name))
	}
	if len(v.Nodes) == 0 {
		say("  none")
	}
	if len(v.Servers) == 0 {
		say("\nNo server is or was on it: it has read nothing of users.")
		return nil
	}
	say("\nServers that are or were on it, and what it may have read of them:\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "PROJECT\tNAME\tUUID\tWHERE\tUSER DATA\tMETADATA\tKEY PAIR\tIMAGE")
	none := func(text string) string {
		if text == "" {
			return "-"
		}
		return text
	}
	for _, s := range v.Servers {
		data := "no"
		if s.UserData {
			data = "yes"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Project, s.Name, s.UUID, s.Where, data, none(strings.Join(s.MetadataKeys, ",")), none(s.KeyPair), none(s.Image))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	say("\nThe owners have to rotate: secrets in user data and metadata, host keys and secrets on the disks of these servers. Key pairs are\n" +
		"public keys: they need no change. Evacuate the servers that are still here: openstack server evacuate UUID.")
	return nil
}
