// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"database/sql"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// The agents of a host are those of [agentruns.Agents], and are kept in the table host_agents.
// While it is proven that there are several, the host gets no new servers.

// severalAgentsWindow is how long after its last report an agent still counts as one of two.
func severalAgentsWindow(m Moment) time.Duration { return 5 * m.DownTime }

// hasSeveralAgents reports whether it is proven now that a host has several agents.
func hasSeveralAgents(until int64, m Moment) bool {
	return agentruns.HasSeveral(until, m.Now, severalAgentsWindow(m))
}

// hostAgents are the processes that report as a host.
type hostAgents struct{ agentruns.Agents }

// problems returns a problem for each node that a host reports while several agents report as that
// host; nil if there is one agent.
func (h *hostAgents) problems(host string, nodes []cellwire.ReportedNode, m Moment) (problems []cellwire.NodeProblem) {
	agents := h.Live(m.Now, severalAgentsWindow(m))
	if agents == nil {
		return nil
	}
	why := agentruns.SeveralAgents(host, agents)
	for _, n := range nodes {
		problems = append(problems,
			cellwire.NodeProblem{UUID: n.UUID, Code: cellwire.NodeSeveralAgents, Message: why + "."})
	}
	return problems
}

// agentColumns are the columns that an [agentruns.HostAgent] is read from.
const agentColumns = "a.token, a.boot, a.machine, a.address, a.started, a.first_turn, a.shown_turn, a.seen"

// agentRow reads agentColumns of an outer join.
type agentRow struct {
	token, boot, machine, address sql.NullString
	started, first, shown, seen   sql.NullInt64
}

func (r *agentRow) targets() []any {
	return []any{&r.token, &r.boot, &r.machine, &r.address, &r.started, &r.first, &r.shown, &r.seen}
}

func (r *agentRow) agent() agentruns.HostAgent {
	return agentruns.HostAgent{
		Process: agentruns.Process{
			Token: r.token.String, Boot: r.boot.String, Machine: r.machine.String, Address: r.address.String,
			Started: fromMicros(r.started.Int64),
		},
		First: r.first.Int64, Shown: r.shown.Int64, Seen: r.seen.Int64,
	}
}

// write writes down the agents of a host.
func (h *hostAgents) write(ctx context.Context, tx *writeTx, host string) error {
	if !h.Changed {
		return nil
	}
	for _, token := range h.Gone {
		if _, err := tx.ExecContext(ctx, "DELETE FROM host_agents WHERE host = ? AND token = ?",
			host, token); err != nil {
			return err
		}
	}
	for _, a := range h.All {
		var err error
		switch {
		case a.Fresh:
			_, err = tx.ExecContext(ctx,
				"INSERT INTO host_agents (host, token, boot, machine, address, started, first_turn, shown_turn, "+
					"seen) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
				host, a.Token, a.Boot, a.Machine, a.Address, a.Started.UnixMicro(), a.First, a.Shown, a.Seen)
		case a.Dirty:
			_, err = tx.ExecContext(ctx,
				"UPDATE host_agents SET address = ?, shown_turn = ?, seen = ? WHERE host = ? AND token = ?",
				a.Address, a.Shown, a.Seen, host, a.Token)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

const selectSeveralAgents = "SELECT s.host, s.twice_until, " +
	agentColumns + " FROM services s JOIN host_agents a ON a.host = s.host " +
	"WHERE s.twice_until > ? AND s.twice_until <= ? ORDER BY s.host, a.first_turn"

// severalAgentsOf are the agents of the hosts as which several report.
func severalAgentsOf(ctx context.Context, db sqldb.Querier, m Moment) (map[string][]agentruns.Process, error) {
	now, window := m.Now.UnixMicro(), severalAgentsWindow(m)
	all := map[string]*agentruns.Agents{}
	err := sqldb.Each(ctx, db, selectSeveralAgents, []any{now, now + window.Microseconds()}, func(row sqldb.Row) error {
		var host string
		var until int64
		var one agentRow
		err := row.Scan(append([]any{&host, &until}, one.targets()...)...)
		if all[host] == nil {
			all[host] = &agentruns.Agents{Until: until}
		}
		all[host].All = append(all[host].All, one.agent())
		return err
	})
	out := make(map[string][]agentruns.Process, len(all))
	for host, agents := range all {
		out[host] = agents.Live(m.Now, window)
	}
	return out, err
}

// nodesOf are the nodes that a host reports.
func nodesOf(ctx context.Context, db sqldb.Querier, host string) ([]string, error) {
	return sqldb.All(ctx, db, sqldb.Value[string],
		"SELECT uuid FROM compute_nodes WHERE host = ? AND present = 1 ORDER BY uuid", host)
}
