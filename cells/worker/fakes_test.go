// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

const (
	host     = "cn1"
	nodeUUID = "11111111-1111-4111-8111-111111111111"
)

var errLost = errors.New("connection reset by peer")

// serverUUID is that of the server with a number.
func serverUUID(n int) string { return fmt.Sprintf("aaaaaaaa-0000-4000-8000-%012d", n) }

// fakeCell is a cell with one host, as the protocol has it.
type fakeCell struct {
	mu       sync.Mutex
	epoch    string
	revision int64
	rows     map[string]*row
	service  cellwire.Service
	changed  chan struct{} // closed when something is new

	away   error         // of every call
	untold error         // of those for work
	late   time.Duration // after which heartbeats arrive; 0: at once
	lose   int           // so many answers get lost, after the call was carried out
	refuse []string
	// problems are those of nodes, as newer cells say them.
	problems []cellwire.NodeProblem
	old      bool // of before abilities
	turns         // what newer cells know
	details  bool // it takes details of nodes

	conn net.Conn // over which it is asked; nil: not over a network

	offers  []cellwire.StreamOffer
	offered map[string]bool
	streams map[string]*cellwire.Stream

	reported []string // kinds with uuids, in the order in which they were taken
	beats    []cellwire.HostReport
	calls    map[string]int
	invalid  string // uuid of a report that makes a request invalid
	stuck    bool   // it always has more, and stays at its first revision
	// so long each answer takes that does not wait: of a stuck cell, and of a list in pages but the
	// first
	turning time.Duration
	page    int // so many items at most are in an answer; 0: any number
}

type row struct {
	request string // that asked for the last change
	trace   string // its trace context
	server  cellwire.Server
	former  cellwire.Server // before a rebuild
	want    cellwire.Want
	cleanup bool // gone, and the host has not said so
}

func newCell() *fakeCell {
	return &fakeCell{epoch: "e1", offered: map[string]bool{}, streams: map[string]*cellwire.Stream{},
		rows: map[string]*row{}, service: cellwire.Service{UUID: "5e41", Host: host},
		changed: make(chan struct{}), calls: map[string]int{}}
}

// touch says that a row changed. c.mu is held.
func (c *fakeCell) touch(r *row) {
	c.revision++
	r.server.Revision = c.revision
	close(c.changed)
	c.changed = make(chan struct{})
}

// change changes the row of a server; a row that is not there is made for it.
func (c *fakeCell) change(n int, f func(r *row)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.rows[serverUUID(n)]
	if r == nil {
		r = &row{want: cellwire.WantPresent, server: cellwire.Server{
			UUID: serverUUID(n), Name: fmt.Sprint("server ", n), Host: host, Node: host, NodeUUID: nodeUUID,
			VMState: cellwire.VMBuilding, TaskState: cellwire.TaskSpawning,
			Flavor: cellwire.Flavor{Flavor: plugins.Flavor{Name: "m1", VCPUs: 1, MemoryMB: 512}},
		}}
		c.rows[serverUUID(n)] = r
	}
	f(r)
	c.touch(r)
}

func (c *fakeCell) boot(n int) { c.change(n, func(*row) {}) }

func (c *fakeCell) delete(n int) {
	c.change(n, func(r *row) { r.want, r.server.TaskState = cellwire.WantGone, cellwire.TaskDeleting })
}

func (c *fakeCell) row(n int) row {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.rows[serverUUID(n)]; r != nil {
		return *r
	}
	return row{}
}

// set changes the cell itself.
func (c *fakeCell) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// begin counts a call, and says that it fails. c.mu is held.
func (c *fakeCell) begin(ctx context.Context, call string) error {
	c.calls[call]++
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.away
}

// lost says whether an answer gets lost. c.mu is held.
func (c *fakeCell) lost() error {
	if c.lose > 0 {
		c.lose--
		return errLost
	}
	return nil
}

func (c *fakeCell) Work(
	ctx context.Context, _ string, after int64, epoch string, wait time.Duration,
) (cellwire.Work, error) {
	deadline := time.After(wait)
	for {
		c.mu.Lock()
		if err := cmp.Or(c.begin(ctx, "work"), c.untold); err != nil {
			c.mu.Unlock()
			return cellwire.Work{}, err
		}
		if turning := c.turning; turning > 0 && (c.stuck || c.page > 0 && after > 0 && after < c.revision) {
			c.mu.Unlock()
			time.Sleep(turning) // of the clock of the test
			c.mu.Lock()
		}
		work := cellwire.Work{Epoch: c.epoch, Revision: c.revision, Service: c.service}
		work.Complete = after == 0 || epoch != c.epoch || after > c.revision
		for _, uuid := range slices.Sorted(maps.Keys(c.rows)) {
			r := c.rows[uuid]
			if (work.Complete || r.server.Revision > after) && (!r.server.Deleted || r.cleanup) {
				work.Items = append(work.Items,
					cellwire.WorkItem{Want: r.want, Server: r.server, RequestID: r.request, Traceparent: r.trace})
			}
		}
		slices.SortFunc(work.Items,
			func(a, b cellwire.WorkItem) int { return cmp.Compare(a.Server.Revision, b.Server.Revision) })
		if c.page > 0 && len(work.Items) > c.page {
			work.Items, work.More = work.Items[:c.page], true
			work.Revision = work.Items[c.page-1].Server.Revision
		}
		if c.stuck {
			work.More, work.Revision = true, 1
		}
		work.Streams = slices.Clone(c.offers)
		fresh := slices.ContainsFunc(c.offers, func(o cellwire.StreamOffer) bool { return !c.offered[o.ID] })
		for _, o := range c.offers {
			c.offered[o.ID] = true
		}
		changed, err := c.changed, c.lost()
		c.mu.Unlock()
		if fresh || work.Complete || work.More || len(work.Items) > 0 || err != nil {
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

func (c *fakeCell) Reports(ctx context.Context, _ string, reports []cellwire.Report) (cellwire.ReportsAnswer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.begin(ctx, "reports"); err != nil {
		return cellwire.ReportsAnswer{}, err
	}
	if slices.ContainsFunc(reports, func(r cellwire.Report) bool { return r.UUID == c.invalid }) {
		return cellwire.ReportsAnswer{}, &cellwire.Error{Status: http.StatusBadRequest, Code: cellwire.CodeBadRequest,
			Message: "a report is invalid"}
	}
	var answer cellwire.ReportsAnswer
	for _, r := range reports {
		answer.Refused = append(answer.Refused, c.apply(r))
	}
	return answer, c.lost()
}

// apply is what a cell does with a report. c.mu is held.
func (c *fakeCell) apply(r cellwire.Report) (refused string) {
	of := c.rows[r.UUID]
	if of == nil {
		return "no such server"
	}
	s := &of.server
	switch {
	case r.Kind == cellwire.ReportGone && of.want == cellwire.WantGone:
		s.Deleted, s.VMState, s.TaskState, s.PowerState, of.cleanup = true, cellwire.VMDeleted, "", 0, false
	case of.want == cellwire.WantGone:
		return "it is to be removed"
	case r.Kind == cellwire.ReportSpawned && s.VMState == cellwire.VMBuilding:
		now := time.Now()
		s.VMState, s.TaskState, s.PowerState, s.LaunchedAt = cellwire.VMActive, "", r.PowerState, &now
	case r.Kind == cellwire.ReportFailed && s.VMState == cellwire.VMBuilding:
		s.VMState, s.TaskState, s.PowerState, s.Fault = cellwire.VMError, "", 0, r.Fault
	case r.Kind == cellwire.ReportPower:
		s.PowerState = r.PowerState
	case r.Kind == cellwire.ReportSettled && r.Revision < s.Revision && s.TaskState != "":
		return "of an older revision"
	case r.Kind == cellwire.ReportSettled && r.Fault != nil && of.want == cellwire.WantCleared:
		*s, of.want = of.former, cellwire.WantPresent
		s.PowerState, s.Fault = r.PowerState, r.Fault
	case r.Kind == cellwire.ReportSettled && r.Fault != nil && of.want == cellwire.WantRebuilt:
		s.VMState, s.TaskState, s.PowerState, s.Fault, of.want = cellwire.VMError, "", r.PowerState,
			r.Fault, cellwire.WantPresent
	case r.Kind == cellwire.ReportSettled && of.want == cellwire.WantCleared:
		s.TaskState, s.PowerState, of.want = cellwire.TaskRebuildSpawning, r.PowerState, cellwire.WantRebuilt
	case r.Kind == cellwire.ReportSettled && of.want == cellwire.WantRebuilt:
		s.VMState, s.TaskState, s.PowerState, of.want = cellwire.VMActive, "", r.PowerState, cellwire.WantPresent
	case r.Kind == cellwire.ReportSettled && r.Fault != nil:
		s.VMState, s.TaskState, s.PowerState, s.Fault, of.want = cellwire.VMStopped, "", r.PowerState,
			r.Fault, cellwire.WantPresent
	case r.Kind == cellwire.ReportSettled && s.TaskState == cellwire.TaskPoweringOff:
		s.VMState, s.TaskState, s.PowerState, of.want = cellwire.VMStopped, "", r.PowerState, cellwire.WantPresent
	case r.Kind == cellwire.ReportSettled && s.TaskState == cellwire.TaskRebooting:
		s.TaskState, s.PowerState, of.want = cellwire.TaskRebootStarted, r.PowerState, cellwire.WantRunning
	case r.Kind == cellwire.ReportSettled && s.TaskState == cellwire.TaskRebootingHard:
		s.TaskState, s.PowerState, of.want = cellwire.TaskRebootStartedHard, r.PowerState, cellwire.WantRunning
	// a repetition
	case r.Kind == cellwire.ReportSettled && of.want == cellwire.WantShutdown && s.TaskState == "" &&
		s.PowerState == r.PowerState:
		return ""
	case r.Kind == cellwire.ReportSettled && of.want == cellwire.WantShutdown:
		s.VMState, s.TaskState, s.PowerState = cellwire.VMSoftDeleted, "", r.PowerState
	case r.Kind == cellwire.ReportSettled && of.want == cellwire.WantRunning:
		s.VMState, s.TaskState, s.PowerState, of.want = cellwire.VMActive, "", r.PowerState, cellwire.WantPresent
	default:
		return fmt.Sprintf("%s of a server that is %s", r.Kind, s.VMState)
	}
	c.reported = append(c.reported, fmt.Sprintf("%s %s %d", r.Kind, r.UUID[len(r.UUID)-1:], r.PowerState))
	c.touch(of)
	return ""
}

// taken are the reports that the cell took.
func (c *fakeCell) taken() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.reported)
}

// fakeDriver has guests in memory. A crash ends calls under way: what they did until then stays.
type fakeDriver struct {
	closed  int // how often consoles were closed
	mu      sync.Mutex
	guests  map[string]plugins.PowerState
	foreign map[string]bool
	half    map[string]bool    // made and never started
	idle    plugins.PowerState // of those
	faults  map[string]string
	err     error         // of every call
	slow    time.Duration // of Spawn
	crashed chan struct{}

	underWay  map[string]bool
	problems  []string
	spawns    map[string]int
	busiest   int
	listed    int
	listing   func() // runs after the list was made
	specs     map[string]plugins.InstanceSpec
	spawnErrs []error                     // of the next Spawns, nil: none
	checkErrs []error                     // of the next CheckSpawns, nil: none
	checks    int                         // how many there were
	unchecked bool                        // it cannot check
	removeErr []error                     // of the next Destroys, which leave the guest half removed
	powerErrs []error                     // of the next SetPowers, nil: none
	made      []string                    // guests that were removed ("-") and made, by their image
	requests  []string                    // for which guests were made
	traces    []string                    // in which they were made, by their ids
	powers    []string                    // changes of power, "hard" where a guest was not asked
	powered   func(to plugins.PowerState) // runs after each SetPower
	copies    bool                        // Arrive reads the disk of the source
	// unreadable says that the disk cannot be read.
	unreadable bool
	restorable
}

func newDriver() *fakeDriver {
	return &fakeDriver{
		guests: map[string]plugins.PowerState{}, foreign: map[string]bool{}, half: map[string]bool{},
		idle: plugins.PowerShutdown, faults: map[string]string{}, crashed: make(chan struct{}),
		underWay: map[string]bool{}, spawns: map[string]int{}, specs: map[string]plugins.InstanceSpec{},
	}
}

func (d *fakeDriver) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// crash ends all calls under way.
func (d *fakeDriver) crash() {
	d.set(func() { close(d.crashed); d.crashed = make(chan struct{}) })
}

// enter begins a call about an instance: never two at a time.
func (d *fakeDriver) enter(uuid string) (crashed <-chan struct{}, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.underWay[uuid] {
		d.problems = append(d.problems, "two calls at a time about "+uuid)
	}
	if d.err != nil {
		return nil, d.err
	}
	d.underWay[uuid] = true
	d.busiest = max(d.busiest, len(d.underWay))
	return d.crashed, nil
}

func (d *fakeDriver) leave(uuid string) { d.set(func() { delete(d.underWay, uuid) }) }

func (d *fakeDriver) Instances(context.Context, string) ([]plugins.Instance, error) {
	d.mu.Lock()
	d.listed++
	out, err, listing := []plugins.Instance{}, d.err, d.listing
	for uuid, power := range d.guests {
		out = append(out, plugins.Instance{UUID: uuid, Power: power})
	}
	for uuid := range d.half {
		out = append(out, plugins.Instance{UUID: uuid, Power: d.idle})
	}
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if listing != nil {
		listing()
	}
	return out, nil
}

func (d *fakeDriver) Spawn(
	ctx context.Context, _ string, spec plugins.InstanceSpec, tree *providertree.Tree,
) (plugins.Instance, error) {
	crashed, err := d.enter(spec.UUID)
	if err != nil {
		return plugins.Instance{}, err
	}
	defer d.leave(spec.UUID)
	d.mu.Lock()
	d.spawns[spec.UUID]++
	d.requests = append(d.requests, plugins.RequestID(ctx))
	d.traces = append(d.traces, traceOf(ctx))
	d.specs[spec.UUID] = spec
	if len(spec.Allocations) == 0 || tree == nil {
		d.problems = append(d.problems, "a spawn without allocations or tree")
	}
	if len(d.spawnErrs) > 0 {
		err, d.spawnErrs = d.spawnErrs[0], d.spawnErrs[1:]
	}
	if reason := d.faults[spec.UUID]; reason != "" || d.foreign[spec.UUID] {
		delete(d.half, spec.UUID)
		err = &plugins.InstanceFault{UUID: spec.UUID, Reason: reason}
	}
	power, there := d.guests[spec.UUID]
	promised := errors.As(err, new(*plugins.InstanceFault)) || errors.Is(err, plugins.ErrNotReady) ||
		errors.Is(err, plugins.ErrUnsupported)
	if !promised && !there {
		d.half[spec.UUID] = true
	}
	slow := d.slow
	d.mu.Unlock()
	switch {
	case err != nil:
		return plugins.Instance{}, err
	case there:
		return plugins.Instance{UUID: spec.UUID, Power: power}, nil
	}
	select {
	case <-time.After(slow):
	case <-crashed:
		return plugins.Instance{}, errors.New("the process ended (outcome unknown)")
	case <-ctx.Done():
		return plugins.Instance{}, ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.half, spec.UUID)
	d.guests[spec.UUID] = plugins.PowerRunning
	d.made = append(d.made, spec.Image)
	return plugins.Instance{UUID: spec.UUID, Power: plugins.PowerRunning}, nil
}

// CheckSpawn finds the faults that Spawn has.
func (d *fakeDriver) CheckSpawn(_ context.Context, _ string, spec plugins.InstanceSpec, tree *providertree.Tree) error {
	if _, err := d.enter(spec.UUID); err != nil {
		return err
	}
	defer d.leave(spec.UUID)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unchecked {
		return plugins.ErrUnsupported
	}
	d.checks++
	if len(spec.Allocations) == 0 || tree == nil {
		d.problems = append(d.problems, "a check without allocations or tree")
	}
	if len(d.checkErrs) > 0 {
		err := d.checkErrs[0]
		d.checkErrs = d.checkErrs[1:]
		return err
	}
	if reason := d.faults[spec.UUID]; reason != "" {
		return fmt.Errorf("on the host: %w", &plugins.InstanceFault{UUID: spec.UUID, Reason: reason})
	}
	return nil
}

func (d *fakeDriver) Destroy(_ context.Context, _, uuid string) error {
	if _, err := d.enter(uuid); err != nil {
		return err
	}
	defer d.leave(uuid)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.foreign[uuid] {
		return &plugins.InstanceFault{UUID: uuid, Reason: "it belongs to another client"}
	}
	if _, there := d.guests[uuid]; there {
		d.made = append(d.made, "-")
	}
	delete(d.guests, uuid)
	delete(d.half, uuid)
	if len(d.removeErr) > 0 {
		err := d.removeErr[0]
		d.removeErr = d.removeErr[1:]
		d.half[uuid] = true
		return err
	}
	return nil
}

func (d *fakeDriver) SetPower(
	_ context.Context, _, uuid string, to plugins.PowerState, hard bool,
) (plugins.Instance, error) {
	if _, err := d.enter(uuid); err != nil {
		return plugins.Instance{}, err
	}
	defer d.leave(uuid)
	is, err := d.setPower(uuid, to, hard)
	if d.powered != nil && err == nil {
		d.powered(to)
	}
	return is, err
}

func (d *fakeDriver) setPower(uuid string, to plugins.PowerState, hard bool) (plugins.Instance, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	if len(d.powerErrs) > 0 {
		err, d.powerErrs = d.powerErrs[0], d.powerErrs[1:]
	}
	before, there := d.guests[uuid]
	switch {
	case !there:
		return plugins.Instance{}, &plugins.InstanceNotFound{UUID: uuid}
	case errors.As(err, new(*plugins.InstanceFault)):
		return plugins.Instance{}, err
	}
	if before != to {
		change := to.String()
		if hard {
			change += " hard"
		}
		d.powers = append(d.powers, change)
	}
	d.guests[uuid] = to
	return plugins.Instance{UUID: uuid, Power: to}, err
}

// power is that of a guest, -1 if there is none.
func (d *fakeDriver) power(n int) plugins.PowerState {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p, there := d.guests[serverUUID(n)]; there {
		return p
	}
	return -1
}
