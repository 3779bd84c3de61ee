// SPDX-License-Identifier: Apache-2.0

package hypervisor

import "context"

// State is that of a domain, with libvirt's numbers (virDomainState).
type State int

// The states of domains.
const (
	NoState      State = 0
	Running      State = 1
	Blocked      State = 2
	Paused       State = 3
	ShuttingDown State = 4
	ShutOff      State = 5
	Crashed      State = 6
	PMSuspended  State = 7
)

// NotRunning is the ID of a domain that is only defined.
const NotRunning = -1

// Domain is a domain in a list.
type Domain struct {
	// UUID is in lower case with hyphens.
	UUID, Name string
	// ID is another one each time that the domain starts, or NotRunning.
	ID int
	// State and Reason are libvirt's numbers; what a reason means depends on the state.
	State  State
	Reason int
	// Revision rises with every event about the domain, and for all domains when events may have been lost. It is filled in by [Domains].
	Revision uint64
	// XML is the description, if it was wanted.
	XML string
}

// Key is what can be known of a domain without asking for its XML: as long as it is the same, its XML most probably is, too. libvirt has no
// number of versions, and no event for the change of a definition alone (virsh vcpupin --config) or of pins (virsh vcpupin --live): who
// relies on keys looks at the XML itself now and then.
type Key struct {
	ID       int
	State    State
	Reason   int
	Revision uint64
}

// Key is the domain's now.
func (d Domain) Key() Key {
	return Key{ID: d.ID, State: d.State, Reason: d.Reason, Revision: d.Revision}
}

// Domains lists the domains over a link as [Conn.Domains] does, with their revisions. want is called in the link's goroutine, with everything but
// the XML; the XML is read after the revision was, so that a change between the two shows in the next list.
func Domains(ctx context.Context, l *Link, want func(Domain) bool) ([]Domain, error) {
	return Call(ctx, l, "the domains", func(c Conn) ([]Domain, error) {
		revisions := map[string]uint64{}
		list, err := c.Domains(func(d Domain) bool {
			d.Revision = l.settings.News.revision(d.UUID)
			revisions[d.UUID] = d.Revision
			return want != nil && want(d)
		})
		for i := range list {
			list[i].Revision = revisions[list[i].UUID]
		}
		return list, err
	})
}
