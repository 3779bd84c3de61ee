// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/placement/wire"
)

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
			"to those of the new name, "+
			"if they name the host\n", v.To)
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
