// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/compute-agent/compute-agent/cells/apidb"
)

// The scheduler hints same_host and different_host: the hosts of other servers, as they are when
// the server is built. Servers that are asked for before it are waited for until they are placed;
// those that are deleted meanwhile are nowhere.

// hostHints are where the servers of the hints are.
type hostHints struct{ same, different places }

// readHints looks where the servers of the hints are.
func (b *build) readHints(ctx context.Context) (err error) {
	for _, hint := range []struct {
		uuids []string
		at    *places
	}{{b.spec.SameHost, &b.hints.same}, {b.spec.DifferentHost, &b.hints.different}} {
		if len(hint.uuids) == 0 {
			continue
		}
		mappings, err := b.s.opts.Store.MappingsOf(ctx, hint.uuids)
		if err != nil {
			return err
		}
		for uuid, m := range mappings {
			if m.CellUUID != "" {
				continue
			}
			switch _, err := b.s.opts.Store.BuildRequest(ctx, uuid); {
			case err == nil:
				return fmt.Errorf("%w: %s", errPending, uuid)
			case !errors.Is(err, apidb.ErrNotFound):
				return err
			}
		}
		if *hint.at, err = b.placesOf(ctx, mappings); err != nil {
			return err
		}
	}
	return nil
}

// nodes are the only ones that can take the server, by its hints and the policy of its server
// group; nil: any can.
func (b *build) nodes() []string {
	nodes := b.group.nodes(b.hosts)
	if len(b.spec.SameHost) == 0 {
		return nodes
	}
	same := b.hints.same.nodes(b.hosts)
	if nodes == nil {
		return same
	}
	return slices.DeleteFunc(nodes, func(uuid string) bool { return !slices.Contains(same, uuid) })
}

// hintRefusal is why the hints do not let a host have the server.
func (b *build) hintRefusal(host string) refusal {
	switch {
	case len(b.spec.SameHost) > 0 && b.hints.same.certain[host] == 0:
		return notSameHost
	case b.hints.different.perHost[host] > 0:
		return notDifferentHost
	}
	return takes
}

// whyHints says in a fault which hints leave no host.
func (b *build) whyHints() (text string) {
	refused := b.refused()
	switch {
	case len(b.spec.SameHost) == 0:
	case len(b.hints.same.perHost) == 0 && b.hints.same.unknown:
		text = " The servers of the hint same_host are in a cell that cannot be used now."
	case len(b.hints.same.perHost) == 0:
		text = " The servers of the hint same_host are on no host."
	case b.hints.same.allMigrate():
		text = " The servers of the hint same_host move to another host, or can still go back."
	case refused[notSameHost] > 0:
		text = " The hint same_host rules out others."
	}
	if refused[notDifferentHost] > 0 {
		text += " The hint different_host rules out others."
	}
	return text
}
