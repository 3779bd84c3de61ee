// SPDX-License-Identifier: Apache-2.0

package cellwire

import "slices"

// HostsRequest asks a cell for the hosts of servers, either by their uuids or of the first one that
// is found on some hosts.
type HostsRequest struct {
	// UUIDs are the UUIDs of the servers, at most MaxStates.
	UUIDs []string `json:"uuids,omitempty"`
	// On are hosts: the answer has one server of those that have one of them among their hosts, or
	// none.
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

// HostsOf are all hosts that a server on a host may be on without another decision: the one where
// it is, first, the one it moves to, and the one it can go back to. open are its migrations that
// are not over. What reads where a server is to place another one, or to change a host, counts all
// of them.
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

// Hosts are the hosts between which a migration has not decided yet; none before a destination is
// chosen, and when the server will not be on the source again. A migration that is over has none.
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
