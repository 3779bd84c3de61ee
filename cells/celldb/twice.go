// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"

	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// Two machines can have one name and one identity, certificate included: a cloned disk, or a
// restored one. Their agents differ not in who they are, but in their tokens, of which each process
// has its own.
//
// That a second token comes says nothing: an agent that is restarted has one, and a report of the
// process before may arrive after it. So each answer has the host's turn, a number that grows with
// each token that comes, and each report the last turn that its process was answered. Two processes
// that have both reported with the turn at which the later one came, or a later turn, both lived
// then. One that had ended before cannot have got that answer, however late its reports arrive.
//
//	A  first report       ── turn 7 ──▶
//	B  first report                     ── turn 8 ──▶
//	A  report, turn 7     ── turn 8 ──▶                   may be late
//	B  report, turn 8                   ── turn 8 ──▶     B got its answer
//	A  report, turn 8                                     A lives although B came: proof
//
// While it is proven the host gets no new servers. It ends when all but one of them said that they
// stop, or were not seen for twiceWindow.

// twiceWindow is how long after its last report an agent still counts as one of two.
func twiceWindow(m Moment) time.Duration { return 5 * m.DownTime }

// maxAgents bounds the agents of a host that are remembered, those seen last.
const maxAgents = 8

// hostAgent is one process that reports as a host. Times are in microseconds.
type hostAgent struct {
	cellwire.AgentProcess
	first int64 // the turn at which it came
	shown int64 // the latest turn that it was answered, as far as that matters
	seen  int64 // when it reported last; of the one that was seen last, the service knows it

	fresh, dirty bool // it has no row yet, or another one
}

// hostAgents are the processes that report as a host.
type hostAgents struct {
	turn  int64
	until int64 // until when it is proven that there are two; 0: it is not
	all   []hostAgent

	changed bool
	gone    []string // tokens
}

func (h *hostAgents) index(token string) int {
	return slices.IndexFunc(h.all, func(a hostAgent) bool { return a.Token == token })
}

// take notes a report of a process. lastSeen is when the host was last seen before it. stops says
// whether the host stops: not if it is one of several, or of before, that does.
func (h *hostAgents) take(r cellwire.HostReport, address string, lastSeen int64, m Moment) (stops bool) {
	if r.Process == nil { // an agent of before tokens
		return r.Stopping
	}
	now, window := m.Now.UnixMicro(), twiceWindow(m).Microseconds()
	token := r.Process.Token
	h.drop(func(a hostAgent) bool { return a.Token != token && a.seen > now+window }) // by a clock that was wrong
	latest := h.latest()
	if latest >= 0 && lastSeen > h.all[latest].seen { // only its reports were not written down
		h.all[latest].seen, h.all[latest].dirty = lastSeen, true
	}
	if r.Stopping {
		return h.leave(token, now, window)
	}
	if i := h.index(token); i < 0 {
		h.drop(func(a hostAgent) bool { return !within(now, a.seen, window) })
		for len(h.all) >= maxAgents {
			oldest := slices.MinFunc(h.all, func(a, b hostAgent) int { return cmp.Compare(a.seen, b.seen) })
			h.drop(func(a hostAgent) bool { return a.Token == oldest.Token })
		}
		h.turn = max(h.turn+1, now) // also after an older copy of the database, or of the service
		process := *r.Process
		process.Address = address
		h.all, h.changed = append(h.all, hostAgent{AgentProcess: process, first: h.turn, seen: now, fresh: true}), true
	} else if len(h.all) > 1 {
		one := &h.all[i]
		shown := max(one.shown, min(r.Turn, h.turn))
		if shown != one.shown || i != latest || one.Address != address || one.seen > now+window {
			one.shown, one.Address, one.seen, one.dirty, h.changed = shown, address, now, true, true
		}
	}
	h.prove(now, window)
	return false
}

// latest is the index of the agent that was seen last, or -1.
func (h *hostAgents) latest() int {
	latest := -1
	for i := range h.all {
		if latest < 0 || h.all[i].seen > h.all[latest].seen {
			latest = i
		}
	}
	return latest
}

// leave notes that a process stops.
func (h *hostAgents) leave(token string, now, window int64) (stops bool) {
	i := h.index(token)
	later := slices.ContainsFunc(h.all, func(a hostAgent) bool {
		return a.Token != token && within(now, a.seen, window) && (i < 0 || a.first > h.all[i].first || bothLive(a, h.all[i]))
	})
	h.drop(func(a hostAgent) bool { return a.Token == token })
	h.prove(now, window)
	return !later
}

func (h *hostAgents) drop(which func(hostAgent) bool) {
	h.all = slices.DeleteFunc(h.all, func(a hostAgent) bool {
		is := which(a)
		if is {
			h.gone, h.changed = append(h.gone, a.Token), true
		}
		return is
	})
}

// prove finds out until when it is proven that two live.
func (h *hostAgents) prove(now, window int64) {
	until := int64(0)
	for i, a := range h.all {
		for _, b := range h.all[:i] {
			if bothLive(a, b) && within(now, a.seen, window) && within(now, b.seen, window) {
				until = max(until, min(a.seen, b.seen)+window)
			}
		}
	}
	h.changed = h.changed || until != h.until
	h.until = until
}

// bothLive reports whether two agents have shown that they lived at the same time.
func bothLive(a, b hostAgent) bool { return min(a.shown, b.shown) >= max(a.first, b.first) }

// twice reports whether it is proven now. A time beyond the window is of a clock that was wrong.
func twice(until int64, m Moment) bool {
	now := m.Now.UnixMicro()
	return until > now && until <= now+twiceWindow(m).Microseconds()
}

func within(now, at, window int64) bool { return max(now-at, at-now) <= window }

// problems are those of the nodes of a host as which several agents report.
func (h *hostAgents) problems(host string, nodes []cellwire.ReportedNode, m Moment) (problems []cellwire.NodeProblem) {
	if !twice(h.until, m) {
		return nil
	}
	var agents []cellwire.AgentProcess
	for _, a := range h.all {
		if within(m.Now.UnixMicro(), a.seen, twiceWindow(m).Microseconds()) {
			agents = append(agents, a.AgentProcess)
		}
	}
	why := cellwire.SeveralAgents(host, agents)
	for _, n := range nodes {
		problems = append(problems, cellwire.NodeProblem{UUID: n.UUID, Code: cellwire.NodeSeveralAgents, Message: why + "."})
	}
	return problems
}

// agentColumns are those of a hostAgent.
const agentColumns = "a.token, a.boot, a.machine, a.address, a.started, a.first_turn, a.shown_turn, a.seen"

// agentRow reads agentColumns of an outer join.
type agentRow struct {
	token, boot, machine, address sql.NullString
	started, first, shown, seen   sql.NullInt64
}

func (r *agentRow) into() []any {
	return []any{&r.token, &r.boot, &r.machine, &r.address, &r.started, &r.first, &r.shown, &r.seen}
}

func (r *agentRow) agent() hostAgent {
	return hostAgent{
		AgentProcess: cellwire.AgentProcess{
			Token: r.token.String, Boot: r.boot.String, Machine: r.machine.String, Address: r.address.String, Started: fromMicros(r.started.Int64),
		},
		first: r.first.Int64, shown: r.shown.Int64, seen: r.seen.Int64,
	}
}

// write writes down the agents of a host.
func (h *hostAgents) write(ctx context.Context, tx *writing, host string) error {
	if !h.changed {
		return nil
	}
	for _, token := range h.gone {
		if _, err := tx.ExecContext(ctx, "DELETE FROM host_agents WHERE host = ? AND token = ?", host, token); err != nil {
			return err
		}
	}
	for _, a := range h.all {
		var err error
		switch {
		case a.fresh:
			_, err = tx.ExecContext(ctx,
				"INSERT INTO host_agents (host, token, boot, machine, address, started, first_turn, shown_turn, seen) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
				host, a.Token, a.Boot, a.Machine, a.Address, a.Started.UnixMicro(), a.first, a.shown, a.seen)
		case a.dirty:
			_, err = tx.ExecContext(ctx, "UPDATE host_agents SET address = ?, shown_turn = ?, seen = ? WHERE host = ? AND token = ?",
				a.Address, a.shown, a.seen, host, a.Token)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

const selectTwice = "SELECT s.host, " + agentColumns + " FROM services s JOIN host_agents a ON a.host = s.host " +
	"WHERE s.twice_until > ? AND s.twice_until <= ? ORDER BY s.host, a.first_turn"

// severalAgentsOf are the agents of the hosts as which several report.
func severalAgentsOf(ctx context.Context, db sqldb.Querier, m Moment) (map[string][]cellwire.AgentProcess, error) {
	now, window := m.Now.UnixMicro(), twiceWindow(m).Microseconds()
	out := map[string][]cellwire.AgentProcess{}
	err := sqldb.Each(ctx, db, selectTwice, []any{now, now + window}, func(row sqldb.Row) error {
		var host string
		var one agentRow
		err := row.Scan(append([]any{&host}, one.into()...)...)
		if a := one.agent(); within(now, a.seen, window) {
			out[host] = append(out[host], a.AgentProcess)
		}
		return err
	})
	return out, err
}

// nodesOf are the nodes that a host reports.
func nodesOf(ctx context.Context, db sqldb.Querier, host string) ([]string, error) {
	return sqldb.All(ctx, db, sqldb.Value[string], "SELECT uuid FROM compute_nodes WHERE host = ? AND present = 1 ORDER BY uuid", host)
}

// checkProcess refuses what no agent says of itself.
func checkProcess(r cellwire.HostReport) error {
	if r.Turn < 0 {
		return invalid("the turn is %d", r.Turn)
	}
	p := r.Process
	if p == nil {
		return nil
	}
	for _, c := range []struct{ what, text string }{{"token", p.Token}, {"boot id", p.Boot}, {"machine", p.Machine}} {
		if len(c.text) > 64 || !storable(c.text) || strings.ContainsFunc(c.text, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			return invalid("the %s of the agent has more than 64 characters, or others than printable ones of ASCII", c.what)
		}
	}
	if p.Token == "" {
		return invalid("the agent has no token")
	}
	return nil
}
