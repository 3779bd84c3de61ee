// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"slices"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"

	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// presentServers is the condition for servers that are released and not deleted for good. "+ 0"
// keeps an engine from using the index on gone, which would find nearly all rows.
const presentServers = "i.hidden = 0 AND i.gone + 0 < 2"

// ServerHosts are the hosts of servers.
func (d *DB) ServerHosts(ctx context.Context, q cellwire.HostsRequest) (all []cellwire.ServerHosts, err error) {
	err = d.read(ctx, "reading the hosts of servers from", func(db sqldb.Querier) error {
		if len(q.On) == 0 {
			all, err = hostsOf(ctx, db, q.UUIDs)
			return err
		}
		hosts := slices.DeleteFunc(slices.Clone(q.On), func(host string) bool {
			return host == "" || !serverstate.Storable(host)
		})
		all, err = anyServerOn(ctx, db, hosts)
		return err
	})
	return all, err
}

// hostsOf reads the hosts of some servers, and their migrations that are not over.
func hostsOf(ctx context.Context, db sqldb.Querier, uuids []string) ([]cellwire.ServerHosts, error) {
	all := []cellwire.ServerHosts{}
	for part := range slices.Chunk(uuids, sqldb.MaxListed) {
		parameters, args := sqldb.ListParameters(part)
		rows := map[string]*stored{}
		err := sqldb.Each(ctx, db, "SELECT i.uuid, i.host FROM instances i WHERE "+presentServers+" AND i.uuid IN "+
			parameters, args, func(row sqldb.Row) error {
			var r stored
			err := row.Scan(&r.Server.UUID, &r.Server.Host)
			rows[r.Server.UUID] = &r
			return err
		})
		if err != nil {
			return nil, err
		}
		if err := readMigrations(ctx, db, rows); err != nil {
			return nil, err
		}
		for _, uuid := range part {
			if r := rows[uuid]; r != nil {
				all = append(all, cellwire.ServerHosts{UUID: uuid, Hosts: r.Hosts()})
			}
		}
	}
	return all, nil
}

// anyServerOn finds a server that is on one of some hosts, or else one that may come to be there.
func anyServerOn(ctx context.Context, db sqldb.Querier, hosts []string) ([]cellwire.ServerHosts, error) {
	for part := range slices.Chunk(hosts, sqldb.MaxListed) {
		parameters, args := sqldb.ListParameters(part)
		uuids, err := sqldb.All(ctx, db, sqldb.Value[string],
			"SELECT i.uuid FROM instances i WHERE "+presentServers+" AND i.host IN "+parameters+" LIMIT 1", args...)
		if err == nil && len(uuids) == 0 {
			const movers = "SELECT m.instance_uuid FROM migrations m WHERE m.is_open = 1 AND m."
			uuids, err = sqldb.All(ctx, db, sqldb.Value[string],
				movers+"source_host IN "+parameters+" UNION "+movers+"dest_host IN "+parameters,
				append(args, args...)...)
		}
		if err != nil {
			return nil, err
		}
		all, err := hostsOf(ctx, db, uuids)
		if err != nil {
			return nil, err
		}
		for _, one := range all {
			if slices.ContainsFunc(one.Hosts, func(host string) bool { return slices.Contains(part, host) }) {
				return []cellwire.ServerHosts{one}, nil
			}
		}
	}
	return []cellwire.ServerHosts{}, nil
}
