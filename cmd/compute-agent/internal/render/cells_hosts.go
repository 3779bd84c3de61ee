// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// HostList prints the nodes of hosts, those that get no new servers, the enrolments of hosts, and
// those whose identity several machines have.
func HostList(w io.Writer, l *operator.HostList) error {
	var b strings.Builder
	if len(l.Nodes)+len(l.Enrolments) == 0 {
		b.WriteString("No host is mapped. Agents register with their cells ([cell_client]); `compute-agent cells " +
			"manage discover-hosts` maps them.\n")
	}
	if len(l.Nodes) > 0 {
		writeNodes(&b, l.Nodes)
	}
	if len(l.Nodes) > 0 && len(l.Enrolments) > 0 {
		b.WriteString("\n")
	}
	if len(l.Enrolments) > 0 {
		writeEnrolments(&b, l.Enrolments)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// HostDiscovery prints the nodes that were mapped.
func HostDiscovery(w io.Writer, d *operator.Discovery) error {
	var b strings.Builder
	if len(d.Mapped) == 0 {
		b.WriteString("No new hosts.\n")
	} else {
		writeNodes(&b, d.Mapped)
	}
	for _, h := range d.Mapped {
		if h.From != "" {
			fmt.Fprintf(&b, "Node %s was mapped to host %s, which reported it first: check that host.\n",
				h.UUID, h.From)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeNodes(b *strings.Builder, nodes []operator.Host) {
	rows := [][]string{{"HOST", "NODE", "UUID", "CELL"}}
	for _, n := range nodes {
		rows = append(rows, []string{n.Host, n.Node, n.UUID, n.Cell})
	}
	b.WriteString(Table(rows))
	title := "\nNodes that get no new servers:\n"
	for _, n := range nodes {
		if n.Problem != "" {
			fmt.Fprintf(b, "%s  node %s of host %s (cell %s): %s\n", title, n.UUID, n.Host, n.Cell, n.Problem)
			title = ""
		}
	}
}

func writeEnrolments(b *strings.Builder, hosts []operator.Host) {
	rows := [][]string{{"HOST", "ENROLMENT", "CELL", "NODES", "CERTIFICATE UNTIL", "NOTE"}}
	for _, h := range hosts {
		e := h.Enrolment
		until, note := "-", ""
		if !e.Expires.IsZero() {
			until = timestamp(e.Expires)
		}
		switch e.State {
		case apidb.Invited:
			note = "token until " + timestamp(e.Until)
		case apidb.Evicted:
			note = strings.TrimSuffix("since "+timestamp(e.Evicted)+": "+e.Reason, ": ")
		case apidb.Enrolled:
		}
		if time.Until(e.Denied) > pki.MaxAhead {
			note = strings.TrimPrefix(note+"; refused until "+timestamp(e.Denied)+" (cells manage allow-host)", "; ")
		}
		rows = append(rows, []string{h.Host, string(e.State), h.Cell, strconv.Itoa(len(e.Nodes)), until, note})
	}
	b.WriteString(Table(rows))
	title := "\nHosts whose identity two machines have, or that were restored from a copy " +
		"(if not, evict them: compute-agent cells manage evict-host HOST):\n"
	for _, h := range hosts {
		e := h.Enrolment
		if e.State != apidb.Enrolled {
			continue
		}
		if e.Agents != nil {
			fmt.Fprintf(b, "%s  %s\n", title, agentruns.SeveralAgents(h.Host, e.Agents))
			title = ""
		}
		if e.Conflict == nil {
			continue
		}
		last := "joined at " + timestamp(e.Joined) + " from " + e.From
		if e.Renewed != "" {
			last = "renewed last at " + timestamp(e.Issued) + " from " + e.Renewed
		}
		fmt.Fprintf(b, "%s  host %s: %s; the key of %s was refused at %s\n",
			title, h.Host, last, e.Conflict.From, timestamp(e.Conflict.At))
		title = ""
	}
}

// HostEviction prints what became of an evicted host, and what it may have read.
func HostEviction(w io.Writer, v *operator.Eviction) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Evicted host %s at %s%s. Its certificate is not renewed.\n",
		v.Host, timestamp(v.Evicted), strings.TrimSuffix(": "+v.Reason, ": "))
	if v.DenyURL != "" {
		fmt.Fprintf(&b, "Placement and cells with [deny_list] url = %q refuse it within a minute.\n", v.DenyURL)
	}
	fmt.Fprintf(&b, "For a Placement or a cell with a [deny_list] file of its own, run on its machine:\n\n"+
		"  compute-agent ca revoke %s --unknown --file FILE\n\n", v.Host)
	for _, s := range v.Services {
		fmt.Fprintf(&b, "In cell %s its service %s is forced down and disabled: nothing new is sent there.\n",
			s.Cell, s.UUID)
	}
	for _, f := range v.Failed {
		fmt.Fprintf(&b, "Not done: %s\n", f)
	}
	b.WriteString("Its provider trees in Placement, all that it could change there with its certificate:\n")
	for _, n := range v.Nodes {
		fmt.Fprintf(&b, "  %s\n", strings.TrimSpace(n.UUID+" "+n.Name))
	}
	if len(v.Nodes) == 0 {
		b.WriteString("  none\n")
	}
	if len(v.Servers) == 0 {
		b.WriteString("\nNo server is or was on it: it has read nothing of users.\n")
		_, err := io.WriteString(w, b.String())
		return err
	}
	rows := [][]string{{"PROJECT", "NAME", "UUID", "WHERE", "USER DATA", "METADATA", "KEY PAIR", "IMAGE"}}
	for _, s := range v.Servers {
		data := "no"
		if s.UserData {
			data = "yes"
		}
		rows = append(rows, []string{
			s.Project, s.Name, s.UUID, s.Where, data,
			cmp.Or(strings.Join(s.MetadataKeys, ","), "-"), cmp.Or(s.KeyPair, "-"), cmp.Or(s.Image, "-"),
		})
	}
	b.WriteString("\nServers that are or were on it, and what it may have read of them:\n\n" + Table(rows) +
		"\n" +
		"The owners have to rotate: secrets in user data and metadata, host " +
		"keys and secrets on the disks of these servers. Key pairs are\n" +
		"public keys: they need no change. Evacuate the servers " +
		"that are still here: openstack server evacuate UUID.\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// HostAllowed prints since when certificates of a host are refused.
func HostAllowed(w io.Writer, v *operator.Allowed) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Host %s is refused with certificates from before %s, and no others. It is %s; "+
		"to invite it again: compute-agent cells manage add-host %[1]s --again\n", v.Host, timestamp(v.Denied), v.State)
	if !v.From.IsZero() {
		fmt.Fprintf(&b, "A certificate that was issued for it by a clock that was ahead is accepted from %s until %s. "+
			"If others may have it, give the host another name.\n", timestamp(v.From), timestamp(v.Until))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// HostRemoval prints what became of a host, of its nodes and of its resource providers. Cells that
// did not answer are named in problems.
func HostRemoval(w, problems io.Writer, r *operator.Removal) (err error) {
	line := func(to io.Writer, format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(to, format+"\n", args...)
		}
	}
	const again = " If its agent still reports, it is mapped again only if it is enrolled, matches\n" +
		"[compute_api] discover_hosts_pattern, or is in a cell with auth = \"noauth\". To refuse it for good: " +
		"compute-agent cells manage evict-host %[1]s"
	switch r.Was {
	case operator.FormerName:
		line(w, "The name %s is free for another host; the one that had it is %s.", r.Host, r.Now)
	case operator.NameKept:
		line(w, "Host %s was mapped to no cell; what was kept of its name and its nodes is removed."+again, r.Host)
	case operator.Mapped:
		line(w, "Unmapped host %s."+again, r.Host)
	case operator.NotMapped:
	}
	for _, c := range r.Cells {
		switch {
		case c.Err != nil && r.Was == operator.NameKept:
			line(problems, "It is not known whether cell %s has the host, and nodes of it to be freed for other "+
				"hosts: %v. When the cell answers, and lists the host (openstack compute service list), delete its "+
				"service: openstack compute service delete",
				c.Name, c.Err)
		case c.Err != nil:
			line(problems, "Cell %s did not free its nodes for other hosts: %v. When it answers, delete the service "+
				"of the host: openstack compute service delete", c.Name, c.Err)
		case c.Up:
			line(w, "Its agent reports: the nodes that it reports stay its own in cell %s until it stops.", c.Name)
		default:
			line(w, "Freed its nodes in cell %s for other hosts.", c.Name)
		}
	}
	switch {
	case r.NoPlacement:
		line(w, "Its resource providers stay in Placement, if there are any. Run when Placement answers: "+
			"compute-agent cells manage delete-host %s --remove-providers", r.Host)
	case len(r.Removed) > 0:
		line(w, "Removed its resource providers from Placement: %s", strings.Join(r.Removed, ", "))
	case r.Remove || r.Root.UUID == "":
	case r.InUse:
		line(w, "Its resource providers stay in Placement, below %s (%s), and are in use.", r.Root.Name, r.Root.UUID)
	default:
		line(w, "Its resource providers stay in Placement, below %s (%s). Nothing holds anything of them; to remove "+
			"them: compute-agent cells manage delete-host %s --remove-providers", r.Root.Name, r.Root.UUID, r.Host)
	}
	return err
}

// HostInvitation prints what to run on a host that was invited.
func HostInvitation(w io.Writer, v *operator.Invitation) error {
	var b strings.Builder
	again := ""
	if v.Again {
		again = " again"
	}
	fmt.Fprintf(&b, "Invited%s host %s to cell %s, until %s.\n", again, v.Host, v.Cell, timestamp(v.Expires))
	if v.Again {
		b.WriteString("Certificates that it had are refused.\n")
	}
	for _, n := range v.Nodes {
		fmt.Fprintf(&b, "Its compute node: %s\n", strings.TrimSpace(n.UUID+" "+n.Name))
	}
	if len(v.Nodes) == 0 {
		b.WriteString("Its compute nodes will be those that it names first.\n")
	}
	fmt.Fprintf(&b, "\nRun on %s, as root:\n\n  (umask 077; echo %s > /root/join.token)\n  compute-agent join --api "+
		"%s --token-file /root/join.token\n\n"+
		"The token is a secret, and good once.\n", v.Host, v.Token, v.URL)
	_, err := io.WriteString(w, b.String())
	return err
}

// HostRenamed prints what was renamed, and what to run on the host.
func HostRenamed(w io.Writer, v *operator.Renamed) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Renamed host %s to %s in cell %s, with its servers (%d), in Placement and in the compute "+
		"API.\n", v.From, v.To, v.Cell, v.Servers)
	fmt.Fprintf(&b, "The name %s is evicted: its certificates and tokens are refused, and no node is mapped to it.\n\n"+
		"Run on the host, as root, with its agent stopped:\n\n", v.From)
	switch {
	case v.Token != "":
		fmt.Fprintf(&b, "  (umask 077; echo %s > /root/join.token)\n  compute-agent join --again --api %s "+
			"--token-file /root/join.token\n", v.Token, v.URL)
	case v.Invite != "":
		fmt.Fprintf(&b, "  compute-agent join --again, with a token of: compute-agent cells manage add-host %s "+
			"--cell %s (%s)\n", v.To, v.Cell, v.Invite)
	case v.Joined:
		b.WriteString("  (it has a certificate with the new name)\n")
	default:
		fmt.Fprintf(&b, "  set host = %q below [agent] in /etc/compute-agent/compute-agent.toml, and its credentials "+
			"to those of the new name, if they name the host\n", v.To)
	}
	if v.Node != "" { // for the record of the host
		fmt.Fprintf(&b, "  compute-agent adopt --rename --node %s --yes\n", v.Node)
	}
	for _, n := range v.Nodes {
		node := ""
		if n.Name != v.To {
			node = " --node " + n.Name
		}
		fmt.Fprintf(&b, "  compute-agent adopt --rename%s --yes\n", node)
	}
	b.WriteString("  systemctl start compute-agent\n")
	if v.Token != "" {
		fmt.Fprintf(&b, "\nThe token is a secret, good once, until %s; the same command makes another one.\n",
			timestamp(v.Expires))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// HostAdmission prints what a host may report to Placement.
func HostAdmission(w io.Writer, a wire.HostAdmission) error {
	rows := [][]string{{"CLASS", "ADMITTED", "AT MOST"}}
	for _, class := range slices.Sorted(maps.Keys(a.Classes)) {
		most := "any amount"
		if a.Factor > 0 {
			most = strconv.FormatInt(a.Classes[class]*int64(a.Factor), 10)
		}
		rows = append(rows, []string{class, strconv.FormatInt(a.Classes[class], 10), most})
	}
	text := fmt.Sprintf("Host %s may report to Placement:\n%sKinds of traits: %s\n",
		a.Host, Table(rows), strings.Join(a.Traits, ", "))
	if a.Until != nil {
		text += fmt.Sprintf("All that it reports until %s is admitted.\n", timestamp(*a.Until))
	}
	_, err := io.WriteString(w, text)
	return err
}
