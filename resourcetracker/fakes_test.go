// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/resourcetracker/providerconfig"
)

const nodeUUID = "11111111-0000-4000-8000-000000000001"

// fakeDriver gives one node with so many VCPUs, or fails.
type fakeDriver struct {
	mu    sync.Mutex
	vcpus int64
	nodes []plugins.Node
	err   error
	calls int
	node  string // that it was last asked about
	edit  func(*providertree.Tree)
	block func(context.Context)
	// answer, if set, replaces UpdateProviderTree's own way of answering.
	answer  func(tree *providertree.Tree, allocations providertree.Allocations) (providertree.Allocations, error)
	renames map[string]string
	// layout is its layout version, 0: it has none; step makes one step.
	layout int
	step   func(tree *providertree.Tree, from int,
		allocations providertree.Allocations) (providertree.Allocations, map[string]string, error)
	steps        []int
	capabilities map[string]bool
}

// LayoutVersion and ReshapeStep make it a [resourcetracker.LayoutMigrator].
func (d *fakeDriver) LayoutVersion(context.Context) (int, error) {
	if d.layout == 0 {
		return 0, plugins.ErrUnsupported
	}
	return d.layout, nil
}

func (d *fakeDriver) ReshapeStep(
	_ context.Context, tree *providertree.Tree, _ string, from int, allocations providertree.Allocations,
) (*providertree.Tree, providertree.Allocations, error) {
	d.steps = append(d.steps, from)
	after, renames, err := d.step(tree, from, allocations)
	d.renames = renames
	return tree, after, err
}

// Capabilities makes it a [resourcetracker.CapabilityReporter].
func (d *fakeDriver) Capabilities(string) map[string]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.capabilities
}

// ClassRenames makes it a [plugins.Renamer].
func (d *fakeDriver) ClassRenames() map[string]string { return d.renames }

func (d *fakeDriver) set(change func(*fakeDriver)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

func (d *fakeDriver) AvailableNodes(context.Context) ([]plugins.Node, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.nodes, nil
}

func (d *fakeDriver) UpdateProviderTree(
	ctx context.Context, tree *providertree.Tree, node string, allocations providertree.Allocations,
) (*providertree.Tree, providertree.Allocations, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	d.node = node
	if d.block != nil {
		d.block(ctx)
	}
	if d.err != nil {
		return nil, nil, d.err
	}
	if d.answer != nil {
		after, err := d.answer(tree, allocations)
		return tree, after, err
	}
	root, found := tree.ProviderByName(node)
	if !found {
		return nil, nil, errors.New("the node's root is not in the tree")
	}
	if _, err := tree.SetInventory(root.UUID, "VCPU", providertree.Inventory{Total: d.vcpus}); err != nil {
		return nil, nil, err
	}
	if d.edit != nil {
		d.edit(tree)
	}
	return tree, nil, nil
}

// fakePlacement keeps one tree and counts what is asked of it.
type fakePlacement struct {
	mu            sync.Mutex
	tree          *providertree.Tree
	reads, writes int
	readErr       error
	refusals      map[string]error // of reads, by the node's uuid
	applyErr      []error          // one for each Apply to come
	onApply       func()
	failAfter     int  // so many writes; 0: never
	failLate      bool // after having done it

	allocations providertree.Allocations
	gathered    int
	asked       int // how often for usages
	askMost     int // so many are answered, and then there is an error; 0: all
	gatherErr   error
	log         reportclient.ReshapeLog // as a client has it
	// instead of an answer of its own; an error may come after it happened
	onReshape  func() error
	lost       bool // the answer to a reshape that happens gets lost
	compared   int
	unknown    string                      // a trait that it does not know
	unadmitted string                      // a trait that it does not admit to the host
	refused    bool                        // and the client has seen that
	outcome    reportclient.ReshapeOutcome // of a comparison; "": the actual state
	compareErr error
	progress   chan struct{} // Apply stops after its first operation until it is closed
}

func (p *fakePlacement) set(change func(*fakePlacement)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

func (p *fakePlacement) Tree(_ context.Context, uuid, name string) (*providertree.Tree, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reads++
	if err := cmp.Or(p.readErr, p.refusals[uuid]); err != nil {
		return nil, err
	}
	if p.tree != nil && (p.refusals == nil || p.tree.Exists(uuid)) {
		return p.tree.Clone(), nil
	}
	tree := &providertree.Tree{}
	return tree, tree.AddRoot(uuid, name)
}

func (p *fakePlacement) Plan(known, desired *providertree.Tree) reportclient.Plan {
	return reportclient.NewPlan(known, p.Storable(known, desired))
}

// Storable implements [resourcetracker.Placement]: all of it can be stored.
func (p *fakePlacement) Storable(_, desired *providertree.Tree) *providertree.Tree {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.refused {
		return desired
	}
	out := desired.Clone()
	for _, uuid := range out.UUIDs() {
		_, _ = out.RemoveTraits(uuid, p.unknown)
	}
	return out
}

func (p *fakePlacement) Apply(ctx context.Context, _ string, plan reportclient.Plan) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if plan.Empty() {
		return nil
	}
	if p.onApply != nil {
		p.onApply()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(p.applyErr) > 0 {
		err := p.applyErr[0]
		p.applyErr = p.applyErr[1:]
		return err
	}
	for i, op := range plan.Operations {
		if i > 0 && plan.Progress != nil {
			plan.Progress(i)
		}
		if i > 0 && p.progress != nil {
			<-p.progress
		}
		if p.unadmitted != "" && slices.Contains(op.Traits, p.unadmitted) {
			return fmt.Errorf("%s: %w", op, reportclient.ErrNotAdmitted)
		}
		p.writes++
		if p.failAfter > 0 && p.writes == p.failAfter {
			if p.failLate {
				_ = p.do(op)
			}
			return fmt.Errorf("%s: %w", op, reportclient.ErrUnavailable)
		}
		if err := p.do(op); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	return nil
}

func (p *fakePlacement) do(op reportclient.Operation) error {
	var err error
	switch op.Kind {
	case reportclient.CreateProvider:
		if p.tree == nil {
			p.tree = &providertree.Tree{}
		}
		err = p.tree.Populate([]providertree.Provider{{UUID: op.UUID, Name: op.Provider, ParentUUID: op.Parent}})
	case reportclient.SetInventories:
		_, err = p.tree.SetInventories(op.UUID, op.Inventories)
	case reportclient.DeleteProvider:
		_, err = p.tree.Remove(op.UUID)
	case reportclient.ReshapeTree:
		err = p.reshape(op.Reshape)
	case reportclient.SetTraits:
		_, err = p.tree.SetTraits(op.UUID, op.Traits)
		if p.unknown != "" && slices.Contains(op.Traits, p.unknown) {
			p.refused = true
			_, err = p.tree.RemoveTraits(op.UUID, p.unknown)
		}
	case reportclient.UpdateProvider:
		_, err1 := p.tree.Rename(op.UUID, op.Provider)
		_, err2 := p.tree.Move(op.UUID, op.Parent)
		err = errors.Join(err1, err2)
	case reportclient.EnsureClass, reportclient.EnsureTrait:
	default:
		err = errors.New("not expected in these tests")
	}
	return err
}

// reshape is what a client and Placement do together.
func (p *fakePlacement) reshape(r *reportclient.Reshape) error {
	end := func(reportclient.ReshapeOutcome) {}
	if p.log != nil {
		if err := p.log.Begin(nodeUUID, r); err != nil {
			return err
		}
		end = func(o reportclient.ReshapeOutcome) { _ = p.log.End(nodeUUID, o) }
	}
	if p.onReshape != nil {
		if err := p.onReshape(); err != nil {
			if !errors.Is(err, reportclient.ErrUnavailable) { // else it is unknown
				end(reportclient.ReshapeRefused)
			}
			return err
		}
	}
	for _, rp := range r.Providers {
		if _, err := p.tree.SetInventories(rp.UUID, rp.After); err != nil {
			return err
		}
	}
	for _, c := range r.Consumers {
		p.allocations[c.UUID] = providertree.ConsumerAllocations{Resources: c.After.Clone(), Generation: c.Generation,
			ProjectID: c.ProjectID, UserID: c.UserID}
	}
	if p.lost {
		end(reportclient.ReshapeUnknown)
		return reportclient.ErrUnavailable
	}
	end(reportclient.ReshapeHappened)
	return nil
}

func (p *fakePlacement) AllocationsForProviderTree(context.Context, string) (providertree.Allocations, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gathered++
	return p.allocations.Clone(), p.gatherErr
}

func (p *fakePlacement) Usages(_ context.Context, provider string) (providertree.Resources, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if p.askMost > 0 && p.asked > p.askMost {
		return nil, reportclient.ErrUnavailable
	}
	out := map[string]int64{}
	for _, c := range p.allocations {
		for class, n := range c.Resources[provider] {
			out[class] += n
		}
	}
	return out, nil
}

func (p *fakePlacement) ConsumersOf(_ context.Context, provider string) (map[string]providertree.Resources, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]providertree.Resources{}
	for consumer, c := range p.allocations {
		if held := c.Resources[provider]; len(held) > 0 {
			out[consumer] = held
		}
	}
	return out, nil
}

func (p *fakePlacement) PlanReshape(
	known, desired *providertree.Tree, before, after providertree.Allocations,
) reportclient.Plan {
	return reportclient.NewReshapePlan(known, desired, before, after)
}

func (p *fakePlacement) ResolveReshape(
	ctx context.Context, r *reportclient.Reshape,
) (reportclient.ReshapeOutcome, error) {
	return p.CompareReshape(ctx, r)
}

func (p *fakePlacement) CompareReshape(
	_ context.Context, r *reportclient.Reshape,
) (reportclient.ReshapeOutcome, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.compared++
	if p.compareErr != nil || p.outcome != "" {
		return p.outcome, p.compareErr
	}
	for _, rp := range r.Providers {
		if now, _ := p.tree.Provider(rp.UUID); !now.Inventories.Equal(rp.After) {
			return reportclient.ReshapeRefused, nil
		}
	}
	return reportclient.ReshapeHappened, nil
}

// scene is a tracker with its fakes, running until the test ends.
type scene struct {
	t         *testing.T
	driver    *fakeDriver
	placement *fakePlacement
	tracker   *resourcetracker.Tracker
	journal   *journal.Journal
	hold      bool
	running   bool
	records   *ownership.Store
	disabled  func(plugins.Node) (string, bool)
	// providerConfig is provider.yaml.
	providerConfig func() *providerconfig.Config
	config         func(*resourcetracker.Config) // changes what start makes of the rest; nil: nothing
	log            *bytes.Buffer
	logMu          sync.Mutex
	stop           context.CancelFunc
	ended          chan error
}

func (s *scene) Write(b []byte) (int, error) {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	return s.log.Write(b)
}

// logged counts the log lines that contain all of these.
func (s *scene) logged(parts ...string) int {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	n := 0
line:
	for l := range strings.Lines(s.log.String()) {
		for _, p := range parts {
			if !strings.Contains(l, p) {
				continue line
			}
		}
		n++
	}
	return n
}

func start(t *testing.T, prepare ...func(*scene)) *scene {
	s := &scene{
		t: t, log: &bytes.Buffer{}, ended: make(chan error, 1), placement: &fakePlacement{},
		driver: &fakeDriver{vcpus: 8, nodes: []plugins.Node{{Name: "cn1"}}},
	}
	for _, p := range prepare {
		p(s)
	}
	config := resourcetracker.Config{
		Name: "fake", Driver: s.driver, Placement: s.placement, Identity: nodeUUID, Timings: resourcetracker.Timings{
			Interval: time.Minute, PassDeadline: 30 * time.Second, BackoffMin: time.Second, BackoffMax: 2 * time.Minute,
		}, Logger: zerolog.New(s).Level(zerolog.InfoLevel), Journal: s.journal, Hold: s.hold, Running: s.running,
		Records: s.records, Disabled: s.disabled, ProviderConfig: s.providerConfig,
	}
	if s.config != nil {
		s.config(&config)
	}
	s.tracker = resourcetracker.New(config)
	ctx, cancel := context.WithCancel(t.Context())
	s.stop = cancel
	go func() { s.ended <- s.tracker.Run(ctx) }()
	t.Cleanup(cancel)
	return s
}

// end stops the tracker and returns how Run ended.
func (s *scene) end() error {
	s.stop()
	return <-s.ended
}

// calls, reads and writes count what was asked of the fakes; said is what Placement says now.

func (s *scene) calls() int {
	s.driver.mu.Lock()
	defer s.driver.mu.Unlock()
	return s.driver.calls
}

func (s *scene) reads() int {
	s.placement.mu.Lock()
	defer s.placement.mu.Unlock()
	return s.placement.reads
}

func (s *scene) writes() int {
	s.placement.mu.Lock()
	defer s.placement.mu.Unlock()
	return s.placement.writes
}

func (s *scene) said() *providertree.Tree {
	s.placement.mu.Lock()
	defer s.placement.mu.Unlock()
	return s.placement.tree.Clone()
}
