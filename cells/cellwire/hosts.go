// SPDX-License-Identifier: Apache-2.0

package cellwire

import "slices"

// HostsRequest asks a cell for the hosts of servers: of those with some uuids, or of one server
// that is on one of some hosts.
type HostsRequest struct {
	// UUIDs are the UUIDs of the servers, at most MaxStates.
	UUIDs []string `json:"uuids,omitempty"`
	// On are names of hosts. The answer then has one server that is on at least one of them, if
	// there is any.
	On []string `json:"on,omitempty"`
}

// ServerHosts are the hosts of a server: see [HostsOf].
type ServerHosts struct {
	UUID  string   `json:"uuid"`
	Hosts []string `json:"hosts"`
}

// HostsAnswer has the servers that are released and not deleted for good.
type HostsAnswer struct {
	Servers []ServerHosts `json:"servers"`
}

// HostsOf returns the hosts of a server: first the one that it is on, then the one that it is
// moving to or can go back to. open are its migrations that are not over. Code that places another
// server by these hosts, or changes a host, must consider all of them.
func HostsOf(host string, open []Migration) []string {
	hosts := []string{}
	add := func(host string) {
		if host != "" && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	add(host)
	for i := range open {
		for _, other := range open[i].Hosts() {
			add(other)
		}
	}
	return hosts
}

// Hosts returns source and destination as long as the server may end up on either of them. It
// returns nil before a destination is chosen, when the server cannot go back to the source any
// more, and when the migration is over.
func (m *Migration) Hosts() []string {
	switch m.Status {
	case MigrationPre, MigrationPost, MigrationFinished, MigrationRevert:
		return []string{m.SourceHost, m.DestHost}
	case MigrationError, MigrationFailed: // the allocations are still on both
		if m.GiveBack && m.DestNode != "" {
			return []string{m.SourceHost, m.DestHost}
		}
	}
	return nil
}
