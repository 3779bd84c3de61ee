// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"
	"slices"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler/cellmappings"
)

// userDataHosts says why hosts are mapped. User data often has secrets, and goes only to hosts that
// a person enrolled or mapped.
type userDataHosts struct {
	enrolled map[string]bool // hosts, by a person
	patterns []string        // of the names of hosts that no person enrolled
}

// readUserDataHosts reads the enrolments.
func (s *Scheduler) readUserDataHosts(ctx context.Context) (userDataHosts, error) {
	enrolments, err := s.opts.Store.Enrolments(ctx)
	if err != nil {
		return userDataHosts{}, fmt.Errorf("reading the enrolments: %w", err)
	}
	u := userDataHosts{enrolled: make(map[string]bool, len(enrolments)), patterns: s.opts.DiscoverPatterns}
	for _, e := range enrolments {
		u.enrolled[e.Host] = e.State == apidb.Enrolled
	}
	return u, nil
}

// takesUserData reports whether a host was mapped because a person wanted it: all that no pattern
// found. A cell that asks for no credentials is on one machine.
func (u userDataHosts) takesUserData(host string, auth cellwire.HostAuth) bool {
	return u.enrolled[host] || auth == cellwire.HostAuthNone || !cellmappings.MatchesAny(u.patterns, host)
}

// UserDataHost returns the host of a server, to which alone new user data of the server may go; ""
// if any host may get it. Errors: [cellmappings.ErrNotEnrolled] if the server is on a host that was
// mapped only by a pattern; refusals of the cell pass through. Cost: two requests to the cell, none
// without patterns.
func (s *Scheduler) UserDataHost(ctx context.Context, cell apidb.Cell, uuid string) (string, error) {
	if len(s.opts.DiscoverPatterns) == 0 {
		return "", nil
	}
	userData, err := s.readUserDataHosts(ctx)
	if err != nil {
		return "", err
	}
	var host string
	services, err := gather.One(ctx, s.opts.Gatherer, cell,
		func(ctx context.Context, c *cellclient.Client) ([]cellwire.Service, error) {
			server, err := c.Server(ctx, uuid)
			if host = server.Host; err != nil || host == "" { // it was never placed
				return nil, err
			}
			return c.Services(ctx)
		})
	if err != nil {
		return "", fmt.Errorf("reading the host of server %s in cell %s: %w", uuid, cell.Name, err)
	}
	var auth cellwire.HostAuth
	if i := slices.IndexFunc(services, func(service cellwire.Service) bool { return service.Host == host }); i >= 0 {
		auth = services[i].Auth
	}
	switch {
	case host == "":
		return "", nil
	case !userData.takesUserData(host, auth):
		return "", fmt.Errorf("host %s of server %s: %w", host, uuid, cellmappings.ErrNotEnrolled)
	case auth == "": // a cell of an older version takes no RebuildRequest.Host
		return "", nil
	}
	return host, nil
}
