// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/lib/wait"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/resourcetracker/providerconfig"
)

// Driver is what the tracker needs of a virt driver. Its methods take and return values, and return
// an error whenever the answer is not known.
type Driver interface {
	AvailableNodes(ctx context.Context) ([]plugins.Node, error)
	// UpdateProviderTree returns the edited tree and, if allocations are given, the edited
	// allocations; nil stands for the given ones, as edited. The driver may keep its arguments.
	//
	// If a driver also implements [plugins.Renamer], it is asked after a reshape which classes it
	// has renamed. It may also implement [LayoutMigrator] and [CapabilityReporter].
	UpdateProviderTree(ctx context.Context, tree *providertree.Tree, node string,
		allocations providertree.Allocations) (*providertree.Tree, providertree.Allocations, error)
}

// Placement is what the tracker needs of a [reportclient.Client].
type Placement interface {
	Tree(ctx context.Context, uuid, name string) (*providertree.Tree, error)
	Plan(known, desired *providertree.Tree) reportclient.Plan
	// Storable returns desired without what this Placement has refused and cannot store, or desired
	// itself, see [reportclient.Client.Storable].
	Storable(known, desired *providertree.Tree) *providertree.Tree
	Apply(ctx context.Context, root string, plan reportclient.Plan) error
	Usages(ctx context.Context, provider string) (providertree.Resources, error)

	// For a reshape only.
	AllocationsForProviderTree(ctx context.Context, root string) (providertree.Allocations, error)
	PlanReshape(known, desired *providertree.Tree, before, after providertree.Allocations) reportclient.Plan
	CompareReshape(ctx context.Context, r *reportclient.Reshape) (reportclient.ReshapeOutcome, error)
	ResolveReshape(ctx context.Context, r *reportclient.Reshape) (reportclient.ReshapeOutcome, error)
}

// Config sets up a [Tracker].
type Config struct {
	// Name is the driver's name, for logs and status.
	Name      string
	Driver    Driver
	Placement Placement
	// Identity is the uuid of the host's own compute node (see [LoadIdentity]). The one node to
	// which the driver gives no uuid gets it.
	Identity string
	// Claim is called whenever the driver has named its nodes, before any of them is written, and
	// whenever it failed to name them (err). It returns, by uuid, the nodes that the driver does
	// not get: two drivers that report one node would undo each other's inventory in every pass.
	// Nil allows every node.
	Claim func(ctx context.Context, nodes []plugins.Node, err error) map[string]*ClaimedError
	// HasOtherDriver reports whether another driver of this agent reports the node with a uuid, so
	// that it is not an orphan of this driver. Nil: no other driver does.
	HasOtherDriver func(root string) bool
	// ReportedBy returns which other host reports a node that this host reported before; "" if no
	// other does or that cannot be known. With an error the node is not deleted; [ErrNotNamed] says
	// that it cannot be this host's any more. Nil: it cannot be known.
	ReportedBy func(ctx context.Context, root string) (host string, err error)
	// NodeRemoved is called with the uuid of a node that was deleted from Placement, after its
	// record was. An error is shown as the reason why the node is still there. Nil: none.
	NodeRemoved func(root string) error
	// Running says that the agent is up already, because a reload added the driver. Then no error
	// is fatal, and nothing is reshaped.
	Running bool
	// Journal is where Placement's Apply records reshapes; the tracker resolves what a crash left
	// open there. Nil: none.
	Journal *journal.Journal
	// Hold keeps a node waiting whose reshape or identity was refused, see [Tracker.SetHold].
	Hold    bool
	Timings Timings
	Logger  zerolog.Logger
	// Records has what this agent has written to Placement for each node. Nil: the tracker keeps it
	// in memory only.
	Records *ownership.Store
	// ProviderConfig is the operator's provider.yaml as it is now. Nil: there is none.
	ProviderConfig func() *providerconfig.Config
	// Seen remembers which guests the driver has listed, see [Tracker.Guests]. Nil: none.
	Seen *SeenGuests
	// Compare returns the allocations of a node's guests that differ from what the driver lists, a
	// line for each. It is called after a reshape, and again until nothing differs. Nil: nothing is
	// compared.
	Compare func(ctx context.Context, node plugins.Node, guests []plugins.Guest) ([]string, error)
	// Disabled says whether, and why, a node is closed for new guests ([TraitStatusDisabled]). Nil:
	// never.
	Disabled func(node plugins.Node) (reason string, disabled bool)
	// Observer receives what the tracker does. Nil: none.
	Observer Observer
	// Rand returns random numbers, 0 <= x < 1. Nil: math/rand.
	Rand func() float64
}

// Timings say when a tracker acts. They can be changed while it runs.
type Timings struct {
	// Interval is the time between periodic passes. Each is up to a twentieth longer at random, so
	// that a thousand agents spread out.
	Interval time.Duration
	// PassDeadline bounds one pass over one node.
	PassDeadline time.Duration
	// BackoffMin and BackoffMax bound the wait after a failed pass, which doubles from failure to
	// failure.
	BackoffMin, BackoffMax time.Duration
}

// maxDoublings is how often the wait after failures doubles at most, also below its bound.
const maxDoublings = 16

// Wait returns the time until the next pass after a number of failures in a row: the interval after
// none, otherwise the back-off. The jitter of both comes from a random number, 0 <= random < 1.
func (t Timings) Wait(failures int, random float64) time.Duration {
	if failures == 0 {
		return t.Interval + time.Duration(random*float64(t.Interval)/20)
	}
	most := max(min(t.BackoffMax, t.Interval), t.BackoffMin)
	return wait.Backoff{Min: t.BackoffMin, Max: most, Jitter: 0.5}.Delay(min(failures, maxDoublings+1), random)
}

// FatalError ends the agent at start-up: continuing would do harm, and waiting would not help.
// Start-up lasts, for each node, to the end of its first complete pass. A tracker that holds nodes
// (see [Tracker.SetHold]) has none.
type FatalError struct {
	Node string
	Err  error
	// Protects is set when the agent stops in order to protect data (exit code 3), not because it
	// is set up wrongly.
	Protects bool
}

func (e *FatalError) Error() string { return "node " + e.Node + ": " + e.Err.Error() }
func (e *FatalError) Unwrap() error { return e.Err }

// Tracker keeps Placement up to date with the nodes of one driver.
type Tracker struct {
	config  Config
	rand    func() float64
	refresh chan string // reasons for a pass now; one waits at most, since one pass serves all
	// changes are requests of the driver for a pass. Unlike an operator's, they do not end a
	// back-off that is about Placement.
	changes chan string
	ready   chan struct{} // closed after the first pass
	running atomic.Bool
	// configured counts how often the driver got a configuration since the start, or another
	// process.
	configured atomic.Int64
	// when the pass under way must have ended, on the same clock as beat; 0: it waits for a dry
	// run
	passDeadline atomic.Int64
	// when the loop last showed life, in nanoseconds of the monotonic clock since start
	beat  atomic.Int64
	start time.Time

	passing chan struct{} // holds a value during a pass or a dry run

	mu      sync.Mutex
	timings Timings
	hold    bool
	// the driver has named its nodes once: those that come later do not come at start-up
	nodesNamed bool
	// nameless: it did not name them when it was last asked. recordsLoaded: those that it named
	// when the agent ran before are known.
	nameless, recordsLoaded bool
	status                  Status
	// of the last pass that failed before any node was reached
	cause string
	nodes map[string]*nodeState // by name, and orphans by orphanKey

	enabling []func(node string) bool // nodes that were enabled since the last pass began

	orphans orphans // the pass's
}

// New returns a tracker that does nothing until Run.
func New(cfg Config) *Tracker {
	t := &Tracker{
		config: cfg, rand: cfg.Rand, refresh: make(chan string, 1), changes: make(chan string, 1),
		passing: make(chan struct{}, 1), ready: make(chan struct{}), start: time.Now(),
		nodes: map[string]*nodeState{}, timings: cfg.Timings, hold: cfg.Hold,
		status: Status{Driver: cfg.Name, State: Starting},
	}
	if t.rand == nil {
		t.rand = rand.Float64
	}
	if t.config.Observer == nil {
		t.config.Observer = unobserved{}
	}
	return t
}

// RunOnce makes one pass over each node as at start-up, for the agent that does not stay: nothing
// else of the tracker runs. Its error is every failure, joined.
func (t *Tracker) RunOnce(ctx context.Context) error { return t.passAll(ctx, ctx, "start-up", true) }

// SetTimings changes the timings, from the next wait or pass on.
func (t *Tracker) SetTimings(timings Timings) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timings = timings
}

// SetHold says what becomes of a node whose reshape or identity is refused at start-up. With hold
// its tracker stays up, writes nothing for the node, and tries again when asked to
// ([Tracker.Refresh]); without, the refusal is a [*FatalError].
func (t *Tracker) SetHold(hold bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hold = hold
}

func (t *Tracker) currentTimings() Timings {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.timings
}

// Refresh requests a pass for an operator. It begins at once, without regard to the back-off. All
// requests before it begins make one pass.
func (t *Tracker) Refresh(reason string) { requestPass(t.refresh, reason) }

// Reconfigured is [Tracker.Refresh] after the driver was configured again, or got another process,
// so that it may report another tree.
func (t *Tracker) Reconfigured(reason string) {
	t.configured.Add(1)
	t.Refresh(reason)
}

// Changed requests a pass because the driver reports a change. After a failure that is about
// Placement, it waits for the end of the back-off, because the change has nothing to do with it.
// After others it waits for the shortest back-off only.
func (t *Tracker) Changed(reason string) { requestPass(t.changes, reason) }

// Enable requests a pass that removes [TraitStatusDisabled] from the nodes that are selected by
// name, whichever client set it.
func (t *Tracker) Enable(selects func(node string) bool) {
	t.mu.Lock()
	t.enabling = append(t.enabling, selects)
	t.mu.Unlock()
	t.Refresh("the node was enabled")
}

// takeEnabling returns the selections since the last pass began.
func (t *Tracker) takeEnabling() []func(node string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.enabling
	t.enabling = nil
	return out
}

func requestPass(requests chan<- string, reason string) {
	select {
	case requests <- reason:
	default:
	}
}

// Ready is closed after the first pass over all nodes, however it ended.
func (t *Tracker) Ready() <-chan struct{} { return t.ready }

// LastHeartbeat returns when the tracker last showed that it works. A tracker whose pass does not
// end at its deadline hangs, and the time stands still. For a tracker that does not run, it is now.
func (t *Tracker) LastHeartbeat() time.Time {
	if !t.running.Load() {
		return time.Now()
	}
	return t.start.Add(time.Duration(t.beat.Load()))
}

// drainTime is how long a pass that is under way at the end may take.
const drainTime = 10 * time.Second

// beatInterval is how often a healthy loop shows life while it waits.
const beatInterval = time.Second

// Run makes passes until ctx ends, and then returns nil. It finishes a pass that is under way, for
// up to ten seconds. It returns a [*FatalError] only while start-up lasts for some node.
func (t *Tracker) Run(ctx context.Context) error {
	t.heartbeat()
	t.running.Store(true)
	defer t.running.Store(false)
	// A pass that is under way when ctx ends is let finish: a write whose answer is not awaited
	// would have to be looked up.
	work, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	beats := time.NewTicker(beatInterval)
	defer beats.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	reason, first, requested := "start-up", true, false
	var done chan error // of the pass that is under way
	var last error      // of the pass before
	var ended time.Time // when it ended
	for {
		requests, changes := t.listen(done != nil, last)
		select {
		case <-ctx.Done():
			if done != nil {
				drain := time.AfterFunc(drainTime, abandon)
				t.config.Logger.Debug().Err(<-done).Msg("The last pass ended.")
				drain.Stop()
			}
			return nil
		case <-beats.C:
			if due := t.passDeadline.Load(); done == nil || due == 0 || int64(time.Since(t.start)) < due {
				t.heartbeat()
			}
			continue
		case <-next.C:
		case reason = <-requests:
			requested = true
			next.Stop()
		case reason = <-changes:
			if last != nil {
				next.Reset(t.currentTimings().BackoffMin)
				last = errDriverMoved // once is enough until the next pass
				continue
			}
			next.Reset(eventSpacing - time.Since(ended))
			continue
		case err := <-done:
			done, last, ended = nil, err, time.Now()
			if fatal := (*FatalError)(nil); errors.As(err, &fatal) {
				return fatal
			}
			if first {
				first = false
				close(t.ready)
			}
			next.Reset(t.wait(err))
			reason, requested = "the interval", false
			continue
		}
		result, reason, requested := make(chan error, 1), reason, requested
		done = result
		go func() { result <- t.passAll(ctx, work, reason, requested) }()
	}
}

// eventSpacing is how far a pass that the driver asks for is from the end of the one before: a
// driver that sees a change every millisecond (hundreds of functions of a card appear one after
// another) makes one pass a second of them.
const eventSpacing = time.Second

// errDriverMoved stands for the last pass's error once a change has already cut its back-off
// short.
var errDriverMoved = errors.New("a pass follows shortly")

// listen returns the requests to listen to. While a pass is under way none: one that comes
// meanwhile may be about something that the pass has looked at before. After a failure, no changes
// that would only have Placement asked again.
func (t *Tracker) listen(busy bool, last error) (requests, changes <-chan string) {
	switch {
	case busy:
		return nil, nil
	case aboutPlacement(last), errors.Is(last, errDriverMoved):
		return t.refresh, nil
	}
	return t.refresh, t.changes
}

// aboutPlacement reports whether Placement cannot be used, or not by this agent. That it does not
// admit what the driver reports is about the driver.
func aboutPlacement(err error) bool {
	notAdmitted := errors.Is(err, reportclient.ErrNotAdmitted)
	for _, kind := range []error{reportclient.ErrUnavailable, reportclient.ErrRefused, reportclient.ErrHostRefused,
		reportclient.ErrTooOld, reportclient.ErrUnexpected, reportclient.ErrIdentity} {
		if errors.Is(err, kind) && (!notAdmitted || !errors.Is(kind, reportclient.ErrHostRefused)) {
			return true
		}
	}
	return false
}

func (t *Tracker) heartbeat() { t.beat.Store(int64(time.Since(t.start))) }

// overallDeadline is when the passes over all nodes must have ended if each keeps its deadline, and
// some more.
func (t *Tracker) overallDeadline() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Duration(len(t.nodes)+2)*t.timings.PassDeadline + 5*time.Second
}

// wait is the time until the next pass.
func (t *Tracker) wait(err error) time.Duration {
	t.mu.Lock()
	failures, c := t.status.Failures, t.timings
	t.mu.Unlock()
	if err == nil {
		failures = 0
	} else {
		failures = max(failures, 1)
	}
	return c.Wait(failures, t.rand())
}

// passAll makes a pass over each node, and begins none after stop ends. Its error is every
// failure, joined. requested: an operator asked for it.
func (t *Tracker) passAll(stop, ctx context.Context, reason string, requested bool) error {
	if err := t.begin(ctx); err != nil {
		return err
	}
	defer t.end()
	t.passDeadline.Store(int64(time.Since(t.start) + t.overallDeadline()))
	defer t.passDeadline.Store(0)
	nodes, held, err := t.availableNodes(ctx)
	if err != nil {
		t.noteOutcome(err, nil)
		t.writeDisabledOfAll(ctx)
		return err
	}
	t.noteContested(held)
	t.addNodes(nodes)
	if requested { // an operator may have removed one just now, here or from the driver
		t.orphans.checkedAt = time.Time{}
	}
	t.findOrphans(ctx, nodes, held)
	enabling := t.takeEnabling()
	var errs []error
	for _, node := range nodes {
		if stop.Err() != nil {
			break
		}
		state := t.stateOf(node)
		for _, selects := range enabling {
			state.enabling = state.enabling || selects(node.Name)
		}
		if state.Held && !requested {
			continue
		}
		if err := t.pass(ctx, node, reason); err != nil {
			errs = append(errs, err)
			continue
		}
		t.recordGuests(ctx, node, state)
	}
	err = errors.Join(errs...)
	t.noteOutcome(err, nodes)
	return err
}

// begin waits until no pass and no dry run is under way.
func (t *Tracker) begin(ctx context.Context) error {
	select {
	case t.passing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return &passError{step: "waiting for another pass to end", err: ctx.Err()}
	}
}

func (t *Tracker) end() { <-t.passing }

// NamedNodes asks the driver for its nodes, whether it has them or not.
func (t *Tracker) NamedNodes(ctx context.Context) ([]plugins.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, t.currentTimings().PassDeadline)
	defer cancel()
	nodes, err := t.config.Driver.AvailableNodes(ctx)
	if err != nil {
		return nil, err
	}
	return t.identify(nodes)
}

// availableNodes returns the nodes that the driver names and has, and those that it names and has
// not.
func (t *Tracker) availableNodes(ctx context.Context) ([]plugins.Node, []*ClaimedError, error) {
	ctx, cancel := context.WithTimeout(ctx, t.currentTimings().PassDeadline)
	defer cancel()
	nodes, err := t.config.Driver.AvailableNodes(ctx)
	if err != nil {
		t.loadFormerNodes()
	}
	t.mu.Lock()
	t.nameless = err != nil
	t.mu.Unlock()
	if err == nil {
		nodes, err = t.identify(nodes)
	}
	granted, held := t.claim(ctx, nodes, err)
	if err != nil {
		return nil, nil, &passError{step: "asking the driver for its nodes", err: err}
	}
	return granted, held, nil
}
