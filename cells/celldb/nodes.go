// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// ComputeNodes are the nodes that hosts report.
func (d *DB) ComputeNodes(ctx context.Context, unmapped bool, m Moment) (list []cellwire.ComputeNode, err error) {
	err = d.read(ctx, "reading compute nodes from", func(db sqldb.Querier) error {
		list, err = nodes(ctx, db, unmapped, m)
		return err
	})
	return list, err
}

func nodes(ctx context.Context, db sqldb.Querier, unmapped bool, m Moment) ([]cellwire.ComputeNode, error) {
	query := "SELECT uuid, host, hypervisor_hostname, mapped, abilities, auth, named, hypervisor_type, " +
		"hypervisor_version, host_ip, unknown_guests " +
		"FROM compute_nodes WHERE present = 1 "
	if unmapped {
		query += "AND mapped = 0 "
	}
	list := []cellwire.ComputeNode{}
	err := sqldb.Each(ctx, db, query+"ORDER BY uuid", nil, func(row sqldb.Row) error {
		var one cellwire.ComputeNode
		var abilities string
		details := &one.Details
		err := row.Scan(&one.UUID, &one.Host, &one.Name, &one.Mapped, &abilities, &one.Auth, &one.Named,
			&details.HypervisorType, &details.HypervisorVersion, &details.HostIP, &details.UnknownGuests)
		if abilities != "" {
			one.Abilities = strings.Split(abilities, ",")
		}
		list = append(list, one)
		return err
	})
	if err != nil {
		return list, err
	}
	problems, err := readNodeProblems(ctx, db, m)
	if err != nil {
		return list, err
	}
	agents, err := severalAgentsOf(ctx, db, m)
	for i := range list {
		if p := problems[list[i].UUID]; p != nil {
			list[i].Claims, list[i].Problem = p.claims, p.problem
		}
		list[i].Agents = agents[list[i].Host]
	}
	return list, err
}

// nodeProblems are the reasons not to use a node.
type nodeProblems struct {
	host          string // that has it
	named         bool
	claims        []cellwire.NodeClaim // of hosts whose agents live
	problem       string
	severalAgents bool // several agents report as its host; only of one node
}

// problemsByNode has the problems of nodes by uuid; few nodes have any.
type problemsByNode map[string]*nodeProblems

// contested are the nodes of a host that get no new servers.
func (p problemsByNode) contested(host string) (uuids []string) {
	for uuid, one := range p {
		if one.host == host && (one.problem != "" || serverstate.Contested(one.named, one.claims)) {
			uuids = append(uuids, uuid)
		}
	}
	slices.Sort(uuids)
	return uuids
}

const (
	selectNodeProblems = "SELECT n.uuid, n.host, n.named, '', c.host, c.auth, c.named, " + hostColumns +
		", 0 FROM node_claims c JOIN compute_nodes n ON n.uuid = c.uuid LEFT JOIN services s ON s.host = c.host" +
		" UNION ALL SELECT n.uuid, n.host, n.named, p.problem, '', '', 0, NULL, NULL, NULL, NULL, 0 FROM " +
		"node_problems p JOIN compute_nodes n ON n.uuid = p.uuid ORDER BY 1, 5"
	selectProblemsOfNode = "SELECT n.uuid, n.host, n.named, '', c.host, c.auth, c.named, " + hostColumns +
		", COALESCE(o.twice_until, 0) FROM compute_nodes n LEFT JOIN node_claims c ON c.uuid = n.uuid LEFT JOIN " +
		"services s ON s.host = c.host LEFT JOIN services o ON o.host = n.host WHERE n.uuid = ?"
)

func readNodeProblems(ctx context.Context, db sqldb.Querier, m Moment, node ...string) (problemsByNode, error) {
	query, args := selectNodeProblems, []any(nil)
	if len(node) > 0 {
		query, args = selectProblemsOfNode, []any{node[0]}
	}
	all := problemsByNode{}
	err := sqldb.Each(ctx, db, query, args, func(row sqldb.Row) error {
		var (
			one        nodeProblems
			uuid       string
			host, auth sql.NullString
			named      sql.NullBool
			state      hostState
			until      int64
		)
		err := row.Scan(&uuid, &one.host, &one.named, &one.problem, &host, &auth, &named, &state.lastSeenUp,
			&state.forcedDown, &state.stopped, &state.disabled, &until)
		one.severalAgents = hasSeveralAgents(until, m)
		if all[uuid] == nil {
			all[uuid] = &one
		}
		if one.problem != "" {
			all[uuid].problem = one.problem
		} else if state.up(m) {
			all[uuid].claims = append(all[uuid].claims,
				cellwire.NodeClaim{Host: host.String, Auth: cellwire.HostAuth(auth.String), Named: named.Bool})
		}
		return err
	})
	return all, err
}

// checkNodeFree refuses (contested) to put a server on a node that another host has or also
// reports, or whose host several agents report as. It allows a node that no host has reported.
func checkNodeFree(ctx context.Context, db sqldb.Querier, server *cellwire.Server, m Moment) error {
	if server.NodeUUID == "" || server.Host == "" {
		return nil
	}
	all, err := readNodeProblems(ctx, db, m, server.NodeUUID)
	one := all[server.NodeUUID]
	switch {
	case err != nil || one == nil:
		return err
	case one.host != server.Host:
		return contestedNode(server, "host %s has it", one.host)
	case serverstate.Contested(one.named, one.claims):
		return contestedNode(server, "host %s reports it too", one.claims[0].Host)
	case one.severalAgents:
		return contestedNode(server, "several agents report as its host")
	}
	return nil
}

func contestedNode(server *cellwire.Server, why string, args ...any) error {
	return &cellwire.Error{Status: 409, Code: cellwire.CodeContested, Message: fmt.Sprintf(
		"server %s is not put on node %s of host %s: %s",
		server.UUID, server.NodeUUID, server.Host, fmt.Sprintf(why, args...))}
}

// countServers counts the living servers of each node. It reads each of them once.
const countServers = "SELECT host, node, COUNT(*) FROM instances WHERE gone IN (0, 1) AND hidden = 0 AND host <> '' " +
	"GROUP BY host, node"

// CountedNodes are the nodes that hosts report, with how many servers each has.
func (d *DB) CountedNodes(ctx context.Context, m Moment) (list []cellwire.ComputeNode, err error) {
	err = d.read(ctx, "counting the servers of compute nodes in", func(db sqldb.Querier) error {
		if list, err = nodes(ctx, db, false, m); err != nil {
			return err
		}
		type node struct{ host, name string }
		counts := map[node]int64{}
		err := sqldb.Each(ctx, db, countServers, nil, func(row sqldb.Row) error {
			var of node
			var n int64
			err := row.Scan(&of.host, &of.name, &n)
			counts[of] = n
			return err
		})
		for i := range list {
			list[i].Servers = counts[node{list[i].Host, list[i].Name}]
		}
		return err
	})
	return list, err
}

// MarkMapped records that nodes are in the API database.
func (d *DB) MarkMapped(ctx context.Context, uuids []string) error {
	return d.write(ctx, "noting mapped nodes in", func(tx *writeTx) error {
		return eachPart(ctx, tx, uuids, "UPDATE compute_nodes SET mapped = 1 WHERE uuid IN ")
	})
}

// eachPart runs a statement that ends with a list of uuids.
func eachPart(ctx context.Context, tx *writeTx, uuids []string, statement string) error {
	for part := range slices.Chunk(uuids, sqldb.MaxListed) {
		parameters, args := sqldb.ListParameters(part)
		if _, err := tx.ExecContext(ctx, statement+parameters, args...); err != nil {
			return err
		}
	}
	return nil
}

// Report registers a host, or shows that it lives. A report that says nothing new costs no fsync.
func (d *DB) Report(
	ctx context.Context, who serverstate.Reporter, r cellwire.HostReport, m Moment,
) (service cellwire.Service, problems []cellwire.NodeProblem, err error) {
	if err := errors.Join(serverstate.CheckHost(who.Host), serverstate.CheckReport(r)); err != nil {
		return cellwire.Service{}, nil, err
	}
	const op = "noting a host's report in"
	known, err := d.readReport(ctx, d.kit.Reader, who, r, m, true)
	if err != nil {
		return cellwire.Service{}, nil, d.kit.Explain(ctx, op, err)
	}
	if service = known.service; known.found && !known.changed {
		if r.Stopping {
			return service, nil, nil
		}
		if err := d.heartbeats.write(ctx, who.Host, m.Now.UnixMicro()); err != nil {
			return cellwire.Service{}, nil, err
		}
		service.LastSeenUp, service.UpdatedAt, service.Up =
			optional(m.Now.UnixMicro()), optional(m.Now.UnixMicro()), !service.ForcedDown
		service.Turn = max(known.agents.Turn, 1)
		return service, known.problems, nil
	}
	err = d.write(ctx, op, func(tx *writeTx) (err error) {
		if known, err = d.register(ctx, tx, who, r, m); err != nil {
			return err
		}
		tx.onDurable(func(w *Watch) { w.Host(who.Host, r, known.problems) })
		service, _, err = scanService(tx.QueryRowContext(ctx, selectServices+"WHERE s.host = ?", who.Host), m)
		service.Turn = max(known.agents.Turn, 1)
		return err
	})
	return service, known.problems, err
}

const (
	serviceWithNodes = "SELECT " + serviceColumns +
		", s.stopped, s.turn, s.twice_until, n.uuid, n.hypervisor_hostname, n.abilities, n.auth, n.named, n.present, " +
		"p.problem, n.hypervisor_type, n.hypervisor_version, n.host_ip, n.unknown_guests, " +
		agentColumns + " FROM services s LEFT JOIN compute_nodes n ON n.host = s.host LEFT JOIN node_problems p ON " +
		"p.uuid = n.uuid LEFT JOIN host_agents a ON a.host = s.host WHERE s.host = ?"
	claimsOf = "SELECT c.uuid, c.host, c.auth, c.named, n.host, n.named, " + hostColumns +
		" FROM node_claims c LEFT JOIN compute_nodes n ON n.uuid = " +
		"c.uuid LEFT JOIN services s ON s.host = c.host WHERE c.host = ?" +
		" UNION ALL SELECT c.uuid, c.host, c.auth, c.named, n.host, n.named, " + hostColumns +
		" FROM compute_nodes n JOIN node_claims c ON c.uuid = n.uuid LEFT JOIN services s ON s.host = c.host WHERE " +
		"n.host = ? ORDER BY 1, 2"
	ownersOf = "SELECT uuid, host, named FROM compute_nodes WHERE uuid IN "
)

// reportersOf are the hosts that report a node, but for one: the one that has it, and those whose
// claims are kept, with agents that live or do not.
const reportersOf = "SELECT host FROM compute_nodes WHERE uuid = ? AND present = 1 AND host <> ?" +
	" UNION SELECT host FROM node_claims WHERE uuid = ? AND host <> ? ORDER BY 1"

// NodeReporter implements [Store].
func (d *DB) NodeReporter(ctx context.Context, who serverstate.Reporter, node string) (host string, err error) {
	if err := errors.Join(serverstate.CheckHost(who.Host), serverstate.CheckUUID(node)); err != nil {
		return "", err
	}
	if may, _ := who.MayOwn(node); !may {
		const why = "The certificate of host %s is for other nodes."
		return "", &cellwire.Error{Status: 404, Code: cellwire.CodeNotFound, Message: fmt.Sprintf(why, who.Host)}
	}
	err = d.read(ctx, "reading who reports a node in", func(db sqldb.Querier) (err error) {
		host, _, err = sqldb.One(ctx, db, sqldb.Value[string], reportersOf+" LIMIT 1", node, who.Host, node, who.Host)
		return err
	})
	return host, err
}

// reportChanges is what a report would change.
type reportChanges struct {
	service  cellwire.Service
	found    bool // the host is known
	changed  bool // the service or its nodes are not as the report has them
	stopped  bool // the host is
	agents   hostAgents
	nodes    serverstate.NodeChanges
	problems []cellwire.NodeProblem
}

// readReport finds out what a report changes, beside the life of its host. With peek it returns as
// soon as it knows that something changes.
func (d *DB) readReport(
	ctx context.Context, db sqldb.Querier, who serverstate.Reporter, r cellwire.HostReport, m Moment, peek bool,
) (out reportChanges, err error) {
	stopped := false
	o := serverstate.NodeOwnership{Own: map[string]serverstate.OwnNode{}, Others: map[string]serverstate.OtherOwner{}}
	err = sqldb.Each(ctx, db, serviceWithNodes, []any{who.Host}, func(row sqldb.Row) (err error) {
		var id, name, abilities, auth, problem, hypervisor, ip sql.NullString
		var named, present sql.NullBool
		var agent agentRow
		var version, unknown sql.NullInt64
		out.found = true
		out.service, _, err = scanService(row, m, append([]any{
			&stopped, &out.agents.Turn, &out.agents.Until, &id, &name, &abilities, &auth, &named, &present, &problem,
			&hypervisor, &version, &ip, &unknown,
		}, agent.targets()...)...)
		if agent.token.Valid && out.agents.Index(agent.token.String) < 0 {
			out.agents.All = append(out.agents.All, agent.agent())
		}
		if id.Valid {
			o.Own[id.String] = serverstate.OwnNode{
				Name: name.String, Abilities: abilities.String, Auth: cellwire.HostAuth(auth.String), Named: named.Bool,
				Present: present.Bool, Problem: problem.String,
				Details: cellwire.NodeDetails{HypervisorType: hypervisor.String, HypervisorVersion: version.Int64,
					HostIP: ip.String, UnknownGuests: unknown.Int64},
			}
		}
		return err
	})
	if err != nil {
		return out, err
	}
	lastSeen := int64(0)
	if at := out.service.LastSeenUp; at != nil {
		lastSeen = at.UnixMicro()
	}
	out.stopped = out.agents.Add(agentruns.Report{
		Process: r.Process, Turn: r.Turn, Stopping: r.Stopping, Address: who.Address, LastSeen: lastSeen,
	}, m.Now, severalAgentsWindow(m))
	if r.Stopping && !out.stopped { // another one reports, or has since
		out.stopped = stopped
	}
	out.changed = out.service.Version != r.Version || stopped != out.stopped || out.agents.Changed
	if r.Stopping || peek && (out.changed || !out.found) { // when it stops, what it has is as it was
		return out, nil
	}
	if err := readOthers(ctx, db, &o, who.Host, r.Nodes, m); err != nil {
		return out, err
	}
	out.nodes, out.problems = o.Changes(who, r, d.maxNodes)
	out.problems = append(out.problems, out.agents.problems(who.Host, r.Nodes, m)...)
	out.changed = out.changed || !out.nodes.Empty()
	return out, nil
}

// readOthers adds what others have of the nodes of a report, and what is claimed of the host's own.
func readOthers(
	ctx context.Context, db sqldb.Querier, o *serverstate.NodeOwnership, host string,
	reported []cellwire.ReportedNode, m Moment,
) error {
	err := sqldb.Each(ctx, db, claimsOf, []any{host, host}, func(row sqldb.Row) error {
		var (
			uuid  string
			claim cellwire.NodeClaim
			owner sql.NullString
			named sql.NullBool
			state hostState
		)
		err := row.Scan(&uuid, &claim.Host, &claim.Auth, &claim.Named, &owner, &named, &state.lastSeenUp,
			&state.forcedDown, &state.stopped, &state.disabled)
		if own, is := o.Own[uuid]; claim.Host == host {
			o.Others[uuid] = serverstate.OtherOwner{Host: owner.String, Named: named.Bool, Claim: &claim}
		} else if is && state.up(m) {
			own.Claims = append(own.Claims, claim)
			o.Own[uuid] = own
		}
		return err
	})
	if err != nil {
		return err
	}
	var unknown []string
	for _, n := range reported {
		_, own := o.Own[n.UUID]
		if _, claimed := o.Others[n.UUID]; !own && !claimed {
			unknown = append(unknown, n.UUID)
		}
	}
	for part := range slices.Chunk(unknown, sqldb.MaxListed) {
		parameters, args := sqldb.ListParameters(part)
		err := sqldb.Each(ctx, db, ownersOf+parameters, args, func(row sqldb.Row) error {
			var uuid string
			var one serverstate.OtherOwner
			err := row.Scan(&uuid, &one.Host, &one.Named)
			o.Others[uuid] = one
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// register writes down a service, new or not, and its nodes.
func (d *DB) register(
	ctx context.Context, tx *writeTx, who serverstate.Reporter, r cellwire.HostReport, m Moment,
) (reportChanges, error) {
	now := m.Now.UnixMicro()
	revision, err := tx.nextRevision(ctx)
	if err != nil {
		return reportChanges{}, err
	}
	known, err := d.readReport(ctx, tx, who, r, m, false)
	if err != nil {
		return known, err
	}
	turn, until := known.agents.Turn, known.agents.Until
	switch {
	case !known.found:
		_, err = tx.ExecContext(ctx,
			"INSERT INTO services (uuid, host, version, stopped, turn, twice_until, last_seen_up, created_at, "+
				"updated_at, revision) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			uuid.NewString(), who.Host, r.Version, known.stopped, turn, until, now, now, now, revision)
	case r.Stopping:
		_, err = tx.ExecContext(ctx,
			"UPDATE services SET version = ?, stopped = ?, turn = ?, twice_until = ?, updated_at = ? WHERE host = ?",
			r.Version, known.stopped, turn, until, now, who.Host)
	default:
		_, err = tx.ExecContext(ctx,
			"UPDATE services SET version = ?, stopped = ?, turn = ?, twice_until = ?, updated_at = ?, last_seen_up "+
				"= ? WHERE host = ?",
			r.Version, known.stopped, turn, until, now, now, who.Host)
	}
	if err != nil {
		return known, err
	}
	if err := known.agents.write(ctx, tx, who.Host); err != nil {
		return known, err
	}
	return known, writeNodes(ctx, tx, &known.nodes, who, now)
}

const setDetails = "hypervisor_type = ?, hypervisor_version = ?, host_ip = ?, unknown_guests = ?"

// details are the values of the columns of the details of a node, and further ones after them.
func details(n cellwire.ReportedNode, more ...any) []any {
	var d cellwire.NodeDetails
	if n.Details != nil {
		d = *n.Details
	}
	return append([]any{d.HypervisorType, d.HypervisorVersion, d.HostIP, d.UnknownGuests}, more...)
}

// writeNodes writes what a report changes of nodes.
func writeNodes(
	ctx context.Context, tx *writeTx, c *serverstate.NodeChanges, who serverstate.Reporter, now int64,
) error {
	var all statements
	for _, uuid := range c.Absent {
		all.add("UPDATE compute_nodes SET present = 0, absent_at = ? WHERE uuid = ?", now, uuid)
	}
	for _, n := range c.Kept {
		_, named := who.MayOwn(n.UUID)
		all.add("UPDATE compute_nodes SET present = 1, absent_at = 0, forgotten = 0, hypervisor_hostname = ?, "+
			"abilities = ?, auth = ?, named = ?, "+setDetails+" WHERE uuid = ?",
			append([]any{n.Name, serverstate.JoinAbilities(n.Abilities), string(who.Auth), named},
				details(n, n.UUID)...)...)
	}
	for _, n := range c.Added {
		_, named := who.MayOwn(n.UUID)
		all.add("INSERT INTO compute_nodes (uuid, host, hypervisor_hostname, abilities, created_at, auth, named, "+
			"hypervisor_type, hypervisor_version, host_ip, unknown_guests) "+
			"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			append([]any{n.UUID, who.Host, n.Name, serverstate.JoinAbilities(n.Abilities), now, string(who.Auth),
				named}, details(n)...)...)
	}
	for _, n := range c.Seized { // the claim of the former host is for its next report
		all.add("DELETE FROM node_claims WHERE uuid = ? AND host = ?", n.UUID, who.Host)
		all.add("INSERT INTO node_claims (uuid, host, auth, named, since) SELECT uuid, host, auth, named, ? FROM "+
			"compute_nodes WHERE uuid = ? AND present = 1", now, n.UUID)
		all.add(
			"UPDATE compute_nodes SET present = 1, absent_at = 0, forgotten = 0, mapped = 0, host = ?, "+
				"hypervisor_hostname = ?, abilities = ?, auth = ?, named = ?, "+setDetails+" WHERE uuid = ?",
			append([]any{who.Host, n.Name, serverstate.JoinAbilities(n.Abilities), string(who.Auth), true},
				details(n, n.UUID)...)...)
	}
	for _, uuid := range slices.Concat(c.Dropped, c.Claimed) {
		all.add("DELETE FROM node_claims WHERE uuid = ? AND host = ?", uuid, who.Host)
	}
	for _, uuid := range c.Claimed {
		_, named := who.MayOwn(uuid)
		all.add("INSERT INTO node_claims (uuid, host, auth, named, since) VALUES (?, ?, ?, ?, ?)",
			uuid, who.Host, string(who.Auth), named, now)
	}
	return all.run(ctx, tx)
}

// NodesState takes what the compute API says about nodes.
func (d *DB) NodesState(ctx context.Context, r cellwire.NodesRequest, m Moment) error {
	if err := checkNodesRequest(r); err != nil {
		return err
	}
	return d.write(ctx, "noting the state of nodes in", func(tx *writeTx) error {
		if r.Problems != nil {
			if err := writeProblems(ctx, tx, r.Problems); err != nil {
				return err
			}
		}
		if err := eachPart(ctx, tx, r.Forgotten,
			"DELETE FROM compute_nodes WHERE present = 0 AND forgotten = 1 AND uuid IN "); err != nil || r.Host == "" {
			return err
		}
		service, _, err := scanService(tx.QueryRowContext(ctx, selectServices+"WHERE s.host = ?", r.Host), m)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		statement := "DELETE FROM compute_nodes WHERE host = ?"
		if service.LastSeenUp != nil && service.Up {
			statement += " AND present = 0"
		} else if _, err := tx.ExecContext(ctx, "DELETE FROM node_claims WHERE host = ?", r.Host); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, statement, r.Host)
		return err
	})
}

func checkNodesRequest(r cellwire.NodesRequest) error {
	if err := errors.Join(serverstate.CheckUUIDs(slices.Collect(maps.Keys(r.Problems)), maxNodesPerRequest),
		serverstate.CheckUUIDs(r.Forgotten, maxNodesPerRequest)); err != nil {
		return err
	}
	for uuid, text := range r.Problems {
		if text == "" || len(text) > cellwire.MaxProblem || !serverstate.Storable(text) {
			return serverstate.Invalid(
				"the problem of node %s is empty, or has more than %d bytes, or is no UTF-8, or has the character 0",
				uuid, cellwire.MaxProblem)
		}
	}
	if r.Host != "" {
		return serverstate.CheckHost(r.Host)
	}
	return nil
}

// maxNodesPerRequest bounds the nodes of one request of the compute API.
const maxNodesPerRequest = 100_000

// writeProblems makes the problems of nodes those that are given.
func writeProblems(ctx context.Context, tx *writeTx, problems map[string]string) error {
	has := map[string]string{}
	err := sqldb.Each(ctx, tx, "SELECT uuid, problem FROM node_problems", nil, func(row sqldb.Row) error {
		var uuid, problem string
		err := row.Scan(&uuid, &problem)
		has[uuid] = problem
		return err
	})
	if err != nil {
		return err
	}
	for _, uuid := range slices.Sorted(maps.Keys(has)) {
		if problems[uuid] == has[uuid] {
			continue
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM node_problems WHERE uuid = ?", uuid); err != nil {
			return err
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(problems)) {
		if problems[uuid] == has[uuid] {
			continue
		}
		if _, err := tx.ExecContext(ctx,
			"INSERT INTO node_problems (uuid, problem) SELECT uuid, ? FROM compute_nodes WHERE uuid = ?",
			problems[uuid], uuid); err != nil {
			return err
		}
	}
	return nil
}
