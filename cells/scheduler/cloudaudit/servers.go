// SPDX-License-Identifier: Apache-2.0

package cloudaudit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler/cellmappings"
	"github.com/compute-agent/compute-agent/plugins"
)

// auditServers compares the servers of the API database with those of the cells, and those of the
// cells with Placement and their guests.
func (a *audit) auditServers(ctx context.Context) error {
	a.c.Progress("the servers")
	for _, cell := range a.cells {
		if !a.checked[cell.UUID] {
			continue
		}
		if err := a.auditMappings(ctx, cell); err != nil && !errors.Is(err, errNoAnswer) {
			return err
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(a.servers)) {
		s := a.servers[uuid]
		if !a.checked[s.cell.UUID] {
			continue // since it was read
		}
		if err := a.auditServer(ctx, s); err != nil && !errors.Is(err, errNoAnswer) {
			return err
		}
	}
	return nil
}

// auditMappings compares the mappings of one cell with its servers.
func (a *audit) auditMappings(ctx context.Context, cell apidb.Cell) error {
	var suspects []string
	for uuid, m := range a.living {
		if _, there := a.servers[uuid]; m.CellUUID == cell.UUID && !there && !a.pending[uuid] {
			suspects = append(suspects, uuid)
		}
	}
	for uuid, server := range a.servers {
		if m, is := a.living[uuid]; server.cell.UUID == cell.UUID &&
			(!is || m.CellUUID != cell.UUID) && !a.pending[uuid] {
			suspects = append(suspects, uuid)
		}
	}
	slices.Sort(suspects)
	for part := range slices.Chunk(suspects, cellwire.MaxStates) {
		states, err := cellmappings.States(ctx, a.c.Gatherer, cell, part)
		if err != nil {
			return a.cellUnavailable(ctx, cell, err)
		}
		mappings, err := a.c.Store.MappingsOf(ctx, part)
		if err != nil {
			return err
		}
		for _, uuid := range part {
			state, known := states[uuid]
			m, mapped := mappings[uuid]
			if err := a.auditMapping(ctx, cell, uuid, state, known, m, mapped); err != nil {
				return err
			}
		}
	}
	return nil
}

// auditMapping says what is wrong with one server, as it is now.
func (a *audit) auditMapping(
	ctx context.Context, cell apidb.Cell, uuid string,
	state cellwire.ServerState, known bool, m apidb.Mapping, mapped bool,
) error {
	f := Finding{Server: uuid, Cell: cell.Name}
	switch {
	case state.Hidden:
		return nil // it is built, or the scheduler erases it
	case known && !state.Gone() && (!mapped || m.CellUUID != cell.UUID):
		f.Kind, f.Host = FindingServerUnmapped, a.servers[uuid].Host
		f.Text = fmt.Sprintf("Cell %s has server %s, which the API database does not know.", cell.Name, uuid)
		if mapped {
			f.Text = fmt.Sprintf("Cell %s has server %s, which is mapped to another cell.", cell.Name, uuid)
		}
		f.Hint = "The API database, or the cell's, may be an older copy: restore the newer one. Clients do not see " +
			"the server; its guest may run on its host."
	case !mapped || m.CellUUID != cell.UUID:
		return nil
	case !known && !m.Queued():
		switch _, err := a.c.Store.BuildRequest(ctx, uuid); {
		case err == nil:
			return nil
		case !errors.Is(err, apidb.ErrNotFound):
			return err
		}
		f.Kind = FindingServerLost
		f.Text = fmt.Sprintf("Server %s is mapped to cell %s, which does not know it.", uuid, cell.Name)
		f.Hint = "The cell's database may be an older copy: restore the newer one. Its guest may run on its host, " +
			"where `compute-agent status` lists it as unknown to the cell."
	case known && m.QueuedForDelete != nil && m.Queued() != state.Gone():
		f.Kind = FindingDeletionDiffers
		f.Text = fmt.Sprintf("The API database says that server %s is deleted, and cell %s that it is not.",
			uuid, cell.Name)
		if state.Gone() {
			f.Text = fmt.Sprintf("Cell %s says that server %s is deleted, and the API database that it is not.",
				cell.Name, uuid)
		}
		f.Hint = "The compute API corrects it in one of its next rounds; --repair does it now."
		f.repair = func(ctx context.Context) (string, error) {
			if err := a.checkDatabase(ctx, cell); err != nil {
				return "", err
			}
			still, err := cellmappings.StillDiffering(ctx, a.c.Store, a.c.Gatherer, cell, []apidb.Mapping{m})
			if err != nil {
				return "", err
			}
			for _, now := range still {
				if err := a.c.Store.SetQueued(ctx, map[string]bool{uuid: !now.Queued()}); err != nil {
					return "", err
				}
			}
			return "the API database says what the cell says", nil
		}
	default:
		return nil
	}
	a.addFinding(f)
	return nil
}

// auditServer compares a server with what it holds, and with its guest.
func (a *audit) auditServer(ctx context.Context, s auditServer) error {
	if s.Host == "" || s.NodeUUID == "" || s.VMState == cellwire.VMBuilding || s.LaunchedAt == nil {
		return nil // it was never on a host, or is made there now
	}
	up := a.up[hostKey{s.cell.UUID, s.Host}]
	if s.VMState == cellwire.VMResized {
		if err := a.auditSource(ctx, s); err != nil {
			return err
		}
	}
	settled := s.TaskState == "" &&
		(s.VMState == cellwire.VMActive || s.VMState == cellwire.VMStopped || s.VMState == cellwire.VMResized)
	if settled && up && s.PowerState == plugins.PowerNoState {
		now, err := askCell(ctx, a, s.cell,
			func(ctx context.Context, c *cellclient.Client) (cellwire.Server, error) { return c.Server(ctx, s.UUID) })
		if err != nil && !cellclient.IsNotFound(err) {
			return err
		}
		if err == nil && now.Host == s.Host && now.TaskState == "" &&
			now.PowerState == plugins.PowerNoState && !now.Deleted {
			hint := "Find out what removed the guest. `openstack server reboot --hard UUID` makes it again over its " +
				"disks, if they are still there and its driver can. A rebuild makes the disks from the image again: " +
				"what was on them is lost."
			if now.VMState == cellwire.VMResized {
				hint = "Find out what removed the guest. `openstack server migrate revert UUID` takes the server " +
					"back to the host that keeps its former guest."
			}
			a.addFinding(Finding{
				Kind:     FindingGuestMissing,
				Server:   s.UUID,
				Cell:     s.cell.Name,
				Host:     s.Host,
				Provider: s.NodeUUID,
				Text:     fmt.Sprintf("Host %s has no guest of server %s, which is %s.", s.Host, s.UUID, s.VMState),
				Hint:     hint,
			})
		}
	}
	if !a.placement {
		return nil
	}
	for place := range a.held[s.UUID] {
		if place != s.NodeUUID && !a.sharing[place] {
			return a.auditHeld(ctx, s)
		}
	}
	if a.held[s.UUID][s.NodeUUID] {
		return nil
	}
	return a.auditHeld(ctx, s)
}

// auditSource says that the host from which a server was migrated has no guest of it any more.
func (a *audit) auditSource(ctx context.Context, s auditServer) error {
	moves, err := askCell(ctx, a, s.cell,
		func(ctx context.Context, c *cellclient.Client) ([]cellwire.Migration, error) {
			return c.MigrationsOf(ctx, s.UUID)
		})
	if err != nil {
		return err
	}
	hint := "Find out what removed the guest. The server cannot go back: `openstack server migrate confirm UUID` " +
		"keeps it where it is."
	if s.PowerState == plugins.PowerNoState {
		hint = "Find out what removed both guests. `openstack server migrate revert UUID` takes the server back, " +
			"where `openstack server reboot --hard UUID` makes its guest again over its disks, " +
			"if they are still there and its driver can."
	}
	for i := range moves {
		if m := &moves[i]; m.SourceGuest == cellwire.SourceGuestMissing && m.DestHost == s.Host &&
			a.up[hostKey{s.cell.UUID, m.SourceHost}] {
			a.addFinding(Finding{
				Kind: FindingGuestMissing, Server: s.UUID,
				Cell: s.cell.Name, Host: m.SourceHost, Provider: m.SourceNodeUUID,
				Text: fmt.Sprintf(
					"Host %s has no guest of server %s, which was migrated to host %s and is not confirmed.",
					m.SourceHost, s.UUID, s.Host),
				Hint: hint,
			})
		}
	}
	return nil
}

// auditHeld says what is wrong with the allocations of a server, as they are now. One that moves
// may hold something on all its hosts, its migration the rest.
func (a *audit) auditHeld(ctx context.Context, s auditServer) error {
	hosts, err := askCell(ctx, a, s.cell,
		func(ctx context.Context, c *cellclient.Client) ([]cellwire.ServerHosts, error) {
			return c.ServerHosts(ctx, cellwire.HostsRequest{UUIDs: []string{s.UUID}})
		})
	if err != nil {
		return err
	}
	held, err := a.c.Placement.Allocations(ctx, s.UUID)
	if err != nil {
		return a.placementUnavailable(ctx, err)
	}
	if len(hosts) == 0 || !slices.Contains(hosts[0].Hosts, s.Host) {
		return nil // deleted, or moved away, meanwhile
	}
	f := Finding{Server: s.UUID, Cell: s.cell.Name, Host: s.Host, Provider: s.NodeUUID}
	var elsewhere []string
	here := false
	for provider := range held.Allocations {
		place, known := a.places[provider]
		node, mapped := a.mapped[place]
		switch {
		case !known, place == s.NodeUUID, mapped && slices.Contains(hosts[0].Hosts, node.Host):
			here = true
		case a.sharing[place]: // of any host
		default:
			elsewhere = append(elsewhere, a.names[place])
		}
	}
	switch {
	case !here && len(elsewhere) == 0:
		f.Kind = FindingNoAllocations
		f.Text = fmt.Sprintf("Server %s on host %s holds nothing of it in Placement: its host can be sold twice.",
			s.UUID, s.Host)
		f.Hint = "On the host: compute-agent allocations heal"
		a.addFinding(f)
		return nil
	case len(elsewhere) == 0:
		return nil
	}
	slices.Sort(elsewhere)
	there := strings.Join(slices.Compact(elsewhere), ", ")
	if !here {
		there += " alone"
	}
	f.Kind = FindingElsewhere
	f.Text = fmt.Sprintf("Server %s is on host %s, and holds something on %s.", s.UUID, s.Host, there)
	f.Hint = "On the other host: compute-agent allocations audit says whether it has the guest, and deletes the " +
		"allocations with --heal --consumer " + s.UUID + " if it had."
	a.addFinding(f)
	return nil
}

// auditConsumers looks for whom the allocations are that no living server accounts for.
func (a *audit) auditConsumers(ctx context.Context) error {
	a.c.Progress("the consumers")
	var unaccounted []string
	for consumer := range a.held {
		if s, living := a.servers[consumer]; (!living || s.cell.IsCell0()) && !a.pending[consumer] {
			unaccounted = append(unaccounted, consumer)
		}
	}
	slices.Sort(unaccounted)
	for part := range slices.Chunk(unaccounted, cellwire.MaxStates) {
		mappings, err := a.c.Store.MappingsOf(ctx, part)
		if err != nil {
			return err
		}
		for _, consumer := range part {
			m, mapped := mappings[consumer]
			f, err := a.checkConsumer(ctx, consumer, m, mapped)
			if err != nil && !errors.Is(err, errNoAnswer) {
				return err
			}
			if !a.placement {
				return nil // since then: whether it still holds something is not known
			}
			if f == nil {
				continue
			}
			held, err := a.c.Placement.Allocations(ctx, consumer)
			if err != nil {
				return a.placementUnavailable(ctx, err)
			}
			if len(held.Allocations) > 0 {
				a.addFinding(*f)
			}
		}
	}
	return nil
}

// checkConsumer returns what is wrong with one of them, nil if nothing is, or if that is not known.
func (a *audit) checkConsumer(ctx context.Context, uuid string, m apidb.Mapping, mapped bool) (*Finding, error) {
	if !mapped {
		return a.checkUnknownConsumer(ctx, uuid)
	}
	at := slices.IndexFunc(a.cells, func(c apidb.Cell) bool { return c.UUID == m.CellUUID })
	if at < 0 || !a.checked[m.CellUUID] {
		return nil, nil // its cell, if it has one, was not asked
	}
	cell := a.cells[at]
	states, err := cellmappings.States(ctx, a.c.Gatherer, cell, []string{uuid})
	if err != nil {
		return nil, a.cellUnavailable(ctx, cell, err)
	}
	state, known := states[uuid]
	f := &Finding{Kind: FindingDeletedHolds, Server: uuid, Cell: cell.Name, Hint: "--repair removes them."}
	switch {
	case cell.IsCell0() && known:
		f.Text = fmt.Sprintf("Server %s is on no host, and holds something on %s.", uuid, a.placesOf(uuid))
	case known && state.Deleted, !known && m.Queued():
		f.Text = fmt.Sprintf("Server %s is deleted, and holds something on %s.", uuid, a.placesOf(uuid))
	default: // it is there since, or it is lost
		return nil, nil
	}
	f.repair = func(ctx context.Context) (string, error) {
		err := a.c.Placement.ReleaseIf(ctx, uuid,
			func(ctx context.Context) error { return a.checkDeleted(ctx, uuid, cell) })
		if err != nil {
			return "", err
		}
		if known && state.Deleted {
			_, err := gather.One(ctx, a.c.Gatherer, cell,
				func(ctx context.Context, c *cellclient.Client) (struct{}, error) {
					return struct{}{}, c.MarkFreed(ctx, uuid)
				})
			if err != nil && !cellclient.IsNotFound(err) {
				return "", fmt.Errorf("the allocations are removed, and the cell does not know it: %w", err)
			}
		}
		return "removed its allocations", nil
	}
	return f, nil
}

// checkUnknownConsumer checks a consumer without a mapping: a migration, or none of ours.
func (a *audit) checkUnknownConsumer(ctx context.Context, uuid string) (*Finding, error) {
	for _, cell := range a.cells {
		if !a.checked[cell.UUID] || cell.IsCell0() {
			continue
		}
		found, err := askCell(ctx, a, cell,
			func(ctx context.Context, c *cellclient.Client) ([]cellwire.Migration, error) {
				return c.Migrations(ctx, cellwire.MigrationQuery{UUID: uuid, Limit: 1})
			})
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			return a.checkMigration(ctx, cell, found[0])
		}
	}
	if !a.complete() {
		return nil, nil // it may be a migration of a cell that was not asked
	}
	return &Finding{
		Kind:     FindingNoConsumer,
		Consumer: uuid,
		Text: fmt.Sprintf("Consumer %s is no server and no migration of this cloud, and holds something on %s.",
			uuid, a.placesOf(uuid)),
		Hint: "It may be another service's (`openstack resource provider allocation show " + uuid +
			"` says whose). If nothing uses it: openstack resource provider allocation delete " + uuid,
	}, nil
}

// checkMigration returns what is wrong with a migration that holds something, nil if nothing is.
// One that is over needs nothing if its server holds what it needs, where it is.
func (a *audit) checkMigration(ctx context.Context, cell apidb.Cell, m cellwire.Migration) (*Finding, error) {
	if !isOver(m) {
		return nil, nil // it is under way, waits for a host, or the scheduler gives it back
	}
	f := &Finding{
		Kind: FindingEndedHolds, Consumer: m.UUID, Server: m.ServerUUID, Cell: cell.Name, Host: m.SourceHost,
		Text: fmt.Sprintf("Migration %s of server %s is %s, and holds something on %s.",
			m.UUID, m.ServerUUID, m.Status, a.placesOf(m.UUID)),
		Hint: "--repair removes it.",
	}
	err := a.checkNeedless(ctx, cell, m)
	var needed *neededError
	switch {
	case errors.As(err, &needed):
		f.Manual = needed.Error()
		f.Hint = "`openstack resource provider allocation show` of both uuids says who holds what. On host " +
			m.SourceHost + ": compute-agent allocations audit --heal --consumer " + m.UUID
		return f, nil
	case err != nil:
		return nil, err
	}
	f.repair = func(ctx context.Context) (string, error) {
		err := a.c.Placement.ReleaseIf(ctx, m.UUID, func(ctx context.Context) error {
			if err := a.checkDatabase(ctx, cell); err != nil {
				return err
			}
			now, err := gather.One(ctx, a.c.Gatherer, cell,
				func(ctx context.Context, c *cellclient.Client) ([]cellwire.Migration, error) {
					return c.Migrations(ctx, cellwire.MigrationQuery{UUID: m.UUID, Limit: 1})
				})
			if err != nil {
				return err
			}
			if len(now) != 1 || !isOver(now[0]) {
				return fmt.Errorf("cell %s says now that the migration is not over", cell.Name)
			}
			return a.checkNeedless(ctx, cell, m)
		})
		return "removed its allocations", err
	}
	return f, nil
}

// isOver reports whether a migration has ended, and the scheduler does nothing about it any more.
func isOver(m cellwire.Migration) bool {
	switch m.Status {
	case cellwire.MigrationConfirmed, cellwire.MigrationReverted, cellwire.MigrationCompleted:
		return true
	case cellwire.MigrationError, cellwire.MigrationFailed:
		return !m.GiveBack
	}
	return false
}

// neededError says why what a migration holds may be all that keeps its server's place.
type neededError struct{ server, host string }

func (e *neededError) Error() string {
	if e.host == "" {
		return fmt.Sprintf("its cell does not say on which node server %s is: this may be what it needs there",
			e.server)
	}
	return fmt.Sprintf("server %s holds nothing itself on host %s, where it is: this may be what it needs there",
		e.server, e.host)
}

// checkNeedless returns an error unless the server of a migration that is over is gone, or holds
// something itself on the node where it is: then it needs nothing of what the migration holds. The
// error is a *neededError if that is known.
func (a *audit) checkNeedless(ctx context.Context, cell apidb.Cell, m cellwire.Migration) error {
	server, err := askCell(ctx, a, cell, func(ctx context.Context, c *cellclient.Client) (cellwire.Server, error) {
		return c.Server(ctx, m.ServerUUID)
	})
	if cellclient.IsNotFound(err) || err == nil && server.Deleted {
		return nil
	}
	if err != nil {
		return err
	}
	held, err := a.c.Placement.Allocations(ctx, m.ServerUUID)
	if err != nil {
		return a.placementUnavailable(ctx, err)
	}
	if server.NodeUUID == "" {
		return &neededError{server: m.ServerUUID}
	}
	for provider := range held.Allocations {
		if a.places[provider] == server.NodeUUID {
			return nil
		}
	}
	return &neededError{m.ServerUUID, server.Host}
}

// placesOf names the nodes on which a consumer holds something.
func (a *audit) placesOf(consumer string) string {
	var names []string
	for root := range a.held[consumer] {
		name := a.names[root]
		if node, mapped := a.mapped[root]; mapped && node.Host != name {
			name += " (host " + node.Host + ")"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
