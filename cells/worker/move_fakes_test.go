// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/worker"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// Depart, ReadFile, Arrive and Leave make the driver one that moves guests.
func (d *fakeDriver) Depart(_ context.Context, _, uuid string) (string, error) {
	if _, err := d.enter(uuid); err != nil {
		return "", err
	}
	defer d.leave(uuid)
	if reason := d.fault(uuid); reason != "" {
		return "", &plugins.InstanceFault{UUID: uuid, Reason: reason}
	}
	_, err := d.setPower(uuid, plugins.PowerShutdown, false)
	return "the disk of " + uuid, err
}

func (d *fakeDriver) fault(uuid string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.faults[uuid]
}

// diskParts are a disk with holes, whose parts are larger than a frame of a stream.
var diskParts = map[int64]string{5: strings.Repeat("disk ", 50_000),
	1 << 30: strings.Repeat("more ", 50_000), 1 << 40: "the end"}

func (d *fakeDriver) ReadFile(_ context.Context, _, uuid, name string, offset int64, send plugins.ChunkFunc) error {
	d.mu.Lock()
	power, there := d.guests[uuid]
	err := d.err
	switch {
	case err != nil:
	case !there, name != "disk", offset != 0, d.unreadable:
		err = &plugins.InstanceFault{UUID: uuid, Reason: "its disk cannot be read"}
	case power == plugins.PowerRunning:
		d.problems = append(d.problems, "a disk was read of a guest that runs")
	}
	d.mu.Unlock()
	for _, at := range slices.Sorted(maps.Keys(diskParts)) {
		if err == nil {
			err = send(at, []byte(diskParts[at]))
		}
	}
	return err
}

func (d *fakeDriver) Arrive(
	ctx context.Context, _ string, spec plugins.InstanceSpec, tree *providertree.Tree, from plugins.Arrival,
) (plugins.Instance, error) {
	crashed, err := d.enter(spec.UUID)
	if err != nil {
		return plugins.Instance{}, err
	}
	defer d.leave(spec.UUID)
	if reason := d.fault(spec.UUID); reason != "" {
		return plugins.Instance{}, &plugins.InstanceFault{UUID: spec.UUID, Reason: reason}
	}
	if err := d.begin(spec.UUID, len(spec.Allocations) > 0 && tree != nil && from.Evacuation == (from.Offer == "") &&
		from.Evacuation == (from.Files == nil)); err != nil {
		return plugins.Instance{}, err
	}
	if d.copies && !from.Evacuation {
		got := map[int64]string{}
		if err := from.Files.ReadFile(ctx, "disk", 0,
			func(offset int64, data []byte) error { got[offset] = string(data); return nil }); err != nil {
			return plugins.Instance{}, err
		}
		if !maps.Equal(got, diskParts) {
			d.set(func() { d.problems = append(d.problems, "another disk arrived than was sent") })
		}
	}
	select {
	case <-time.After(d.slow):
	case <-crashed:
		return plugins.Instance{}, errors.New("the process ended (outcome unknown)")
	case <-ctx.Done():
		return plugins.Instance{}, ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.half, spec.UUID)
	if _, there := d.guests[spec.UUID]; !there {
		d.guests[spec.UUID] = plugins.PowerShutdown
	}
	return plugins.Instance{UUID: spec.UUID, Power: d.guests[spec.UUID]}, nil
}

// begin makes half of a guest.
func (d *fakeDriver) begin(uuid string, fit bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !fit {
		d.problems = append(d.problems, "an arrival without allocations or tree, or with an invalid offer")
	}
	if _, there := d.guests[uuid]; !there {
		d.half[uuid] = true
	}
	if len(d.spawnErrs) > 0 {
		err := d.spawnErrs[0]
		d.spawnErrs = d.spawnErrs[1:]
		return err
	}
	return nil
}

func (d *fakeDriver) Leave(ctx context.Context, node, uuid string) error {
	return d.Destroy(ctx, node, uuid)
}

// moveHosts are the hosts of a moveCell.
var moveHosts = []string{"cn1", "cn2"}

func otherHost(host string) string { return moveHosts[1-slices.Index(moveHosts, host)] }

func nodeOn(host string) string {
	return fmt.Sprintf("11111111-1111-4111-8111-11111111111%d", slices.Index(moveHosts, host)+1)
}

// moveCell is a cell with two hosts and one server, which moves between them.
type moveCell struct {
	mu        sync.Mutex
	revision  int64
	items     map[string]*cellwire.WorkItem // by host
	migration cellwire.Migration
	moves     int
	changed   chan struct{}
	away      error
	lose      int
	placement *fakePlacement
	reported  []string
	kept      []string // what sources say of the guests that they keep

	opened  int
	offers  map[string][]cellwire.StreamOffer // by host
	streams map[string]*cellwire.Stream       // the sources' ends, by id
	damage  func(text []byte) []byte
}

func newMoveCell(p *fakePlacement) *moveCell {
	c := &moveCell{items: map[string]*cellwire.WorkItem{}, changed: make(chan struct{}), placement: p,
		offers: map[string][]cellwire.StreamOffer{}, streams: map[string]*cellwire.Stream{}}
	now := time.Now()
	c.want("cn1", cellwire.WantPresent, cellwire.Server{
		UUID: serverUUID(1), Name: "web", Host: "cn1", Node: "cn1", NodeUUID: nodeOn("cn1"), VMState: cellwire.VMActive,
		PowerState: plugins.PowerRunning, LaunchedAt: &now,
	})
	p.grantOf(1, nodeOn("cn1"))
	return c
}

// want changes what is wanted on a host. c.mu is held, except by newMoveCell.
func (c *moveCell) want(host string, want cellwire.Want, s cellwire.Server) {
	c.revision++
	s.Revision = c.revision
	item := &cellwire.WorkItem{Want: want, Server: s}
	if want != cellwire.WantPresent && want != cellwire.WantRunning && want != cellwire.WantShutdown {
		m := c.migration
		item.Migration = &m
	}
	c.items[host] = item
	close(c.changed)
	c.changed = make(chan struct{})
}

// server is where it is, and its row. c.mu is held.
func (c *moveCell) server() (string, cellwire.Server) {
	for _, host := range moveHosts {
		if item := c.items[host]; item != nil && item.Server.Host == host {
			return host, item.Server
		}
	}
	panic("the server is nowhere")
}

// idle reports whether nothing is under way. c.mu is held.
func (c *moveCell) idle() bool {
	return !slices.Contains([]cellwire.MigrationStatus{
		cellwire.MigrationPre, cellwire.MigrationPost, cellwire.MigrationFinished, cellwire.MigrationConfirm,
		cellwire.MigrationRevert, cellwire.MigrationDone,
	}, c.migration.Status)
}

// move begins one.
func (c *moveCell) move(kind cellwire.MigrationType) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.idle() {
		return
	}
	host, s := c.server()
	if c.items[host].Want != cellwire.WantPresent {
		return
	}
	to := otherHost(host)
	c.moves++
	c.migration = cellwire.Migration{
		UUID: serverUUID(1000 + c.moves), ServerUUID: s.UUID, Type: kind, Status: cellwire.MigrationPre,
		SourceHost: host, SourceNode: host, SourceNodeUUID: nodeOn(host),
		DestHost: to, DestNode: to, DestNodeUUID: nodeOn(to), OldVMState: s.VMState,
	}
	c.placement.grantOf(1000+c.moves, nodeOn(host))
	c.placement.grantOf(1, nodeOn(to))
	c.want(host, cellwire.WantDeparting, s)
	if kind == cellwire.MigrationEvacuation {
		c.want(to, cellwire.WantArriving, s)
	}
}

// end confirms or reverts a move.
func (c *moveCell) end(confirm bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.migration.Status != cellwire.MigrationFinished {
		return
	}
	m := c.migration
	s := c.items[m.DestHost].Server
	if confirm {
		c.migration.Status = cellwire.MigrationConfirm
		c.want(m.SourceHost, cellwire.WantLeft, s)
		return
	}
	c.migration.Status = cellwire.MigrationRevert
	c.want(m.DestHost, cellwire.WantLeaving, s)
}

// back has a server where it was. c.mu is held.
func (c *moveCell) back(status cellwire.MigrationStatus) {
	m := c.migration
	c.migration.Status = status
	delete(c.items, m.DestHost)
	c.placement.grantOf(1, nodeOn(m.SourceHost))
	c.placement.drop(m.UUID)
	s := c.items[m.SourceHost].Server
	s.Host, s.Node, s.NodeUUID, s.VMState = m.SourceHost, m.SourceHost, nodeOn(m.SourceHost), m.OldVMState
	s.TaskState = cellwire.TaskResizeReverting
	c.want(m.SourceHost, map[bool]cellwire.Want{true: cellwire.WantRunning,
		false: cellwire.WantShutdown}[m.OldVMState == cellwire.VMActive], s)
}

func (p *fakePlacement) drop(uuid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.held, uuid)
}

func (c *moveCell) Report(context.Context, string, cellwire.HostReport) (cellwire.HostState, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cellwire.HostState{Epoch: "e", ReportInterval: 10, Abilities: true}, c.away
}

func (c *moveCell) Work(
	ctx context.Context, host string, after int64, _ string, wait time.Duration,
) (cellwire.Work, error) {
	deadline := time.After(wait)
	for {
		c.mu.Lock()
		work := cellwire.Work{Epoch: "e", Revision: c.revision, Complete: after == 0}
		if item := c.items[host]; item != nil && (work.Complete || item.Server.Revision > after) {
			work.Items = []cellwire.WorkItem{*item}
		}
		work.Streams = slices.Clone(c.offers[host])
		changed, err := c.changed, errors.Join(c.away, c.lost())
		c.mu.Unlock()
		if work.Complete || len(work.Items) > 0 || len(work.Streams) > 0 || err != nil {
			return work, err
		}
		select {
		case <-ctx.Done():
			return cellwire.Work{}, ctx.Err()
		case <-deadline:
			return work, nil
		case <-changed:
		}
	}
}

// lost says whether an answer gets lost. c.mu is held.
func (c *moveCell) lost() error {
	if c.lose > 0 {
		c.lose--
		return errLost
	}
	return nil
}

func (c *moveCell) Reports(_ context.Context, host string, reports []cellwire.Report) (cellwire.ReportsAnswer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away != nil {
		return cellwire.ReportsAnswer{}, c.away
	}
	var answer cellwire.ReportsAnswer
	for _, r := range reports {
		said := len(c.kept)
		refused := c.apply(host, r)
		answer.Refused = append(answer.Refused, refused)
		if refused == "" && len(c.kept) == said {
			c.reported = append(c.reported, fmt.Sprintf("%s %s", host, r.Kind))
		}
	}
	return answer, c.lost()
}

// OpenSource offers a stream to the other host.
func (c *moveCell) OpenSource(_ context.Context, host, uuid string) (*cellwire.Stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if item := c.items[host]; c.away != nil || item == nil || item.Want != cellwire.WantArriving {
		return nil, errors.Join(c.away, errLost)
	}
	here, there := net.Pipe()
	c.opened++
	offer := cellwire.StreamOffer{ID: fmt.Sprint("stream ", c.opened), Purpose: cellwire.PurposeDisk, UUID: uuid}
	c.offers[otherHost(host)] = append(c.offers[otherHost(host)], offer)
	c.streams[offer.ID] = cellwire.NewStream(c.damaged(there), there)
	close(c.changed)
	c.changed = make(chan struct{})
	return cellwire.NewStream(here, here), nil
}

// damaged is the source's end of a stream, of which something gets lost or changed on the way.
func (c *moveCell) damaged(conn net.Conn) io.ReadWriteCloser {
	if c.damage == nil {
		return conn
	}
	return &damagedConn{Conn: conn, damage: c.damage}
}

type damagedConn struct {
	net.Conn
	damage func(text []byte) (keep []byte)
}

func (d *damagedConn) Write(p []byte) (int, error) {
	text := d.damage(slices.Clone(p))
	if _, err := d.Conn.Write(text); err != nil {
		return 0, err
	}
	if len(text) < len(p) {
		return len(text), d.Close()
	}
	return len(p), nil
}

func (c *moveCell) AcceptStream(_ context.Context, host, id string) (*cellwire.Stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	end := c.streams[id]
	if end == nil {
		return nil, errLost
	}
	delete(c.streams, id)
	c.offers[host] = slices.DeleteFunc(c.offers[host], func(o cellwire.StreamOffer) bool { return o.ID == id })
	return end, nil
}

// apply is what a cell does with a report. c.mu is held.
func (c *moveCell) apply(host string, r cellwire.Report) (refused string) {
	m, item := c.migration, c.items[host]
	if item == nil {
		return "it is not on this host"
	}
	s := item.Server
	moving := r.Migration == m.UUID && item.Migration != nil
	switch {
	case r.Kind == cellwire.ReportDeparted && moving && item.Want == cellwire.WantDeparting &&
		m.Status == cellwire.MigrationPre && m.Type == cellwire.MigrationCold:
		if r.Fault != nil {
			c.back(cellwire.MigrationError)
			return ""
		}
		c.migration.Status, c.migration.Offer = cellwire.MigrationPost, r.Offer
		c.want(host, cellwire.WantDeparting, s)
		c.want(m.DestHost, cellwire.WantArriving, s)
	case r.Kind == cellwire.ReportDeparted && moving &&
		item.Want == cellwire.WantDeparting && m.Type == cellwire.MigrationCold &&
		(m.Status == cellwire.MigrationFinished || m.Status == cellwire.MigrationRevert):
		c.kept = append(c.kept, fmt.Sprintf("%s has it: %t", host, r.PowerState != plugins.PowerNoState))
	case r.Kind == cellwire.ReportArrived && moving && item.Want == cellwire.WantArriving:
		if r.Fault != nil {
			c.back(cellwire.MigrationError)
			return ""
		}
		s.Host, s.Node, s.NodeUUID, s.PowerState = host, host, nodeOn(host), r.PowerState
		c.migration.Status = cellwire.MigrationFinished
		c.want(host, cellwire.WantPresent, s)
		if m.Type == cellwire.MigrationEvacuation {
			c.migration.Status = cellwire.MigrationDone
			c.want(m.SourceHost, cellwire.WantLeft, s)
			return ""
		}
		c.want(m.SourceHost, cellwire.WantDeparting, s)
	case r.Kind == cellwire.ReportLeft && moving && item.Want == cellwire.WantLeft:
		delete(c.items, host)
		c.migration.Status = cellwire.MigrationConfirmed
	case r.Kind == cellwire.ReportLeft && moving && item.Want == cellwire.WantLeaving:
		c.back(cellwire.MigrationReverted)
	case r.Kind == cellwire.ReportSettled && (item.Want == cellwire.WantRunning || item.Want == cellwire.WantShutdown):
		s.PowerState, s.TaskState, s.Fault = r.PowerState, "", r.Fault
		c.want(host, cellwire.WantPresent, s)
	case r.Kind == cellwire.ReportPower && item.Want == cellwire.WantPresent:
		s.PowerState = r.PowerState
		c.want(host, cellwire.WantPresent, s)
	default:
		return fmt.Sprintf("%s of a server of which %s is wanted", r.Kind, item.Want)
	}
	return ""
}

// moveScene is two hosts with their workers.
type moveScene struct {
	*testing.T
	cell      *moveCell
	placement *fakePlacement
	drivers   map[string]*fakeDriver
	workers   map[string]*worker.Worker
	stops     map[string]func()
	log       testproc.Buffer
	twice     string
}

func newMoveScene(t *testing.T) *moveScene {
	s := &moveScene{T: t, placement: newPlacement(),
		drivers: map[string]*fakeDriver{}, workers: map[string]*worker.Worker{}, stops: map[string]func(){}}
	s.cell = newMoveCell(s.placement)
	for _, host := range moveHosts {
		d := newDriver()
		d.powered = func(to plugins.PowerState) {
			if to == plugins.PowerRunning && s.drivers[otherHost(host)].power(1) == plugins.PowerRunning {
				s.twice = "the server's guest was started on " + host + " while it ran on " + otherHost(host)
			}
		}
		s.drivers[host] = d
	}
	s.drivers["cn1"].guests[serverUUID(1)] = plugins.PowerRunning
	t.Cleanup(func() {
		for _, host := range moveHosts {
			s.end(host)
			for _, p := range s.drivers[host].problems {
				t.Error(p)
			}
		}
	})
	return s
}

// start begins the worker of a host, after ending the one that there is.
func (s *moveScene) start(host string) {
	s.end(host)
	tree := &providertree.Tree{}
	testproc.Check(s, tree.AddRoot(nodeOn(host), host))
	ctx, cancel := context.WithCancel(context.Background())
	w := worker.New(worker.Config{
		Host: host, Version: "1", Cell: s.cell, Allocations: s.placement, Logger: zerolog.New(&s.log),
		Guests: oneGuestNode{UUID: nodeOn(host), Name: host, Manager: s.drivers[host],
			Tree: func() *providertree.Tree { return tree }},
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	s.workers[host], s.stops[host] = w, func() { cancel(); <-ended }
}

func (s *moveScene) end(host string) {
	if stop := s.stops[host]; stop != nil {
		stop()
		delete(s.stops, host)
	}
}

// oneGuestNode is the only node of a host.
type oneGuestNode worker.Node

func (n oneGuestNode) Nodes(context.Context) ([]worker.Node, bool) {
	return []worker.Node{worker.Node(n)}, true
}

var _ worker.Cell = (*moveCell)(nil)

// status is that of the migration.
func (s *moveScene) status() cellwire.MigrationStatus {
	s.cell.mu.Lock()
	defer s.cell.mu.Unlock()
	return s.cell.migration.Status
}

// refusal is one of a cell.
func refusal() error { return &cellwire.Error{Status: http.StatusServiceUnavailable, Message: "away"} }
