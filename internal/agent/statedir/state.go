// SPDX-License-Identifier: Apache-2.0

package statedir

import (
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/identity"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
)

// State is what an agent keeps of its host on disk.
type State struct {
	Dir string
	// Identity is who this host is and which nodes it has reported; nil until it is opened, and
	// where nothing is to be written.
	Identity *identity.State
	// Disabled are the reasons why nodes are disabled; nil until they are opened.
	Disabled *Disabled
	Records  *ownership.Store
	Journal  *journal.Journal
	Seen     *resourcetracker.SeenGuests
}

// New returns the state in a directory. Nothing is read or written yet.
func New(dir string) *State {
	return &State{
		Dir: dir, Records: ownership.Open(dir), Journal: journal.New(dir), Seen: resourcetracker.OpenSeenGuests(dir),
	}
}

// Owners are the drivers of the nodes that the state directory knows of, by the uuid of the node:
// as an operator gave them, or else as they were reported last, or else as they were about to be.
func (s *State) Owners(log zerolog.Logger) map[string]Owner {
	out := map[string]Owner{}
	list, err := s.Records.List()
	if err != nil {
		log.Warn().Err(err).Msg("Not all records of nodes can be read.")
	}
	for _, r := range list {
		out[r.Root] = Owner{Driver: r.Driver, Node: r.Node}
	}
	r, err := s.identityRecord()
	if err != nil {
		log.Warn().Err(err).Msg("The record of the host's nodes cannot be read.")
	}
	for id, n := range r.Nodes {
		if n.Driver != "" {
			out[id] = Owner{Driver: n.Driver, Node: n.Name}
		}
	}
	for id, driver := range r.Given {
		out[id] = Owner{Driver: driver, Node: out[id].Node}
	}
	return out
}

func (s *State) identityRecord() (identity.Record, error) {
	self := s.Identity
	if self == nil {
		var err error
		if self, err = identity.Open(s.Dir); err != nil {
			return identity.Record{}, err
		}
	}
	r, _ := self.Record()
	return r, nil
}

// Machine is the hash of this machine's id, or "" if it has none or it cannot be read, which is
// logged.
func Machine(log zerolog.Logger) string {
	id, err := identity.Machine(identity.MachineFile)
	if err != nil {
		log.Warn().Err(err).
			Msg("The machine has no readable machine-id, so a copy of its state directory would not be detected.")
	}
	return id
}
